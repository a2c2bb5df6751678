//! Which lines of its files a pipeline prints, as far as its commands show.

use crate::shape::command::{self, TO_FILE, VIEWERS};
use crate::strategy::View;

/// The first line and the last, as in a view.
type Range = (u32, u32);

/// The number of lines that `head` and `tail` print by default.
const DEFAULT_COUNT: &str = "10";

/// The lines that a pipeline prints of each file. Its first command shows this number of `files`.
pub(super) fn printed(stages: &[&[String]], files: usize) -> Range {
    let prints_all = |words: &&[String]| !words.iter().any(|word| word == TO_FILE);
    if !stages.iter().all(prints_all) {
        return View::PART;
    }
    let mut range = View::ALL;
    for (at, words) in stages.iter().enumerate() {
        let selected = selected(words);
        // Several files pass through as one.
        let program = words.first().map(|program| command::name(program)).unwrap_or_default();
        let is_of_each = at == 0 && !matches!(program.as_str(), "sed" | "awk");
        range = if files > 1 && selected != View::ALL && !is_of_each {
            View::PART
        } else {
            within(range, selected)
        };
    }
    range
}

/// The lines that a command prints of its input.
fn selected(words: &[String]) -> Range {
    let Some((program, arguments)) = words.split_first() else { return View::PART };
    let has = |starts: &[&str]| {
        let has = |word: &String| starts.iter().any(|start| word.to_ascii_lowercase().starts_with(start));
        arguments.iter().any(has)
    };
    match command::name(program).as_str() {
        "head" => head(arguments),
        "tail" => tail(arguments),
        "sed" => sed(arguments),
        "awk" => awk(arguments),
        "get-content" | "gc" if has(&["-to", "-he", "-fi", "-ta", "-la"]) => View::PART,
        "bat" | "batcat" if has(&["-r", "--line-range", "-d", "--diff"]) => View::PART,
        "git" => View::ALL,
        name if VIEWERS.contains(&name) => View::ALL,
        _ => View::PART,
    }
}

/// The lines of a range that another command selects.
fn within(outer: Range, inner: Range) -> Range {
    const END: u32 = u32::MAX;
    let is_of_end = |range: Range| range.0 > END / 2;
    match (outer, inner) {
        (View::ALL, other) | (other, View::ALL) => other,
        (View::PART, _) | (_, View::PART) => View::PART,
        ((first, last), (from, END)) if is_of_end(inner) && last < END => {
            (last.saturating_sub(END - from).saturating_add(1).max(first), last)
        }
        _ if is_of_end(outer) || is_of_end(inner) => View::PART,
        ((first, last), (from, to)) => {
            let end = if to == END { END } else { first.saturating_add(to).saturating_sub(1) };
            (first.saturating_add(from.saturating_sub(1)), last.min(end))
        }
    }
}

/// The lines that `head` prints.
fn head(arguments: &[String]) -> Range {
    count(arguments).and_then(|count| count.parse().ok()).map_or(View::PART, |count| (1, count))
}

/// The lines that `tail` prints.
fn tail(arguments: &[String]) -> Range {
    let Some(count) = count(arguments) else { return View::PART };
    let lines = count.trim_start_matches(['+', '-']).parse::<u32>();
    let from = |lines| if count.starts_with('+') { lines } else { u32::MAX - lines };
    lines.map_or(View::PART, |lines| (from(lines), u32::MAX))
}

/// How many lines `head` or `tail` prints, as spelled in its arguments; `None` if it does not count lines.
fn count(arguments: &[String]) -> Option<&str> {
    let mut count = DEFAULT_COUNT;
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let option = word.strip_prefix('-').unwrap_or_default();
        if option.starts_with(['c', 'z']) || option.starts_with("-b") || option.starts_with("-z") {
            return None;
        }
        if matches!(option, "n" | "-lines") {
            count = words.next()?;
        } else if let Some(value) = option.strip_prefix("-lines=").or_else(|| option.strip_prefix('n')) {
            count = value;
        } else if option.starts_with(|first: char| first.is_ascii_digit()) {
            count = option;
        } else if word.len() > 1 && word.starts_with('+') {
            count = word;
        }
    }
    Some(count)
}

