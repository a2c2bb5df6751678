//! "Did you mean": the known word nearest to a misspelt one.

use std::cmp::Reverse;

/// The candidate with the smallest edit distance to `word`; `None` if no distance is at most 1 or a third of the longer
/// word's length. Among equals, the one that shares the longest prefix with `word`.
pub fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let length = word.chars().count();
    let limit = |candidate: &str| (length.max(candidate.chars().count()) / 3).max(1);
    candidates
        .iter()
        // Words may come from anyone, and the distance of long ones takes long.
        .filter(|candidate| length.abs_diff(candidate.chars().count()) <= limit(candidate))
        .map(|&candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(edits, candidate)| *edits <= limit(candidate))
        .min_by_key(|(edits, candidate)| (*edits, Reverse(shared_prefix(word, candidate))))
        .map(|(_, candidate)| candidate)
}

/// The number of characters that both have in common at the beginning.
fn shared_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// The hint for a word found by [`nearest`].
pub fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// The number of insertions, deletions, replacements and swaps of neighbours that turn one word into the other (optimal
/// string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_within_reach_is_suggested() {
        let cases: &[(&str, &[&str], Option<&str>)] = &[
            ("max_line", &["max_bytes", "max_lines"], Some("max_lines")),
            ("mxa_lines", &["max_bytes", "max_lines"], Some("max_lines")),
            ("MODE", &["mode"], Some("mode")),
            ("mdoe", &["mode", "model"], Some("mode")),
            ("limt", &["limits", "listen"], Some("limits")),
            ("adres", &["admin", "address"], Some("address")),
            ("a", &["b"], Some("b")),
            ("opus-5-6", &["opus-4-6", "opus-5-5", "opus-5-7"], Some("opus-5-5")),
            ("listen", &["mode", "preset"], None),
            ("", &["mode"], None),
            ("x", &[], None),
            ("größe", &["grösse"], Some("grösse")),
            ("äöüß", &["abüß"], None),
        ];
        for (word, candidates, expected) in cases {
            assert_eq!(nearest(word, candidates), *expected, "{word}");
        }
    }

    #[test]
    fn edit_distances() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("ab", "ba", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
