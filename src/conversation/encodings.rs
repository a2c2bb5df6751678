//! Images and documents in places that are not examined: results of the provider's own tools, and members that only
//! some servers have.
//!
//! They are recognised by their form, since their names cannot all be known: the literal is a `data:` URL, or consists
//! of base64. Literals in sealed members are not counted as such: they contain reasoning or search results, which the
//! provider decrypts and reads as text.

use memchr::{memchr, memchr2, memmem};

use super::media::MEDIA;
use super::{MessageIndex, PartKind};
use crate::json::{Span, string};

/// How many bytes of a `data:` URL are searched for the end of its media type.
const URL_HEAD: usize = 200;
/// Parts of the names of sealed members, in lower case.
const SEALED: [&[u8]; 2] = [b"encrypted", b"signature"];

impl MessageIndex {
    /// Counts the encodings in parts whose contents are not examined, and outside of all parts. `raw` is the message
    /// that the index was read from.
    #[must_use]
    pub fn with_encodings(mut self, raw: &[u8]) -> Self {
        if raw.len() <= MEDIA {
            return self;
        }
        for part in &mut self.parts {
            if matches!(part.kind(), PartKind::Hosted | PartKind::Opaque) {
                part.encoded = excess(part.span.of(raw)) as u32;
            }
        }
        let mut spans: Vec<Span> = self.parts.iter().map(|part| part.span).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let (mut at, mut beside) = (0, 0);
        for span in spans {
            beside += excess(raw.get(at..span.start as usize).unwrap_or_default());
            at = at.max(span.end as usize);
        }
        beside += excess(raw.get(at..).unwrap_or_default());
        let within: usize = self.parts.iter().map(|part| part.span.len() - part.read_len()).sum();
        self.encoded = within + beside;
        self
    }
}

/// The bytes by which the encodings in a piece of JSON are longer than what each counts as. The piece begins and ends
/// outside of strings.
pub fn excess(json: &[u8]) -> usize {
    if json.len() <= MEDIA {
        return 0;
    }
    let (mut at, mut sum, mut is_sealed) = (0, 0, false);
    while let Some(start) = memchr(b'"', &json[at..]).map(|found| at + found) {
        at = end(json, start + 1);
        let literal = &json[start..at];
        if is_name(&json[at..]) {
            is_sealed = names_sealed(literal);
        } else if !is_sealed && literal.len() > MEDIA && is_encoding(literal) {
            sum += literal.len() - MEDIA;
        }
    }
    sum
}

/// Where a literal ends, given where its text begins.
fn end(json: &[u8], mut at: usize) -> usize {
    while let Some(found) = memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        if json[at + found] == b'"' {
            return at + found + 1;
        }
        at += found + 2;
    }
    json.len()
}

