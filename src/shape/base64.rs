//! Removes long base64 runs: a model cannot read them, and no text costs more.
//!
//! A run is an unbroken stretch, or lines of equal width as MIME wraps them. Everything around it stays, even a `data:`
//! prefix. Text that only shares the alphabet (hex, names, paths, rows of one letter) stays, and so does what an agent
//! may have to pass on verbatim: keys, certificates, tokens, and anything no longer than these.

use super::marker::{one_line, thousands};
use super::{count, estimate};

/// The fewest bytes of a run that is removed if a `data:` prefix declares it.
const MIN_RUN: usize = 512;
/// The fewest bytes of a run that is removed if nothing declares it.
const MIN_UNDECLARED: usize = 4096;
/// How far after a run the end line of a PEM block may be, in bytes. A checksum may precede it.
const PEM_END_DISTANCE: usize = 80;
/// Widths of wrapped lines.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=76;
/// A last line with fewer characters is not part of a run: it might be a word.
const MIN_LAST_LINE: usize = 16;

/// The text with its base64 runs replaced by notes; `None` if there are none to replace.
pub(super) fn elide(text: &str, recall: &str) -> Option<String> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    while let Some(stretch) = next_stretch(text.as_bytes(), at) {
        at = stretch.end;
        let declared = text[..stretch.start].ends_with(";base64,");
        for run in (Runs { stretch: &text[stretch.clone()], at: 0 }) {
            let run = stretch.start + run.start..stretch.start + run.end;
            let encoded = &text[run.clone()];
            let is_declared = declared && run.start == stretch.start;
            let is_data =
                encoded.len() >= MIN_UNDECLARED && looks_encoded(encoded) && !is_credential(text, &run);
            if !is_declared && !is_data {
                continue;
            }
            let note = note(encoded.len(), recall);
            if estimate::worth([encoded].into_iter(), &note) {
                out.push_str(&text[copied..run.start]);
                out.push_str(&note);
                copied = run.end;
            }
        }
    }
    (copied > 0).then(|| {
        out.push_str(&text[copied..]);
        out
    })
}

/// Whether a run is part of a token, an SSH public key, or the body of a PEM block.
fn is_credential(text: &str, run: &std::ops::Range<usize>) -> bool {
    let (before, encoded, after) = (&text[..run.start], &text[run.clone()], &text.as_bytes()[run.end..]);
    let is_token = before.ends_with('.') || encoded.starts_with("eyJ") && after.starts_with(b".");
    // `AAAA` encodes the length of the algorithm's name; the rest encodes the beginning of the name, `ssh-` or
    // `ecdsa-`.
    let is_ssh = encoded.starts_with("AAAA")
        && (encoded[4..].starts_with("B3NzaC1")
            || encoded[4..].starts_with("C3NzaC1")
            || encoded[4..].starts_with("E2VjZHNh"));
    let near = &after[..after.len().min(PEM_END_DISTANCE)];
    is_token
        || is_ssh
        || before.trim_end().ends_with("-----")
        || memchr::memmem::find(near, b"-----END").is_some()
}

fn note(bytes: usize, recall: &str) -> String {
    format!("[plimsoll: {} bytes of base64 removed here; {}]", thousands(bytes), one_line(recall))
}

/// The next maximal stretch of at least [`MIN_RUN`] bytes that may be base64, wrapped or not.
fn next_stretch(bytes: &[u8], from: usize) -> Option<std::ops::Range<usize>> {
    let mut start = from;
    // A long enough stretch from `start` on contains all bytes up to the probe. These are searched backwards, so that
    // everything up to the last byte that cannot be part of a stretch is skipped, mostly without looking at it.
    while let Some(probe) = start.checked_add(MIN_RUN - 1).filter(|&probe| probe < bytes.len()) {
        let Some(offset) = bytes[start..=probe].iter().rposition(|&byte| !may_wrap(byte)) else {
            let more = count(&bytes[probe + 1..], may_wrap);
            return Some(start..probe + 1 + more);
        };
        start += offset + 1;
    }
    None
}

const fn may_wrap(byte: u8) -> bool {
    is_symbol(byte) || matches!(byte, b'=' | b'\n' | b'\r')
}

/// Standard alphabet, and the one for URLs and file names.
const fn is_symbol(byte: u8) -> bool {
    is_standard(byte) || matches!(byte, b'-' | b'_')
}

