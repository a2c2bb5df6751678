//! Tests of [`Outdated`](super::super::outdated::Outdated).

use super::super::outdated::Outdated;
use super::*;

/// What happens to a thread: it branches from the one with the letter before, with this many messages that are not in
/// that; its request, near the window of 10,000 of which 9,000 are usable, has a prompt of this many tokens; or a
/// summary of it is begun or used.
enum Happens {
    Branches(char, usize),
    Near(char, u64),
    Begun(char),
    Used(char),
}

#[test]
fn a_client_that_truncated_its_history_is_expected_to_do_so_again() {
    use Happens::{Begun, Branches, Near, Used};
    for (name, growth, happens, expected) in [
        ("nothing is known", 300, &[Near('a', 8_000)][..], false),
        ("the thread itself", 300, &[Near('a', 8_000), Begun('a'), Near('a', 8_100)], false),
        ("as far as before", 300, &[Near('a', 8_000), Begun('a'), Branches('b', 5), Near('b', 8_000)], true),
        ("few new messages", 300, &[Near('a', 8_000), Begun('a'), Branches('b', 4), Near('b', 8_000)], false),
        ("no branch", 300, &[Near('a', 8_000), Begun('a'), Near('b', 8_000)], false),
        (
            "not as far",
            300,
            &[Near('a', 7_900), Begun('a'), Near('a', 8_000), Branches('b', 9), Near('b', 7_600)],
            true,
        ),
        (
            "one request further",
            50,
            &[Near('a', 8_000), Begun('a'), Branches('b', 9), Near('b', 8_050)],
            true,
        ),
        ("further than that", 50, &[Near('a', 8_000), Begun('a'), Branches('b', 9), Near('b', 8_051)], false),
        (
            "room for three more",
            300,
            &[Near('a', 8_000), Begun('a'), Branches('b', 9), Near('b', 8_100)],
            true,
        ),
        ("room for fewer", 300, &[Near('a', 8_000), Begun('a'), Branches('b', 9), Near('b', 8_101)], false),
        (
            "too long by an estimate",
            50,
            &[Near('a', 9_900), Begun('a'), Branches('b', 9), Near('b', 8_851)],
            false,
        ),
        ("none was begun", 300, &[Near('a', 8_000), Branches('b', 9), Near('b', 8_000)], false),
        (
            "it was used",
            300,
            &[Near('a', 8_000), Begun('a'), Used('a'), Branches('b', 9), Near('b', 8_000)],
            false,
        ),
        (
            "it was used by the branch",
            300,
            &[Near('a', 8_000), Begun('a'), Branches('b', 9), Used('b'), Near('b', 8_000)],
            false,
        ),
        (
            "threads side by side",
            300,
            &[Near('a', 8_000), Begun('a'), Branches('b', 9), Near('a', 8_100), Near('b', 8_000)],
            false,
        ),
        (
            "the third one",
            300,
            &[
                Near('a', 8_000),
                Begun('a'),
                Branches('b', 9),
                Near('b', 7_900),
                Branches('c', 9),
                Branches('d', 9),
                Near('d', 8_100),
            ],
            true,
        ),
        (
            "it did not, and then did",
            100,
            &[
                Near('a', 8_000),
                Begun('a'),
                Branches('b', 9),
                Near('b', 8_600),
                Begun('b'),
                Branches('c', 9),
                Near('c', 8_500),
            ],
            true,
        ),
    ] {
        assert_eq!(is_cut_likely(growth, happens), expected, "{name}");
    }
}

/// Whether the client is likely to cut the history of the last request. A request adds at most `growth`, which is known
/// of the first thread only.
fn is_cut_likely(growth: u64, happens: &[Happens]) -> bool {
    let conversation = talk("ucc", &[]);
    let of_thread = |letter: char| {
        let mut place = place(&conversation, Chain::root("x", b""));
        place.thread.id = letter.to_string();
        place.thread.parent = char::from_u32(u32::from(letter) - 1).map(|before| before.to_string());
        place
    };
    let terms = terms(None, &Policy::default());
    let level = |thread, prompt| {
        let gauge = Some(Gauge { prompt, window: 10_000, reserve: 1_000, margin: 0 });
        let growth = (thread == 'a').then_some(window::Growth { velocity: 20.0, largest: growth });
        let usual = seen(&conversation, &of_thread(thread), &terms, "m").level;
        Level { gauge, growth, prompt_tokens: prompt, ..usual }
    };
    let (outdated, mut last) = (Outdated::new(), None);
    for (now_ms, happens) in (0..).zip(happens) {
        match *happens {
            Happens::Near(thread, prompt) => {
                outdated.record_near(&of_thread(thread), &level(thread, prompt), now_ms);
                last = Some((thread, prompt));
            }
            Happens::Branches(thread, new) => {
                let place = of_thread(thread);
                let place = Place { relation: Relation::Fork, ..place };
                outdated.record_branch(&place, place.sent + new, now_ms);
            }
            Happens::Begun(thread) => outdated.record_begun(&thread.to_string()),
            Happens::Used(thread) => outdated.record_use(&of_thread(thread)),
        }
    }
    let (thread, prompt) = last.unwrap();
    outdated.is_cut_likely(&of_thread(thread), &level(thread, prompt))
}
