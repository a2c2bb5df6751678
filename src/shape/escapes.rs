//! Removes terminal escapes, backspaces and carriage-return progress: what a screen would no longer show.
//!
//! A text with escapes or backspaces was written for a terminal. There the characters after a carriage return overwrite
//! the line one by one; those that they do not reach stay, unless an escape erases them. In any other text, earlier
//! states of an overwritten line are removed only if they are recognised as progress. `\r\n` line ends and all other
//! control characters stay as they are. Nothing is ever added.

use std::mem;

use memchr::{memchr2, memchr3};

use super::{count, overwritten};

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;

/// While lines are put together, `ERASED` followed by `REST` or `WHOLE` stands for a sequence that erases the rest of a
/// line or all of it. The text itself no longer contains `ERASED` at that point.
const ERASED: char = '\u{1b}';
const REST: char = '0';
const WHOLE: char = '2';

/// The text as a screen would finally show it; `None` if there is nothing to strip.
pub(super) fn strip(text: &str) -> Option<String> {
    let stripped = if memchr::memchr(ESC, text.as_bytes()).is_some() {
        let stripped = without_sequences(text);
        let is_final = memchr2(ESC, BACKSPACE, stripped.as_bytes()).is_none() && !is_overwritten(&stripped);
        Some(if is_final { stripped } else { lines(&stripped, push_shown) })
    } else if memchr::memchr(BACKSPACE, text.as_bytes()).is_some() {
        Some(lines(text, push_shown))
    } else if is_overwritten(text) {
        let stripped = lines(text, push_lasting);
        (stripped.len() < text.len()).then_some(stripped)
    } else {
        None
    };
    debug_assert!(stripped.as_ref().is_none_or(|stripped| stripped.len() <= text.len()));
    stripped
}

/// The text without its escape sequences. An incomplete sequence only loses its introducer. A sequence that erases
/// something is replaced by [`ERASED`] and what it erases.
fn without_sequences(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(offset) = memchr::memchr(ESC, &bytes[at..]) {
        // Both ends are at ASCII bytes or after a sequence of them, which are character boundaries.
        out.push_str(&text[at..at + offset]);
        let begin = at + offset;
        at = begin + sequence_len(&bytes[begin..]);
        if let Some(erased) = erased(&bytes[begin..at]) {
            out.push(ERASED);
            out.push(erased);
        }
    }
    out.push_str(&text[at..]);
    out
}

/// The length of the sequence at the beginning of `bytes`, whose first byte is ESC.
fn sequence_len(bytes: &[u8]) -> usize {
    match bytes.get(1) {
        Some(b'[') => {
            let parameters = count(&bytes[2..], |byte| matches!(byte, 0x20..=0x3f));
            let end = 2 + parameters;
            end + usize::from(matches!(bytes.get(end), Some(0x40..=0x7e)))
        }
        Some(b']' | b'P' | b'X' | b'^' | b'_') => 2 + string_len(&bytes[2..]),
        Some(0x20..=0x2f) => {
            let end = 2 + count(&bytes[2..], |byte| matches!(byte, 0x20..=0x2f));
            end + usize::from(matches!(bytes.get(end), Some(0x30..=0x7e)))
        }
        Some(0x30..=0x7e) => 2,
        _ => 1,
    }
}

/// The length of a control string with its terminator (BEL or ESC `\`); 0 if there is none on its line.
fn string_len(bytes: &[u8]) -> usize {
    match memchr3(BEL, ESC, b'\n', bytes) {
        Some(end) if bytes[end] == BEL => end + 1,
        Some(end) if bytes[end..].starts_with(b"\x1b\\") => end + 2,
        _ => 0,
    }
}

/// Whether a sequence erases the rest of its line, after the cursor, or the whole line; `None` if it erases nothing.
fn erased(sequence: &[u8]) -> Option<char> {
    match sequence {
        b"\x1b[K" | b"\x1b[0K" | b"\x1b[J" | b"\x1b[0J" => Some(REST),
        b"\x1b[2K" => Some(WHOLE),
        _ => None,
    }
}

