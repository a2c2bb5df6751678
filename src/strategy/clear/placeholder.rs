//! The text that replaces a cleared result.

use std::borrow::Cow;

/// The longest name of a tool that is written out, in characters.
const MAX_NAME: usize = 64;

/// A result that is cleared.
#[derive(Debug, Clone, Copy)]
pub struct Cleared<'a> {
    /// The name of its tool.
    pub tool: &'a str,
    /// Its texts.
    pub texts: &'a [Cow<'a, str>],
    /// The number of its images and documents.
    pub media: usize,
    /// Whether it reports an error.
    pub is_error: bool,
    /// Whether the tool may have run something: only then is an exit status mentioned.
    pub may_run: bool,
    /// Where its full text is now; `None` if it had no text.
    pub recall: Option<&'a str>,
}

/// The placeholder for a result: its tool, how long it was and how it ended, and where its full text is now.
pub fn placeholder(cleared: &Cleared<'_>) -> String {
    let Cleared { tool, texts, media, is_error, may_run, recall } = *cleared;
    let name: String = tool.chars().take(MAX_NAME).collect();
    let failed = if is_error { "an error" } else { "" };
    let lost = match media {
        0 => String::new(),
        1 => "an image or file is not kept".to_owned(),
        _ => format!("{media} images or files are not kept"),
    };
    let described = if recall.is_some() { describe(texts, may_run, failed) } else { failed.to_owned() };
    let again =
        if media > 1 { "run the tool again for new ones" } else { "run the tool again for a new one" };
    let between = if described.is_empty() || lost.is_empty() { "" } else { "; " };
    format!("[plimsoll: result of {name} cleared ({described}{between}{lost}); {}]", recall.unwrap_or(again))
}

/// How many lines a result had, and how it ended.
fn describe(texts: &[Cow<'_, str>], may_run: bool, failed: &str) -> String {
    let lines: usize = texts.iter().map(|text| text.lines().count()).sum();
    let plural = if lines == 1 { "" } else { "s" };
    let status = may_run.then(|| exit_status(texts)).flatten();
    let ended = status.map(|status| format!(", exit status {status}")).unwrap_or_default();
    let before = if failed.is_empty() { "" } else { ", " };
    format!("{lines} line{plural}{ended}{before}{failed}")
}

/// The exit status stated in one of the first or last lines of a command's result.
fn exit_status(texts: &[Cow<'_, str>]) -> Option<i32> {
    const NEAR: usize = 4;
    let (first, last) = (texts.first()?, texts.last()?);
    let lines = first.lines().take(NEAR).chain(last.lines().rev().take(NEAR));
    lines.into_iter().find_map(status_in)
}

/// What a line may call an exit status.
const STATUS_NAMES: [&str; 5] = ["exit code", "exit status", "exited with code", "returncode", "exit_code"];
/// The most characters between a name and its number: `": `, ` = `.
const MAX_BETWEEN: usize = 6;

fn status_in(line: &str) -> Option<i32> {
    let line = line.trim().to_ascii_lowercase();
    STATUS_NAMES.iter().find_map(|name| status_behind(line.split_once(name)?.1))
}

/// The number at the beginning of a text, after at most a few other characters.
fn status_behind(rest: &str) -> Option<i32> {
    let is_number = |c: char| c.is_ascii_digit() || c == '-';
    let (at, _) = rest.char_indices().take(MAX_BETWEEN).find(|(_, c)| is_number(*c) || c.is_alphabetic())?;
    let number = &rest[at..];
    let end =
        number.char_indices().skip(1).find(|(_, c)| !c.is_ascii_digit()).map_or(number.len(), |(at, _)| at);
    let is_word = number[end..].starts_with(|c: char| c.is_alphabetic() || c == '_');
    number[..end].parse().ok().filter(|_| !is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHERE: Option<&str> = Some("WHERE");

    #[test]
    fn placeholders_state_lines_status_and_media() {
        for (texts, is_error, expected) in [
            (&["one line"][..], false, "[plimsoll: result of Bash cleared (1 line); WHERE]"),
            (&["a\nb\n", "c"], false, "[plimsoll: result of Bash cleared (3 lines); WHERE]"),
            (
                &["a\nb\nExit code 2"],
                true,
                "[plimsoll: result of Bash cleared (3 lines, exit status 2, an error); WHERE]",
            ),
            (
                &["Process exited with code 0\nx"],
                false,
                "[plimsoll: result of Bash cleared (2 lines, exit status 0); WHERE]",
            ),
            (
                &["<returncode>1</returncode>\nx"],
                false,
                "[plimsoll: result of Bash cleared (2 lines, exit status 1); WHERE]",
            ),
            (&["the exit code is not known"], false, "[plimsoll: result of Bash cleared (1 line); WHERE]"),
            (
                &["{\"exit_code\": -9,\"wall_ms\":1532}"],
                false,
                "[plimsoll: result of Bash cleared (1 line, exit status -9); WHERE]",
            ),
            (
                &["{\"exit_code\":null,\"wall_ms\":1532}", "# exit codes: see README section 3"],
                false,
                "[plimsoll: result of Bash cleared (2 lines); WHERE]",
            ),
            (
                &[
                    "ok passes on the exit status of children (17 ms)\nError: exit code missing; retried 3 times",
                ],
                false,
                "[plimsoll: result of Bash cleared (2 lines); WHERE]",
            ),
            (
                &["exit code: 2nd of 3\nexit code ......... 4"],
                false,
                "[plimsoll: result of Bash cleared (2 lines); WHERE]",
            ),
        ] {
            let texts: Vec<Cow<'_, str>> = texts.iter().map(|text| Cow::Borrowed(*text)).collect();
            let cleared =
                Cleared { tool: "Bash", texts: &texts, media: 0, is_error, may_run: true, recall: WHERE };
            assert_eq!(placeholder(&cleared), expected);
        }
        let texts = ["exit code: 3".into()];
        let read =
            Cleared { tool: "Read", texts: &texts, media: 0, is_error: false, may_run: false, recall: WHERE };
        assert_eq!(placeholder(&read), "[plimsoll: result of Read cleared (1 line); WHERE]");
        let shot = Cleared { tool: "shot", may_run: true, ..read };
        for (media, expected) in [
            (1, "[plimsoll: result of shot cleared (1 line; an image or file is not kept); WHERE]"),
            (2, "[plimsoll: result of shot cleared (1 line; 2 images or files are not kept); WHERE]"),
        ] {
            assert_eq!(placeholder(&Cleared { texts: &["a".into()], media, ..shot }), expected);
        }
        for (media, is_error, expected) in [
            (
                1,
                false,
                "[plimsoll: result of shot cleared (an image or file is not kept); run the tool again for a new one]",
            ),
            (
                2,
                true,
                "[plimsoll: result of shot cleared (an error; 2 images or files are not kept); run the tool again for new ones]",
            ),
        ] {
            let cleared = Cleared { texts: &[], media, is_error, recall: None, ..shot };
            assert_eq!(placeholder(&cleared), expected);
        }
    }
}
