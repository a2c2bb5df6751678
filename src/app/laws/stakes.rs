//! Marks of the gateway's own, and time: what is written to the cache is gone after a while, read or not.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};

use super::rig::{Rig, headers, prices, wait};
use crate::planner::{Fate, Policy};
use crate::protocol;

/// How long an entry is kept that nobody reads, in milliseconds, and what writing it costs, where that is for minutes or
/// for an hour.
const KEPT: [(i64, f64); 2] = [(300_000, 1.25), (3_600_000, 2.0)];
const MINUTE: i64 = 60_000;
/// Blocks up to a mark, its own among them, where an entry is looked for.
const LOOKBACK: usize = 20;

/// What a provider has nothing of the next time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Forgets {
    #[default]
    Nothing,
    /// What ends behind the instructions.
    History,
    All,
}

/// A provider's cache with marks, and what it bills, in bytes of plain input.
#[derive(Clone, Default)]
struct Provider {
    /// When an entry of a cache was read last, and for how long it is kept.
    kept: HashMap<(u64, String), (i64, i64)>,
    now: i64,
    /// How many caches there are besides the first, and what chance goes by: each request is brought to one of them.
    others: u64,
    seed: u64,
    /// It bills what is written, and has nothing of that the next time.
    forgets: Forgets,
    /// Before these requests it has dropped all there was.
    drops: Vec<usize>,
    billed: usize,
}

impl Provider {
    /// What a prompt costs now, and what it says of that.
    fn bill(&mut self, body: &[u8]) -> (f64, Fate) {
        let mut body: Value = serde_json::from_slice(body).unwrap();
        if self.drops.contains(&self.billed) {
            self.kept.clear();
        }
        self.billed += 1;
        let cache = chance(self.seed << 32 | self.billed as u64) % (self.others + 1);
        let (mut prompts, mut marked) = (vec![String::new()], Vec::new());
        for message in body["messages"].as_array_mut().unwrap() {
            if let Some(text) = message["content"].as_str() {
                message["content"] = json!([{"type": "text", "text": text}]);
            }
            if let Some(calls) = message["tool_calls"].as_array() {
                message["content"] = json!(calls);
            }
        }
        let whole = body["system"].as_str().map(|text| vec![json!({"type": "text", "text": text})]);
        let mut blocks = body["system"].as_array().cloned().or(whole).unwrap_or_default();
        let leads = |message: &&Value| message["role"] == "system";
        let leading = body["messages"].as_array().unwrap().iter().take_while(leads);
        let leading: usize = leading.map(|message| message["content"].as_array().unwrap().len()).sum();
        let instructions = blocks.len() + leading;
        for message in body["messages"].as_array().unwrap() {
            blocks.extend_from_slice(message["content"].as_array().unwrap());
        }
        for mut block in blocks {
            let mark = block.as_object_mut().unwrap().remove("cache_control");
            prompts.push(format!("{}{block}", prompts[prompts.len() - 1]));
            marked.extend(mark.map(|mark| (prompts.len() - 1, usize::from(mark["ttl"] == "1h"))));
        }
        let is_there = |at: &usize| match self.forgets {
            Forgets::Nothing => true,
            Forgets::History => *at <= instructions,
            Forgets::All => false,
        };
        let kept = |at: usize| self.kept.get(&(cache, prompts[at].clone())).copied();
        let is_fresh = |at: &usize| kept(*at).is_some_and(|(last, kept_ms)| self.now - last < kept_ms);
        let is_kept = |at: &usize| is_there(at) && is_fresh(at);
        let entry = marked
            .iter()
            .filter_map(|(mark, _)| ((mark + 1).saturating_sub(LOOKBACK)..=*mark).rev().find(is_kept))
            .max();
        let len = |at: Option<usize>| at.map_or(0.0, |at| prompts[at].len() as f64);
        let (read, whole) = (len(entry), len(Some(prompts.len() - 1)));
        // What is marked for an hour is written for that, and what is marked behind it for minutes.
        let (mut written, mut premiums) = (read, 0.0);
        for (hold, (_, rate)) in KEPT.iter().enumerate().rev() {
            let last = marked.iter().filter(|mark| mark.1 == hold).map(|mark| mark.0).max();
            let fresh = (len(last) - written).max(0.0);
            (written, premiums) = (written + fresh, premiums + (rate - 1.0) * fresh);
        }
        let read_ms = entry.and_then(kept).map(|(_, kept_ms)| kept_ms);
        let stays = marked.into_iter().map(|(at, hold)| {
            let within = read_ms.filter(|_| Some(at) <= entry).unwrap_or(i64::MAX);
            let before = kept(at).filter(|_| is_fresh(&at)).map(|(_, kept_ms)| kept_ms);
            (at, before.unwrap_or_else(|| KEPT[hold].0.min(within)))
        });
        let stays: Vec<_> = stays.chain(entry.zip(read_ms)).collect();
        for (at, kept_ms) in stays {
            self.kept.insert((cache, prompts[at].clone()), (self.now, kept_ms));
        }
        let told = Fate::Told { read: read as u64, written: (written - read) as u64 };
        (whole - 0.9 * read + premiums, told)
    }
}

