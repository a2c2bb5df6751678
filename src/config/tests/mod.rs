//! What files mean, and what is reported for wrong ones. The shipped file has tests of its own.

use std::path::Path;
use std::time::Duration;

use super::*;
use crate::shape::settings::Keep;
use crate::upstream::Proxy;
use crate::usage::Stated;

mod arbitrary;
mod mistakes;
mod upstreams;

/// The environment of a user.
fn at_home(name: &str) -> Option<String> {
    let value = match name {
        "HOME" => "/home/me",
        "KEY" => "secret-key",
        "CONTROL" => "a\u{7}b",
        "HTTPS_PROXY" => "http://me:secret@proxy:3128",
        "no_proxy" => "api.openai.com",
        "ANOTHER" => "socks5://me:secret@another",
        "NOTHING" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

fn good(text: &str) -> Config {
    Config::from_toml(text, &at_home).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn check(text: &str, expected: &str) {
    let actual = Config::from_toml(text, &at_home).err().map(|problems| problems.to_string());
    assert_eq!(actual.unwrap_or_default().replace("gateway.toml:", ""), expected, "\n{text}");
}

#[test]
fn invalid_utf8_is_reported_with_its_line() {
    for (file, expected) in [
        (&b"\xffmode = 'observe'"[..], "gateway.toml:1: this is not UTF-8, as a configuration must be"),
        (b"mode = 'observe'\r\n# caf\xe9\n", "gateway.toml:2: this is not UTF-8, as a configuration must be"),
    ] {
        let error = std::str::from_utf8(file).expect_err("no text");
        assert_eq!(Problems::not_utf8(file, error).to_string(), expected);
    }
}

#[test]
fn the_state_directory_is_configured_or_follows_xdg() {
    type Variables = &'static [(&'static str, &'static str)];
    let cases: &[(Variables, &str, Result<&str, &str>)] = &[
        (&[("HOME", "/home/me")], "", Ok("/home/me/.local/state/plimsoll")),
        (&[("HOME", "/home/me"), ("XDG_STATE_HOME", "/state")], "", Ok("/state/plimsoll")),
        (&[("HOME", "/home/me"), ("XDG_STATE_HOME", "state")], "", Ok("/home/me/.local/state/plimsoll")),
        (&[("XDG_STATE_HOME", "/state")], "state.dir = '/var/p'", Ok("/var/p")),
        (&[("HOME", "/home/me")], "state.dir = '~/p'", Ok("/home/me/p")),
        (&[("HOME", "/home/me")], "state.dir = '~'", Ok("/home/me")),
        (&[], "state.dir = '~/p'", Err("`state.dir`: `HOME` is not set, so \"~\" cannot be resolved")),
        (
            &[("HOME", "")],
            "",
            Err("`state.dir`: no directory for the state: neither `XDG_STATE_HOME` nor `HOME` is set\n  \
                 hint: set it to an absolute path"),
        ),
        (
            &[("HOME", ""), ("XDG_STATE_HOME", "state")],
            "",
            Err(
                "`state.dir`: no directory for the state: neither `XDG_STATE_HOME` nor `HOME` is set to an absolute \
                 path\n  hint: set it to an absolute path",
            ),
        ),
    ];
    for (variables, text, expected) in cases {
        let environment = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        let actual = match Config::from_toml(text, &environment) {
            Ok(config) => Ok(config.state.dir),
            Err(problems) => {
                Err(problems.as_slice().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
        };
        let expected = expected.map(Into::into).map_err(str::to_owned);
        assert_eq!(actual, expected, "{variables:?} {text}");
    }
}

#[test]
fn relative_directories_are_below_the_state_directory() {
    let config = good("state.dir = '/s'\nledger.dir = 'books'\noutputs.dir = '~/out'");
    assert_eq!(config.ledger.dir, Path::new("/s/books"));
    assert_eq!(config.outputs.dir, Path::new("/home/me/out"));
    assert_eq!(good("state.dir = '/s'").outputs.dir, Path::new("/s/outputs"));
}

/// Docker and Podman kill ten seconds after they have asked for a stop.
#[test]
fn a_stop_leaves_time_for_the_records_before_a_container_is_killed() {
    let grace = Duration::from_secs(10);
    assert!(good("").limits.drain_timeout + Duration::from_secs(2) <= grace);
}

#[test]
fn keys_without_effect_are_noted() {
    let shapes = |keys: &str| {
        format!("`[{keys}]`: no effect, as the preset exempts all tools; `truncate.exempt = []` changes that")
    };
    let share = |key: &str| format!("`{key}`: no effect without `keep = \"both\"`");
    let bash = "truncate.tool.\"*bash*\".head_share";
    for (text, expected) in [
        ("", vec![]),
        (SHIPPED, vec![]),
        ("preset = 'pulse'", vec![]),
        ("preset = 'pulse'\nshape.fold = false", vec![shapes("shape")]),
        ("preset = 'passthrough'\n[shape]\n[truncate]\nmax_lines = 5", vec![shapes("truncate")]),
        ("preset = 'dyad'\nshape.fold = true\ntruncate.max_lines = 5", vec![shapes("shape]`, `[truncate")]),
        ("preset = 'pulse'\nshape.fold = false\ntruncate.exempt = []", vec![]),
        ("truncate.tool.'*bash*' = { head_share = 0.2, keep = 'head' }", vec![share(bash)]),
        ("truncate.tool.'*bash*' = { head_share = 0.2, keep = 'both' }", vec![]),
        ("truncate.keep = 'tail'\ntruncate.tool.'*bash*'.head_share = 0.2", vec![share(bash)]),
        // The built-in entries keep both ends, with this share.
        ("truncate = { head_share = 0.2, keep = 'head' }", vec![]),
    ] {
        assert_eq!(good(text).doubts(), expected, "{text}");
    }
    for (_, preset) in Preset::WORDS {
        assert_eq!(good(&format!("preset = '{}'", preset.as_str())).doubts(), [""; 0], "{preset:?}");
    }
}

/// In a copy of the shipped file, which sets all keys, a preset has no effect.
#[test]
fn a_preset_that_the_file_overrides_is_noted() {
    for (_, preset) in Preset::WORDS.iter().filter(|(_, preset)| *preset != Preset::Default) {
        let set =
            |text: &str| text.replace("preset = \"default\"", &format!("preset = '{}'", preset.as_str()));
        let doubts = good(&set(SHIPPED)).doubts();
        let [note] = &doubts[..] else { panic!("{preset:?} {doubts:?}") };
        assert!(note.starts_with("`preset`: the file itself sets "), "{preset:?} {note}");
        // A file that says what the preset says anyway, or a few keys more.
        assert_eq!(good(&set(&format!("preset = \"default\"\n{}", preset.fragment()))).doubts(), [""; 0]);
    }
    assert_eq!(good("preset = 'codex'\ntruncate.max_bytes = 20000\nwindow.trigger = 0.8").doubts(), [""; 0]);
    let most = "preset = 'openmanus'\nshape = { escapes = true, fold = true, minify = true, base64 = true, repeat = true }\n\
                truncate = { max_lines = 9, max_bytes = 9000, keep = 'tail' }";
    let doubts = good(most).doubts();
    assert!(
        doubts[0].contains("sets 8 of the 15 keys") && doubts[0].contains("`shape.base64`, `shape.escapes`"),
        "{doubts:?}"
    );
}

#[test]
fn secrets_are_absent_from_debug_output() {
    let config = good(
        "upstream.openai.headers = { authorization = 'env:KEY', x-b = 'secret-b' }\n\
         upstream.openai.proxy = 'env:ANOTHER'\nupstream.gemini.proxy = 'http://me:secret@own'",
    );
    let shown = format!("{config:?}");
    assert!(!shown.contains("secret"), "{shown}");
    let headers = &config.upstreams.named("openai").expect("built in").headers;
    assert_eq!(headers["authorization"], "secret-key");
    assert_eq!(headers["x-b"], "secret-b");
}

#[test]
fn tool_overrides_precede_or_replace_the_built_in_ones() {
    let shipped = crate::shape::settings::SHELLS;
    let shells = shipped.join(", ");
    let text = "[truncate]\nmax_lines = 10\nkeep = 'tail'\n[truncate.tool.Zap]\nmax_bytes = 5\n\
         [truncate.tool.'Bash, sh']\nkeep = 'head'\n";
    let tools = good(text).tuning.policy.shape.truncate.tools;
    let patterns: Vec<&[String]> = tools.iter().map(|(patterns, _)| patterns.patterns()).collect();
    assert_eq!(patterns[..2], [&["Zap".to_owned()][..], &["Bash".to_owned(), "sh".to_owned()][..]]);
    assert_eq!(patterns[2], shipped, "the built-in entries stay, as the last ones");
    assert_eq!(patterns[3], crate::shape::settings::RUNS);
    let rules: Vec<_> = tools.iter().map(|(_, rule)| (rule.max_lines, rule.max_bytes, rule.keep)).collect();
    let bytes = 50 << 10;
    assert_eq!(
        rules,
        [(10, 5, Keep::Tail), (10, bytes, Keep::Head), (20, bytes, Keep::Both), (10, bytes, Keep::Both)]
    );

    let own =
        good(&format!("[truncate.tool.'{shells}']\nkeep = 'tail'\n")).tuning.policy.shape.truncate.tools;
    assert_eq!(own.len(), 2, "the same patterns replace the built-in entry");
    assert_eq!(own[0].1.keep, Keep::Tail);
}

/// An override for the same patterns as one below changes only the keys that it gives.
#[test]
fn keys_an_override_leaves_out_come_from_one_for_the_same_patterns() {
    let shells = |text: &str| {
        let config = good(text);
        let tuning = config.profiles.first().map_or(&config.tuning, |own| &own.tuning);
        let tools = &tuning.policy.shape.truncate.tools;
        let (patterns, rule) = &tools[0];
        assert_eq!(patterns.patterns(), crate::shape::settings::SHELLS, "{text}");
        assert_eq!(tools.len(), 2, "{text}");
        assert_eq!(config.doubts(), [""; 0], "{text}");
        (rule.max_lines, rule.max_bytes, rule.keep)
    };
    let entry = |table: &str, keys: &str| {
        format!("\n[{table}truncate.tool.'{}']\n{keys}\n", crate::shape::settings::SHELLS.join(", "))
    };
    let kib = 50 << 10;
    let endless = 1_000_000_000;
    for (before, keys, profile, expected) in [
        ("", "max_lines = 4000", None, (4000, kib, Keep::Both)),
        ("", "max_lines = 9", None, (9, kib, Keep::Both)),
        // Twice as many lines go with both ends.
        ("", "keep = 'tail'", None, (2000, kib, Keep::Tail)),
        ("truncate.max_lines = 100", "keep = 'tail'", None, (100, kib, Keep::Tail)),
        ("truncate.max_lines = 100", "max_bytes = 7", None, (200, 7, Keep::Both)),
        ("", "head_share = 0.2", None, (4000, kib, Keep::Parts(200))),
        ("preset = 'open-interpreter'", "max_lines = 9", None, (9, 2800, Keep::Tail)),
        ("preset = 'open-interpreter'", "keep = 'both'", None, (endless, 2800, Keep::Both)),
        ("", "head_share = 0.2", Some("max_lines = 9"), (9, kib, Keep::Parts(200))),
        // The share goes with the ends that it divides.
        ("", "head_share = 0.2", Some("keep = 'tail'"), (2000, kib, Keep::Tail)),
        ("", "max_bytes = 7", Some(""), (4000, 7, Keep::Both)),
    ] {
        let profile = profile.map_or_else(String::new, |keys| {
            format!("[profile.a]\nmatch.model = '*'{}", entry("profile.a.", keys))
        });
        let text = format!("{before}{}{profile}", entry("", keys));
        assert_eq!(shells(&text), expected, "{text}");
    }
}

/// The first override that matches applies. `bash_output` matches both built-in ones.
#[test]
fn overrides_keep_their_order_where_the_file_leaves_one_as_it_is() {
    use crate::shape::settings::{RUNS, SHELLS};
    let (shells, runs) = (SHELLS.join(", "), RUNS.join(", "));
    let [shells, runs, other] = [&shells, &runs, "other"];
    let gemini = "*shell*, mcp*, *__*";
    for (preset, entries, expected) in [
        ("default", &[(shells, ""), (runs, "")][..], &[shells, runs][..]),
        ("default", &[(shells, ""), (runs, "max_lines = 9")], &[shells, runs]),
        ("default", &[(shells, "max_lines = 9"), (runs, "")], &[shells, runs]),
        ("default", &[(runs, "max_lines = 9")], &[runs, shells]),
        ("default", &[(runs, ""), (shells, "max_lines = 9")], &[runs, shells]),
        ("default", &[(shells, ""), (runs, ""), (other, "max_lines = 9")], &[other, shells, runs]),
        (
            "default",
            &[(other, "keep = 'tail'"), (shells, ""), (runs, "keep = 'tail'")],
            &[other, shells, runs],
        ),
        ("gemini", &[(shells, ""), (runs, "")], &[gemini, shells, runs]),
        ("gemini", &[(shells, ""), (runs, "max_lines = 9")], &[gemini, shells, runs]),
        ("gemini", &[(shells, "max_lines = 9"), (runs, "")], &[shells, gemini, runs]),
    ] {
        let entries = entries.iter().map(|(names, keys)| format!("[truncate.tool.'{names}']\n{keys}\n"));
        let text = format!("preset = '{preset}'\n{}", entries.collect::<String>());
        let tools = good(&text).tuning.policy.shape.truncate.tools;
        let order: Vec<String> = tools.iter().map(|(patterns, _)| patterns.patterns().join(", ")).collect();
        assert_eq!(order, expected, "{text}");
    }
}

/// A marker that is longer than limits of the preset is a mistake, whatever else the file has for these tools.
#[test]
fn a_marker_is_checked_against_limits_that_the_file_does_not_set() {
    let shells = crate::shape::settings::SHELLS.join(", ");
    for (bytes, keys, mistakes) in [
        (2800, "", 0),
        (2801, "", 1),
        (2801, "keep = 'both'", 1),
        (2801, "max_bytes = 2900", 0),
        // Reported for the limit alone.
        (2801, "max_bytes = 2700", 1),
    ] {
        let text = format!(
            "preset = 'open-interpreter'\n[truncate]\nerror_max_bytes = 5000\nmarker = '{}'\n[truncate.tool.'{shells}']\n{keys}",
            "x".repeat(bytes)
        );
        let found = Config::from_toml(&text, &at_home).err();
        let found = found.map_or(0, |problems| problems.as_slice().len());
        assert_eq!(found, mistakes, "{bytes} {keys}");
    }
}

/// A key that an override leaves out has the value of `[truncate]`, whether the preset, the file or the profile sets
/// that.
#[test]
fn keys_an_override_leaves_out_come_from_the_final_truncate_table() {
    const SHELL: &str = "bash";
    const RUN: &str = "mcp__ci__get_job_log";
    let rule = |text: &str, tool: &str| {
        let config = good(text);
        let tuning = config.profiles.first().map_or(&config.tuning, |own| &own.tuning);
        let truncate = &tuning.policy.shape.truncate;
        let own = truncate.tools.iter().find(|(tools, _)| tools.matches(tool)).map(|(_, rule)| rule);
        let rule = own.unwrap_or(&truncate.base);
        (rule.max_lines, rule.max_bytes, rule.keep)
    };
    let written_out = format!(
        "[truncate.tool.'{}']\nkeep = 'both'\nmax_lines = 4000\n",
        crate::shape::settings::SHELLS.join(", ")
    );
    let profile = "\n[profile.a]\nmatch.model = '*'\n";
    let kib = 50 << 10;
    for (text, tool, expected) in [
        ("preset = 'opencode'\ntruncate.max_lines = 100", SHELL, (100, kib, Keep::Head)),
        ("preset = 'opencode'\ntruncate.max_lines = 100", RUN, (100, kib, Keep::Head)),
        ("preset = 'openmanus'", RUN, (1_000_000_000, 10_000, Keep::Head)),
        ("preset = 'codex'", RUN, (1_000_000_000, 12_000, Keep::Both)),
        ("truncate.keep = 'tail'", RUN, (2000, kib, Keep::Both)),
        (
            &format!(
                "[truncate.tool.'{}']\nkeep = 'both'{profile}truncate.max_lines = 100",
                crate::shape::settings::RUNS.join(", ")
            ),
            RUN,
            (100, kib, Keep::Both),
        ),
        ("preset = 'codex'\ntruncate.max_bytes = 5000", SHELL, (1_000_000_000, 5000, Keep::Both)),
        ("preset = 'openmanus'\ntruncate.max_bytes = 3000", SHELL, (1_000_000_000, 3000, Keep::Head)),
        ("preset = 'open-interpreter'\ntruncate.max_lines = 9", SHELL, (9, 2800, Keep::Tail)),
        // A value of an entry overrides `[truncate]`, wherever each is set.
        ("preset = 'open-interpreter'\ntruncate.max_bytes = 1000", SHELL, (1_000_000_000, 2800, Keep::Tail)),
        (
            "[profile.a]\nmatch.model = '*'\npreset = 'opencode'\ntruncate.max_lines = 7",
            SHELL,
            (7, kib, Keep::Head),
        ),
        (
            &format!("[truncate.tool.Foo]\nkeep = 'tail'{profile}truncate.max_lines = 100"),
            "Foo",
            (100, kib, Keep::Tail),
        ),
        (
            &format!("[truncate.tool.Foo]\nmax_lines = 5{profile}truncate.keep = 'tail'"),
            "Foo",
            (5, kib, Keep::Tail),
        ),
        // The built-in entry follows, written out or not.
        (&format!("{profile}truncate.max_lines = 100"), SHELL, (200, kib, Keep::Both)),
        (&format!("{written_out}{profile}truncate.max_lines = 100"), SHELL, (200, kib, Keep::Both)),
        // The share of the first end applies wherever both ends are kept.
        (
            "[truncate]\nkeep = 'head'\nhead_share = 0.2\ntool.Foo.keep = 'both'",
            "Foo",
            (2000, kib, Keep::Parts(200)),
        ),
        (
            "[truncate]\nhead_share = 0.2\ntool.Foo = { keep = 'both', head_share = 0.5 }",
            "Foo",
            (2000, kib, Keep::Both),
        ),
        ("truncate.head_share = 0.2", "Foo", (2000, kib, Keep::Head)),
        ("truncate.head_share = 0.2", SHELL, (4000, kib, Keep::Parts(200))),
        (&format!("[truncate]\nhead_share = 0.2\n{written_out}"), SHELL, (4000, kib, Keep::Parts(200))),
        (
            &format!("truncate.head_share = 0.2{profile}truncate.keep = 'both'"),
            "Foo",
            (2000, kib, Keep::Parts(200)),
        ),
        ("preset = 'gemini'\ntruncate.head_share = 0.7", "mcp", (1_000_000_000, 40_000, Keep::Parts(200))),
    ] {
        assert_eq!(rule(text, tool), expected, "{text}");
    }
}

#[test]
fn price_overrides_are_read_by_model_pattern() {
    let config = good(
        "[prices.model.'My-*']\ninput = 3\noutput = 0.25\n[prices.model.x]\ninput = 1\noutput = 2\ncache_read = '1'",
    );
    let [mine, other] = &config.prices[..] else { panic!("{:?}", config.prices) };
    let rate = crate::usage::Rate::from_picodollars;
    let stated = Stated { input: Some(rate(3_000_000)), output: Some(rate(250_000)), ..Stated::default() };
    assert_eq!((&*mine.pattern, mine.stated), ("My-*", stated));
    assert_eq!((&*other.pattern, other.stated.cache_read), ("x", Some(rate(1_000_000))));
    // Prices that the catalogue has need not be given.
    for name in
        ["claude-opus-4-5", "Claude-Opus-*", "anthropic/*", "us.anthropic.*", "gpt-4o-2031-01-01", "*"]
    {
        let config = good(&format!("prices.model.'{name}' = {{ cache_read = 1 }}"));
        let expected = Stated { cache_read: Some(rate(1_000_000)), ..Stated::default() };
        assert_eq!(config.prices[0].stated, expected, "{name}");
    }
}

/// Only a file that must be valid as it is needs a place for the URLs of full texts.
#[test]
fn urls_of_full_texts_need_a_fixed_port() {
    for (admin, recall, wrong) in
        [("127.0.0.1:0", "http", true), ("127.0.0.1:0", "path", false), ("0.0.0.0:9", "http", false)]
    {
        let text = format!("listen.admin = '{admin}'\noutputs.recall = '{recall}'");
        good(&text);
        let checked = Config::checked(&text, &at_home).err().map(|problems| problems.to_string());
        let expected = "gateway.toml:2: `outputs.recall`: the URLs would become invalid: with port 0, `listen.admin` has another \
                        port at each start\n  hint: give it a fixed port";
        assert_eq!(checked.as_deref(), wrong.then_some(expected), "{text}");
    }
}

/// All presets but the default.
fn presets() -> impl Iterator<Item = Preset> {
    let is_first = |(name, preset): &&(&str, Preset)| *name == preset.as_str();
    let all = Preset::WORDS.iter().filter(is_first).map(|(_, preset)| *preset);
    all.filter(|preset| *preset != Preset::Default)
}

/// Every preset can be read and sets something, and every name leads to one.
#[test]
fn presets_are_valid_distinct_and_documented() {
    let default = format!("{:?}", good("").tuning);
    let mut seen = vec![default.clone()];
    for preset in presets() {
        let name = preset.as_str();
        check(preset.fragment(), "");
        let named = good(&format!("preset = '{name}'"));
        assert_eq!(format!("{:?}", named.tuning), format!("{:?}", good(preset.fragment()).tuning), "{name}");
        let first = preset.fragment().lines().next().unwrap_or_default();
        assert!(first.starts_with("# "), "{name} opens with what it is taken from");
        seen.push(format!("{:?}", named.tuning));
    }
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), all, "no two presets are the same");
    assert_eq!(good("preset = 'gemini-cli'").preset, Preset::Gemini);
    assert_eq!(good("preset = 'cwm'").preset, Preset::WindowManager);
    assert_eq!(format!("{:?}", good("preset = 'default'").tuning), default);
}

/// Keys of a file override its preset.
#[test]
fn keys_of_a_file_override_its_preset() {
    let config = good("preset = 'codex'\n[truncate]\nmax_bytes = 500\n[cache]\nanchors = false");
    let policy = &config.tuning.policy;
    assert_eq!((policy.shape.truncate.base.max_bytes, policy.shape.truncate.base.keep), (500, Keep::Both));
    assert!(!policy.clear.enabled && !policy.marks.anchors && policy.marks.marks);
}

/// A summary's loss is weighed unless a file or a preset sets when summaries begin.
#[test]
fn a_configured_summary_trigger_lifts_the_loss_limit() {
    let settings = |text: &str| good(text).tuning.summarize.settings;
    for (text, expected) in [
        ("", 0.15),
        ("summarize.trigger = 0.75", 0.15),
        ("summarize.trigger = 0.6", 1.0),
        ("summarize = { trigger = 0.6, most_loss = 0.2 }", 0.2),
        ("preset = 'codex'\nsummarize.trigger = 0.75", 1.0),
        ("preset = 'codex'\nsummarize.most_loss = 0.15", 0.15),
    ] {
        assert!((settings(text).most_loss - expected).abs() < 1e-9, "{text}");
    }
    for preset in presets() {
        let settings = settings(&format!("preset = '{}'", preset.as_str()));
        assert!(!settings.enabled || settings.most_loss >= 1.0, "{preset:?}");
    }
}

/// Whether instructions are divided is set separately: if marks are off below a profile or a file that turns them on,
/// instructions are divided again.
#[test]
fn splitting_instructions_is_independent_of_marks() {
    let last = |config: Config| config.profiles.first().map_or(config.tuning, |own| own.tuning.clone());
    for (text, marks, split) in [
        ("", true, true),
        ("cache.marks = false", false, true),
        ("preset = 'passthrough'\ncache.marks = true", true, true),
        ("preset = 'passthrough'\n[cache]\nmarks = true\nsplit = false", true, false),
        ("cache.marks = false\n[profile.a]\nmatch.model = '*'\ncache.marks = true", true, true),
        ("cache.split = false\n[profile.a]\nmatch.model = '*'\ncache.marks = true", true, false),
    ] {
        let own = last(good(text)).policy.marks;
        assert_eq!((own.marks, own.split), (marks, split), "{text}");
    }
}

/// The presets of systems that remove old results from their histories do so by those systems' figures.
#[test]
fn presets_clear_results_by_the_figures_of_their_systems() {
    use crate::strategy::clear::{Policy, Protect, Within};
    use crate::strategy::gate::Reason;
    let clear = |name: &str| good(&format!("preset = '{name}'")).tuning.policy.clear;
    for (name, protected, minimum, turns, at_turns) in
        [("opencode", 40_000, 20_000, 2, true), ("gemini", 50_000, 29_999, 0, false)]
    {
        let clear = clear(name);
        assert_eq!(
            clear.protect,
            Protect { view_tokens: protected, other_tokens: protected, turns },
            "{name}"
        );
        assert_eq!((clear.minimum_tokens, clear.at_turns), (minimum, at_turns), "{name}");
        assert_eq!((clear.policy, clear.within_step), (Policy::Oldest, Within::Backward), "{name}");
        assert!(clear.enabled && clear.protect_together && clear.gate.contains(&Reason::Eager), "{name}");
    }
    assert_eq!(clear("window-manager").policy, Policy::Hybrid);
    assert!(!clear("opencode-2026").gate.contains(&Reason::Eager));
}
