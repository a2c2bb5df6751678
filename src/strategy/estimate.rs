//! Fixed estimates of tokens from text, as known agents make them, for triggers that should fire when theirs do.
//!
//! None of them is accurate for all texts: only the provider's figures tell how many tokens a prompt has. They also
//! differ in what they count: bytes, characters, or UTF-16 code units.

/// How tokens are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Estimate {
    /// Not at all: the provider's figures are used.
    Usage,
    /// Four UTF-16 code units per token. Each text is rounded to the nearest token.
    Chars4Round,
    /// Four UTF-16 code units per token, names of roles included. The sum over all messages is rounded up.
    Chars4Ceil,
    /// Four characters per token, each text rounded down.
    Chars4Floor,
    /// Two tokens per five characters, plus a constant for each message and medium. Each byte of names, arguments and
    /// ids counts as a character.
    Chars2In5,
    /// A quarter of a token per ASCII character, and one and a half per UTF-16 code unit of other characters. Long
    /// texts and results count four code units per token.
    Weighted,
    /// Four bytes per token, each text rounded up.
    Bytes4Ceil,
}

/// Characters that [`Estimate::Chars2In5`] adds for each message.
const PER_MESSAGE: u64 = 12;
/// Tokens that [`Estimate::Chars2In5`] adds for each medium.
const PER_MEDIUM: u64 = 256;
/// Tokens that [`Estimate::Weighted`] adds for each medium.
const WEIGHTED_MEDIUM: u64 = 3_000;
/// A text with more UTF-16 code units than this is long for [`Estimate::Weighted`].
const LONG_TEXT: u64 = 100_000;

/// The contents of a message, as far as they are counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    /// The name of its role.
    pub role: &'a str,
    /// Its texts.
    pub texts: &'a [&'a str],
    /// Other strings of calls and results: names, arguments, ids.
    pub extras: &'a [&'a str],
    /// Whether the texts are a tool result.
    pub is_result: bool,
    /// The number of images and other media.
    pub media: u64,
}

/// An estimate that is summed up message by message.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    estimate: Estimate,
    tokens: u64,
    /// Code units that are rounded together over all messages.
    units: u64,
}

impl Sum {
    /// An empty sum.
    pub const fn new(estimate: Estimate) -> Self {
        Self { estimate, tokens: 0, units: 0 }
    }

    /// Adds a message.
    pub fn add(&mut self, message: &Message<'_>) {
        let Message { role, texts, extras, is_result, media } = *message;
        let all = || texts.iter().chain(extras);
        match self.estimate {
            Estimate::Usage => {}
            Estimate::Chars4Round => self.tokens += all().map(|text| (utf16(text) + 2) / 4).sum::<u64>(),
            Estimate::Chars4Ceil => self.units += utf16(role) + all().map(|text| utf16(text)).sum::<u64>(),
            Estimate::Chars4Floor => self.tokens += all().map(|text| characters(text) / 4).sum::<u64>(),
            Estimate::Chars2In5 => {
                let said: u64 = texts.iter().map(|text| characters(text)).sum();
                let more: u64 = extras.iter().map(|text| text.len() as u64).sum();
                self.tokens += (said + more + PER_MESSAGE) * 2 / 5 + media * PER_MEDIUM;
            }
            Estimate::Weighted => {
                let whole = |text: &&str| if is_result { utf16(text) / 4 } else { weighted(text) };
                self.tokens += all().map(whole).sum::<u64>() + media * WEIGHTED_MEDIUM;
            }
            Estimate::Bytes4Ceil => {
                self.tokens += all().map(|text| text.len().div_ceil(4) as u64).sum::<u64>();
            }
        }
    }

    /// The estimate so far, in tokens.
    pub const fn tokens(&self) -> u64 {
        self.tokens + self.units.div_ceil(4)
    }
}

fn characters(text: &str) -> u64 {
    text.chars().count() as u64
}

fn utf16(text: &str) -> u64 {
    text.chars().map(|c| c.len_utf16() as u64).sum()
}

fn weighted(text: &str) -> u64 {
    let units = utf16(text);
    if units > LONG_TEXT {
        return units / 4;
    }
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    // In quarters of a token: 1 for each ASCII character, 6 for each other code unit.
    (ascii + 6 * (units - ascii)) / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use Estimate::{Bytes4Ceil, Chars2In5, Chars4Ceil, Chars4Floor, Chars4Round, Weighted};

    fn tokens(estimate: Estimate, messages: &[Message<'_>]) -> u64 {
        let mut sum = Sum::new(estimate);
        for message in messages {
            sum.add(message);
        }
        sum.tokens()
    }

    fn says<'a>(role: &'a str, texts: &'a [&'a str]) -> Message<'a> {
        Message { role, texts, ..Message::default() }
    }

    #[test]
    fn estimates_of_one_text_by_every_method() {
        for (estimate, expected) in [
            (Estimate::Usage, [0, 0, 0]),
            (Chars4Round, [3, 1, 1]),
            (Chars4Ceil, [3, 1, 1]),
            (Chars4Floor, [2, 1, 0]),
            (Chars2In5, [9, 6, 5]),
            (Weighted, [2, 6, 3]),
            (Bytes4Ceil, [3, 3, 1]),
        ] {
            let found = ["hello world", "你好世界", "😀"].map(|text| tokens(estimate, &[says("", &[text])]));
            assert_eq!(found, expected, "{estimate:?}");
        }
    }

    #[test]
    fn messages_are_rounded_together_or_apart() {
        assert_eq!(tokens(Chars4Ceil, &[says("user", &["x"])]), 2);
        assert_eq!(tokens(Chars4Ceil, &[says("user", &["x"]), says("user", &["x"])]), 3);
        assert_eq!(tokens(Chars4Round, &[says("user", &["x"]), says("user", &["x"])]), 0);
        assert_eq!(tokens(Bytes4Ceil, &[says("user", &["x", "y"])]), 2);
    }

    #[test]
    fn estimates_of_calls_results_and_media() {
        let call = Message {
            role: "assistant",
            extras: &["call_1", "function", "get_weather", r#"{"city":"Berlin"}"#],
            ..Message::default()
        };
        let result = Message { texts: &["ten chars!"], extras: &["call_1"], is_result: true, ..call };
        let media = Message { role: "user", texts: &["see"], media: 2, ..Message::default() };
        for (message, expected) in [
            (says("user", &["hello"]), 6),
            (says("user", &["你好"]), 5),
            (call, 21),
            (result, 11),
            (media, 518),
        ] {
            assert_eq!(tokens(Chars2In5, &[message]), expected, "{message:?}");
        }
        assert_eq!(tokens(Weighted, &[Message { extras: &[], texts: &["你好世界"], ..result }]), 1);
        assert_eq!(tokens(Weighted, &[media]), 6_000);
        // Long texts are only counted roughly.
        for (text, expected) in
            [("é".repeat(60_000), 90_000), ("é".repeat(100_000), 150_000), ("é".repeat(100_004), 25_001)]
        {
            assert_eq!(tokens(Weighted, &[says("user", &[&text])]), expected, "{}", text.len());
        }
    }
}