/// A number that looks like chance, and is the same each time.
fn chance(of: u64) -> u64 {
    let mixed = of.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 33
}

/// Whether a request is answered, by its number.
type Answered<'a> = &'a dyn Fn(usize) -> bool;

/// Requests of sessions, each after a pause, those that are not answered unpaid: the most that any beginning of them cost,
/// and all of them, as shares of what they cost without marks.
fn shares(requests: &[(i64, String, Bytes)], is_answered: Answered<'_>) -> (f64, f64) {
    shares_at(Provider::default(), requests, is_answered)
}

/// The same at such a provider.
fn shares_at(provider: Provider, requests: &[(i64, String, Bytes)], is_answered: Answered<'_>) -> (f64, f64) {
    let all = beginnings_at(provider, requests, is_answered);
    (all.iter().copied().fold(0.0, f64::max), *all.last().unwrap())
}

/// What each beginning of them costs, whether the provider is asked itself or by way of a router: the most of both.
fn beginnings_at(
    provider: Provider,
    requests: &[(i64, String, Bytes)],
    is_answered: Answered<'_>,
) -> Vec<f64> {
    let routed: Vec<_> =
        requests.iter().map(|(pause, session, body)| (*pause, session.clone(), routed(body))).collect();
    let by_router = beginnings_in("openai-chat", provider.clone(), &routed, is_answered);
    let itself = beginnings_in("anthropic", provider, requests, is_answered);
    by_router.into_iter().zip(itself).map(|(by_router, itself)| by_router.max(itself)).collect()
}

