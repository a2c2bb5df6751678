//! Several gateways on one store.

use proptest::prelude::*;

use super::*;

/// A gateway continues what another one on the same store has sent in a thread, even if what it remembers is much
/// older.
#[test]
fn gateways_on_one_store_take_turns_in_a_thread() {
    let one = Desk::new();
    one.send(&session("s"), &talk("u:goal"), &[]);
    let other = one.restarted();
    let mut said = "u:goal".to_owned();
    for step in 1..7_u32 {
        let _ = write!(said, " c{step} r{step}");
        let desk = if step % 3 == 0 { &one } else { &other };
        desk.ids.set(10 * step);
        let place = desk.send(&session("s"), &talk(&said), &[]);
        let expected = (Relation::Continue, "thread-1", 2 * step as usize - 1);
        assert_eq!((place.relation, &*place.thread.id, place.sent), expected, "{said}");
    }
}

/// Another gateway on the store sees what this one stored, whatever it remembers itself.
#[test]
fn gateways_on_one_store_see_each_others_decisions() {
    let (one, request) = (Desk::new(), talk("u c1 r1"));
    let two = one.restarted();
    one.send(&session("s"), &request, &[decided(&request, 2, "one")]);
    let place = two.send(&session("s"), &talk("u c1 r1 c2 r2"), &[]);
    assert_eq!((place.relation, texts(&place)), (Relation::Continue, vec!["2:one".to_owned()]));
    let place = one.place(&session("s"), &talk("u c1 r1 c2 r2 a u"));
    assert_eq!((place.sent, texts(&place)), (5, vec!["2:one".to_owned()]));
}

/// A request of a walk: by which gateway, from which earlier request on, without how many of its last messages, and
/// with which words more.
type Step = (bool, prop::sample::Index, usize, &'static str);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop::sample::select(vec!["a u", "c r", "c r a u", "c r c r", "u", "a", "c r u"]);
    let back = prop_oneof![4 => Just(0_usize), 1 => 1..4_usize];
    prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), back, more), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever one of several gateways on a store has sent, the others know in which form.
    #[test]
    fn gateways_on_one_store_find_the_decisions_of_a_single_one(steps in steps()) {
        let alone = Desk::new();
        let one = Desk::new();
        let other = one.restarted();
        let mut sent: Vec<Vec<String>> = vec![vec!["u:goal".to_owned()]];
        for (at, (is_one, from, back, more)) in steps.into_iter().enumerate() {
            // Most requests continue the newest one.
            let from = if from.index(3) > 0 { sent.len() - 1 } else { from.index(sent.len()) };
            let mut words = sent[from].clone();
            words.truncate(words.len().saturating_sub(back).max(1));
            while words.last().is_some_and(|word| word.starts_with('c')) {
                words.pop();
            }
            let mut id = words.len();
            words.extend(more.split(' ').map(|word| {
                id += usize::from(word != "r");
                format!("{word}{id}:{at}")
            }));
            let request = talk(&words.join(" "));
            let desk = if is_one { &one } else { &other };
            let places = [&alone, desk].map(|desk| {
                desk.ids.set(100 * at as u32 + 100);
                let place = desk.place(&session("s"), &request);
                // Every second request decides about new results, every third about old ones.
                let is_open = |message: usize| !place.applied.iter().any(|one| one.part.message as usize == message);
                let is_due = |message: usize| {
                    let is_new = message >= place.sent;
                    is_open(message) && ((is_new && at % 2 == 0) || (!is_new && at % 3 == 2 && message < place.answered))
                };
                let results = words.iter().enumerate().filter(|(_, word)| word.starts_with('r'));
                let fresh = results.filter(|(message, _)| is_due(*message));
                let fresh: Vec<Applied> =
                    fresh.map(|(message, _)| decided(&request, message as u32, &format!("by {at}"))).collect();
                desk.send(&session("s"), &request, &fresh)
            });
            let [expected, found] = places.map(|place| {
                let mut decided = texts(&place);
                decided.sort();
                (place.sent, decided)
            });
            prop_assert_eq!(expected, found, "{:?}", words);
            sent.push(words);
        }
    }
}