/// Whether a literal is the name of a member, given what follows it.
fn is_name(behind: &[u8]) -> bool {
    behind.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// Whether this is the name of a sealed member.
fn names_sealed(name: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    SEALED.iter().any(|word| memmem::find(&name, word).is_some())
}

/// Whether a literal encodes something other than text.
fn is_encoding(literal: &[u8]) -> bool {
    let inner = &literal[1..literal.len() - 1];
    if !string::begins_with(literal, "data:") {
        return is_base64(inner);
    }
    let mark = b";base64,";
    let data = memmem::find(&inner[..inner.len().min(URL_HEAD)], mark).map(|at| &inner[at + mark.len()..]);
    !string::begins_with(literal, "data:text/") && data.is_some_and(is_base64)
}

/// Whether a text, as written, consists of base64 characters, including those for URLs. Some programs escape slashes or
/// other characters. A text with line ends does not count, because it may be a list of names or some output.
fn is_base64(written: &[u8]) -> bool {
    let is_symbol = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte);
    let mut rest = written;
    while let Some(at) = rest.iter().position(|byte| !is_symbol(*byte)) {
        match &rest[at..] {
            [b'\\', b'/' | b'u', behind @ ..] => rest = behind,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::NoMemo;
    use crate::protocol;

    /// Base64 that, with its quotes, is this many bytes longer than what it counts as.
    fn data(more: usize) -> String {
        "iVBORw0KGgoAAA/+".repeat((MEDIA + more) / 16 + 1)[..MEDIA + more - 2].to_owned()
    }

    #[test]
    fn encoded_media_is_distinguished_from_text_by_its_bytes() {
        let data = data(5000);
        let url = |kind: &str| format!("data:{kind};base64,{}", &data[kind.len() + 13..]);
        for (json, expected) in [
            (format!(r#""{data}""#), 5000),
            (format!(r#"{{"a":"{data}","b":["{data}", 1, "{data}"]}}"#), 15_000),
            (format!(r#","images":[{{"url":"{}"}}],"x":null"#, url("image/png")), 5000),
            (format!(r#"{{"a" : "\"","data" : "{data}"}}"#), 5000),
            (format!(r#""{}""#, data.replace('/', "-").replace('+', "_")), 5000),
            (format!(r#""{}==""#, &data[2..]), 5000),
            // Spelled with escapes.
            (format!(r#""{}\/""#, &data[2..]), 5000),
            (format!(r#""{}\u003d""#, &data[6..]), 5000),
            (format!(r#""{}""#, url(r"image\/png")), 5000),
            // Sealed members are read as text.
            (format!(r#"{{"encrypted_content":"{data}","url":"x"}}"#), 0),
            (format!(r#"{{"encrypted_content":"x","data":"{data}"}}"#), 5000),
            (format!(r#"{{"thoughtSignature":"{data}"}}"#), 0),
            (format!(r#"{{"thought_signatures":["{data}","{data}"]}}"#), 0),
            // The same holds for text, or what claims to be text.
            (format!(r#""{} {data}""#, "x"), 0),
            (format!(r#""{data}\n""#), 0),
            (format!(r#""{data}\"""#), 0),
            (format!(r#""data: {data}""#), 0),
            (format!(r#""{}""#, url("text/plain")), 0),
            (format!(r#""data:image/svg+xml,{data}""#), 0),
            // The name of a member does not count.
            (format!(r#"{{"{data}":1}}"#), 0),
            (format!(r#""{}""#, &data[..MEDIA - 2]), 0),
            ("7".repeat(MEDIA + 9), 0),
            (String::new(), 0),
        ] {
            assert_eq!(excess(json.as_bytes()), expected, "{}", &json[..json.len().min(80)]);
        }
    }

    /// Messages by dialect, and whether what replaces `DATA` in them is an encoding.
    const CASES: &[(&str, &str, bool)] = &[
        (
            "anthropic",
            r#"{"role":"assistant","content":[{"type":"web_fetch_tool_result","tool_use_id":"s","content":{"type":"web_fetch_result","url":"u","content":{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"DATA"}}}}]}"#,
            true,
        ),
        (
            "anthropic",
            r#"{"role":"assistant","content":[{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"DATA"}}]}]}"#,
            true,
        ),
        (
            "anthropic",
            r#"{"role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","url":"u","encrypted_content":"DATA"}]}]}"#,
            false,
        ),
        ("anthropic", r#"{"role":"user","content":[{"type":"text","text":"DATA"}]}"#, false),
        (
            "anthropic",
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"DATA"}]}"#,
            false,
        ),
        (
            "anthropic",
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"x":"DATA"}}]}"#,
            false,
        ),
        (
            "openai-responses",
            r#"{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,DATA"}}"#,
            true,
        ),
        (
            "openai-responses",
            r#"{"type":"image_generation_call","id":"i","status":"completed","result":"DATA"}"#,
            true,
        ),
        (
            "openai-responses",
            r#"{"type":"code_interpreter_call","id":"i","code":"x","outputs":[{"type":"image","url":"data:image/png;base64,DATA"}]}"#,
            true,
        ),
        ("openai-responses", r#"{"type":"compaction","encrypted_content":"DATA"}"#, false),
        (
            "openai-responses",
            r#"{"type":"reasoning","id":"r","summary":[],"encrypted_content":"DATA"}"#,
            false,
        ),
        ("openai-responses", r#"{"type":"local_shell_call_output","id":"c","output":"DATA"}"#, false),
        (
            "openai-chat",
            r#"{"role":"assistant","content":"here","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,DATA"}}]}"#,
            true,
        ),
        (
            "openai-chat",
            r#"{"role":"assistant","images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,DATA"}}],"content":"DATA"}"#,
            true,
        ),
        (
            "openai-chat",
            r#"{"role":"assistant","content":"here","reasoning_details":[{"type":"reasoning.encrypted","data":"DATA"}]}"#,
            false,
        ),
        (
            "openai-chat",
            r#"{"role":"assistant","content":"here","provider_specific_fields":{"thought_signatures":["DATA"]}}"#,
            false,
        ),
        (
            "gemini",
            r#"{"role":"model","parts":[{"toolResponse":{"id":"t","response":{"image":{"mimeType":"image/png","data":"DATA"}}}}]}"#,
            true,
        ),
        (
            "gemini",
            r#"{"role":"model","parts":[{"executableCode":{"code":"x"},"thoughtSignature":"DATA"}]}"#,
            false,
        ),
        (
            "gemini",
            r#"{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"x":{"y":"DATA"}}}}]}"#,
            false,
        ),
    ];

    /// Wherever a dialect has the encoding of an image or a document, it counts as one; but sealed contents do not.
    #[test]
    fn encoded_media_does_not_count_as_text_in_any_dialect() {
        let data = data(9000);
        for (dialect, message, is_less) in CASES {
            let message = message.replace("DATA", &data);
            let list = match *dialect {
                "openai-responses" => "input",
                "gemini" => "contents",
                _ => "messages",
            };
            let body = format!(r#"{{"model":"m","{list}":[{message}]}}"#);
            let protocol = protocol::named(dialect).unwrap();
            let read = protocol.index(&body.into(), &NoMemo).unwrap();
            let less = message.len() - read.messages[0].read_len();
            let url = if message.contains("data:image") { "data:image/png;base64,".len() } else { 0 };
            assert_eq!(less, if *is_less { 9000 + url } else { 0 }, "{dialect} {}", &message[..90]);
            assert_eq!(read.encoded(|_| true), less, "{dialect}");
            let blocks = protocol.prompt(&read).blocks;
            let in_parts: usize = read.parts_of(0).map(|(_, part)| part.span.len() - part.read_len()).sum();
            assert!(blocks.iter().all(|block| block.bytes as usize + in_parts <= message.len()), "{dialect}");
        }
    }
}