/// A request as it is sent to a router.
fn routed(body: &Bytes) -> Bytes {
    let mut body: Value = serde_json::from_slice(body).unwrap();
    body["model"] = json!(format!("anthropic/{}", body["model"].as_str().unwrap().replace("4-5", "4.5")));
    let system = body.as_object_mut().unwrap().remove("system");
    let mut messages: Vec<Value> =
        system.map(|system| json!({"role": "system", "content": system})).into_iter().collect();
    for message in body["messages"].as_array().unwrap() {
        let block = &message["content"][0];
        messages.push(match block["type"].as_str() {
            Some("tool_use") => {
                let function = json!({"name": block["name"], "arguments": block["input"].to_string()});
                let call = json!({"id": block["id"], "type": "function", "function": function});
                json!({"role": "assistant", "content": null, "tool_calls": [call]})
            }
            Some("tool_result") => {
                json!({"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]})
            }
            _ => message.clone(),
        });
    }
    body["messages"] = json!(messages);
    Bytes::from(body.to_string())
}

/// The same in a dialect.
fn beginnings_in(
    dialect: &str,
    provider: Provider,
    requests: &[(i64, String, Bytes)],
    is_answered: Answered<'_>,
) -> Vec<f64> {
    let requests: Vec<_> = requests.iter().map(|request| (0, request.clone())).collect();
    beginnings_of(&bills_in(dialect, vec![("", provider)], &requests, is_answered))
}

/// The most that any beginning of requests costs that are billed so.
fn beginnings_of(bills: &[(f64, f64)]) -> Vec<f64> {
    let sums = bills.iter().scan((0.0, 0.0), |sum, bill| {
        *sum = (sum.0 + bill.0, sum.1 + bill.1);
        Some(*sum)
    });
    sums.map(|(paid, plain)| paid / plain).collect()
}

/// What each of them costs that is answered, and without marks, where each goes to one of these upstreams.
fn bills_in(
    dialect: &str,
    mut upstreams: Vec<(&str, Provider)>,
    requests: &[(usize, (i64, String, Bytes))],
    is_answered: Answered<'_>,
) -> Vec<(f64, f64)> {
    let rig = Rig::new();
    let core = rig.core(rig.store("store"), Policy::default(), prices(0));
    let protocol = protocol::named(dialect).unwrap();
    let direct = |(_, provider): &(&str, Provider)| {
        let Provider { forgets, others, seed, .. } = *provider;
        Provider { others, seed, forgets, ..Provider::default() }
    };
    let mut direct: Vec<_> = upstreams.iter().map(direct).collect();
    let (mut now, mut bills) = (0, Vec::new());
    for (at, (to, (pause, session, body))) in requests.iter().enumerate() {
        wait(*pause);
        now += pause;
        let ((upstream, provider), direct) = (&mut upstreams[*to], &mut direct[*to]);
        (provider.now, direct.now) = (now, now);
        let sent = rig.send_to(upstream, &core, protocol, &headers("k", session), body);
        let place = sent.facts.place.as_ref().unwrap();
        if !is_answered(at) {
            core.lineage.ended(place, Fate::Refused);
            continue;
        }
        let (cost, told) = provider.bill(sent.body.as_ref().unwrap_or(body));
        core.lineage.ended(place, told);
        bills.push((cost, direct.bill(body).0));
    }
    bills
}

/// The instructions of each request.
type Instructions<'a> = &'a dyn Fn(usize) -> Value;

/// A client's requests, of one session or each of its own.
type Requests<'a> = (&'static str, bool, &'a dyn Fn(usize) -> Bytes);

/// Whatever the client sends that marks nothing, and whenever it stops: it has paid 15 % more than without marks at
/// most, and much less where it pauses for no longer than its provider keeps what it marks.
#[test]
fn what_nobody_reads_is_seldom_written() {
    let words = |role: &str, text: String| json!({"role": role, "content": text});
    let said = |at: usize| words(["user", "assistant"][at % 2], format!("{at} {}", "words ".repeat(200)));
    let talk: Vec<Value> = (0..80).map(said).collect();
    let body = |messages: usize, last: Option<(&str, usize)>| {
        let last =
            last.map(|(text, at)| words("user", format!("{text} {at} {}", "now ".repeat(9 + 97 * at % 151))));
        let messages: Vec<&Value> = talk[..messages].iter().chain(&last).collect();
        Bytes::from(json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}).to_string())
    };
    let marked = |body: Bytes| {
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        let mark = json!({"type": "ephemeral"});
        body["system"] = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
        Bytes::from(body.to_string())
    };
    // As frameworks do that mark what they begin with, and nothing that comes behind it.
    let marked_at = |at: usize, body: Bytes| {
        let mut body: Value = serde_json::from_slice(&marked(body)).unwrap();
        let (text, mark) = (body["messages"][at]["content"].take(), json!({"type": "ephemeral"}));
        body["messages"][at]["content"] = json!([{"type": "text", "text": text, "cache_control": mark}]);
        Bytes::from(body.to_string())
    };
    let begun = |body| marked_at(0, body);
    // As those do that mark what the user said last, or the last of their examples.
    let cases: [Requests<'_>; 17] = [
        ("goes on", true, &|at| body(2 * at + 1, None)),
        ("goes on from half-way", true, &|at| body(2 * at + 31, None)),
        ("a state at the end", true, &|at| body(2 * at + 1, Some(("state", at)))),
        ("a state at the end, from half-way", true, &|at| body(2 * at + 31, Some(("state", at)))),
        ("the same", true, &|_| body(9, None)),
        ("the same in other sessions", false, &|_| body(9, None)),
        ("examples", true, &|at| body(36, Some(("question", at)))),
        ("examples in other sessions", false, &|at| body(36, Some(("question", at)))),
        ("another session each time", false, &|at| body(2 * at + 1, None)),
        ("goes on behind instructions that the client marks", true, &|at| marked(body(2 * at + 1, None))),
        ("the same behind marked instructions", true, &|_| marked(body(9, None))),
        ("the same behind marked instructions in other sessions", false, &|_| marked(body(9, None))),
        ("goes on behind a first message that the client marks", true, &|at| begun(body(2 * at + 1, None))),
        ("goes on from half-way behind a marked first message", true, &|at| begun(body(2 * at + 31, None))),
        ("the same behind a marked first message", true, &|_| begun(body(9, None))),
        ("a state at the end, behind a marked first message", true, &|at| {
            begun(body(2 * at + 1, Some(("state", at))))
        }),
        ("goes on behind a mark that moves now and then", true, &|at| {
            marked_at(at / 10 * 20, body(2 * at + 1, None))
        }),
    ];
    // Here the client has what there is to be had: nothing must be lost.
    let served: [Requests<'_>; 3] = [
        ("marked examples", true, &|at| marked_at(34, body(36, Some(("question", at))))),
        ("marked examples in other sessions", false, &|at| marked_at(34, body(36, Some(("question", at))))),
        ("another session each time, marked half-way", false, &|at| marked_at(at, body(2 * at + 1, None))),
    ];
    // Minutes between the requests, and behind each fifth, how often each is sent until it is answered, and the most that
    // all of them may cost.
    for (pause, fifth, tries, most) in
        [(1, 1, 1, 0.5), (10, 10, 1, 1.151), (10, 1, 1, 1.151), (1, 1, 2, 0.5), (10, 1, 4, 1.151)]
    {
        let cases = cases.iter().map(|case| (case, most)).chain(served.iter().map(|case| (case, 1.151)));
        for ((case, is_one, body), most) in cases {
            let request = |at: usize| {
                let (again, at) = (at % tries, at / tries);
                let session = if *is_one { "one".to_owned() } else { at.to_string() };
                let pause = if at.is_multiple_of(5) { fifth } else { pause };
                (if again > 0 { MINUTE / 60 } else { MINUTE * pause }, session, body(at))
            };
            let requests: Vec<_> = (0..20 * tries).map(request).collect();
            let (worst, all) = shares(&requests, &|at| at % tries + 1 == tries);
            assert!(worst <= 1.151 && all <= most, "{case}, {pause} {fifth} {tries}: {worst:.3} {all:.3}");
        }
    }
}

