//! Mistakes of the user: what is said about them, and the exit status.

use std::fs;
use std::process::Command;

use super::{done, home, log_of, plimsoll, ran, ran_with, run};

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let home = home();
    fs::write(home.path().join("latin1.toml"), b"# caf\xe9").expect("written");
    for (arguments, code, says) in [
        (&[][..], 2, "Usage"),
        (&["sail"], 2, "unrecognized subcommand"),
        (
            &["serve", "--listen", "here"],
            2,
            "'here' for '--listen <ADDR>': expected an address such as \"127.0.0.1:8787\"\n",
        ),
        (&["serve", "--listen", "8787"], 2, "\n  hint: write \"127.0.0.1:8787\""),
        (&["serve", "--listen", "localhost:8787"], 2, "\n  hint: write \"127.0.0.1:8787\""),
        (&["serve", "--upstream", "here"], 2, "`--upstream here`"),
        (&["report", "--by", "year"], 2, "conversation"),
        (&["report", "--since", "someday"], 2, "`--since someday`: expected a date such as 2026-11-21"),
        (&["report", "--until=-7d"], 2, "`--until -7d`"),
        (&["report", "--since", "7d", "--until", "8d"], 2, "`--since` is later than `--until`"),
        (&["conversations", "--limit=-1"], 2, "'-1' for '--limit <N>': expected a whole number, 1 or more"),
        (&["conversations", "--limit", "0"], 2, "'0' for '--limit <N>': expected a whole number, 1 or more"),
        (&["demo", "now"], 2, "now"),
        (&["inspect"], 2, "<ID>"),
        (&["inspect", "x"], 1, "nothing recorded yet in /"),
        (&["outputs", "--conversation", "x"], 1, "nothing recorded yet in /"),
        (&["outputs", "--since", "someday"], 2, "`--since someday`: expected a date"),
        (&["prices", "-c", "none.toml"], 2, "none.toml: No such file"),
        (&["diff", "x"], 2, "<N>"),
        (&["diff", "x", "1"], 1, "nothing recorded yet"),
        (
            &["check", "none.toml"],
            2,
            "(os error 2)\n  hint: `plimsoll init none.toml` writes one that explains every key\n",
        ),
        (&["check", "-"], 2, "(os error 2)\n  hint: standard input is `/dev/stdin`\n"),
        (&["check", "latin1.toml"], 2, "latin1.toml:1: this is not UTF-8"),
        (&["check", "-c", "latin1.toml"], 2, "latin1.toml:1: this is not UTF-8"),
        (&["check", "--config", "none.toml"], 2, "none.toml: No such file"),
        (&["report", "-c", "none.toml"], 2, "none.toml: No such file"),
        // Which of two files was checked would be a guess.
        (&["check", "-c", "one.toml", "other.toml"], 2, "cannot be used with"),
    ] {
        let ran = run(home.path(), arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{arguments:?} {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
}

/// The variable may have been set long ago.
#[test]
fn a_missing_file_is_reported_with_the_variable_that_names_it() {
    let home = home();
    for (arguments, file, by) in [
        (&["report"][..], "none", " (`PLIMSOLL_CONFIG` names it)"),
        (&["check"], "none", " (`PLIMSOLL_CONFIG` names it)"),
        (&["serve"], "none", " (`PLIMSOLL_CONFIG` names it)"),
        (&["report", "-c", "other.toml"], "other", ""),
    ] {
        let hint = format!("  hint: `plimsoll init {file}.toml` writes one that explains every key\n");
        let mut command = plimsoll(home.path(), arguments);
        command.env("PLIMSOLL_CONFIG", "none.toml");
        let ran = ran(command);
        assert_eq!(ran.code, Some(2));
        assert!(
            ran.err.ends_with(&format!("No such file or directory (os error 2){by}\n{hint}")),
            "{}",
            ran.err
        );
    }
}

/// If no file was read, the error names none.
#[test]
fn without_a_home_directory_the_missing_variables_are_named() {
    let home = home();
    for arguments in [&["report"][..], &["serve"]] {
        let mut command = plimsoll(home.path(), arguments);
        command.env_remove("HOME");
        let ran = ran(command);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{arguments:?} {}", ran.err);
        let says = "no configuration file: `state.dir`: no directory for the state: ";
        assert!(ran.err.starts_with(says), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn an_address_in_use_is_reported_with_a_remedy() {
    let home = home();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let ran = run(home.path(), &["serve", "--listen", &address]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    let says = format!("cannot listen on {address}: ");
    assert!(ran.err.starts_with(&says) && ran.err.contains("\n  hint: "), "{}", ran.err);
}

#[test]
fn a_file_that_is_no_store_is_reported_with_a_remedy() {
    let home = home();
    let state = home.path().join(".local/state/plimsoll");
    fs::create_dir_all(&state).expect("made");
    fs::write(
        state.join("plimsoll.db"),
        "something else, and longer than what a database begins with is ".repeat(9),
    )
    .expect("written");
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "--", "true"]] {
        let ran = run(home.path(), arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}: {}", ran.err);
        let says = "plimsoll.db: database: file is not a database\n  hint: it is damaged, or something else: move it away";
        assert!(ran.err.contains("cannot open the store /") && ran.err.contains(says), "{}", ran.err);
    }
    for arguments in [&["report"][..], &["conversations"], &["outputs"], &["inspect", "x"]] {
        let ran = run(home.path(), arguments);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{arguments:?}: {}", ran.err);
        let says = "plimsoll.db: database: file is not a database\n  hint: it is damaged, or something else: stop the gateway";
        assert!(ran.err.contains(says) && ran.err.contains("`*.jsonl`"), "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_port_file_that_cannot_be_written_is_named_with_its_option() {
    let home = home();
    fs::write(home.path().join("serve.toml"), "[listen]\nadmin = \"off\"\n").expect("written");
    let arguments = ["serve", "-c", "serve.toml", "--listen", "127.0.0.1:0", "--port-file", "none/port"];
    let ran = run(home.path(), &arguments);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    assert!(ran.err.contains("`--port-file none/port`: "), "{}", ran.err);
}

#[test]
fn output_that_cannot_be_written_is_reported_with_its_cause() {
    // Other systems have no such device.
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else { return };
    let home = home();
    let ran = ran_with(plimsoll(home.path(), &["prices"]), full);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.starts_with("some of the output could not be written: No space left"), "{}", ran.err);
}

#[test]
fn a_file_in_place_of_the_state_directory_is_reported_with_a_remedy() {
    let home = home();
    fs::write(home.path().join("file"), "").expect("written");
    for dir in ["file", "file/below"] {
        let config = format!("state.dir = '{}'", home.path().join(dir).display());
        fs::write(home.path().join("some.toml"), config).expect("written");
        let ran = run(home.path(), &["serve", "-c", "some.toml", "--listen", "127.0.0.1:0"]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
        let says =
            "\n  hint: a file is where a directory has to be: move it away, or name another `state.dir`\n";
        assert!(ran.err.contains("cannot open the store /") && ran.err.contains(says), "{}", ran.err);
    }
}

/// Mistakes that would otherwise appear only with requests are reported together with all others, by `serve` too.
#[test]
fn unusable_upstreams_are_named() {
    let home = home();
    fs::write(home.path().join("empty.pem"), "nothing").expect("written");
    let (loops, no_file, empty) = (
        "some.toml:2: `upstream.openai.base_url`: http://localhost:90/v1 is the gateway itself\n",
        "some.toml:1: `upstream.openai.ca_file`: cannot use `ca_file` /none.pem: ",
        "empty.pem: no certificate in it\n",
    );
    for (config, says) in [
        ("listen.address = '127.0.0.1:90'", &[][..]),
        (
            "listen.address = '127.0.0.1:90'\nupstream.openai.base_url = 'http://localhost:90/v1'",
            &[loops][..],
        ),
        (
            "listen.admin = '127.0.0.1:91'\nupstream.openai.base_url = 'http://127.0.0.1:91'",
            &["some.toml:2: `upstream.openai.base_url`: http://127.0.0.1:91 is the gateway itself\n"],
        ),
        ("upstream.openai.ca_file = '/none.pem'", &[no_file]),
        ("upstream.openai.ca_file = 'HOME/empty.pem'", &[empty]),
        (
            "upstream.openai.ca_file = '/none.pem'\nupstream.openai.base_url = 'http://localhost:90/v1'\n\
             listen.address = '127.0.0.1:90'\nmode = 'x'",
            &[no_file, loops, "some.toml:4: `mode`: "],
        ),
    ] {
        let config = config.replace("HOME", &home.path().display().to_string());
        fs::write(home.path().join("some.toml"), &config).expect("written");
        let checked = run(home.path(), &["check", "some.toml"]);
        assert_eq!(checked.code, Some(if says.is_empty() { 0 } else { 2 }), "{config}: {}", checked.err);
        assert!(says.iter().all(|says| checked.err.contains(says)), "{config}: {}", checked.err);
        if let [says] = says {
            let served = run(home.path(), &["serve", "-c", "some.toml"]);
            let said = says.trim_start_matches(|c| c != '`');
            assert!(served.code == Some(2) && served.err.contains(said), "{}", served.err);
        }
    }
    let looped =
        run(home.path(), &["serve", "--upstream", "http://127.0.0.1:90", "--listen", "127.0.0.1:90"]);
    let said = "`--upstream`: http://127.0.0.1:90 is the gateway itself\n";
    assert_eq!((looped.code, looped.err.as_str()), (Some(2), said));
}

/// These are not mistakes in the file.
#[test]
fn unusable_proxies_of_the_environment_are_notes() {
    let note = |variable: &str, why: &str| {
        format!(
            "note: `{variable}` names a proxy that cannot be used, connections are made without one: {why}\n"
        )
    };
    let scheme = "only proxies of `http://`, `https://`, `socks5://` and `socks5h://` can be used";
    let home = home();
    for (config, variables, notes) in [
        ("", &[][..], String::new()),
        ("", &[("HTTPS_PROXY", "socks5://proxy.test")], String::new()),
        ("", &[("HTTPS_PROXY", "https://me:secret@proxy.test")], String::new()),
        ("", &[("https_proxy", "ftp://me:secret@proxy.test")], note("HTTPS_PROXY", scheme)),
        ("", &[("ALL_PROXY", "socks4://me:secret@proxy.test")], note("ALL_PROXY", scheme)),
        (
            "",
            &[("HTTPS_PROXY", "http://me:sec#ret@proxy.test")],
            note("HTTPS_PROXY", "not the URL of a proxy"),
        ),
        ("", &[("HTTPS_PROXY", "http://localhost:8788")], note("HTTPS_PROXY", "it is the gateway itself")),
        ("listen.admin = 'off'", &[("HTTPS_PROXY", "http://localhost:8788")], String::new()),
        // No request uses it.
        ("", &[("HTTP_PROXY", "ftp://proxy.test")], String::new()),
        ("", &[("HTTPS_PROXY", "ftp://proxy.test"), ("NO_PROXY", "*")], String::new()),
        (
            "upstream.gemini.base_url = 'http://api.test'",
            &[("HTTP_PROXY", "ftp://proxy.test"), ("HTTPS_PROXY", "ftp://proxy.test")],
            note("HTTPS_PROXY", scheme) + &note("HTTP_PROXY", scheme),
        ),
    ] {
        fs::write(home.path().join("some.toml"), config).expect("written");
        let mut command = plimsoll(home.path(), &["check", "some.toml"]);
        command.envs(variables.iter().copied());
        let ran = ran(command);
        let out = "some.toml: no problems\n".to_owned() + &notes;
        assert_eq!((ran.code, ran.out, &*ran.err), (Some(0), out, ""), "{config} {variables:?}");
    }
}

/// Some servers have such paths, and some clients omit what the base URL contains: it is a note, not a mistake.
#[test]
fn a_base_url_that_repeats_the_path_prefix_is_noted() {
    let said = |key: &str, end: &str, path: &str, to: &str| {
        format!("`{key}` ends in `/{end}`, and whole paths are appended: `{path}` to {to}{path}\n")
    };
    let openai = |to: &str| said("upstream.openai.base_url", "v1", "/v1/chat/completions", to);
    let home = home();
    for (config, expected) in [
        ("upstream.openai.base_url = 'https://api.openai.com'", String::new()),
        ("upstream.openai.base_url = 'https://api.openai.com/v1/'", openai("https://api.openai.com/v1")),
        ("upstream.openai.base_url = 'http://h/openai/v1'", openai("http://h/openai/v1")),
        ("upstream.openai.base_url = 'http://h/v1/openai'", String::new()),
        (
            "upstream.openai.base_url = 'http://h/v1/chat/completions'",
            said(
                "upstream.openai.base_url",
                "chat/completions",
                "/v1/chat/completions",
                "http://h/v1/chat/completions",
            ),
        ),
        (
            "upstream.anthropic.base_url = 'http://h/v1/messages/'",
            said("upstream.anthropic.base_url", "v1/messages", "/v1/messages", "http://h/v1/messages"),
        ),
        ("upstream.gemini.base_url = 'http://h/v1'", String::new()),
        ("upstream.own = { base_url = 'http://h/v1', protocols = [] }", String::new()),
        (
            "upstream.own = { base_url = 'http://h/v1', protocols = ['gemini', 'anthropic'] }",
            said("upstream.own.base_url", "v1", "/v1/messages", "http://h/v1"),
        ),
    ] {
        let text = format!("listen.admin = 'off'\n{config}");
        fs::write(home.path().join("some.toml"), text).expect("written");
        let notes = if expected.is_empty() { String::new() } else { format!("note: {expected}") };
        assert_eq!(done(home.path(), &["check", "some.toml"]), format!("some.toml: no problems\n{notes}"));
        let ran = run(home.path(), &["run", "-c", "some.toml", "--", "true"]);
        assert!(ran.err.contains(&format!("plimsoll: {expected}")), "{config}: {}", ran.err);
        let mut command = plimsoll(home.path(), &["serve", "-c", "some.toml", "--listen", "127.0.0.1:0"]);
        command.env("NO_COLOR", "1");
        let log = log_of(command, home.path());
        assert_eq!(log.contains("whole paths are appended"), !expected.is_empty(), "{log}");
        assert!(log.contains(&expected), "{log}");
        assert_eq!(log.contains("WARN"), config.contains("api.openai.com/v1"), "{log}");
    }
    let ran = run(home.path(), &["run", "--upstream", "http://127.0.0.1:9/v1", "--", "true"]);
    assert!(ran.err.starts_with("plimsoll: `--upstream` ends in `/v1`"), "{}", ran.err);
}

#[test]
fn no_credential_is_printed() {
    let home = home();
    for url in [
        "http://me:secret@127.0.0.1",
        "me:secret@127.0.0.1",
        "http://127.0.0.1/?key=secret",
        "http://127.0.0.1:0/#secret",
        "ftp://me:secret@127.0.0.1",
    ] {
        let ran = run(home.path(), &["serve", "--upstream", url]);
        assert_eq!(ran.code, Some(2), "{url}: {}", ran.err);
        assert!(ran.err.contains("`--upstream`: ") && !ran.err.contains("secret"), "{url}: {}", ran.err);
        fs::write(home.path().join("wrong.toml"), format!("upstream.openai.base_url = '{url}'"))
            .expect("written");
        let ran = run(home.path(), &["check", "wrong.toml"]);
        assert!(ran.err.contains("base_url") && !ran.err.contains("secret"), "{url}: {}", ran.err);
    }
}

#[test]
fn help_mentions_every_option() {
    let home = home();
    let books = "--json --utc --config";
    for (command, options) in [
        ("serve", "--config --listen --port-file --upstream --observe"),
        ("check", "[FILE] gateway.toml"),
        ("init", "[FILE] gateway.toml"),
        ("report", &format!("--by --since --until day model client conversation tokens_estimate {books}")),
        ("conversations", &format!("--limit started clients {books}")),
        ("inspect", &format!("<ID> untouched \"requests\" {books}")),
        ("diff", "<ID> <N> decided_in --json --config"),
        ("outputs", &format!("[ID] --conversation --since --until last_used {books}")),
        ("prices", "[MODEL] --upstream cache_write_12h long_prompts --json --config"),
        (
            "replay",
            "--sweep --pace --prices \"requests\" openai-responses hidden_prefix_tokens_est --json --config",
        ),
        ("demo", "--keep"),
    ] {
        let help = done(home.path(), &[command, "--help"]);
        for option in options.split(' ') {
            assert!(help.contains(option), "{command} --help says nothing of {option}\n{help}");
        }
        assert!(done(home.path(), &["--help"]).contains(&format!("\n  {command} ")), "{command}");
    }
}

#[test]
fn init_writes_a_valid_file_and_never_overwrites() {
    let home = home();
    assert!(done(home.path(), &["init"]).starts_with("gateway.toml written"));
    assert_eq!(done(home.path(), &["check"]), "gateway.toml: no problems\n");
    fs::write(home.path().join("gateway.toml"), "mode = \"observe\"\n").expect("written");
    let again = run(home.path(), &["init"]);
    assert_eq!((again.code, again.out.as_str()), (Some(1), ""));
    assert!(again.err.contains("gateway.toml exists"), "{}", again.err);
    let text = fs::read_to_string(home.path().join("gateway.toml")).expect("still there");
    assert_eq!(text, "mode = \"observe\"\n");
}

/// Half a file would be "left as it is" by the next attempt.
#[test]
fn init_leaves_no_half_file_where_the_disk_is_full() {
    let home = home();
    let mut limited = Command::new("sh");
    let script = "trap '' XFSZ && ulimit -f 8 && exec \"$0\" init";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_plimsoll")]).current_dir(home.path());
    let ran = ran(limited);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(!home.path().join("gateway.toml").exists(), "{}", ran.err);
    assert!(done(home.path(), &["init"]).starts_with("gateway.toml written"));
}

#[test]
fn init_prints_the_file_on_request() {
    let home = home();
    done(home.path(), &["init"]);
    let written = fs::read_to_string(home.path().join("gateway.toml")).expect("written");
    assert_eq!(done(home.path(), &["init", "-"]), written);
    assert!(!home.path().join("-").exists());
}

#[test]
fn check_reports_every_mistake() {
    let home = home();
    let wrong = "mode = \"maybe\"\n[listen]\naddress = 3\nadmin = \"x\"\n[limits]\nmax_body = \"much\"\nqueue = 0\n\
                 rewrite_timeout = \"soon\"\n[truncate]\nkeep = \"middle\"\nmax_line = 1\n[outputs]\nrecall = 1\n[oops]\n";
    fs::write(home.path().join("wrong.toml"), wrong).expect("written");
    let ran = run(home.path(), &["check", "wrong.toml"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    let problems: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("wrong.toml:")).collect();
    assert_eq!(problems.len(), 10, "{}", ran.err);
}
