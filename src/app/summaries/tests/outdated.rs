//! Tests of [`Outdated`](super::super::outdated::Outdated).

use super::super::outdated::Outdated;
use super::*;

/// What happens to a thread of one conversation: its request has a prompt of so many tokens, near the window of
/// 10,000 of which 9,000 are usable; or a summary of it is begun or used.
enum Happens {
    Near(&'static str, u64),
    Begun(&'static str),
    Used,
}

#[test]
fn a_client_that_cuts_its_history_is_likely_to_do_so_again() {
    use Happens::{Begun, Near, Used};
    for (name, growth, happens, expected) in [
        ("nothing is known", 300, &[Near("a", 8_000)][..], false),
        ("the thread itself", 300, &[Near("a", 8_000), Begun("a"), Near("a", 8_100)], false),
        ("as far as before", 300, &[Near("a", 8_000), Begun("a"), Near("b", 8_000)], true),
        ("not as far", 300, &[Near("a", 8_000), Begun("a"), Near("a", 8_400), Near("b", 7_600)], true),
        ("one request further", 300, &[Near("a", 8_000), Begun("a"), Near("b", 8_300)], true),
        ("further than that", 300, &[Near("a", 8_000), Begun("a"), Near("b", 8_301)], false),
        ("nearer to the end", 5_000, &[Near("a", 8_000), Begun("a"), Near("b", 8_501)], false),
        ("none was begun", 300, &[Near("a", 8_000), Near("b", 8_000)], false),
        ("it was used", 300, &[Near("a", 8_000), Begun("a"), Used, Near("b", 8_000)], false),
        (
            "threads side by side",
            300,
            &[Near("b", 7_000), Near("a", 8_000), Begun("a"), Near("a", 8_100), Near("b", 8_000)],
            false,
        ),
        (
            "the third one",
            300,
            &[Near("a", 8_000), Begun("a"), Near("b", 8_000), Near("c", 7_900), Near("d", 8_100)],
            true,
        ),
        (
            "it did not, and then did",
            300,
            &[Near("a", 8_000), Begun("a"), Near("b", 8_600), Begun("b"), Near("c", 8_500)],
            true,
        ),
    ] {
        let (outdated, mut last) = (Outdated::new(), None);
        for (now_ms, happens) in (0..).zip(happens) {
            match happens {
                Near(thread, prompt) => {
                    outdated.comes_near(thread, *prompt, now_ms);
                    last = Some((*thread, *prompt));
                }
                Begun(thread) => outdated.begins("one", thread),
                Used => outdated.is_used("one"),
            }
        }
        let (thread, prompt) = last.unwrap();
        let gauge = Gauge { prompt, window: 10_000, reserve: 1_000, margin: 0 };
        let growth = Some(window::Growth { velocity: 200.0, largest: growth });
        let conversation = talk("ucc", &[]);
        let place = place(&conversation, Chain::root("x", b""));
        let terms = terms(None, &Policy::default());
        let level = Level { gauge: Some(gauge), growth, ..seen((&conversation, &place), &terms, "m").level };
        assert_eq!(outdated.is_likely("one", thread, &level), expected, "{name}");
        assert!(!outdated.is_likely("other", thread, &level), "{name}");
    }
}