/// What the gateway marks behind a client's mark for an hour is gone after minutes, and no dearer than any other.
#[test]
fn what_is_marked_behind_an_hour_is_kept_for_minutes() {
    let said = |at: usize| {
        let mut block = json!({"type": "text", "text": format!("{at} {}", "words ".repeat(400))});
        if at == 2 {
            block["cache_control"] = json!({"type": "ephemeral", "ttl": "1h"});
        }
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": [block]})
    };
    let request = |minutes: i64, at: usize| {
        let messages: Vec<Value> = (0..2 * at + 3).map(said).collect();
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages});
        (MINUTE * minutes, "one".to_owned(), Bytes::from(body.to_string()))
    };
    for (pauses, most) in [(&[1][..], 0.25), (&[7], 1.03), (&[7, 1], 0.8), (&[7, 1, 1], 0.65)] {
        let requests: Vec<_> = (0..30).map(|at| request(pauses[at % pauses.len()], at)).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= 1.151 && all <= most, "{pauses:?}: {worst:.3} {all:.3}");
    }
}

/// What the gateway marks lasts for minutes, and is not taken for what the client has kept for an hour in front of it.
#[test]
fn what_is_kept_for_minutes_is_not_booked_for_an_hour() {
    let mark = json!({"type": "ephemeral", "ttl": "1h"});
    let system = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    let said = |at: usize| {
        let words = json!([{"type": "text", "text": format!("{at} {}", "words ".repeat(200))}]);
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": words})
    };
    for dialect in ["anthropic", "openai-chat"] {
        let rig = Rig::new();
        let core = rig.core(rig.store("store"), Policy::default(), prices(0));
        let told = [1, 3, 5, 7].map(|count| {
            wait(MINUTE);
            let messages: Vec<Value> = (0..count).map(said).collect();
            let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
            let body = Bytes::from(body.to_string());
            let body = if dialect == "anthropic" { body } else { routed(&body) };
            let sent = rig.send(&core, protocol::named(dialect).unwrap(), &headers("k", "one"), &body);
            core.lineage.ended(sent.facts.place.as_ref().unwrap(), Fate::Billed);
            let left = String::from_utf8(sent.body.as_ref().unwrap_or(&body).to_vec()).unwrap();
            let is_all_long = left.matches("cache_control").count() == left.matches(r#""1h""#).count();
            assert_eq!(sent.facts.kept_long, is_all_long, "{dialect} {count} {left}");
            is_all_long
        });
        assert!(told.contains(&true) && told.contains(&false), "{dialect} {told:?}");
    }
}

/// Of a conversation that never reads what it has written one stake is lost, and not one with each request.
#[test]
fn what_was_not_read_is_not_written_again() {
    let long = "Be brief. ".repeat(900);
    let text = |text: String| json!({"type": "text", "text": text});
    let said = |at: usize| {
        let role = ["user", "assistant"][at % 2];
        json!({"role": role, "content": format!("{at} {}", "words ".repeat(400))})
    };
    let request = |system: Value, minutes: f64, at: usize| {
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        ((MINUTE as f64 * minutes) as i64, "one".to_owned(), Bytes::from(body.to_string()))
    };
    let clock = |at: usize| json!(format!("{long}Now {at}."));
    let blocks = |at: usize| json!([text(long.clone()), text(format!("Now {at}."))]);
    let marked = |first: &str, behind: String| {
        let mark = json!({"type": "ephemeral"});
        json!([{"type": "text", "text": first, "cache_control": mark}, text(behind)])
    };
    let in_front = |at: usize| marked(&long, format!("Now {at}."));
    let same = |_: usize| json!(long);
    let few = |_: usize| marked("Be brief.", long.repeat(4));
    let nothing = Forgets::Nothing;
    let cases: [(&str, Instructions<'_>, f64, Forgets); 7] = [
        ("a clock in the instructions", &clock, 1.0, nothing),
        ("a clock in a block of its own", &blocks, 1.0, nothing),
        ("a clock behind what the client marks", &in_front, 1.0, nothing),
        ("each answer is read for long", &same, 7.0, nothing),
        ("each answer is read for long, behind what is marked", &few, 7.0, nothing),
        ("a provider that keeps nothing", &same, 1.0, Forgets::All),
        ("a provider that keeps nothing of what the client marks either", &in_front, 1.0, Forgets::All),
    ];
    for (case, system, minutes, forgets) in cases {
        let requests: Vec<_> = (0..30).map(|at| request(system(at), minutes, at)).collect();
        let provider = Provider { forgets, ..Provider::default() };
        let (worst, all) = shares_at(provider, &requests, &|_| true);
        // What is there once more costs its premium once more, until the answer tells that it was not.
        let (bound, most) = if forgets == nothing { (1.151, 1.03) } else { (1.2, 1.04) };
        assert!(worst <= bound && all <= most, "{case}: {worst:.3} {all:.3}");
    }
    // What is dropped by chance, now and then, is written again; of two preludes in turn each has entries of its own.
    let two = |at: usize| json!(format!("{long}{}", at % 2));
    let cases: [(&str, Instructions<'_>, &'static [usize], f64); 3] = [
        ("as ever", &same, &[], 0.25),
        ("dropped twice", &same, &[10, 13], 0.4),
        ("two in turn", &two, &[], 0.4),
    ];
    for (case, system, drops, most) in cases {
        let requests: Vec<_> = (0..30).map(|at| request(system(at), 1.0, at)).collect();
        let provider = Provider { drops: drops.to_vec(), ..Provider::default() };
        let (worst, all) = shares_at(provider, &requests, &|_| true);
        assert!(worst <= 1.151 && all <= most, "{case}: {worst:.3} {all:.3}");
    }
    // Of requests in pairs each second one reads; who is slow only at times loses little.
    for (pauses, most) in
        [(&[7.0, 1.0][..], 0.8), (&[1.0, 1.0, 7.0], 0.65), (&[7.0, 7.0, 1.0, 1.0, 1.0], 0.8)]
    {
        let requests: Vec<_> = (0..30).map(|at| request(same(at), pauses[at % pauses.len()], at)).collect();
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= 1.151 && all <= most, "{pauses:?}: {worst:.3} {all:.3}");
    }
}

/// Where what is written is not there the next time, it costs its premium once more until the answer tells so; from then on
/// the conversation is within its bound, also where tools and instructions are read, and where each request leaves out the
/// last words of the one before it.
#[test]
fn what_is_not_kept_is_seldom_written() {
    let long = "Be brief. ".repeat(900);
    let text = |text: String| json!({"type": "text", "text": text});
    let marked = |behind: Option<String>| {
        let mark = json!({"type": "ephemeral"});
        let first = json!({"type": "text", "text": long, "cache_control": mark});
        json!([first].into_iter().chain(behind.map(text)).collect::<Vec<_>>())
    };
    let (same, kept) = (|_: usize| json!(long), |_: usize| marked(None));
    let in_front = |at: usize| marked(Some(format!("Now {at}.")));
    let clients: [(&str, Instructions<'_>); 3] =
        [("no marks", &same), ("marked instructions", &kept), ("a clock behind them", &in_front)];
    for (client, system) in clients {
        for (forgets, state) in
            [(Forgets::All, ""), (Forgets::All, "now "), (Forgets::History, ""), (Forgets::History, "now ")]
        {
            let request = |at: usize| {
                let role = |message: usize| ["user", "assistant"][message % 2];
                let said = |message: usize| json!({"role": role(message), "content": format!("{message} {}", "words ".repeat(400))});
                let last = json!({"role": "user", "content": format!("{at} {}", state.repeat(100))});
                let last = Some(last).filter(|_| !state.is_empty());
                let messages: Vec<Value> = (0..=2 * at).map(said).chain(last).collect();
                let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system(at), "messages": messages});
                (MINUTE / 6, "one".to_owned(), Bytes::from(body.to_string()))
            };
            let requests: Vec<_> = (0..30).map(request).collect();
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            let most = |count: usize| match count {
                ..=3 => 1.2,
                4..30 => 1.151,
                _ => 1.04,
            };
            assert!(
                all.iter().zip(1..).all(|(share, count)| *share <= most(count)),
                "{client} {state}: {all:.3?}"
            );
        }
    }
}

/// Where the last message ends with words that the next request leaves out of it, or says otherwise there, what stands in
/// front of them is read; and where nothing is kept the conversation is within its bound.
#[test]
fn what_stands_before_words_that_are_left_out_is_read() {
    let system = json!("Be brief. ".repeat(900));
    let request = |at: usize, every: usize, instead: &str| {
        let block = |text: String| json!({"type": "text", "text": text});
        let said = |message: usize| {
            let state = match message / 2 {
                turn if turn % every + 1 < every => String::new(),
                turn if turn == at => format!("{at} {}", "now ".repeat(100)),
                _ => instead.to_owned(),
            };
            let state = Some(state).filter(|state| !state.is_empty() && message.is_multiple_of(2));
            let text = block(format!("{message} {}", "words ".repeat(1_200)));
            let blocks: Vec<Value> = [text].into_iter().chain(state.map(block)).collect();
            let role = ["user", "assistant"][message % 2];
            json!({"role": role, "content": blocks})
        };
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        (MINUTE / 6, "one".to_owned(), Bytes::from(body.to_string()))
    };
    for (every, instead, most) in
        [(1, "", 0.3), (1, "gone", 0.3), (2, "", 0.35), (2, "gone", 0.35), (5, "", 0.27), (5, "gone", 0.27)]
    {
        let requests: Vec<_> = (0..30).map(|at| request(at, every, instead)).collect();
        for (forgets, most) in [(Forgets::Nothing, most), (Forgets::History, 1.04), (Forgets::All, 1.04)] {
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            let bound = |count: usize| if count <= 3 { 1.2 } else { 1.151 };
            let is_within = all.iter().zip(1..).all(|(share, count)| *share <= bound(count));
            assert!(is_within && all[29] <= most, "{every} {instead} {forgets:?}: {all:.3?}");
        }
    }
}

/// Where each request is brought to one of several caches by chance, what is not there is there once all of them are filled.
#[test]
fn what_some_caches_keep_is_written() {
    let mark = json!({"type": "ephemeral"});
    let marked = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    for (client, system) in [("no marks", json!("Be brief. ".repeat(900))), ("marked instructions", marked)] {
        let request = |at: usize| {
            let role = |message: usize| ["user", "assistant"][message % 2];
            let said = |message: usize| json!({"role": role(message), "content": format!("{message} {}", "words ".repeat(200))});
            let messages: Vec<Value> = (0..=2 * at).map(said).collect();
            let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
            (MINUTE / 6, "one".to_owned(), Bytes::from(body.to_string()))
        };
        let requests: Vec<_> = (0..30).map(request).collect();
        for (others, most) in [(1, 0.32), (2, 0.42), (3, 0.52), (7, 0.82)] {
            let shares = [0, 1, 2, 3].map(|seed| {
                let provider = Provider { others, seed, ..Provider::default() };
                let all = beginnings_at(provider, &requests, &|_| true);
                let bound = |count: usize| if count <= 3 { 1.2 } else { 1.151 };
                let is_within = all.iter().zip(1..).all(|(share, count)| *share <= bound(count));
                assert!(is_within, "{client} {others} {seed}: {all:.3?}");
                all[29]
            });
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!(mean <= most, "{client} {others}: {shares:.3?}");
        }
    }
}

/// Who has found that something is kept begins its other talks with that; where that is over, each is within its bound.
#[test]
fn what_is_known_of_caches_is_known_to_other_talks() {
    let request = |talk: usize, at: usize| {
        let role = |message: usize| ["user", "assistant"][message % 2];
        let text = |message: usize| format!("{talk} {message} {}", "words ".repeat(200));
        let said = |message: usize| json!({"role": role(message), "content": text(message)});
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let system = format!("{talk} {}", "Be brief. ".repeat(900));
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        (0, (MINUTE / 6, talk.to_string(), Bytes::from(body.to_string())))
    };
    let requests: Vec<_> = (0..8 * 12).map(|at| request(at / 12, at % 12)).collect();
    // From the third talk on all is dropped before each request.
    let dropped: Vec<usize> = (24..8 * 12).collect();
    for (others, drops, most) in [(3, &[][..], 0.69), (0, &dropped, 0.87)] {
        let shares = [0, 1, 2, 3].map(|seed| {
            let provider = Provider { others, seed, drops: drops.to_vec(), ..Provider::default() };
            let bills = bills_in("anthropic", vec![("", provider)], &requests, &|_| true);
            for talk in bills.chunks(12) {
                let all = beginnings_of(talk);
                let bound = |count: usize| if count <= 3 { 1.2 } else { 1.151 };
                let is_within = all.iter().zip(1..).all(|(share, count)| *share <= bound(count));
                assert!(is_within, "{others} {seed}: {all:.3?}");
            }
            *beginnings_of(&bills).last().unwrap()
        });
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!(mean <= most, "{others}: {shares:.3?}");
    }
}

/// A server that keeps nothing is told once, and not by each talk that is held with it, nor by each that branches off.
#[test]
fn what_a_server_does_not_keep_is_not_tried_in_each_talk() {
    let said = |talk: usize, message: usize| {
        let role = ["user", "assistant"][message % 2];
        json!({"role": role, "content": format!("{talk} {message} {}", "words ".repeat(900))})
    };
    let request = |session: usize, messages: Vec<Value>| {
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages});
        (MINUTE / 60, session.to_string(), Bytes::from(body.to_string()))
    };
    let short = |length: usize| {
        let talk = move |talk: usize| {
            (0..length)
                .map(move |at| request(talk, (0..=2 * at).map(|message| said(talk, message)).collect()))
        };
        (0..20).flat_map(talk).collect::<Vec<_>>()
    };
    // Each goes back to the same answer, and on from there.
    let branches = |length: usize| {
        let branch = move |branch: usize| {
            let talk = move |message: usize| said(if message < 4 { 0 } else { branch }, message);
            (1..=length).map(move |at| request(0, (0..=2 * at).map(talk).collect()))
        };
        (0..20).flat_map(branch).collect::<Vec<_>>()
    };
    for (case, requests) in
        [("3", short(3)), ("4", short(4)), ("branches", branches(3)), ("longer", branches(5))]
    {
        for forgets in [Forgets::All, Forgets::Nothing] {
            let provider = Provider { forgets, ..Provider::default() };
            let all = beginnings_at(provider, &requests, &|_| true);
            let most = if forgets == Forgets::All { 1.08 } else { 0.95 };
            let late = all.iter().skip(8).copied().fold(0.0, f64::max);
            assert!(
                late <= 1.151 && all.last().is_some_and(|all| *all <= most),
                "{case} {forgets:?}: {all:.3?}"
            );
        }
    }
}

