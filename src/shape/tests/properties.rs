//! The pipeline: what must hold for every text and all settings.

use proptest::prelude::*;

use super::*;
use crate::shape::cut::Lines;
use crate::shape::settings::MARKER;

/// Pieces of text that matter to one of the shapers.
fn text() -> impl Strategy<Value = String> {
    let encoded = ENCODED.repeat(12);
    let fixed = proptest::sample::select(vec![
        "\n".to_owned(),
        "\n\n".to_owned(),
        "\r\n".to_owned(),
        "\r".to_owned(),
        "1%\r".to_owned(),
        "\r2% of it\r".to_owned(),
        " ".to_owned(),
        "\x08".to_owned(),
        "\x1b[1;31m".to_owned(),
        "\x1b]0;t\x07".to_owned(),
        "\x1b".to_owned(),
        "the same line of several words again\n".repeat(6),
        "the same line of several words again\r\n".to_owned(),
        format!("{}\n", "a long line of words is dear; ".repeat(12)),
        format!("{}\n\n", "another, with a blank one after it; ".repeat(9)),
        "no line end in sight, ".repeat(20),
        "[plimsoll: the line above repeated 3 more times]\n".repeat(3),
        "\n\n[plimsoll: 7 of 20 bytes removed here; x]\n\n".to_owned(),
        "...12 bytes truncated...\n".to_owned(),
        "{ \"key\": [1.0, 2e3] }".to_owned(),
        "[ 1,\n2 ]".to_owned(),
        format!("{}==", ENCODED.repeat(90)),
        format!(" data:x;base64,{encoded}"),
        format!("{}\n", &encoded[..64]).repeat(66),
        "e\u{301}👩\u{200d}👧".to_owned(),
    ]);
    let piece = prop_oneof![4 => fixed, 1 => "\\PC{0,12}", 3 => "[a-z]{1,9}[ \n]", 1 => any::<String>()];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn document() -> impl Strategy<Value = String> {
    let value =
        |texts: Vec<String>| serde_json::json!({ "texts": texts, "zeros": [0, 0, 0, 0, 0, 0], "none": {} });
    proptest::collection::vec(text(), 0..4)
        .prop_map(move |texts| serde_json::to_string_pretty(&value(texts)).unwrap())
}

fn texts() -> impl Strategy<Value = Vec<Cow<'static, str>>> {
    let one = prop_oneof![9 => text(), 1 => document()];
    proptest::collection::vec(one.prop_map(Cow::Owned), 0..4)
}

