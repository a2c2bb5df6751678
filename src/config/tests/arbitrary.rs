//! No text causes a panic.

use proptest::prelude::*;

use super::*;

/// Pieces of texts that are TOML in places.
const PIECES: &[&str] = &[
    "\n",
    "\n",
    "\r\n",
    " ",
    "=",
    " = ",
    ".",
    ",",
    "[",
    "]",
    "[[",
    "]]",
    "{",
    "}",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "#",
    "\\",
    "\u{feff}",
    "é",
    "\0",
    "0",
    "-1",
    "1.5",
    "inf",
    "true",
    "1979-05-27",
    "5",
    "'*'",
    "\"5KiB\"",
    "mode",
    "listen",
    "truncate",
    "tool",
    "upstream",
    "openai",
    "headers",
    "limits",
    "queue",
    "views",
    "max_bytes",
    "prices",
    "model",
    "input",
    "[truncate]\n",
    "[upstream.x]\n",
    "[[limits]]\n",
    "max_bytes = ",
    "base_url = ",
];

proptest! {
    #[test]
    fn no_text_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let text = pieces.concat();
        if let Err(problems) = Config::from_toml(&text, &at_home) {
            let lines = text.split('\n').count();
            prop_assert!(!problems.as_slice().is_empty());
            for problem in problems.as_slice() {
                prop_assert!(problem.line.is_none_or(|line| (1..=lines).contains(&line)), "{problem:?}");
                prop_assert!(!problem.message.contains('\n'), "{problem:?}");
            }
        }
    }

    #[test]
    fn no_string_panics(text in any::<String>()) {
        let _ = Config::from_toml(&text, &at_home);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_damage_to_the_shipped_file_panics(at in 0..SHIPPED.len(), length in 0_usize..40) {
        let (Some(head), Some(tail)) = (SHIPPED.get(..at), SHIPPED.get(at + length..)) else { return Ok(()) };
        let _ = Config::from_toml(&format!("{head}{tail}"), &at_home);
    }
}