/// What is not kept by one upstream, or for one model, tells nothing of another, neither to other talks nor to one that goes on
/// there.
#[test]
fn each_cache_is_known_by_itself() {
    let request = |talk: usize, at: usize, model: &str| {
        let role = |message: usize| ["user", "assistant"][message % 2];
        let text = |message: usize| format!("{talk} {message} {}", "words ".repeat(400));
        let said = |message: usize| json!({"role": role(message), "content": text(message)});
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body = json!({"model": model, "max_tokens": 9, "system": "Be brief. ".repeat(900), "messages": messages});
        (MINUTE / 60, talk.to_string(), Bytes::from(body.to_string()))
    };
    // Talks by their number and where each of their requests goes; what the second upstream does; and the most that all costs
    // at the first one.
    let one_then = |count: usize, to: usize, then: usize| [vec![to; count], vec![then; 20]].concat();
    for (case, talks, forgets, most) in [
        ("another talk", vec![vec![1; 20], vec![0; 20]], Forgets::All, 0.3),
        ("short talks", [vec![vec![1; 3]; 12], vec![vec![0; 20]]].concat(), Forgets::All, 0.3),
        ("talks that end", [vec![vec![1; 2]; 12], vec![vec![0; 4]]].concat(), Forgets::Nothing, 0.75),
        ("the same talk", vec![one_then(14, 1, 0)], Forgets::All, 0.3),
        ("the same talk, later", vec![one_then(20, 1, 0)], Forgets::All, 0.3),
        ("the same talk, the other way", vec![one_then(5, 0, 1)], Forgets::All, 0.65),
        ("in turns", vec![[0, 1].repeat(15)], Forgets::Nothing, 0.35),
        ("in turns with one that forgets", vec![[0, 1].repeat(15)], Forgets::All, 0.4),
    ] {
        for (dialect, by_model) in
            [("anthropic", false), ("anthropic", true), ("openai-chat", false), ("openai-chat", true)]
        {
            let models =
                ["claude-sonnet-4-5", if by_model { "claude-opus-4-5" } else { "claude-sonnet-4-5" }];
            let upstreams = ["first", if by_model { "first" } else { "second" }];
            let mut requests = Vec::new();
            for (talk, tos) in talks.iter().enumerate() {
                for (at, to) in tos.iter().enumerate() {
                    let (pause, session, body) = request(talk, at, models[*to]);
                    let body = if dialect == "anthropic" { body } else { routed(&body) };
                    requests.push((*to, (pause, session, body)));
                }
            }
            let forgetting = Provider { forgets, ..Provider::default() };
            let providers = vec![(upstreams[0], Provider::default()), (upstreams[1], forgetting)];
            let bills = bills_in(dialect, providers, &requests, &|_| true);
            let to = requests.iter().map(|request| request.0);
            let first: Vec<_> =
                bills.iter().zip(to).filter(|(_, to)| *to == 0).map(|(bill, _)| *bill).collect();
            let (all, first) = (beginnings_of(&bills), *beginnings_of(&first).last().unwrap());
            // Each of the first talks has a stake of its own.
            let late = all.iter().skip(12).copied().fold(0.0, f64::max);
            assert!(first <= most && late <= 1.151, "{case} {dialect} {by_model}: {first:.3} {all:.3?}");
        }
    }
}

