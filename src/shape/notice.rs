//! The notices that agents put into results which they have cut themselves.
//!
//! Many cut at the same limits as our defaults, and their notice comes on top. Such a text is left alone: a second
//! notice for a few hundred bytes would only confuse.

use std::borrow::Cow;

use memchr::memmem;

use super::cut::Size;

/// How much a notice may add to a text that was cut.
pub(super) const NOTICE_SIZE: Size = Size { lines: 8, bytes: 1024 };

/// How a cut result begins.
const BEGINNINGS: &[&str] = &[
    "<persisted-output>",
    "<tool_output_masked>",
    "Output too large. Showing ",
    "Warning: truncated output (original token count: ",
    "Total output lines: ",
    "...output truncated...",
];
/// How one of its last lines begins.
const ENDINGS: &[&str] = &[
    "</persisted-output>",
    "[Showing lines ",
    "[Showing last ",
    "(Showing lines ",
    "(Output capped at ",
    "(File has more lines. ",
    "Full output saved to: ",
    "The tool call succeeded but the output was truncated.",
];
/// Phrases that occur anywhere in it, right after a figure.
const INSIDES: &[&str] = &[
    " tokens truncated…",
    " chars truncated…",
    " bytes truncated...",
    " lines truncated...",
    " characters omitted] ...",
    " characters truncated] ...",
    " lines truncated] ...",
    " more lines in file. Use offset=",
    " more lines not shown. Use offset=",
];

/// Whether the client has already cut the result, and says so.
pub(super) fn is_cut_by_client(texts: &[Cow<'_, str>]) -> bool {
    texts.iter().any(|text| {
        let bytes = text.as_bytes();
        let end = &bytes[bytes.len().saturating_sub(NOTICE_SIZE.bytes)..];
        BEGINNINGS.iter().any(|notice| text.starts_with(notice))
            || end
                .split(|&byte| byte == b'\n')
                .any(|line| ENDINGS.iter().any(|notice| line.starts_with(notice.as_bytes())))
            || INSIDES.iter().any(|notice| follows_figure(bytes, notice))
    })
}

/// Whether a phrase occurs right after a figure.
fn follows_figure(bytes: &[u8], notice: &str) -> bool {
    memmem::find_iter(bytes, notice.as_bytes())
        .any(|at| at.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notices_of_known_agents_are_recognised() {
        let body = "line\n".repeat(1000);
        for (text, expected) in [
            (
                format!("<persisted-output>\nOutput too large (61.3KB). Full output saved to: /p\n\n{body}"),
                true,
            ),
            (
                format!(
                    "Warning: truncated output (original token count: 48213)\nTotal output lines: 9\n\n{body}"
                ),
                true,
            ),
            (format!("{body}…17613 tokens truncated…{body}"), true),
            (format!("{body}...14115 bytes truncated...\n\nThe tool call succeeded\n"), true),
            (format!("Output too large. Showing first 8,000 and last 32,000 characters.\n{body}"), true),
            (format!("{body}\n\n... [12,345 characters omitted] ...\n\n{body}"), true),
            (
                format!(
                    "{body}\n\n[Showing lines 1-2000 of 5000 (50.0KB limit). Use offset=2001 to continue.]"
                ),
                true,
            ),
            (format!("{body}\n\n[620 more lines in file. Use offset=770 to continue.]"), true),
            (
                format!(
                    "{body}\n(Output capped at 50 KB. Showing lines 1-9. Use offset=10 to continue.)\n</content>"
                ),
                true,
            ),
            (format!("{body}[Showing lines 1-2 of 3]\n{body}"), false),
            (format!("{body}the chars truncated… were fine\n{body}"), false),
            (format!("{body}[plimsoll: 1 of 2 bytes removed here]"), false),
            (body.clone(), false),
            (String::new(), false),
        ] {
            assert_eq!(
                is_cut_by_client(&[text.as_str().into()]),
                expected,
                "{}",
                &text[text.len().saturating_sub(90)..]
            );
        }
    }
}
