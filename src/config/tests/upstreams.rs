//! Upstreams: those of the file, the built-in ones, and what the environment says of them.

use super::*;

#[test]
fn configured_upstreams_override_built_in_ones_by_field_or_are_added() {
    let config = good(
        "[upstream.zeta]\nbase_url = 'http://zeta/api/'\nprotocols = ['openai-chat']\n\
         [upstream.openai]\nbase_url = 'http://proxy:81'\n\
         [upstream.alpha]\nbase_url = 'http://alpha'\nprotocols = []\nidle_timeout = '1h'\n\
         [upstream.anthropic]\nca_file = '~/ca.pem'",
    );
    let shown: Vec<String> = config
        .upstreams
        .as_slice()
        .iter()
        .map(|upstream| {
            let protocols: Vec<_> = upstream.protocols.iter().map(|protocol| protocol.as_str()).collect();
            format!("{} {} {}", upstream.name, upstream.base_url, protocols.join("+"))
        })
        .collect();
    let expected = [
        "anthropic https://api.anthropic.com anthropic",
        "openai http://proxy:81 openai-chat+openai-responses",
        "gemini https://generativelanguage.googleapis.com gemini",
        "code-assist https://cloudcode-pa.googleapis.com gemini",
        "chatgpt https://chatgpt.com/backend-api/codex openai-responses",
        "zeta http://zeta/api openai-chat",
        "alpha http://alpha ",
    ];
    assert_eq!(shown, expected);
    assert_eq!(config.upstreams.named("alpha").map(|upstream| upstream.timeouts.idle.as_secs()), Some(3600));
    assert_eq!(config.upstreams.named("beta"), None);
    let ca_file = config.upstreams.named("anthropic").and_then(|upstream| upstream.ca_file.as_deref());
    assert_eq!(ca_file, Some(Path::new("/home/me/ca.pem")));
}

/// They are the first segments of the dialects' paths.
#[test]
fn upstream_names_must_not_be_first_segments_of_api_paths() {
    let refused = |name: &str| {
        let text = format!("[upstream.{name}]\nbase_url = 'http://x'\nprotocols = []");
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        Config::from_toml(&text, &home).is_err()
    };
    for name in
        "api backend-api chat completions embeddings health messages metrics model models responses v1 v2x"
            .split(' ')
    {
        assert!(refused(name), "{name}");
    }
    for name in ["message", "publishers", "x", "vertex"] {
        assert!(!refused(name), "{name}");
    }
}

#[test]
fn response_timeout_defaults_to_one_and_a_half_idle_timeouts() {
    for (set, idle, response) in [
        ("", 600, 900),
        ("idle_timeout = '2s'", 2, 3),
        ("idle_timeout = '24h'", 86_400, 129_600),
        ("response_timeout = '1h'", 600, 3600),
        ("idle_timeout = '1m'\nresponse_timeout = '5s'", 60, 5),
    ] {
        let config = good(&format!("[upstream.openai]\n{set}"));
        let upstream = config.upstreams.named("openai").expect("it is built in");
        let got = [upstream.timeouts.idle, upstream.timeouts.response].map(|time| time.as_secs());
        assert_eq!(got, [idle, response], "{set}");
    }
    assert_eq!(good("").upstreams.named("gemini").map(|it| it.timeouts.response.as_secs()), Some(900));
}

#[test]
fn cache_keys_default_to_shared_only_at_the_providers_own_url() {
    for (set, expected) in [
        ("", CacheKey::Shared),
        ("base_url = 'https://openai.example'", CacheKey::None),
        ("cache_key = 'none'", CacheKey::None),
        ("cache_key = 'conversation'", CacheKey::Conversation),
    ] {
        let config = good(&format!("[upstream.openai]\n{set}"));
        let keys = config.upstreams.named("openai").map(|upstream| upstream.cache_key);
        assert_eq!(keys, Some(expected), "{set}");
    }
}