/// Talks that end where something of theirs would have been read first cost more for being written: a few of them show
/// it, and it is not done again until one goes on. Those that do go on are written as ever.
#[test]
fn a_batch_of_short_talks_is_seldom_written() {
    let request = |talk: usize, at: usize| {
        let said = |message: usize| {
            let text = format!("{talk} {message} {}", "words ".repeat(900));
            let role = ["user", "assistant"][message % 2];
            json!({"role": role, "content": text})
        };
        let messages: Vec<Value> = (0..=2 * at).map(said).collect();
        let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages});
        (MINUTE / 60, talk.to_string(), Bytes::from(body.to_string()))
    };
    // How many requests each of the talks has, how many are held at the same time, and the most that all may cost.
    for (lengths, beside, most) in [
        (&[2; 40][..], 1, 1.01),
        (&[2; 40], 8, 1.01),
        (&[1; 40], 1, 1.0),
        (&[8; 8], 1, 0.4),
        (&[8; 8], 8, 0.42),
        // One in five goes on, once or for long.
        (&[2, 2, 2, 2, 3].repeat(8), 1, 1.05),
        (&[2, 2, 2, 2, 8].repeat(8), 4, 0.6),
    ] {
        let mut requests = Vec::new();
        for (group, lengths) in lengths.chunks(beside).enumerate() {
            for at in 0..lengths.iter().copied().max().unwrap_or_default() {
                let talks = (0..lengths.len()).filter(|talk| at < lengths[*talk]);
                requests.extend(talks.map(|talk| request(group * beside + talk, at)));
            }
        }
        let (worst, all) = shares(&requests, &|_| true);
        assert!(worst <= 1.151 && all <= most, "{lengths:?} {beside}: {worst:.3} {all:.3}");
    }
    // One that is refused and tried again has one stake.
    let tries = (0..8).flat_map(|at| std::iter::repeat_n(at, if at == 1 { 5 } else { 1 }));
    let requests: Vec<_> = tries.map(|at| request(0, at)).collect();
    let (worst, all) = shares(&requests, &|at| !(1..5).contains(&at));
    assert!(worst <= 1.151 && all <= 0.4, "{worst:.3} {all:.3}");
}