/// Whether the text contains a backspace, or a carriage return that is not part of a line end.
fn is_overwritten(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(offset) = memchr2(b'\r', BACKSPACE, &bytes[at..]) {
        at += offset;
        if bytes[at] == BACKSPACE || !matches!(bytes.get(at + 1), Some(b'\n') | None) {
            return true;
        }
        at += 1;
    }
    false
}

/// The text with each line written by `push`, which gets the visible part of the line.
fn lines(text: &str, push: impl Fn(&mut String, &str)) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let content = line.strip_suffix('\n').unwrap_or(line);
        let visible = visible(content);
        push(&mut out, visible);
        if content[visible.len()..].contains('\r') {
            out.push('\r');
        }
        out.push_str(&line[content.len()..]);
    }
    out
}

/// A line up to the first carriage return after its last character. Erasures after that would leave nothing of it.
fn visible(line: &str) -> &str {
    let mut end = line.len();
    let mut rest = line;
    loop {
        if let Some(before) = rest.strip_suffix('\r') {
            (rest, end) = (before, before.len());
        } else if let Some(before) =
            rest.strip_suffix([REST, WHOLE]).and_then(|rest| rest.strip_suffix(ERASED))
        {
            rest = before;
        } else {
            return &line[..end];
        }
    }
}

/// Appends the states of a line that are not progress, and the last state of each progress.
fn push_lasting(out: &mut String, line: &str) {
    if memchr::memchr(b'\r', line.as_bytes()).is_none() {
        return out.push_str(line);
    }
    for (at, state) in overwritten::lasting(line).into_iter().enumerate() {
        out.push_str(if at > 0 { "\r" } else { "" });
        out.push_str(state);
    }
}

