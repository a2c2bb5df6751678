//! The pipeline: tables of whole results.

mod properties;

use std::borrow::Cow;

use super::settings::{NamePatterns, Truncate};
use super::*;

const RECALL: &str = "full output: /o/ab12.txt";
/// Looks like encoded data if there is enough of it.
const ENCODED: &str = "QkM3ZGVm/GhpSmts0+XyRnJvbUFub3RoZXJJbWFnZQ1c9dLx7K";

/// Settings that truncate at these limits, and do nothing else.
fn limits(max_lines: usize, max_bytes: usize, keep: Keep) -> Settings {
    let base = TruncateRule { max_lines, max_bytes, keep };
    let truncate = Truncate { base, tools: Vec::new(), ..Settings::default().truncate };
    Settings { escapes: false, fold: false, minify: false, base64: false, truncate, ..Settings::default() }
}

fn subject<'a>(leaves: &'a [Cow<'a, str>]) -> Subject<'a> {
    Subject { leaves, members: false, tool: None, arguments: None, is_error: false, recall: RECALL }
}

/// The texts after the edit, without the removed ones.
fn edited(texts: &[Cow<'_, str>], shaped: &Shaped) -> Vec<Cow<'static, str>> {
    assert_eq!(texts.len(), shaped.leaves.len());
    let edited = texts.iter().zip(&shaped.leaves).filter_map(|(text, leaf)| match leaf {
        None => Some(text.clone().into_owned()),
        Some(LeafEdit::Replace(text)) => Some(text.to_string()),
        Some(LeafEdit::Remove) => None,
    });
    edited.map(Cow::Owned).collect()
}

/// Bytes of all texts.
fn size(texts: &[Cow<'_, str>]) -> usize {
    texts.iter().map(|text| text.len()).sum()
}

fn replace(text: String) -> LeafEdit {
    LeafEdit::Replace(text.into())
}

const KEEP: Option<LeafEdit> = None;
const REMOVE: Option<LeafEdit> = Some(LeafEdit::Remove);

/// One text in, one text out.
fn check(text: &str, settings: &Settings, expected: Option<&str>) {
    let expected = expected.map(|expected| [Some(replace(expected.to_owned()))]);
    check_leaves(&[text], settings, expected.as_ref().map(|expected| &expected[..]));
}

fn check_leaves(texts: &[&str], settings: &Settings, expected: Option<&[Option<LeafEdit>]>) {
    let texts: Vec<Cow<'_, str>> = texts.iter().map(|&text| text.into()).collect();
    let shaped = shape(&subject(&texts), settings);
    let leaves = shaped.as_ref().map(|shaped| &*shaped.leaves);
    assert!(leaves == expected, "{}, not {}", brief(leaves), brief(expected));
    if let Some(shaped) = shaped {
        let texts = edited(&texts, &shaped);
        assert_eq!(shape(&subject(&texts), settings), None, "not a fixed point");
    }
}

/// Beginnings and ends, for messages.
fn brief(leaves: Option<&[Option<LeafEdit>]>) -> String {
    let text = format!("{leaves:?}");
    let ends = (text.chars().take(150), text.chars().skip(text.chars().count().saturating_sub(150)));
    format!("{} … {}", ends.0.collect::<String>(), ends.1.collect::<String>())
}

/// Lines numbered from one number to another, 20 bytes each with the newline.
fn lines(numbers: std::ops::RangeInclusive<usize>) -> String {
    numbers.fold(String::new(), |lines, number| lines + &format!("line {number:04} abcd efgh\n"))
}

fn marker(removed: &str, total: &str) -> String {
    format!("[plimsoll: {removed} of {total} bytes removed here; {RECALL}]")
}

#[test]
fn results_within_the_limits_are_kept() {
    let rule = limits(2000, 51_200, Keep::Head);
    for text in [
        String::new(),
        "x".repeat(51_200),
        "123456789\n".repeat(2000),
        "l\n".repeat(2000),
        format!("{}l", "l\n".repeat(1999)),
        "é\r\n".repeat(2000),
    ] {
        check(&text, &rule, None);
    }
}

#[test]
fn truncation_may_keep_the_head() {
    let rule = limits(2000, 51_200, Keep::Head);
    // One line too many, 20 bytes with its newline: not worth a marker.
    check(&lines(1..=2001), &rule, None);
    let text = lines(1..=2100);
    check(&text, &rule, Some(&format!("{}\n\n{}", &text[..39_999], marker("2,001", "42,000"))));
    check(
        &"x y ".repeat(15_000),
        &rule,
        Some(&format!("{}\n\n{}", "x y ".repeat(12_800), marker("8,800", "60,000"))),
    );
    let text = lines(1..=3000);
    check(
        &text,
        &limits(9999, 51_210, Keep::Head),
        Some(&format!("{}\n\n{}", &text[..51_199], marker("8,801", "60,000"))),
    );
}

#[test]
fn truncation_may_keep_the_tail() {
    let text = lines(1..=3000);
    let rule = limits(2000, 51_200, Keep::Tail);
    check(&text, &rule, Some(&format!("{}\n\n{}", marker("20,000", "60,000"), lines(1001..=3000))));
    check(
        text.trim_end(),
        &rule,
        Some(&format!("{}\n\n{}", marker("20,000", "59,999"), lines(1001..=3000).trim_end())),
    );
    let rule = limits(9999, 51_210, Keep::Tail);
    check(&text, &rule, Some(&format!("{}\n\n{}", marker("8,800", "60,000"), lines(441..=3000))));
    check(
        &"x y ".repeat(15_000),
        &rule,
        Some(&format!("{}\n\n{}", marker("8,790", "60,000"), &"x y ".repeat(15_000)[8790..])),
    );
}

/// The figures of a cut are those of what was cut, but the full text is what was received.
#[test]
fn truncation_of_condensed_text_states_the_original_size() {
    let (text, escapes) = (lines(1..=3000), "\u{1b}[0m".repeat(2500));
    for keep in [Keep::Head, Keep::Tail, Keep::Both] {
        for (settings, before, expected) in [
            (limits(2000, 51_200, keep), "", RECALL.to_owned()),
            (limits(2000, 51_200, keep), &*escapes, RECALL.to_owned()),
            (Settings { escapes: true, ..limits(2000, 51_200, keep) }, "", RECALL.to_owned()),
            (
                Settings { escapes: true, ..limits(2000, 51_200, keep) },
                &escapes,
                format!("condensed from 70,000 bytes; {RECALL}"),
            ),
        ] {
            let came = format!("{before}{text}");
            let leaves = [came.as_str().into()];
            let shaped = shape(&subject(&leaves), &settings).unwrap();
            let sent = edited(&leaves, &shaped);
            assert!(
                sent[0].contains(&format!(" bytes removed here; {expected}]")),
                "{}",
                brief(Some(&shaped.leaves))
            );
            assert_eq!(shape(&subject(&sent), &settings), None, "not a fixed point");
        }
    }
}

/// If that takes the room that the cut would make, the marker leaves it out: what comes back is not cut any further.
#[test]
fn the_marker_omits_the_original_size_if_there_is_no_room_for_it() {
    let settings = Settings { fold: true, ..limits(1, 16, Keep::Head) };
    let (mut told, mut untold) = (0, 0);
    for words in 0..120 {
        let came = format!("{}{}", "one and the same line of words\n".repeat(9), "word ".repeat(words));
        let leaves = [came.as_str().into()];
        let Some(shaped) = shape(&subject(&leaves), &settings) else { continue };
        let sent = edited(&leaves, &shaped);
        assert_eq!(shape(&subject(&sent), &settings), None, "not a fixed point: {sent:?}");
        let is_told = sent[0].contains("condensed from");
        told += u32::from(is_told);
        untold += u32::from(!is_told && shaped.rules.contains(Rule::Truncate));
    }
    assert!(told > 0 && untold > 0, "{told} {untold}");
}

#[test]
fn truncation_may_keep_both_ends() {
    let text = lines(1..=3000);
    check(
        &text,
        &limits(2000, 51_200, Keep::Both),
        Some(&format!(
            "{}\n\n{}\n\n{}",
            lines(1..=1000).trim_end(),
            marker("20,001", "60,000"),
            lines(2001..=3000)
        )),
    );
    // The second half takes what whole lines left of the first one.
    check(
        &text,
        &limits(9999, 51_219, Keep::Both),
        Some(&format!(
            "{}\n\n{}\n\n{}",
            lines(1..=1280).trim_end(),
            marker("8,781", "60,000"),
            lines(1720..=3000)
        )),
    );
    check(
        &"x y ".repeat(15_000),
        &limits(2000, 40_000, Keep::Both),
        Some(&format!(
            "{}\n\n{}\n\n{}",
            "x y ".repeat(5000),
            marker("20,000", "60,000"),
            "x y ".repeat(5000)
        )),
    );
    check(
        &text,
        &limits(1, 51_200, Keep::Both),
        Some(&format!("{}\n\n{}", marker("59,980", "60,000"), lines(3000..=3000))),
    );
    check(&text, &limits(0, 51_200, Keep::Both), Some(&marker("60,000", "60,000")));
}

/// A marker that cannot be told from other text counts towards the limits: if these are small, it is all that is left.
#[test]
fn an_unrecognisable_marker_alone_remains_under_tiny_limits() {
    let text = lines(1..=3000);
    for (mark, max_lines, max_bytes, expected) in [
        ("[cut]", 3, 51_200, Some("[cut]")),
        ("[cut]", 2, 51_200, Some("[cut]")),
        ("[cut]", 1, 51_200, Some("[cut]")),
        ("[cut]", 2000, 5, Some("[cut]")),
        // The marker itself would not fit.
        ("[cut]", 2000, 4, None),
        ("[cut]\nhere", 1, 51_200, None),
    ] {
        for keep in [Keep::Head, Keep::Tail, Keep::Both] {
            let mut rule = limits(max_lines, max_bytes, keep);
            rule.truncate.marker = mark.to_owned();
            check(&text, &rule, expected);
            let (least_lines, least_bytes) = rule.truncate.least_of_marker().unwrap();
            let has_room = least_lines <= max_lines && least_bytes <= max_bytes;
            assert_eq!(has_room, expected.is_some(), "{mark:?}");
        }
    }
}

#[test]
fn a_counted_trailing_line_uses_up_the_line_limit() {
    let text = lines(1..=3000);
    let mut rule = limits(2000, 51_200, Keep::Tail);
    rule.truncate.count_trailing_newline = true;
    check(&text, &rule, Some(&format!("{}\n\n{}", marker("20,020", "60,000"), lines(1002..=3000))));
    let mut rule = limits(3000, 60_000, Keep::Head);
    check(&text, &rule, None);
    rule.truncate.count_trailing_newline = true;
    let truncation = |settings: &Settings| settings.truncate.lines().size(&text).lines;
    assert_eq!(truncation(&rule), 3001);
    // Only a newline would be removed: never longer takes precedence.
    check(&text, &rule, None);
}

#[test]
fn the_texts_of_a_result_share_one_budget() {
    let texts = [&*lines(1..=1000), "", &lines(1001..=2000), &lines(2001..=3000)];
    let mark = |removed: &str| marker(removed, "60,000");
    for (max_lines, keep, expected) in [
        (
            1500,
            Keep::Head,
            [
                KEEP,
                KEEP,
                Some(replace(format!("{}\n\n{}", lines(1001..=1500).trim_end(), mark("30,001")))),
                REMOVE,
            ],
        ),
        (1000, Keep::Head, [KEEP, KEEP, Some(replace(mark("40,000"))), REMOVE]),
        (
            1500,
            Keep::Tail,
            [REMOVE, REMOVE, Some(replace(format!("{}\n\n{}", mark("30,000"), lines(1501..=2000)))), KEEP],
        ),
        (2000, Keep::Tail, [Some(replace(mark("20,000"))), KEEP, KEEP, KEEP]),
        (
            1000,
            Keep::Both,
            [
                Some(replace(format!("{}\n\n{}", lines(1..=500).trim_end(), mark("40,001")))),
                REMOVE,
                REMOVE,
                Some(replace(lines(2501..=3000))),
            ],
        ),
        (2000, Keep::Both, [KEEP, KEEP, Some(replace(mark("20,000"))), KEEP]),
    ] {
        check_leaves(&texts, &limits(max_lines, 100_000, keep), Some(&expected));
    }
}

#[test]
fn a_text_of_which_only_blank_lines_would_stay_is_removed() {
    let first = lines(1..=2000);
    let texts = [&*first, "line\n\n\n\n"];
    let keep = format!("{}\n\n{}", lines(1..=2).trim_end(), marker("39,969", "40,008"));
    check_leaves(&texts, &limits(4, 100_000, Keep::Both), Some(&[Some(replace(keep)), REMOVE]));
}

#[test]
fn shapers_run_in_order() {
    let retry = "\x1b[33mretrying the request in 5 seconds: attempt failed with code 7\x1b[0m\n";
    let plain = "retrying the request in 5 seconds: attempt failed with code 7\n";
    let folded = format!("{plain}[plimsoll: the line above repeated 8 more times]\n");
    check(&retry.repeat(9), &Settings::default(), Some(&folded));
    // A document with equal lines is minified, not folded.
    let document = format!("[\n{}  0\n]\n", "  0,\n".repeat(40));
    check(&document, &Settings::default(), Some(&format!("[{}0]", "0,".repeat(40))));
    // A text that would lose everything visible stays.
    check(&"\x1b[0m".repeat(10), &Settings::default(), None);
    check(&" \x1b[0m\n".repeat(10), &Settings::default(), None);
    // Too little to be worth a decision.
    check("\x1b[0mtext", &Settings::default(), None);
    let off = limits(usize::MAX, usize::MAX, Keep::Head);
    check(&retry.repeat(9), &off, None);
}

#[test]
fn shapers_apply_to_the_output_of_earlier_ones() {
    let line = |tail: &str| format!("image one, as the tool gave it: {tail}\n");
    let encoded = ENCODED.repeat(100);
    let note = format!("[plimsoll: 5,000 bytes of base64 removed here; {RECALL}]");
    let text =
        format!("{}{}{}", line(&encoded), line(&encoded.replace("QkM", "Rk9")), line(&encoded)).repeat(2);
    let folded = format!("{}[plimsoll: the line above repeated 5 more times]\n", line(&note));
    check(&text, &Settings::default(), Some(&folded));
}

#[test]
fn an_unrecognisable_marker_counts_towards_the_limits() {
    let text = lines(1..=3000);
    let mut settings = Settings::default();
    settings.truncate.base = TruncateRule { max_lines: 100, max_bytes: 9999, keep: Keep::Tail };
    settings.truncate.marker = "(cut)".to_owned();
    check(&text, &settings, Some(&format!("(cut)\n\n{}", lines(2904..=3000))));
    settings.truncate.base.keep = Keep::Head;
    settings.truncate.marker = String::new();
    check(&text, &settings, Some(lines(1..=97).trim_end()));
    // It would come back as a document and be minified.
    let document = format!("[{}1]\n", "1, ".repeat(400));
    check(&format!("{document}{text}"), &settings, Some(&format!("{document}{}", lines(1..=96).trim_end())));
    settings.truncate.base.max_lines = 4;
    check(&format!("{document}{text}"), &settings, None);
}

#[test]
fn tool_arguments_and_errors_select_the_shapers() {
    let mut settings = Settings::default();
    settings.truncate.exempt = NamePatterns::new(["apply_*"]).unwrap();
    settings.truncate.error_max_bytes = 80_000;
    let colours = "\x1b[1mbold\x1b[0m ".repeat(9000);
    let few = "\x1b[1mbold\x1b[0m ".repeat(30);
    let rules = |text: &str, tool, arguments, is_error| {
        let leaves = [text.into()];
        let shaped = shape(&Subject { tool: Some(tool), arguments, is_error, ..subject(&leaves) }, &settings);
        shaped.map(|shaped| (shaped.rules.iter().collect::<Vec<_>>(), shaped.rules.cite_full_text()))
    };
    for (text, tool, arguments, is_error, expected) in [
        (&few, "Bash", None, false, Some((vec![Rule::Escapes], false))),
        (&few, "Bash", Some(r#"{"command":"cat a"}"#), false, None),
        (&few, "Bash", None, true, None),
        (&few, "Read", None, false, None),
        (&colours, "Bash", None, false, Some((vec![Rule::Escapes], false))),
        (&colours, "Read", None, false, Some((vec![Rule::Truncate], true))),
        (&colours, "Bash", None, true, Some((vec![Rule::Truncate], true))),
        (&colours, "apply_patch", None, false, None),
        (&colours.repeat(2), "Grep", None, false, Some((vec![Rule::Escapes, Rule::Truncate], true))),
    ] {
        assert_eq!(rules(text, tool, arguments, is_error), expected, "{tool} {arguments:?} {is_error}");
    }
}

/// What a short member says is nowhere else; members that are many or long are cut as usual.
#[test]
fn short_members_are_not_truncated() {
    let (page, log) = (lines(1..=3000), lines(1..=2000));
    let token = "CAUQAA";
    let none = [""; 0];
    let many: Vec<String> = (0..200).map(|row| format!("row {row:03}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let settings = limits(usize::MAX, 20_000, Keep::Head);
    let gone = |texts: &[&str], members| {
        let leaves: Vec<Cow<'_, str>> = texts.iter().map(|text| Cow::Borrowed(*text)).collect();
        let shaped = shape(&Subject { members, ..subject(&leaves) }, &settings)?;
        let is_cut = |leaf: &Option<LeafEdit>| leaf.is_some();
        let cut: Vec<usize> =
            shaped.leaves.iter().enumerate().filter(|(_, leaf)| is_cut(leaf)).map(|(at, _)| at).collect();
        Some((cut, size(&edited(&leaves, &shaped)).saturating_sub(marker("40,013", "60,013").len() + 2)))
    };
    for (texts, members, expected) in [
        (&[&*page, token, "success"][..], false, Some((vec![0, 1, 2], 20_000))),
        (&[&*page, token, "success"], true, Some((vec![0], 20_000 - 7))),
        (&[token, &*page, "success"], true, Some((vec![1], 20_000 - 7))),
        (&[&*page, token, &*log], true, Some((vec![0, 2], 20_000))),
        (&[&*page], true, Some((vec![0], 20_000))),
        (&none[..], true, None),
        (&["a", "b"], true, None),
    ] {
        let found = gone(texts, members);
        assert_eq!(found.as_ref().map(|(cut, _)| cut), expected.as_ref().map(|(cut, _)| cut), "{texts:?}");
        let most = expected.map_or(0, |(_, most)| most);
        assert!(found.is_none_or(|(_, bytes)| bytes <= most + 8), "{texts:?}");
    }
    let rows = [&[&*page][..], &many].concat();
    let (cut, _) = gone(&rows, true).unwrap();
    assert!(cut.len() > 1 && !cut.contains(&1) && cut.contains(&200), "{cut:?}");
}

#[test]
fn tool_and_error_status_choose_the_truncation_rule() {
    let settings = Settings::default();
    let text = lines(1..=3000);
    let leaves = [text.as_str().into()];
    let first = |tool, is_error| {
        let shaped = shape(&Subject { tool, is_error, ..subject(&leaves) }, &settings)?;
        let Some(LeafEdit::Replace(text)) = &shaped.leaves[0] else { return None };
        let ends = (text.starts_with("line 0001"), text.ends_with("line 3000 abcd efgh\n"));
        Some((ends, text.len()))
    };
    let head = 39_999 + 2 + marker("20,001", "60,000").len();
    assert_eq!(first(None, false), Some(((true, false), head)));
    assert_eq!(first(Some("Grep"), false), Some(((true, false), head)));
    let both = 51_200 + 3 + marker("8,800", "60,000").len();
    assert_eq!(first(Some("Bash"), false), Some(((true, true), both)));
    let both = 39_999 + 4 + marker("20,001", "60,000").len();
    for tool in [
        "run_tests",
        "mcp__ci__get_job_log",
        "mcp__py__run_code",
        "write_stdin",
        "TaskOutput",
        "kubectl_logs",
        "gradle_build",
        "python",
    ] {
        assert_eq!(first(Some(tool), false), Some(((true, true), both)), "{tool}");
    }
    // Errors have no limit on lines.
    assert_eq!(first(Some("Grep"), true), None);
}

#[test]
fn truncation_notices_of_other_agents_are_kept() {
    let settings = Settings::default();
    let body = lines(1..=2000);
    let notice = "[Showing lines 1-2000 of 5000 (50.0KB limit). Use offset=2001 to continue.]";
    check(&format!("{body}\n{notice}"), &settings, None);
    let far = format!("{body}{body}\n{notice}");
    assert!(shape(&subject(&[far.into()]), &settings).is_some());
}

#[test]
fn adversarial_text_takes_linear_time() {
    let pieces = [
        " ",
        "\x1b[",
        "\n",
        "=",
        "\r",
        "[",
        "{",
        "A",
        "\n\n",
        "\u{300}",
        "[plimsoll: 1 of 2 bytes removed here; x]\n\n",
    ];
    for keep in [Keep::Head, Keep::Tail, Keep::Both] {
        for piece in pieces {
            let leaves = [piece.repeat((1 << 20) / piece.len()).into()];
            let mut settings = Settings::default();
            settings.truncate.base.keep = keep;
            if let Some(shaped) = shape(&subject(&leaves), &settings) {
                assert!(size(&edited(&leaves, &shaped)) < size(&leaves));
            }
        }
    }
}
