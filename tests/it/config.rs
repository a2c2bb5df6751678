//! The shipped `gateway.toml` contains the defaults and documents them; all errors of a wrong configuration are
//! reported at once.

use plimsoll::config::{Config, SHIPPED, Tuning, Upstreams, template};
use plimsoll::planner::Policy;
use plimsoll::shape;
use plimsoll::shape::settings::Truncate;

fn environment(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/me".to_owned())
}

fn read(text: &str) -> Config {
    Config::from_toml(text, &environment).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn ten_kinds_of_wrong_give_ten_messages() {
    let text = r#"mode = "rewirte"
[listen]
address = "localhost"
[limits
queue = 0
workers = 2
workers = 4
[truncate]
max_bytes = true
max_line = 100
exempt = ["["]
[upstream.local]
base_url = "example.com"
protocols = []
[clera]
"#;
    let expected = r#"gateway.toml:1: `mode`: expected "rewrite" or "observe", got "rewirte"
  hint: did you mean `rewrite`?
gateway.toml:3: `listen.address`: expected an address such as "127.0.0.1:8787", got "localhost"
gateway.toml:4: unclosed table, expected `]`
gateway.toml:5: `limits.queue`: expected 1 to 1000000, got 0
gateway.toml:7: `limits.workers`: set twice, first on line 6
gateway.toml:9: `truncate.max_bytes`: expected a size such as "50KiB", got a boolean
gateway.toml:10: `truncate.max_line`: unknown key
  hint: did you mean `max_lines`?
gateway.toml:11: `truncate.exempt[0]`: "[" is not a valid pattern: invalid range pattern
gateway.toml:13: `upstream.local.base_url`: expected a URL such as "https://api.example.com", got "example.com"
  hint: the scheme is https:// or http://
gateway.toml:15: `clera`: unknown key
  hint: did you mean `clear`?"#;
    let problems = Config::from_toml(text, &environment).expect_err("everything is wrong with it");
    assert_eq!(problems.to_string(), expected);
    assert_eq!(problems.as_slice().len(), 10);
}

#[test]
fn the_shipped_file_states_the_defaults() {
    let default = Config::from_toml("", &environment).expect("a home is all it needs");
    assert_same(&read(SHIPPED), &default);
    assert_same_shape(&default.tuning.policy.shape, &shape::Settings::default());
    assert_eq!(default.tuning.policy.clear, Policy::default().clear);
    assert_eq!(default.tuning.policy.window, Policy::default().window);
}

/// What `init` writes sets nothing below its first lines, so that a preset is all there is in it.
#[test]
fn a_preset_has_its_effect_in_the_file_that_init_writes() {
    let template = template();
    assert_eq!(template.lines().count(), SHIPPED.lines().count());
    for preset in ["default", "passthrough", "open-interpreter", "gemini", "codex", "opencode"] {
        let line = format!("preset = \"{preset}\"");
        let file = read(&template.replace("preset = \"default\"", &line));
        assert_same(&file, &read(&line));
        assert_eq!(file.doubts(), [""; 0], "{preset}");
    }
}

/// In what `init` writes, a key by itself can be set to the value that is shown, and nothing else changes.
#[test]
fn each_key_of_the_file_that_init_writes_can_be_set_alone() {
    let template = template();
    let default = read("");
    let mut section = "";
    let mut keys = 0;
    for (line, shipped) in template.lines().zip(SHIPPED.lines()) {
        if line.starts_with('[') {
            section = line;
        }
        // The shipped file disables keys whose values are examples; in entries for tools, these are the defaults, too.
        let is_default = !shipped.starts_with('#') || section.starts_with("[truncate.tool.");
        if let Some(key) = line.strip_prefix('#').filter(|_| is_default && awake(line) != line) {
            let at = line.as_ptr() as usize - template.as_ptr() as usize;
            let file = format!("{}{key}{}", &template[..at], &template[at + line.len()..]);
            let file = Config::from_toml(&file, &environment);
            let file = file.unwrap_or_else(|problems| panic!("{section} {key}\n{problems}"));
            let (shape, expected) = (&file.tuning.policy.shape, &default.tuning.policy.shape);
            assert_eq!(shape.truncate.tools, expected.truncate.tools, "{section} {key}");
            assert_same(&file, &default);
            assert_eq!(file.doubts(), [""; 0], "{section} {key}");
            keys += 1;
        }
    }
    assert!(keys > 100, "{keys}");
}

/// Every key that is commented out in the shipped file can be set.
#[test]
fn the_shipped_file_is_valid_with_every_key_set() {
    let environment =
        |name: &str| if name == "ANTHROPIC_API_KEY" { Some("key".to_owned()) } else { environment(name) };
    let awake: Vec<&str> = SHIPPED.lines().map(awake).collect();
    let config = Config::from_toml(&awake.join("\n"), &environment);
    let config = config.unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(config.prices.len(), 1);
    assert!(config.upstreams.named("local").is_some());
}

#[test]
fn the_shipped_file_explains_every_key() {
    let explained = explained_keys(SHIPPED);
    let keys = Config::keys();
    assert!(keys.len() > 40, "{keys:?}");
    for key in keys {
        // The sections of a profile are those of the file.
        let own = key.strip_prefix("profile.NAME.").filter(|rest| !rest.starts_with("match"));
        let key = own.unwrap_or(&key);
        assert!(explained.iter().any(|path| matches(key, path)), "`{key}` is not explained");
    }
}

#[test]
fn the_check_for_explanations_can_fail() {
    let text =
        "# Why.\na = 1\nb = 2\n\n# What.\n[c.\"x.y\"]\n# How.\n#d = 3\n# prose = prose\n# One.\n[e]\nf = 4";
    assert_eq!(explained_keys(text), [["a"].to_vec(), ["c", "x.y", "d"].to_vec()]);
    assert!(matches("c.GLOB.d", &["c".to_owned(), "x.y".to_owned(), "d".to_owned()]));
    assert!(!matches("c.GLOB.d", &["c".to_owned(), "d".to_owned()]));
    assert!(!matches("c.d", &["c".to_owned(), "e".to_owned()]));
}

/// A line of the shipped file with its key set: `#key` becomes `key`, `# prose` stays.
fn awake(line: &str) -> &str {
    line.strip_prefix('#')
        .filter(|rest| rest.starts_with(|c: char| c == '[' || c.is_ascii_lowercase()))
        .unwrap_or(line)
}

/// The paths of the keys, set or commented out, that have a comment on the line above.
fn explained_keys(text: &str) -> Vec<Vec<String>> {
    let mut section = Vec::new();
    let mut keys = Vec::new();
    let mut above = "";
    for line in text.lines() {
        let key = awake(line);
        if let Some(header) = key.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = segments(header);
        } else if let Some((key, _)) = key.split_once(" = ").filter(|(key, _)| !key.starts_with([' ', '#']))
            && above.starts_with("# ")
        {
            keys.push(section.iter().cloned().chain([key.to_owned()]).collect());
        }
        above = line;
    }
    keys
}

/// The segments of a key path; dots in quotes do not count.
fn segments(path: &str) -> Vec<String> {
    let mut quoted = false;
    let at_dot = |c: char| {
        quoted ^= c == '"';
        c == '.' && !quoted
    };
    path.split(at_dot).map(|segment| segment.trim_matches('"').to_owned()).collect()
}

/// Whether a path matches that of a known key; capitals match any name.
fn matches(key: &str, path: &[String]) -> bool {
    let key: Vec<&str> = key.split('.').collect();
    let same = |(key, name): (&&str, &String)| key == name || key.bytes().all(|b| b.is_ascii_uppercase());
    key.len() == path.len() && key.iter().zip(path).all(same)
}

/// Destructured, so that a new field cannot be forgotten here.
fn assert_same(a: &Config, b: &Config) {
    let Config {
        mode,
        preset,
        listen,
        state,
        upstreams,
        proxies,
        limits,
        tuning: Tuning { policy, summarize },
        profiles,
        budget,
        recover,
        outputs,
        ledger,
        prices,
        fidelity,
        lineage,
        alerts,
        log,
        without_effect,
    } = a;
    assert_eq!((mode, preset, listen, state), (&b.mode, &b.preset, &b.listen, &b.state));
    assert_eq!((limits, budget, outputs, ledger), (&b.limits, &b.budget, &b.outputs, &b.ledger));
    assert_eq!(summarize, &b.tuning.summarize);
    assert_eq!((lineage, log, upstreams), (&b.lineage, &b.log, &b.upstreams));
    assert_eq!((fidelity, proxies, alerts), (&b.fidelity, &b.proxies, &b.alerts));
    assert_eq!(without_effect, &b.without_effect);
    assert!(matches!(upstreams, Upstreams::Named(_)));
    assert!(prices.is_empty() && b.prices.is_empty() && profiles.is_empty() && b.profiles.is_empty());
    let (recovers, b) = (b.recover, &b.tuning);
    assert_same_shape(&policy.shape, &b.policy.shape);
    assert_eq!(policy.clear, b.policy.clear);
    assert_eq!((policy.window, policy.ladder, *recover), (b.policy.window, b.policy.ladder, recovers));
    assert_eq!(policy.marks, b.policy.marks);
}

fn assert_same_shape(a: &shape::Settings, b: &shape::Settings) {
    let shape::Settings { escapes, fold, minify, base64, repeat, repeat_min_bytes, views, truncate } = a;
    assert_eq!((escapes, fold, minify, base64), (&b.escapes, &b.fold, &b.minify, &b.base64));
    assert_eq!((repeat, repeat_min_bytes, views), (&b.repeat, &b.repeat_min_bytes, &b.views));
    let Truncate { base, tools, exempt, error_max_bytes, count_trailing_newline, marker } = truncate;
    let b = &b.truncate;
    assert_eq!((base, tools, exempt), (&b.base, &b.tools, &b.exempt));
    assert_eq!((error_max_bytes, marker), (&b.error_max_bytes, &b.marker));
    assert_eq!(count_trailing_newline, &b.count_trailing_newline);
}

/// A comment that refers to a key names an existing one.
#[test]
fn referenced_keys_exist() {
    let (mut table, mut keys) = (String::new(), vec!["state.dir".to_owned()]);
    for line in SHIPPED.lines().map(|line| line.trim_start_matches(['#', ' '])) {
        if let Some(named) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            named.clone_into(&mut table);
            keys.push(table.clone());
        } else if let Some((key, _)) = line.split_once(" = ") {
            keys.push(format!("{table}.{key}"));
        }
    }
    let comments = SHIPPED.lines().filter(|line| line.starts_with('#'));
    let named = comments.flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |text: &&str| {
        let is_word =
            |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_') && !word.is_empty();
        text.contains('.') && text.split('.').all(is_word)
    };
    let unknown: Vec<&str> =
        named.filter(is_path).filter(|path| !keys.iter().any(|key| key == path)).collect();
    assert_eq!(unknown, Vec::<&str>::new());
}