const fn is_standard(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/')
}

/// The runs in a stretch.
struct Runs<'a> {
    stretch: &'a str,
    at: usize,
}

impl Iterator for Runs<'_> {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.stretch.len() {
            let start = self.at;
            let line = Line::at(self.stretch, start);
            self.at = line.next;
            if line.symbols >= MIN_RUN {
                return Some(start..line.end);
            }
            if line.is_full() {
                let end = self.wrapped(start, &line);
                // `wrapped` has skipped the whole block, whether it is long enough or not.
                if end - start >= MIN_RUN {
                    return Some(start..end);
                }
            }
        }
        None
    }
}

impl Runs<'_> {
    /// Skips the lines of the same width as the first, and a shorter last one. Returns where they end.
    fn wrapped(&mut self, start: usize, first: &Line) -> usize {
        let mut end = first.end;
        while self.at < self.stretch.len() {
            let line = Line::at(self.stretch, self.at);
            let same = line.is_full() && line.symbols == first.symbols;
            let last = line.is_last_of(first.symbols);
            if !same && !last {
                break;
            }
            end = line.end;
            self.at = line.next;
            if last {
                break;
            }
        }
        debug_assert!(start < end);
        end
    }
}

/// A sequence of symbols, its padding, and what follows up to the next symbol.
struct Line {
    symbols: usize,
    padding: usize,
    standard: bool,
    /// Whether a line end follows immediately.
    wraps: bool,
    /// Where symbols and padding end.
    end: usize,
    /// Where the next line starts.
    next: usize,
}

