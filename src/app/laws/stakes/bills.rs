//! What requests cost with the gateway, as a share of what they cost without marks.

use bytes::Bytes;
use serde_json::{Value, json};

use super::super::rig::{Rig, headers, prices, wait};
use super::provider::Provider;
use crate::planner::{Fate, Policy};
use crate::protocol;

/// Whether a request is answered, by its number.
pub(super) type Answered<'a> = &'a dyn Fn(usize) -> bool;

/// Plays requests of sessions, each after a pause; those that are not answered cost nothing. Returns the most that any
/// prefix of them cost, and what all of them cost, as shares of what they cost without marks.
pub(super) fn shares(requests: &[(i64, String, Bytes)], is_answered: Answered<'_>) -> (f64, f64) {
    shares_at(Provider::default(), requests, is_answered)
}

/// The same at a given provider.
pub(super) fn shares_at(
    provider: Provider,
    requests: &[(i64, String, Bytes)],
    is_answered: Answered<'_>,
) -> (f64, f64) {
    let all = beginnings_at(provider, requests, is_answered);
    (all.iter().copied().fold(0.0, f64::max), *all.last().unwrap())
}

/// What each prefix of the requests costs, as a share of what it costs without marks: the larger one of asking the
/// provider directly and through a router.
pub(super) fn beginnings_at(
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
pub(super) fn routed(body: &Bytes) -> Bytes {
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

/// The same in one dialect.
pub(super) fn beginnings_in(
    dialect: &str,
    provider: Provider,
    requests: &[(i64, String, Bytes)],
    is_answered: Answered<'_>,
) -> Vec<f64> {
    let requests: Vec<_> = requests.iter().map(|request| (0, request.clone())).collect();
    beginnings_of(&bills_in(dialect, vec![("", provider)], &requests, is_answered))
}

/// What each prefix of requests with these bills costs, as a share of what it costs without marks.
pub(super) fn beginnings_of(bills: &[(f64, f64)]) -> Vec<f64> {
    let sums = bills.iter().scan((0.0, 0.0), |sum, bill| {
        *sum = (sum.0 + bill.0, sum.1 + bill.1);
        Some(*sum)
    });
    sums.map(|(paid, plain)| paid / plain).collect()
}

/// What each answered request costs, and what it costs without marks, if each is sent to one of these upstreams.
pub(super) fn bills_in(
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