/// Appends a line as a terminal finally shows it: a carriage return moves the cursor to the beginning of the line, a
/// backspace one character to the left, and the characters that follow overwrite others. A line is erased as a whole
/// only if it is drawn again afterwards. Progress is erased as well, because sloppy programs overwrite it by something
/// shorter.
fn push_shown(out: &mut String, line: &str) {
    if memchr3(b'\r', BACKSPACE, ESC, line.as_bytes()).is_none() {
        return out.push_str(line);
    }
    let mut cells: Vec<char> = Vec::with_capacity(line.len());
    let (mut state, mut cursor, mut is_erased) = (0, 0_usize, false);
    let mut characters = line.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\r' => {
                if mem::take(&mut is_erased) || overwritten::is_progress(&line[state..at]) {
                    cells.clear();
                }
                (state, cursor) = (at + 1, 0);
            }
            _ if character == char::from(BACKSPACE) => cursor = cursor.saturating_sub(1),
            ERASED => match characters.next() {
                Some((_, WHOLE)) if cursor > 0 => is_erased = true,
                _ => cells.truncate(cursor),
            },
            shown => {
                match cells.get_mut(cursor) {
                    Some(cell) => *cell = shown,
                    None => cells.push(shown),
                }
                (cursor, is_erased) = (cursor + 1, false);
            }
        }
    }
    // Blanks at the end that have overwritten something show nothing.
    while cells.len() > cursor && cells.last() == Some(&' ') {
        cells.pop();
    }
    out.extend(cells);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            let stripped = strip(text);
            assert_eq!(stripped.as_deref().unwrap_or(text), *expected, "{text:?}");
            assert_eq!(stripped.is_some(), text != expected, "{text:?}");
            assert_eq!(strip(expected), None, "not a fixed point: {expected:?}");
        }
    }

    #[test]
    fn escape_sequences_are_removed_and_text_is_kept() {
        check(&[
            ("", ""),
            ("plain\ttext\u{7}", "plain\ttext\u{7}"),
            ("\x1b[1;31merror\x1b[0m: é", "error: é"),
            ("\x1b[38;5;196m\x1b[48:2::1:2:3mx\x1b[m", "x"),
            ("a\x1b[2Kb\x1b[?25lc\x1b[!pd\x1b[10;20H", "abcd"),
            ("\x1b]0;title\x07body", "body"),
            ("\x1b]8;;https://e.org\x1b\\link\x1b]8;;\x1b\\!", "link!"),
            ("\x1bP1$r0m\x1b\\a\x1b_G1;AAAA\x1b\\b\x1b^x\x1b\\c", "abc"),
            ("\x1b(B\x1b)0\x1b%Ga\x1b7b\x1b8c\x1bMd\x1b=", "abcd"),
        ]);
    }

    #[test]
    fn broken_sequences_lose_only_their_introducer() {
        check(&[
            ("a\x1b", "a"),
            ("a\x1b[", "a"),
            ("a\x1b[31", "a"),
            ("a\x1b[31é", "aé"),
            ("a\x1bé", "aé"),
            ("\x1b\x1b[0m\x1b", ""),
            ("\x1b]0;never ended\nnext\x07", "0;never ended\nnext\x07"),
            ("\x1b]0;cut\x1b[0m off", "0;cut off"),
        ]);
    }

    #[test]
    fn overwritten_lines_keep_their_last_state() {
        check(&[
            ("one\r\ntwo\r\n", "one\r\ntwo\r\n"),
            ("one\r", "one\r"),
            (" 10%\r 50%\r100%", "100%"),
            (" 10%\r100%\r", "100%\r"),
            (" 10%\r\x1b[K100%\r\ndone", "100%\r\ndone"),
            ("a\r\r\r\nb\r\r\n", "a\r\nb\r\n"),
            ("\rshown\n", "shown\n"),
            ("a\r\x1b[0m\nb", "a\r\nb"),
            ("x\ny\r\x1b[Kz\nw\n", "x\nz\nw\n"),
            ("x\ny\x08\rz\nw\n", "x\nz\nw\n"),
            // What is not reached stays, unless it is erased.
            ("\x1b[31mfatal: disk full\x1b[0m\rok\n", "oktal: disk full\n"),
            ("\x1b[1mabout to fail\r             \rok\n", "ok\n"),
            ("\x1b[32m 99 of 100\r100 of 100\x1b[0m\n", "100 of 100\n"),
            ("\x1b[1mBuilding\x1b[0m [==>   ] 3/14: serde\rCompiling a\n", "Compiling a\n"),
            ("\x1b[1mBuilding\x1b[0m [>     ] 1/14: serde\rCompiling a\n", "Compiling a\n"),
            ("Compiling a\x1b[K\rDone\x1b[K\n", "Done\n"),
            ("Compiling a\r\x1b[2KDone\n", "Done\n"),
            ("Compiling a\x1b[2K\rDone\n", "Done\n"),
            ("Compiling a\r\x1b[J\x1b[1mDone\x1b[m\n", "Done\n"),
            ("Compiling a\r\x1b[2K\nDone\n", "Compiling a\r\nDone\n"),
            ("kept\x1b[2K here\n\x1b[Kand\x1b[K here\x1b[K", "kept here\nand here"),
            // Without escapes or backspaces these may be lines that end with carriage returns.
            ("x\ny\rz\nw\n", "x\ny\rz\nw\n"),
            ("Output:\nid,n\r1,2\r2,4\r", "Output:\nid,n\r1,2\r2,4\r"),
        ]);
    }

    #[test]
    fn backspaces_overwrite() {
        check(&[
            ("N\x08NA\x08AM\x08ME\x08E", "NAME"),
            ("_\x08f_\x08i_\x08l_\x08e", "file"),
            ("work |\x08/\x08-\x08\\\n", "work \\\n"),
            ("10%\x08\x08\x0820%\x08\x08\x08", "20%"),
            ("\x08\x08é\x08è", "è"),
        ]);
    }

    #[test]
    fn adversarial_text_takes_linear_time() {
        for piece in [
            "\x1b[",
            "\x1b]",
            "\x1b",
            "\x08",
            "a\x08",
            "\r",
            "\r\n",
            "\x1b[;;;;",
            "\x1bP\n",
            "1%\r",
            "2%\r1%\r",
            "1%\r\r",
            "(\r",
            "a\r\x1b[K",
            "a\x1b[2K\r",
        ] {
            let text = piece.repeat((1 << 20) / piece.len());
            assert!(strip(&text).is_none_or(|stripped| stripped.len() < text.len()));
        }
    }
}
