//! The messages for wrong files, each mistake by itself and for broken syntax.

use super::*;

#[test]
fn each_mistake_has_one_message() {
    for (text, expected) in MISTAKES {
        check(text, expected);
    }
}

/// Files and their messages; each line is preceded by the file's name.
const MISTAKES: &[(&str, &str)] = &[
    // Words.
    (
        "mode = 'rewirte'",
        "1: `mode`: expected \"rewrite\" or \"observe\", got \"rewirte\"\n  hint: did you mean `rewrite`?",
    ),
    ("mode = true", "1: `mode`: expected \"rewrite\" or \"observe\", got a boolean"),
    (
        "preset = 'opencod'",
        "1: `preset`: expected \"default\", \"passthrough\", \"opencode\", \"opencode-2026\", \"window-manager\", \"cwm\", \"pulse\", \"pulse-2026\", \"gemini\", \"gemini-cli\", \"temporal\", \"dyad\", \"openmanus\", \"open-interpreter\", \"codex\" or \"picoclaw\", got \"opencod\"\n  hint: did you mean `opencode`?",
    ),
    // Profiles.
    ("[profile.a]", "1: `profile.a.match`: missing; a profile needs to know which requests it is for"),
    (
        "[profile.a]\nmatch = {}",
        "2: `profile.a.match`: no condition is given\n  hint: conditions are `client`, `model`, `upstream`, `protocol`, `header`",
    ),
    (
        "[profile.a]\nmatch = { header = {} }",
        "2: `profile.a.match`: no condition is given\n  hint: conditions are `client`, `model`, `upstream`, `protocol`, `header`",
    ),
    (
        "[profile.a.match]\nprotocol = 'openai'\nupstream = 'antropic, x-*'",
        "2: `profile.a.match.protocol`: it matches no protocol\n  hint: there are `anthropic`, `openai-chat`, `openai-responses`, `gemini`\n3: `profile.a.match.upstream`: it matches no upstream\n  hint: there are `anthropic`, `openai`, `gemini`, `code-assist`, `chatgpt`",
    ),
    (
        "profile.a.match.model = '['",
        "1: `profile.a.match.model`: \"[\" is not a valid pattern: invalid range pattern",
    ),
    (
        "profile.a.match.model = ' , '",
        "1: `profile.a.match.model`: expected a pattern, or several with commas between them, got \" , \"",
    ),
    (
        "[profile.a]\nmatch = { modle = 'x', header = { 'a b' = 'x', c = 5 } }\npreset = 'codx'",
        "2: `profile.a.match.header.\"a b\"`: this is not a valid header name\n2: `profile.a.match.header.c`: expected a string, got 5\n2: `profile.a.match.modle`: unknown key\n  hint: did you mean `model`?\n3: `profile.a.preset`: expected \"default\", \"passthrough\", \"opencode\", \"opencode-2026\", \"window-manager\", \"cwm\", \"pulse\", \"pulse-2026\", \"gemini\", \"gemini-cli\", \"temporal\", \"dyad\", \"openmanus\", \"open-interpreter\", \"codex\" or \"picoclaw\", got \"codx\"\n  hint: did you mean `codex`?",
    ),
    (
        "[profile.review]\nmatch.model = 'x'\n[profile.review.truncate]\nmax_lines = 0\n[profile.review.summarize]\njobs = 3\nlength = 5\n[profile.review.log]",
        "4: `profile.review.truncate.max_lines`: expected 1 to 1000000000, got 0\n6: `profile.review.summarize.jobs`: this cannot be set in a profile\n  hint: `summarize.jobs` can only be set outside of profiles, for all conversations\n7: `profile.review.summarize.length`: expected 200 to 50000, got 5\n8: `profile.review.log`: this cannot be set in a profile\n  hint: `log` can only be set outside of profiles, for all conversations",
    ),
    // What a profile leaves out is the file's, where a mistake is reported once.
    (
        "clear.weights.oldest = 1\nwindow.target = 0.95\nsummarize.upstream = 'x'\nsummarize.max_wait = '9s'\n[profile.a]\nmatch.model = 'x'\nclear.settle = 3\nwindow.beyond = true\nsummarize.length = 300",
        "1: `clear.weights`: the weights must add up to 1, got 1.850\n2: `window.target`: must be below `window.trigger`\n3: `summarize.upstream`: there is no upstream `x`\n3: `summarize.model`: must be set if `summarize.upstream` is\n4: `summarize.max_wait`: must be below `limits.rewrite_timeout`",
    ),
    (
        "[profile.a]\nmatch.model = 'x'\nclear.weights.oldest = 1\nwindow.target = 0.95\nsummarize.upstream = 'x'\nsummarize.max_wait = '9s'",
        "3: `profile.a.clear.weights`: the weights must add up to 1, got 1.850\n4: `profile.a.window.target`: must be below `window.trigger`\n5: `profile.a.summarize.upstream`: there is no upstream `x`\n5: `profile.a.summarize.model`: must be set if `summarize.upstream` is\n6: `profile.a.summarize.max_wait`: must be below `limits.rewrite_timeout`",
    ),
    // Origins.
    (
        "[listen]\norigins = ['https://ok.test:*', '*.ok.test', 'null', 'http?://ok.test', 'app.test', 'https://app.test/']",
        "2: `listen.origins`: \"app.test\" matches no origin\n  hint: an origin consists of a scheme, a host and optionally a port: \"https://app.example.com\"\n2: `listen.origins`: \"https://app.test/\" matches no origin\n  hint: an origin consists of a scheme, a host and optionally a port: \"https://app.example.com\"",
    ),
    (
        "[listen]\nadmin_names = ['books.lan', '*.ts.net', 'laptop', 'books.lan:8788', 'http://books.lan', 'Books.lan']",
        "2: `listen.admin_names`: \"books.lan:8788\" matches no host name\n  hint: write the name of a host, in lower case and without a port: \"books.example.com\"\n2: `listen.admin_names`: \"http://books.lan\" matches no host name\n  hint: write the name of a host, in lower case and without a port: \"books.example.com\"\n2: `listen.admin_names`: \"Books.lan\" matches no host name\n  hint: write the name of a host, in lower case and without a port: \"books.example.com\"",
    ),
    (
        "listen.origins = ['[', 5]",
        "1: `listen.origins[0]`: \"[\" is not a valid pattern: invalid range pattern\n1: `listen.origins[1]`: expected a pattern such as \"read_*\", got 5",
    ),
    // Keys and tables.
    ("mdoe = 'rewrite'", "1: `mdoe`: unknown key\n  hint: did you mean `mode`?"),
    ("max_lines = 5", "1: `max_lines`: unknown key\n  hint: did you mean `truncate.max_lines`?"),
    ("[trunacte]\nmax_lines = 5", "1: `trunacte`: unknown key\n  hint: did you mean `truncate`?"),
    ("'a b'.c = 1", "1: `\"a b\"`: unknown key"),
    ("truncate = 5", "1: `truncate`: expected a table, got 5"),
    ("[[limits]]\nqueue = 0", "1: `limits`: expected a table, got an array"),
    ("upstream.openai = 'x'", "1: `upstream.openai`: expected a table, got \"x\""),
    ("mode = 'observe'\nmode = 'rewrite'", "2: `mode`: set twice, first on line 1"),
    ("[limits]\nqueue = 5\n'queue' = 6", "3: `limits.queue`: set twice, first on line 2"),
    ("[log]\n[limits]\n[log]", "3: `log`: set twice"),
    (
        "alerts.zone = 'blue'",
        "1: `alerts.zone`: expected \"off\", \"yellow\", \"orange\" or \"red\", got \"blue\"",
    ),
    // Numbers, sizes, durations.
    ("limits.queue = 0", "1: `limits.queue`: expected 1 to 1000000, got 0"),
    (
        "limits.queue = '5'",
        "1: `limits.queue`: expected a whole number, got \"5\"\n  hint: write it without quotes",
    ),
    ("limits.queue = 5.0", "1: `limits.queue`: expected a whole number, got 5.0"),
    ("limits.workers = -1", "1: `limits.workers`: expected a whole number from 0 on, got -1"),
    (
        "limits.workers = 99999999999999999999",
        "1: `limits.workers`: expected a whole number from 0 on, got 99999999999999999999",
    ),
    (
        "truncate.max_bytes = true",
        "1: `truncate.max_bytes`: expected a size such as \"50KiB\", got a boolean",
    ),
    (
        "truncate.max_bytes = '50K'",
        "1: `truncate.max_bytes`: expected a size such as \"50KiB\", got \"50K\"\n  hint: the units are B, KB, KiB, MB, MiB, GB and GiB",
    ),
    ("clear.trigger = 0.6", "1: `clear.trigger`: must be above `window.target`"),
    ("truncate.max_bytes = 0", "1: `truncate.max_bytes`: expected 1B to 1GiB, got 0B"),
    (
        "limits.idle_timeout = 30",
        "1: `limits.idle_timeout`: expected a duration such as \"30s\", got 30\n  hint: the units are ms, s, m, h and d",
    ),
    ("limits.rewrite_timeout = '2m'", "1: `limits.rewrite_timeout`: expected 1ms to 1m, got 2m"),
    (
        "shape.fold = 'true'",
        "1: `shape.fold`: expected true or false, got \"true\"\n  hint: write it without quotes",
    ),
    ("outputs.retention = '1s'", "1: `outputs.retention`: expected 1h to 36500d, got 1s"),
    (
        "ledger.retention = 'never'",
        "1: `ledger.retention`: expected a duration such as \"90d\", or \"forever\", got \"never\"",
    ),
    ("lineage.retention = '23h'", "1: `lineage.retention`: expected 1d or more, got 23h"),
    ("ledger.retention = '1h'", "1: `ledger.retention`: expected 1d or more, got 1h"),
    // Addresses and paths.
    (
        "listen.address = 'localhost:80'",
        "1: `listen.address`: expected an address such as \"127.0.0.1:8787\", got \"localhost:80\"\n  hint: write \"127.0.0.1:80\"",
    ),
    (
        "listen.address = ':80'",
        "1: `listen.address`: expected an address such as \"127.0.0.1:8787\", got \":80\"\n  hint: write \"0.0.0.0:80\" for all interfaces",
    ),
    (
        "listen.address = '127.0.0.1'",
        "1: `listen.address`: expected an address such as \"127.0.0.1:8787\", got \"127.0.0.1\"\n  hint: the port is missing",
    ),
    (
        "listen.admin = false",
        "1: `listen.admin`: expected an address such as \"127.0.0.1:8788\", or \"off\", got a boolean",
    ),
    (
        "listen.address = '127.0.0.1:8788'",
        "1: `listen.address`: `listen.address` and `listen.admin` are the same address",
    ),
    (
        "state.dir = 'state'",
        "1: `state.dir`: expected an absolute path, or one that begins with \"~/\", got \"state\"",
    ),
    (
        "state.dir = '~you/x'",
        "1: `state.dir`: expected an absolute path, or one that begins with \"~/\", got \"~you/x\"\n  hint: \"~\" can only stand for this user's home",
    ),
    ("outputs.dir = ''", "1: `outputs.dir`: expected a path, got \"\""),
    (
        "[listen]\nadmin = 'off'\n[outputs]\nrecall = 'http'",
        "4: `outputs.recall`: needs `listen.admin`, which serves the URLs and is off",
    ),
    // Patterns.
    (
        "truncate.exempt = ['a', '[', 5]",
        "1: `truncate.exempt[1]`: \"[\" is not a valid pattern: invalid range pattern\n1: `truncate.exempt[2]`: expected a pattern such as \"read_*\", got 5",
    ),
    (
        "truncate.exempt = [\n  'a',\n  '[',\n]",
        "3: `truncate.exempt[1]`: \"[\" is not a valid pattern: invalid range pattern",
    ),
    (
        "shape.views = 'read'",
        "1: `shape.views`: expected an array, each item a pattern such as \"read_*\", got \"read\"",
    ),
    (
        "[truncate.tool.'a, [']\nmax_lines = 0",
        "1: `truncate.tool.\"a, [\"`: \"a, [\" is not a valid pattern: invalid range pattern\n2: `truncate.tool.\"a, [\".max_lines`: expected 1 to 1000000000, got 0",
    ),
    (
        "truncate.marker = '{bytes} gone'",
        "1: `truncate.marker`: unknown placeholder {bytes}\n  hint: the placeholders are {removed}, {total}, {removed_plain}, {total_plain} and {recall}",
    ),
    ("truncate.marker = ' '", "1: `truncate.marker`: must not be empty, since a cut must be marked"),
    // Upstreams.
    (
        "upstream.openai.base_url = 'api.openai.com'",
        "1: `upstream.openai.base_url`: expected a URL such as \"https://api.example.com\", got \"api.openai.com\"\n  hint: the scheme is https:// or http://",
    ),
    (
        "upstream.openai.base_url = 'ftp://x'",
        "1: `upstream.openai.base_url`: expected a URL such as \"https://api.example.com\", got \"ftp://x\"\n  hint: the scheme is https:// or http://",
    ),
    (
        "upstream.openai.base_url = 'https://me:secret@x'",
        "1: `upstream.openai.base_url`: a URL with a user name or password is not accepted; credentials belong in `headers`",
    ),
    (
        "upstream.openai.protocols = ['openai_chat']",
        "1: `upstream.openai.protocols[0]`: expected \"anthropic\", \"openai-chat\", \"openai-responses\" or \"gemini\", got \"openai_chat\"\n  hint: did you mean `openai-chat`?",
    ),
    (
        "[upstream.local]",
        "1: `upstream.local.base_url`: missing; a new upstream needs an address\n1: `upstream.local.protocols`: missing; a new upstream needs its protocols",
    ),
    (
        "upstream.Local = { base_url = 'http://x', protocols = [] }",
        "1: `upstream.Local`: this name cannot be part of a path\n  hint: names consist of a-z, 0-9, `_` and `-`",
    ),
    (
        "upstream.v1beta = { base_url = 'http://x', protocols = [] }",
        "1: `upstream.v1beta`: this name is reserved: clients send paths that begin with `/v1beta/`\n  hint: give it another name",
    ),
    (
        "upstream.openai.proxy = 'socks4://me:secret@proxy'",
        "1: `upstream.openai.proxy`: only proxies of `http://`, `https://`, `socks5://` and `socks5h://` can be used",
    ),
    ("upstream.openai.proxy = 'http://me:se cret@'", "1: `upstream.openai.proxy`: not the URL of a proxy"),
    (
        "upstream.openai.proxy = 'env:CONTROL'",
        "1: `upstream.openai.proxy`: the content of `CONTROL`: not the URL of a proxy",
    ),
    (
        "upstream.openai.proxy = true",
        "1: `upstream.openai.proxy`: expected \"environment\", \"none\", or a proxy such as \"http://proxy.example:3128\", got a boolean",
    ),
    (
        "upstream.openai.headers = { a = 'env:NOPE' }",
        "1: `upstream.openai.headers.a`: the environment variable `NOPE` is not set",
    ),
    (
        "upstream.openai.headers = { a = 'env:NOTHING', b = '' }",
        "1: `upstream.openai.headers.a`: the environment variable `NOTHING` is empty",
    ),
    (
        "upstream.openai.headers = { a = 'Bearer env:NOPE' }",
        "1: `upstream.openai.headers.a`: the environment variable `NOPE` is not set",
    ),
    (
        "upstream.openai.headers = { a = 'Bearer env:NOTHING' }",
        "1: `upstream.openai.headers.a`: the environment variable `NOTHING` is empty",
    ),
    (
        "upstream.openai.headers = { a = 'env:CONTROL' }",
        "1: `upstream.openai.headers.a`: the content of `CONTROL` is not a valid header value",
    ),
    (
        "upstream.openai.headers = { a = 5 }",
        "1: `upstream.openai.headers.a`: expected a string, got an integer",
    ),
    (
        "upstream.openai.headers = { 'a b' = 'x' }",
        "1: `upstream.openai.headers.\"a b\"`: this is not a valid header name",
    ),
    (
        "upstream.openai.headers = { Host = 'x' }",
        "1: `upstream.openai.headers.Host`: this header is managed by the gateway itself",
    ),
    (
        "upstream.openai.headers = { a = 'x', A = 'y' }",
        "1: `upstream.openai.headers.A`: set twice: the case of a header's name does not matter",
    ),
    ("upstream.openai.accept_invalid_certs = true", "1: `upstream.openai.accept_invalid_certs`: unknown key"),
    // Profiles that cannot hold.
    (
        "[profile.a]\nmatch.model = 'x'\n[profile.b]\nmatch.model = 'y'\n[profile.c]\nmatch.model = 'x'",
        "6: `profile.c.match`: never applies: `profile.a` is for the same requests, and comes before it",
    ),
    (
        "[profile.a.match]\nupstream = 'openai'\nprotocol = 'anthropic'",
        "3: `profile.a.match.protocol`: never applies: the gateway reads no such requests to `openai`\n  hint: `protocols` of an upstream lists what is read",
    ),
    (
        "upstream.x = { base_url = 'http://x', protocols = [] }\nprofile.a.match.upstream = 'x'",
        "2: `profile.a.match.upstream`: never applies: the gateway reads no such requests to `x`\n  hint: `protocols` of an upstream lists what is read",
    ),
    // Clients send Responses to the path of Chat.
    (
        "upstream.x = { base_url = 'http://x', protocols = ['openai-chat'] }\nprofile.a.match = { upstream = 'x', protocol = 'openai-responses' }",
        "",
    ),
    (
        "[profile]\nmatch.model = 'x'",
        "2: `profile.match`: a profile needs a name, and this is one of its sections\n  hint: write `[profile.NAME]`, with a name of your own",
    ),
    (
        "[profile.truncate]\nmax_lines = 5",
        "1: `profile.truncate`: a profile needs a name, and this is one of its sections\n  hint: write `[profile.NAME]`, with a name of your own\n2: `profile.truncate.max_lines`: unknown key\n  hint: did you mean `truncate.max_lines`?",
    ),
    ("profile.match.match.model = 'x'", ""),
    // The window, and what clearing has to do with it.
    (
        "[log]\n[window]\ntrigger = 0.5",
        "3: `window.trigger`: must be above `window.target`, which is 0.6, got 0.5\n  hint: that is the default: set `window.target`, too",
    ),
    (
        "window.target = 0.5\nprofile.a = { match.model = 'x', window.trigger = 0.4 }",
        "2: `profile.a.window.trigger`: must be above `window.target`, which is 0.5, got 0.4\n  hint: it is not set here: set `window.target`, too",
    ),
    ("window.trigger = 0.5\nwindow.target = 0.5", "2: `window.target`: must be below `window.trigger`"),
    (
        "clear.trigger = 0.7\n[profile.a]\nmatch.model = 'x'\nwindow.target = 0.75\n[profile.b]\nmatch.model = 'y'\nwindow.target = 0.65",
        "4: `profile.a.window.target`: must be below `clear.trigger`, which is 0.7, got 0.75",
    ),
    (
        "preset = 'window-manager'\nwindow.target = 0.8",
        "2: `window.target`: must be below `clear.trigger`, which is 0.75, got 0.8",
    ),
    ("preset = 'window-manager'\nwindow.target = 0.8\nclear.enabled = false", ""),
    (
        "window.target = 0.7\nclear.trigger = 0.7\n[profile.a]\nmatch.model = 'x'\nclear.settle = 2",
        "2: `clear.trigger`: must be above `window.target`",
    ),
    // Patterns that can match no name.
    (
        "truncate.exempt = ['Foo, Bar', '[,a]*', '']\nclear.protected_tools = ['a,b']\nshape.views = ['x', 'y,']",
        "1: `truncate.exempt[0]`: \"Foo, Bar\" matches nothing: give each pattern on its own, not several separated by commas\n1: `truncate.exempt[2]`: \"\" matches nothing: it is empty\n2: `clear.protected_tools[0]`: \"a,b\" matches nothing: give each pattern on its own, not several separated by commas\n3: `shape.views[1]`: \"y,\" matches nothing: give each pattern on its own, not several separated by commas",
    ),
    (
        "[prices.model.'foo, bar']\ninput = 1\noutput = 1",
        "1: `prices.model.\"foo, bar\"`: matches nothing: give each pattern on its own, not several separated by commas",
    ),
    ("[truncate.tool.'']\nmax_lines = 5", "1: `truncate.tool.\"\"`: matches nothing: it is empty"),
    (
        "[truncate.tool.'a, B']\nmax_lines = 5\n[truncate.tool.b]\nmax_lines = 4\n[truncate.tool.'A,b']\nmax_lines = 3",
        "5: `truncate.tool.\"A,b\"`: never applies: \"a, B\" comes before it, and case does not matter",
    ),
    (
        "truncate.marker = 'cut here: {removed'",
        "1: `truncate.marker`: {removed has no closing brace\n  hint: write {removed}",
    ),
    ("truncate.marker = '{ {removed} bytes are gone {'", ""),
    // Limits that have no room for the marker.
    (
        "truncate = { marker = '{removed} went', max_bytes = 5 }",
        "1: `truncate.max_bytes`: too small: the marker alone takes 6 bytes, so nothing would be cut\n  hint: a marker that begins with words of its own and has {removed} once does not count towards the limits",
    ),
    ("truncate = { marker = '{removed} went', max_bytes = 6 }", ""),
    (
        "truncate = { marker = '{removed} went', max_bytes = 0 }",
        "1: `truncate.max_bytes`: expected 1B to 1GiB, got 0B",
    ),
    ("truncate = { marker = 'cut off here: {removed}', max_bytes = 5, max_lines = 1 }", ""),
    (
        "[truncate]\nmarker = \"(cut)\\n\\n{recall}\"\nerror_max_bytes = 6\n[truncate.tool.a]\nmax_lines = 1\n[truncate.tool.b]\nmax_lines = 3\nmax_bytes = 7",
        "3: `truncate.error_max_bytes`: too small: the marker alone takes 7 bytes, so nothing would be cut\n  hint: a marker that begins with words of its own and has {removed} once does not count towards the limits\n5: `truncate.tool.a.max_lines`: too small: the marker alone takes 2 lines, so nothing would be cut\n  hint: a marker that begins with words of its own and has {removed} once does not count towards the limits",
    ),
    (
        "[truncate]\nmax_lines = 2\n[profile.a]\nmatch.model = 'm'\ntruncate.marker = \"1\\n2\\n3\"",
        "5: `profile.a.truncate.marker`: is longer than the limits, so nothing would be cut\n  hint: a marker that begins with words of its own and has {removed} once does not count towards the limits",
    ),
    // Upstreams that the gateway itself asks.
    (
        "fidelity.upstream = 'openai'\nsummarize = { upstream = 'openai', model = 3 }",
        "1: `fidelity.model`: must be set if `fidelity.upstream` is\n2: `summarize.model`: expected a string, got 3",
    ),
    ("fidelity.model = 'm'", "1: `fidelity.model`: has no effect unless `fidelity.upstream` is set"),
    ("fidelity = { upstream = 'openai', model = 3 }", "1: `fidelity.model`: expected a string, got 3"),
    (
        "fidelity = { upstream = 'openai', model = ' ' }",
        "1: `fidelity.model`: must be set if `fidelity.upstream` is",
    ),
    (
        "upstream.x = { base_url = 'http://x', protocols = [] }\nsummarize = { upstream = 'x', model = 'm' }\nfidelity = { upstream = 'x', model = 'm' }\n[profile.a]\nmatch.model = 'm'\nsummarize.upstream = 'x'",
        "2: `summarize.upstream`: `upstream.x.protocols` is empty, so the gateway itself cannot send requests to it\n3: `fidelity.upstream`: `upstream.x.protocols` is empty, so the gateway itself cannot send requests to it\n6: `profile.a.summarize.upstream`: `upstream.x.protocols` is empty, so the gateway itself cannot send requests to it",
    ),
    // Prices.
    (
        "prices.model.'x' = { input = -1, output = 1 }",
        "1: `prices.model.x.input`: expected a price in US dollars for a million tokens, got -1\n  hint: write it as a plain decimal number, such as 3.75",
    ),
    (
        "[prices.model.'My-*']\ninput = 1\noutput = 1\n[prices.model.'my-?']\ninput = 1\noutput = 1\n[prices.model.'my-*']\ninput = 2\noutput = 2",
        "7: `prices.model.\"my-*\"`: never applies: \"My-*\" comes before it, and case does not matter",
    ),
    ("[prices.model.'x[A-z]']\ninput = 1\noutput = 1\n[prices.model.'x[a-z]']\ninput = 2\noutput = 2", ""),
    (
        "prices.model.'x' = { input = 0.1234567, output = 1 }",
        "1: `prices.model.x.input`: expected at most 6 decimal places, got 7",
    ),
    (
        "prices.model.'[' = { input = 1, output = 1 }",
        "1: `prices.model.\"[\"`: \"[\" is not a valid pattern: invalid range pattern",
    ),
    (
        "prices.model.'my-*' = { cache_read = 1, output = 1 }",
        "1: `prices.model.\"my-*\".input`: missing; the catalogue has no prices of this model, so `input` and `output` are needed",
    ),
    // Logging.
    (
        "log.level = 'inof'",
        "1: `log.level`: expected a level such as \"info\", or a filter such as \"info,plimsoll=debug\", got \"inof\"\n  hint: did you mean `info`?",
    ),
    (
        "log.level = 'info,plimsoll=loud'",
        "1: `log.level`: expected a level such as \"info\", or a filter such as \"info,plimsoll=debug\", got \"info,plimsoll=loud\"",
    ),
    (
        "log.level = 'info,h2=trace'",
        "1: `log.level`: expected a level such as \"info\", or a filter such as \"info,plimsoll=debug\", got \"info,h2=trace\"",
    ),
];