/// What the provider refuses has cost nothing, however often it is sent, and whether it is sent again or given up for
/// something else.
#[test]
fn what_is_refused_is_not_staked() {
    let text = "words ".repeat(2_000);
    let said = |at: usize, again: usize| json!({"role": "user", "content": format!("{at} {again} {text}")});
    let answer = |at: usize| json!({"role": "assistant", "content": format!("{at} {text}")});
    // What the user says anew stands behind what was refused, or in its place.
    for (says, is_behind) in [(false, false), (true, false), (true, true)] {
        for tries in 1..6 {
            let mut talk = Vec::new();
            let mut requests = Vec::new();
            for at in 0..4 * tries {
                let (turn, again) = (at / tries, at % tries);
                if again == 0 || is_behind {
                    talk.push(said(turn, again));
                } else if says {
                    talk.pop();
                    talk.push(said(turn, again));
                }
                let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": talk});
                requests.push((MINUTE / 60, "one".to_owned(), Bytes::from(body.to_string())));
                if again + 1 == tries {
                    talk.push(answer(turn));
                }
            }
            let (worst, all) = shares(&requests, &|at| at % tries + 1 == tries);
            assert!(worst <= 1.151, "{says} {is_behind} {tries}: {worst:.3} {all:.3}");
        }
    }
}