fn settings() -> impl Strategy<Value = Settings> {
    let limit = || prop_oneof![0..6_usize, 0..200_usize, Just(100_000)];
    let keep = || proptest::sample::select(vec![Keep::Head, Keep::Tail, Keep::Both, Keep::Parts(200)]);
    let marker = proptest::sample::select(vec![
        MARKER,
        MARKER,
        "...{removed} bytes truncated...\n\nSaved: {recall}\nSearch it.",
        "...{removed_plain} bytes truncated of {total_plain}...",
        "[{removed} {total}]",
        "[gone: {recall}]",
        "{recall}\n",
        "\n",
        "",
    ]);
    let flags = (any::<[bool; 4]>(), any::<bool>());
    (limit(), 0..4000_usize, limit(), keep(), marker, flags).prop_map(
        |(max_lines, max_bytes, errors, keep, marker, ([escapes, fold, minify, base64], trailing))| {
            let mut settings =
                Settings { escapes, fold, minify, base64, ..limits(max_lines, max_bytes, keep) };
            settings.truncate.marker = marker.to_owned();
            settings.truncate.error_max_bytes = errors * 10;
            settings.truncate.count_trailing_newline = trailing;
            settings
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 400 } else { 10_000 }))]

    #[test]
    fn shaped_results_are_shorter_and_a_fixed_point(
        texts in texts(),
        settings in settings(),
        is_error in proptest::bool::weighted(0.2),
    ) {
        let once = Subject { is_error, ..subject(&texts) };
        let Some(shaped) = shape(&once, &settings) else { return Ok(()) };
        prop_assert_eq!(&shape(&once, &settings).unwrap(), &shaped);
        prop_assert!(!shaped.rules.is_empty());
        for leaf in &shaped.leaves {
            if let Some(LeafEdit::Replace(text)) = leaf {
                prop_assert!(!text.trim().is_empty());
                prop_assert!(shaped.rules.cite_full_text() || !text.contains(RECALL));
            }
        }
        let after = edited(&texts, &shaped);
        prop_assert!(!after.is_empty());
        prop_assert!(size(&after) < size(&texts));
        let again = shape(&Subject { is_error, ..subject(&after) }, &settings);
        prop_assert_eq!(again, None, "{:?}", after);
        let is_recognisable = Template::parse(&settings.truncate.marker).is_recognisable();
        let is_cut = shaped.rules.contains(Rule::Truncate);
        if is_cut && is_recognisable {
            // The next gateway keeps the full text elsewhere.
            let again = shape(&Subject { is_error, recall: "see /o", ..subject(&after) }, &settings);
            prop_assert_eq!(again, None, "{:?}", after);
        }
        if is_cut && !is_recognisable && !is_error {
            prop_assert!(size(&after) <= settings.truncate.base.max_bytes);
            let lines: usize = after.iter().map(|text| Lines::Plain.size(text).lines).sum();
            prop_assert!(lines <= settings.truncate.base.max_lines);
        }
    }

    /// A removed member leaves a remainder, which takes no more of the budget than the member did.
    #[test]
    fn shortened_members_are_a_fixed_point(texts in texts(), settings in settings()) {
        let Some(shaped) = shape(&Subject { members: true, ..subject(&texts) }, &settings) else { return Ok(()) };
        let leaves = texts.iter().zip(&shaped.leaves);
        let after: Vec<Cow<'_, str>> = leaves.map(|(text, leaf)| match leaf {
            None => text.clone(),
            Some(LeafEdit::Replace(text)) => Cow::Borrowed(&**text),
            Some(LeafEdit::Remove) => Cow::Borrowed(if text.len() > GONE.len() { GONE } else { text }),
        }).collect();
        let again = shape(&Subject { members: true, ..subject(&after) }, &settings);
        prop_assert_eq!(again, None, "{:?}", after);
    }

    #[test]
    fn truncations_keep_their_ends_and_add_up(
        texts in texts(),
        max_lines in 0..40_usize,
        max_bytes in 0..4000_usize,
        keep in proptest::sample::select(vec![Keep::Head, Keep::Tail, Keep::Both, Keep::Parts(200)]),
    ) {
        let settings = limits(max_lines, max_bytes, keep);
        let Some(shaped) = shape(&subject(&texts), &settings) else { return Ok(()) };
        let (before, after) = (texts.concat(), edited(&texts, &shaped));
        let template = Template::parse(MARKER);
        let marks = after.iter().enumerate().flat_map(|(index, text)| {
            template.find_in(text).map(move |marker| (index, marker)).collect::<Vec<_>>()
        });
        // One of the markers is ours; the text may contain others.
        let found = marks.into_iter().any(|(index, marker)| {
            let text = &after[index];
            let start = &text[..marker.start.saturating_sub(2)];
            let end = text.get(marker.end + 2..).unwrap_or_default();
            let whole = after[..index].iter().chain(&after[index + 1..]);
            let whole_lines: usize = whole.map(|text| Lines::Plain.size(text).lines).sum();
            let cut_lines = Lines::CountTrailing.size(start).lines + Lines::Plain.size(end).lines;
            let head = after[..index].concat() + start;
            let tail = end.to_owned() + &after[index + 1..].concat();
            let kept = head.len() + tail.len();
            before.starts_with(&head)
                && before.ends_with(&tail)
                && marker.removed + kept == before.len()
                && marker.total == Some(before.len())
                && kept <= max_bytes
                && whole_lines + cut_lines <= max_lines
                && match keep { Keep::Head => tail.is_empty(), Keep::Tail => head.is_empty(), Keep::Both | Keep::Parts(_) => true }
        });
        prop_assert!(found, "{:?}", after);
    }

    #[test]
    fn minified_documents_are_equivalent(document in document()) {
        let minified = minify::minify(&document).unwrap();
        prop_assert!(minified.len() < document.len());
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        prop_assert_eq!(value(&minified), value(&document));
        prop_assert_eq!(minified, value(&document).to_string());
    }

    #[test]
    fn plain_text_is_not_condensed(text in "[a-zé \n]{0,200}") {
        prop_assert_eq!(escapes::strip(&text), None);
        prop_assert_eq!(minify::minify(&text), None);
        prop_assert_eq!(base64::elide(&text, RECALL), None);
    }
}