#[test]
fn cache_marks_of_an_upstream_are_those_of_the_file() {
    for (set, expected) in
        [("", None), ("cache_marks = true", Some(true)), ("cache_marks = false", Some(false))]
    {
        let config = good(&format!("[upstream.openai]\n{set}"));
        let marks = config.upstreams.named("openai").map(|upstream| upstream.cache_marks);
        assert_eq!(marks, Some(expected), "{set}");
        let unused = config.unused_with_single_upstream().join(" ");
        assert_eq!(unused == "upstream.openai.cache_marks", expected.is_some(), "{set}");
    }
}

#[test]
fn a_single_upstream_serves_every_protocol() {
    let config = good("").with_single_upstream("http://127.0.0.1:9/x".parse().expect("a URL"));
    let [upstream] = config.upstreams.as_slice() else { panic!("it is the only one") };
    assert_eq!(upstream.base_url.to_string(), "http://127.0.0.1:9/x");
    assert!(Protocol::all().all(|protocol| upstream.protocols.contains(&protocol)));
    assert!(matches!(config.upstreams, Upstreams::Single(_)));
}

#[test]
fn settings_unused_with_a_single_upstream_are_reported() {
    let unused = |text: &str| good(text).unused_with_single_upstream().join(" ");
    for (text, expected) in [
        ("", ""),
        (SHIPPED, ""),
        ("upstream.openai.base_url = 'http://x'", ""),
        ("upstream.openai = { base_url = 'http://x', cache_key = 'none' }", ""),
        (
            "upstream.anthropic = { headers = { a = 'b' }, idle_timeout = '5m', cache_key = 'shared' }",
            "upstream.anthropic.headers upstream.anthropic.idle_timeout upstream.anthropic.cache_key",
        ),
        (
            "upstream.gemini = { protocols = [], connect_timeout = '1s', response_timeout = '1s', proxy = 'none' }\n\
             upstream.own = { base_url = 'http://x', protocols = [] }\nupstream.openai.include_usage = true",
            "upstream.openai.include_usage upstream.gemini.protocols upstream.gemini.connect_timeout \
             upstream.gemini.response_timeout upstream.gemini.proxy upstream.own",
        ),
        ("upstream.openai.ca_file = '~/ca.pem'", "upstream.openai.ca_file"),
        ("upstream.openai = { http2 = false }\nupstream.gemini.http2 = true", "upstream.openai.http2"),
    ] {
        assert_eq!(unused(text), expected, "{text}");
    }
}

/// A server with settings in the file has them by whichever path it is reached.
#[test]
fn a_base_url_from_a_variable_gets_only_its_own_servers_settings() {
    const OWN: &str = "upstream.openai = { base_url = 'http://Own.test/gw', headers = { x-own = 'a' } }";
    let profile = |pattern: &str| format!("{OWN}\n[profile.p]\nmatch.upstream = '{pattern}'");
    for (text, url, path, headers, unused) in [
        ("", "https://api.openai.com/v1/", "/openai/v1", 0, ""),
        ("", "https://API.openai.com:443", "/openai", 0, ""),
        ("", "https://api.openai.com.evil.test/v1", "/variable", 0, ""),
        ("", "http://api.openai.com/v1", "/variable", 0, ""),
        (OWN, "http://own.test:80/gw/v1", "/openai/v1", 1, ""),
        (OWN, "http://own.test/gw", "/openai", 1, ""),
        (OWN, "http://own.test/gw2", "/variable", 1, ""),
        (OWN, "http://own.test/v1", "/variable", 1, ""),
        (OWN, "http://own.test:81/gw", "/variable", 0, "upstream.openai.base_url upstream.openai.headers"),
        (&profile("openai"), "http://own.test/gw/v1", "/openai/v1", 1, ""),
        (&profile("openai"), "http://own.test/v1", "/variable", 1, "profile.p"),
        (&profile("*"), "http://own.test/v1", "/variable", 1, ""),
    ] {
        let url_of_agent = url.parse().expect("a URL");
        let rerouted = good(text).leading_to(url_of_agent, "openai", "variable");
        let config = rerouted.config;
        assert_eq!((&*rerouted.path, &*rerouted.unused.join(" ")), (path, unused), "{text} {url}");
        let (name, rest) = path[1..]
            .split_once('/')
            .map_or((&path[1..], ""), |(name, _)| (name, path.strip_prefix("/openai").expect("its own")));
        let upstream = config.upstreams.named(name).expect("it is there");
        assert_eq!(upstream.headers.len(), headers, "{text} {url}");
        let asked = format!("{}{rest}", upstream.base_url).to_lowercase();
        assert_eq!(asked, url.to_lowercase().trim_end_matches('/').replace(":443", "").replace(":80/", "/"));
        assert_eq!(upstream.protocols, good("").upstreams.named("openai").expect("built in").protocols);
    }
}