/// The lines that a `sed` script prints if it only selects lines or substitutes text in them.
fn sed(arguments: &[String]) -> Range {
    let (flags, words): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|word| word.starts_with('-'));
    let is_quiet = |flag: &&String| match flag.strip_prefix("--") {
        Some(name) => matches!(name, "quiet" | "silent"),
        None => flag.contains('n'),
    };
    let is_one = flags.iter().filter(|flag| flag.contains('e') && !flag.starts_with("--")).count() < 2;
    let Some(script) = words.first().filter(|_| is_one) else { return View::PART };
    let stops = |piece: &str| piece.strip_suffix('q').and_then(|line| line.parse::<u32>().ok());
    let mut pieces = script.split(';').map(str::trim).filter(|piece| !piece.is_empty());
    if flags.iter().any(is_quiet) {
        // Where the script quits does not restrict the lines that it prints before.
        let mut printed = pieces.filter(|piece| stops(piece).is_none());
        let lines = printed.next().and_then(|piece| lines(piece.strip_suffix('p')?));
        return lines.filter(|_| printed.next().is_none()).unwrap_or(View::PART);
    }
    let first = pieces.next().unwrap_or_default();
    let rewrites = |piece: &str| {
        let mut letters = piece.chars();
        letters.next() == Some('s') && letters.next().is_some_and(|mark| !mark.is_alphanumeric())
    };
    match stops(first) {
        Some(last) if pieces.next().is_none() => (1, last),
        // It prints all lines, changed or not.
        None if rewrites(first) && !script.contains('\n') && pieces.all(rewrites) => View::ALL,
        _ => View::PART,
    }
}

/// The range of a line address: `7`, `3,9`, `3,+6`, `100,$` or `$`.
fn lines(address: &str) -> Option<Range> {
    if address == "$" {
        return Some((u32::MAX - 1, u32::MAX));
    }
    let Some((first, last)) = address.split_once(',') else {
        let line = address.parse().ok()?;
        return Some((line, line));
    };
    let first: u32 = first.trim().parse().ok()?;
    Some(match last.trim() {
        "$" => (first, u32::MAX),
        last => match last.strip_prefix('+') {
            Some(more) => (first, first.saturating_add(more.parse().ok()?)),
            None => (first, last.parse().ok()?),
        },
    })
}

/// The lines that an `awk` script prints if it is only a condition on the line number and prints whole lines.
fn awk(arguments: &[String]) -> Range {
    let Some(script) = arguments.iter().find(|word| !word.starts_with('-')) else { return View::PART };
    let (condition, block) = script.split_once('{').unwrap_or((script, ""));
    if !block.is_empty() && !block.contains("$0") && !matches!(block.trim(), "print}" | "print }") {
        return View::PART;
    }
    numbered(condition).unwrap_or(View::PART)
}

