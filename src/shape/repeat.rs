//! Repeat pointers: the text that replaces a result that is byte-identical to an earlier one still in view.
//!
//! The caller determines whether there is such a result; this module only makes the text.

use super::marker::{one_line, thousands};

/// The pointer to the equal output of an earlier call, which has `bytes` bytes.
///
/// `recall` is a phrase that says where the full text is.
pub fn pointer(tool: Option<&str>, call_id: &str, bytes: usize, recall: &str) -> String {
    let of = tool.map_or_else(String::new, |tool| format!(" of {}", one_line(tool)));
    format!("{BEGINNING}{of}{}{} bytes; {}]", named(call_id), thousands(bytes), one_line(recall))
}

/// Whether a text is a pointer to the output of this call.
pub fn points_to(text: &str, call_id: &str) -> bool {
    text.starts_with(BEGINNING) && text.contains(&named(call_id))
}

/// What every pointer begins with.
const BEGINNING: &str = "[plimsoll: same output as the earlier call";

/// How a call is named, between its tool and the size of its output.
fn named(call_id: &str) -> String {
    format!(" ({}), ", one_line(call_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_name_the_call_they_point_to() {
        assert_eq!(
            pointer(Some("Bash"), "toolu_01", 48_213, "full output: /o/ab.txt"),
            "[plimsoll: same output as the earlier call of Bash (toolu_01), 48,213 bytes; full output: /o/ab.txt]",
        );
        assert_eq!(
            pointer(None, "call\n1", 7, "x"),
            "[plimsoll: same output as the earlier call (call 1), 7 bytes; x]"
        );
        for (tool, call_id) in [(Some("Bash"), "toolu_01"), (None, "call\n1")] {
            let text = pointer(tool, call_id, 7, "x");
            assert!(points_to(&text, call_id) && !points_to(&text, "toolu_0") && !points_to("x", call_id));
        }
    }
}