#[test]
fn proxies_come_from_the_environment_unless_configured() {
    for (text, expected) in [
        ("", "ByEnvironment"),
        ("upstream.openai.proxy = 'environment'", "ByEnvironment"),
        ("upstream.openai.proxy = 'none'", "Never"),
        ("upstream.openai.proxy = 'http://me:secret@own:81'", "By(Proxy(http://own:81))"),
        ("upstream.openai.proxy = 'env:ANOTHER'", "By(Proxy(socks5://another:1080))"),
        ("upstream.openai.proxy = 'env:NOTHING'", "Never"),
    ] {
        let config = good(text);
        let named = |name| config.upstreams.named(name).map(|upstream| &upstream.proxy);
        assert_eq!(format!("{:?}", named("openai").expect("built in")), expected, "{text}");
        assert_eq!(named("gemini"), Some(&Proxied::ByEnvironment));
        let by_environment = |name: &str| {
            let upstream = config.upstreams.named(name).expect("built in");
            Proxy::from_environment(&config.proxies, &upstream.base_url, &[]).expect("one that can be used")
        };
        assert_eq!(format!("{:?}", by_environment("anthropic")), "Some(Proxy(http://proxy:3128))");
        assert_eq!(by_environment("openai"), None);
    }
}

#[test]
fn an_empty_proxy_variable_falls_back_to_its_other_case() {
    let named = |names: [&'static str; 2], value: &'static str| {
        let environment = move |name: &str| {
            (name == names[0]).then(String::new).or_else(|| (name == names[1]).then(|| value.to_owned()))
        };
        upstream::proxies(&environment)
    };
    let value = Some("http://proxy".to_owned());
    for (names, found) in [
        (["HTTPS_PROXY", "https_proxy"], Variables { https: value.clone(), ..Variables::default() }),
        (["HTTP_PROXY", "http_proxy"], Variables { http: value.clone(), ..Variables::default() }),
        (["ALL_PROXY", "all_proxy"], Variables { all: value.clone(), ..Variables::default() }),
        (["NO_PROXY", "no_proxy"], Variables { none: value.clone(), ..Variables::default() }),
    ] {
        assert!(named(names, "http://proxy") == found, "{names:?}");
        assert!(named(names, " ") == Variables::default(), "{names:?}");
    }
}

/// Most credentials come after the name of a scheme.
#[test]
fn a_variable_in_a_header_may_follow_a_scheme() {
    let config = |value: &str| good(&format!("upstream.openai.headers = {{ authorization = '{value}' }}"));
    for (value, expected) in [
        ("Bearer env:KEY", "Bearer secret-key"),
        (" Api-Key  env:KEY ", "Api-Key secret-key"),
        ("env:KEY", "secret-key"),
        // Not a scheme and a variable alone.
        ("Bearer x env:KEY", "Bearer x env:KEY"),
        ("Bearer env:KEY x", "Bearer env:KEY x"),
        ("a=b env:KEY", "a=b env:KEY"),
        ("Bearer xenv:KEY", "Bearer xenv:KEY"),
    ] {
        let config = config(value);
        let headers = &config.upstreams.named("openai").expect("built in").headers;
        assert_eq!(headers["authorization"], expected, "{value}");
        assert!(headers["authorization"].is_sensitive(), "{value}");
        let doubts = config.doubts();
        assert_eq!(doubts.len(), usize::from(value == "env:KEY"), "{doubts:?}");
    }
}