/// The lines that satisfy a condition like `NR>=3 && NR<=9` or `NR==3,NR==9`.
fn numbered(condition: &str) -> Option<Range> {
    let (mut first, mut last) = View::ALL;
    let condition: String = condition.split_whitespace().collect();
    if let Some((from, to)) = condition.split_once(',') {
        let line = |side: &str| side.strip_prefix("NR==")?.parse().ok();
        return Some((line(from)?, line(to)?));
    }
    for bound in condition.split("&&") {
        let bound = bound.strip_prefix("NR")?;
        let digits = bound.trim_start_matches(['<', '>', '=']);
        let line: u32 = digits.parse().ok()?;
        match &bound[..bound.len() - digits.len()] {
            "==" => (first, last) = (line, line),
            ">=" => first = line,
            ">" => first = line.saturating_add(1),
            "<=" => last = line,
            "<" => last = line.saturating_sub(1),
            _ => return None,
        }
    }
    Some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::command::Script;

    const END: u32 = u32::MAX;

    #[test]
    fn line_ranges_shown_by_commands() {
        for (script, expected) in [
            ("cat f", View::ALL),
            ("cat -n f", View::ALL),
            ("nl -ba f | cat", View::ALL),
            ("git show v1:f", View::ALL),
            ("sed 's/a/b/' f", View::ALL),
            ("sed -e 's/a/b/;s|c|d|g' f", View::ALL),
            ("Get-Content f -Raw", View::ALL),
            ("cat f 2>&1", View::ALL),
            ("cat f 2>/dev/null", View::ALL),
            // The first lines.
            ("head f", (1, 10)),
            ("head -5 f", (1, 5)),
            ("head -n5 f", (1, 5)),
            ("head -n 5 f", (1, 5)),
            ("head --lines=5 f", (1, 5)),
            ("cat f 2>&1 | head -5", (1, 5)),
            ("sed 5q f", (1, 5)),
            ("awk 'NR<=5' f", (1, 5)),
            ("awk 'NR<6{print}' f", (1, 5)),
            // The last lines.
            ("tail f", (END - 10, END)),
            ("tail -5 f", (END - 5, END)),
            ("tail -n 5 f", (END - 5, END)),
            ("cat f | tail -n 5", (END - 5, END)),
            ("tail -n +30 f", (30, END)),
            ("tail +30 f", (30, END)),
            ("sed -n '$p' f", (END - 1, END)),
            ("sed -n '100,$p' f", (100, END)),
            ("awk 'NR > 99' f", (100, END)),
            // Lines in between.
            ("sed -n '7p' f", (7, 7)),
            ("sed -n '3,9p' f", (3, 9)),
            ("sed -n -e 3,+6p f", (3, 9)),
            ("sed -n '3,9p;10q' f", (3, 9)),
            ("awk 'NR==7' f", (7, 7)),
            ("awk 'NR>=3 && NR<=9 {print NR\": \"$0}' f", (3, 9)),
            ("awk 'NR==3,NR==9' f", (3, 9)),
            ("nl -ba f | sed -n '3,9p'", (3, 9)),
            ("head -9 f | tail -7", (3, 9)),
            ("head -9 f | tail -70", (1, 9)),
            ("tail -n +3 f | head -7", (3, 9)),
            ("sed -n '3,20p' f | head -7", (3, 9)),
            ("sed -n '3,9p' f | head -70", (3, 9)),
            ("sed -n '3,9p' f | sed -n '2,$p'", (4, 9)),
            // Unknown lines.
            ("cat f | wc -l", View::PART),
            ("cat f | grep x", View::PART),
            ("cat f > g", View::PART),
            ("cat f | sort | head -5", View::PART),
            ("tail -5 f | head -2", View::PART),
            ("sed -n '1,5p;9,12p' f", View::PART),
            ("sed -n -e 1,5p -e 9,12p f", View::PART),
            ("sed -n '/a/,/b/p' f", View::PART),
            ("sed '3,9d' f", View::PART),
            ("sed 's/a/b/;3d' f", View::PART),
            ("head -c 100 f", View::PART),
            ("head -n -5 f", View::PART),
            ("head -n", View::PART),
            ("tail --bytes=9 f", View::PART),
            ("awk '{print $1}' f", View::PART),
            ("awk 'NR==7{print $1}' f", View::PART),
            ("awk '/x/' f", View::PART),
            ("Get-Content f -TotalCount 5", View::PART),
            ("bat -r 3:9 f", View::PART),
            ("sed", View::PART),
            ("", View::PART),
        ] {
            let read = Script::read(script);
            let stages: Vec<&[String]> = read.pipelines.iter().flatten().map(Vec::as_slice).collect();
            let stages = if stages.is_empty() { vec![&[][..]] } else { stages };
            assert_eq!(printed(&stages, 1), expected, "{script}");
        }
    }

    #[test]
    fn line_ranges_shown_of_several_files() {
        for (script, expected) in [
            ("cat f g", View::ALL),
            ("head -5 f g", (1, 5)),
            ("cat f g | head -5", View::PART),
            ("sed -n 3,9p f g", View::PART),
        ] {
            let read = Script::read(script);
            let stages: Vec<&[String]> = read.pipelines[0].iter().map(Vec::as_slice).collect();
            assert_eq!(printed(&stages, 2), expected, "{script}");
        }
    }
}