impl Line {
    fn at(stretch: &str, start: usize) -> Self {
        let bytes = &stretch.as_bytes()[start..];
        let symbols = count(bytes, is_symbol);
        let padding = count(&bytes[symbols..], |byte| byte == b'=');
        let rest = &bytes[symbols + padding..];
        let line_end = match rest {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        // More padding than possible is not padding.
        let padded = if padding <= 2 { padding } else { 0 };
        Self {
            symbols,
            padding: padded,
            standard: bytes[..symbols].iter().all(|&byte| is_standard(byte)),
            wraps: line_end > 0,
            end: start + symbols + padded,
            next: start + symbols + padding + line_end,
        }
    }

    /// Whether more lines may follow.
    fn is_full(&self) -> bool {
        self.wraps && self.standard && self.padding == 0 && WIDTHS.contains(&self.symbols)
    }

    /// Whether it can be the last line of a block that is `width` symbols wide.
    const fn is_last_of(&self, width: usize) -> bool {
        let all = self.symbols + self.padding;
        self.standard && all <= width && (self.padding > 0 || (self.symbols < width && all >= MIN_LAST_LINE))
    }
}

/// Whether a run looks like encoded data, unlike hex, names and paths: it has digits and letters of both cases, many
/// different symbols, and few long stretches of one kind.
fn looks_encoded(run: &str) -> bool {
    let (mut upper, mut lower, mut digits, mut changes, mut symbols) = (0, 0, 0, 0, 0_usize);
    let mut seen = 0_u128;
    let mut last = 0;
    for &byte in run.as_bytes() {
        let (kind, tally) = match byte {
            b'A'..=b'Z' => (1, &mut upper),
            b'a'..=b'z' => (2, &mut lower),
            b'0'..=b'9' => (3, &mut digits),
            b'\r' | b'\n' | b'=' => continue,
            _ => (4, &mut 0),
        };
        *tally += 1;
        symbols += 1;
        changes += usize::from(kind != last);
        seen |= 1 << (byte & 0x7f);
        last = kind;
    }
    let share = |part: usize, percent: usize| part * 100 >= symbols * percent;
    share(upper, 8) && share(lower, 8) && share(digits, 3) && share(changes, 25) && seen.count_ones() >= 24
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Base64 of this many symbols, as random as compressed data.
    fn encoded(symbols: usize) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(ALPHABET[(state >> 58) as usize])
        };
        (0..symbols).map(|_| next()).collect()
    }

    fn wrap(run: &str, width: usize, end: &str) -> String {
        let lines: Vec<&str> =
            run.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join(end)
    }

    fn check(text: &str, expected: Option<&str>) {
        let elided = elide(text, "full output: /o");
        assert_eq!(elided.as_deref(), expected, "{text:?}");
        if let Some(elided) = elided {
            assert_eq!(elide(&elided, "full output: /o"), None, "not a fixed point: {elided:?}");
        }
    }

    fn note(bytes: &str) -> String {
        format!("[plimsoll: {bytes} bytes of base64 removed here; full output: /o]")
    }

    #[test]
    fn long_runs_are_elided() {
        check(&encoded(4096), Some(&note("4,096")));
        check(&format!("{}==", encoded(5238)), Some(&note("5,240")));
        check(
            &format!("a \"{}\" é {} b", encoded(6000), encoded(7000)),
            Some(&format!("a \"{}\" é {} b", note("6,000"), note("7,000"))),
        );
        check(&encoded(5000).replace('+', "-").replace('/', "_"), Some(&note("5,000")));
        let zeros = "A".repeat(2000);
        for data in [&format!("{zeros}="), &encoded(512)] {
            check(
                &format!("<img src=\"data:image/png;base64,{data}\">"),
                Some(&format!("<img src=\"data:image/png;base64,{}\">", note(&thousands(data.len())))),
            );
        }
        check(&format!("KEY={}\nB=1", encoded(6000)), Some(&format!("KEY={}\nB=1", note("6,000"))));
    }

    #[test]
    fn wrapped_runs_are_elided() {
        for width in [60, 64, 76] {
            for end in ["\n", "\r\n"] {
                let lines = wrap(&encoded(width * 70 + 18), width, end);
                let text = format!("head:\n{lines}=={end}next\n");
                let bytes = thousands(lines.len() + 2);
                check(&text, Some(&format!("head:\n{}{end}next\n", note(&bytes))));
            }
        }
    }

    #[test]
    fn keys_tokens_and_certificates_are_kept() {
        let body = wrap(&encoded(64 * 100), 64, "\n");
        let url = encoded(6000).replace('+', "-").replace('/', "_");
        for text in [
            &format!("-----BEGIN KEY-----\n{body}\n-----END KEY-----\n"),
            &format!("-----BEGIN PGP MESSAGE-----\nVersion: 1\n\n{body}\n=aB3d\n-----END PGP MESSAGE-----\n"),
            &format!("-----BEGIN KEY-----\r\n{}\r\n", body.replace('\n', "\r\n")),
            &format!("{{\"access_token\":\"eyJ{}.eyJ{url}.{}\"}}", encoded(40), &url[..342]),
            &format!("eyJ{url}.{url}"),
            &format!("ssh-rsa AAAAB3NzaC1yc2E{} me@host", encoded(5000)),
            &format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5{}", encoded(5000)),
            &format!("ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTI{}", encoded(5000)),
            &format!("client-key-data: {}\n", encoded(2272)),
            &format!("certificate-authority-data: {}==\n", encoded(4093)),
        ] {
            check(text, None);
        }
    }

    #[test]
    fn other_text_is_not_elided() {
        let hex = "0123456789abcdef".repeat(500);
        let path = "/usr/share/someLongDirectoryName/AnotherComponentOfThePath2".repeat(100);
        let names = "SomeVeryLongIdentifierWithManyWordsInside42".repeat(150);
        let sums = wrap(&hex, 64, "\n");
        let words = "word\nAnother\nthird3\n".repeat(500);
        let short = wrap(&encoded(64 * 62), 64, "\n");
        let wide = wrap(&encoded(9000), 100, "\n");
        for text in [
            "",
            &encoded(4095),
            &format!("data:image/png;base64,{}", encoded(511)),
            &hex,
            &hex.to_uppercase(),
            &path,
            &names,
            &sums,
            &words,
            &short,
            &wide,
            &"Ab3/".repeat(4000),
        ] {
            check(text, None);
        }
    }

    #[test]
    fn adversarial_text_takes_linear_time() {
        for (piece, expected) in [
            ("=", None),
            ("A", None),
            ("\n", None),
            ("A\n", None),
            ("A=", None),
            ("-", None),
            ("\r", None),
            (&*format!("{}\n", encoded(64)), Some(format!("{}\n", note("1,048,514")))),
            (&*format!("{} ", encoded(511)), None),
            (&*format!("{} ", encoded(4095)), None),
            (&*format!(".{}", encoded(4096)), None),
        ] {
            check(&piece.repeat((1 << 20) / piece.len()), expected.as_deref());
        }
    }
}