/// Every readable line is checked, whatever is wrong with the syntax of the others.
#[test]
fn syntax_errors_do_not_hide_other_mistakes() {
    const QUEUE: &str = "3: `limits.queue`: expected 1 to 1000000, got 0";
    let cases: &[(&str, &str)] = &[
        ("mode", "key with no value, expected `=`"),
        ("mode : 'a'", "key with no value, expected `=`"),
        ("mode = ", "missing value"),
        ("= 5", "unquoted keys cannot be empty, expected letters, numbers, `-`, `_`"),
        ("mode = tru", "invalid boolean, expected `true`"),
        ("mode = rewrite", "string values must be quoted, expected literal string"),
        ("mode = \"rewrite", "invalid basic string, expected `\"`"),
        ("mode = 'a' 'b'", "unexpected key or value, expected newline, `#`"),
        ("[log", "unclosed table, expected `]`"),
        ("[log # comment", "unclosed table, expected `]`"),
        ("[log]]", "unexpected key or value, expected newline, `#`"),
        ("{", "invalid key-value pair, expected key"),
        ("\u{fffd}", "key with no value, expected `=`"),
    ];
    for (line, message) in cases {
        let expected = format!("1: {message}\n{QUEUE}");
        check(&format!("{line}\n[limits]\nqueue = 0\n"), &expected);
        check(&format!("{line}\r\n[limits]\r\nqueue = 0\r\n"), &expected);
    }
    check(
        "mode\npreset\n[log\n[shape\nqueue = 1",
        "1: key with no value, expected `=`\n2: key with no value, expected `=`\n\
         3: unclosed table, expected `]`\n4: unclosed table, expected `]`\n\
         5: `shape.queue`: unknown key\n  hint: did you mean `limits.queue`?",
    );
}