/// An agent that marks its instructions alone, or its first message too, with results that are cut: what the gateway
/// saves is not for the provider to have again, since the history is read as if it were new until it is marked.
#[test]
fn what_is_saved_by_cutting_may_be_staked() {
    let mark = json!({"type": "ephemeral"});
    let marked = json!([{"type": "text", "text": "Look around.", "cache_control": mark}]);
    for first in [json!("Look around."), marked] {
        stakes_what_is_saved(&first);
    }
}

fn stakes_what_is_saved(first: &Value) {
    let mut talk = vec![json!({"role": "user", "content": first})];
    for (at, lines) in [4_usize, 2_000, 4_000, 100, 10, 10].into_iter().enumerate() {
        let id = format!("toolu_{at}");
        let call =
            json!({"type": "tool_use", "id": id, "name": "bash", "input": {"command": format!("make {at}")}});
        let text: Vec<_> = (0..lines).map(|line| format!("{at} {line} compiled without a warning")).collect();
        talk.push(json!({"role": "assistant", "content": [call]}));
        let result = json!({"type": "tool_result", "tool_use_id": id, "content": text.join("\n")});
        talk.push(json!({"role": "user", "content": [result]}));
    }
    let mark = json!({"type": "ephemeral"});
    let system = json!([{"type": "text", "text": "Be brief. ".repeat(900), "cache_control": mark}]);
    let request = |at: usize| {
        let messages = &talk[..=2 * at];
        let body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 9, "system": system, "messages": messages});
        (MINUTE, "one".to_owned(), Bytes::from(body.to_string()))
    };
    let requests: Vec<_> = (0..=6).map(request).collect();
    let (worst, all) = shares(&requests, &|_| true);
    assert!(worst <= 1.151 && all <= 0.3, "{worst:.3} {all:.3}");
}
