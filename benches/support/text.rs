//! Texts as tools return them: code, logs, JSON. Generated from a seed, the same on every machine.

use std::fmt::Write as _;

const WORDS: &[&str] = &[
    "request", "table", "session", "value", "index", "buffer", "result", "message", "parse", "write",
    "error", "config", "handler", "stream", "cache", "token", "thread", "store", "replace", "the", "of",
    "and", "to", "when", "each", "is", "not", "before", "after", "a",
];

/// A small generator of numbers (splitmix64): enough for texts, and it never changes with a library.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len())]
    }
}

/// A file of source code with line numbers, about `bytes` long.
pub(crate) fn code(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 100);
    let mut line = 1;
    while text.len() < bytes {
        let (a, b, c) = (random.word(), random.word(), random.word());
        let _ = match random.below(6) {
            0 => writeln!(text, "{line:>6}\t"),
            1 => writeln!(text, "{line:>6}\t    // The {a} {b} {c} {a} is \"{b}\"."),
            2 => writeln!(text, "{line:>6}\tfn {a}_{b}({c}: &str) -> Option<{b}> {{"),
            3 => writeln!(text, "{line:>6}\t    let {a} = {b}.{c}(\"{a}\\n\", {line})?;"),
            4 => writeln!(text, "{line:>6}\t    if {a}.{b}() > {line} {{ return None; }}"),
            _ => writeln!(text, "{line:>6}\t    {a}.{b}({c})"),
        };
        line += 1;
    }
    text
}

/// The output of a build or a test run, about `bytes` long: colours, progress, repeated lines.
pub(crate) fn log(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 500);
    let mut second = 0;
    while text.len() < bytes {
        second += random.below(3);
        let (a, b, c) = (random.word(), random.word(), random.word());
        let number = random.below(10_000);
        let _ = match random.below(12) {
            0 => writeln!(text, "\u{1b}[32m   Compiling\u{1b}[0m {a}-{b} v0.{}.{}", number % 9, number % 7),
            1 => writeln!(text, "\u{1b}[33mwarning\u{1b}[0m: unused {a}: `{b}_{c}`"),
            2 => writeln!(text, "Fetching {a}  12%\rFetching {a}  58%\rFetching {a} 100%"),
            3 => {
                let line = format!("retrying {a} in 5 seconds, attempt failed with code {}\n", number % 9);
                text.push_str(&line.repeat(1 + number % 8));
                Ok(())
            }
            4..=7 => writeln!(text, "test {a}::{b}::{c}_{a}_{number} ... ok"),
            _ => writeln!(
                text,
                "2026-01-05T10:{:02}:{:02}Z INFO {a}: {b} {c} in {number} ms",
                second / 60 % 60,
                second % 60
            ),
        };
    }
    text
}

/// A pretty-printed JSON document, about `bytes` long.
pub(crate) fn json(random: &mut Random, bytes: usize) -> String {
    let mut text = String::from("[\n");
    while text.len() < bytes {
        let (a, b, number) = (random.word(), random.word(), random.below(100_000));
        let _ = writeln!(
            text,
            "  {{\n    \"id\": {number},\n    \"name\": \"{a}-{b}\",\n    \"tags\": [\n      \"{b}\",\n      \"{a}\"\n    ],\n    \"open\": {}\n  }},",
            number % 2 == 0
        );
    }
    text.push_str("  null\n]\n");
    text
}

/// Sentences, about `bytes` long.
pub(crate) fn prose(random: &mut Random, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(random.word());
        text.push_str(if random.below(9) == 0 { ".\n" } else { " " });
    }
    text
}
