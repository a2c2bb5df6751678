//! What an agent reads from where it was kept in full, told by the text itself, also where a reader puts a number before
//! each line.

use std::borrow::Cow;

use super::decision;

/// What stands between the number and its line: of `cat -n` and `nl`, of the readers of agents, of `grep -n`.
const BEHIND_NUMBERS: [&str; 4] = ["\t", "→", ": ", ":"];

/// Letters of the name of a full text.
const NAME: usize = 32;

/// Bytes of what a reader may say below what it has read.
const REMARK: usize = 1024;

/// Whether a result is the full text that its call names by its id, `output` being the result's own; of more than `most`
/// bytes, only if it is that byte for byte.
pub(super) fn is_read_back(arguments: &str, texts: &[Cow<'_, str>], output: &str, most: usize) -> bool {
    if arguments.contains(output) {
        return true;
    }
    let [text] = texts else { return false };
    if text.len() > most {
        return false;
    }
    let is_named = |text: String| arguments.contains(&decision::output_id(&[text.into()]));
    names_an_output(arguments)
        && BEHIND_NUMBERS.iter().any(|behind| {
            let Some(text) = without_numbers(text, behind) else { return false };
            // Some readers leave out the end of the last line, or say something below.
            let trimmed = text.trim_end_matches('\n');
            is_named(format!("{trimmed}\n")) || is_named(trimmed.to_owned()) || is_named(text)
        })
}

fn names_an_output(arguments: &str) -> bool {
    arguments.as_bytes().split(|byte| !byte.is_ascii_hexdigit()).any(|letters| letters.len() >= NAME)
}

/// The numbered lines that a text begins with, without their numbers; `None`: there are none, or there is more than a remark
/// behind them. `nl` leaves lines blank that are empty.
fn without_numbers(text: &str, behind: &str) -> Option<String> {
    let lines: Vec<&str> = text.split('\n').map_while(|line| without_number(line, behind)).collect();
    let remark: usize = text.split('\n').skip(lines.len()).map(|line| line.len() + 1).sum();
    let is_numbered = lines.iter().any(|line| !line.is_empty()) && remark <= REMARK;
    is_numbered.then(|| lines.join("\n"))
}

fn without_number<'l>(line: &'l str, behind: &str) -> Option<&'l str> {
    let numbered = line.trim_start_matches(' ');
    let rest = numbered.trim_start_matches(|letter: char| letter.is_ascii_digit());
    if rest.len() < numbered.len() { rest.strip_prefix(behind) } else { rest.is_empty().then_some("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lines_are_no_text() {
        let text = "fn a() {\n\n  1: x\n}\n";
        let named =
            |text: &str| format!(r#"{{"file_path":"/o/{}.txt"}}"#, decision::output_id(&[text.into()]));
        for (read, expected) in [
            (text, true),
            ("     1\tfn a() {\n     2\t\n     3\t  1: x\n     4\t}\n", true),
            ("     1\tfn a() {\n       \n     2\t  1: x\n     3\t}\n", true),
            ("1→fn a() {\n2→\n3→  1: x\n4→}\n5→", true),
            ("     1→fn a() {\n     2→\n     3→  1: x\n     4→}", true),
            ("1:fn a() {\n2:\n3:  1: x\n4:}\n", true),
            (
                "1: fn a() {\n2: \n3:   1: x\n4: }\n\n<system-reminder>\nIt is a file.\n</system-reminder>",
                true,
            ),
            (&*format!("1\tfn a() {{\n2\t\n3\t  1: x\n4\t}}\n{}", "other\n".repeat(170)), true),
            (&*format!("1\tfn a() {{\n2\t\n3\t  1: x\n4\t}}\n{}", "other\n".repeat(171)), false),
            ("     1\tfn a() {\n     2\t\n     3\t  1: x\n", false),
            ("     1\tfn b() {\n     2\t\n     3\t  1: x\n     4\t}\n", false),
            ("1 fn a() {\n2 \n3   1: x\n4 }\n", false),
            ("", false),
            ("\n\n", false),
        ] {
            let texts = [Cow::Borrowed(read)];
            let own = decision::output_id(&texts);
            assert_eq!(is_read_back(&named(text), &texts, &own, 2000), expected, "{read}");
            assert_eq!(is_read_back(&named(text), &texts, &own, 9), expected && read == text, "{read}");
            assert!(!is_read_back(r#"{"file_path":"/o/a.txt"}"#, &texts, &own, 2000), "{read}");
        }
    }
}
