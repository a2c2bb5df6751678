//! The dashboard: a single file that requests all it shows from the API.
//!
//! It contains no figures itself, loads nothing from elsewhere, and runs no script but its own, which the policy that
//! it is served with names by its digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// The page.
pub(super) const HTML: &str = include_str!("page.html");

/// The content security policy of the page.
pub(super) fn policy() -> String {
    format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        digest(within("<script>", "</script>")),
        digest(within("<style>", "</style>")),
    )
}

/// The text between two marks.
fn within(start: &str, end: &str) -> &'static str {
    HTML.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map_or("", |(text, _)| text)
}

fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a text that follow `mark`, up to the next quote.
    fn names<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
        text.split(mark).skip(1).filter_map(|rest| rest.split(['"', '\'']).next()).collect()
    }

    #[test]
    fn the_page_is_small_and_self_contained() {
        assert!(HTML.len() < 20 << 10, "{} bytes", HTML.len());
        for (mark, times) in [("<script", 1), ("<style", 1), ("</script>", 1), ("</style>", 1), ("src=", 0)] {
            assert_eq!(HTML.matches(mark).count(), times, "{mark}");
        }
        for elsewhere in ["http:", "https:", "//", "@import", "url(", " style=", " onclick", "innerHTML"] {
            let code = HTML.lines().filter(|line| !line.trim_start().starts_with("//"));
            assert_eq!(
                code.filter(|line| line.contains(elsewhere)).collect::<Vec<_>>(),
                [""; 0],
                "{elsewhere}"
            );
        }
    }

    #[test]
    fn the_script_uses_only_existing_elements_and_endpoints() {
        let script = within("<script>", "</script>");
        let (ids, used) = (names(HTML, " id=\""), names(script, "$('"));
        assert!(!used.is_empty() && used.iter().all(|id| ids.contains(id)), "{used:?} of {ids:?}");
        assert!(ids.iter().all(|id| used.contains(id)), "{ids:?} are used: {used:?}");
        let asked = names(script, "'/api/");
        assert!(!asked.is_empty());
        for path in asked {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let question = super::super::api::Question::new(path, query.trim_end_matches(['&', '=']));
            assert!(question.is_ok(), "/api/{path}?{query}: {question:?}");
        }
    }

    /// The words are those of `inspect`: the page has no words of its own for records.
    #[test]
    fn what_was_done_is_worded_by_the_api() {
        let script = within("<script>", "</script>");
        assert!(script.contains("[...happened, ...standing]"));
        for field in ["outcome", "own", "error", "budget", "status", "edits.parts", "edits.splice"] {
            assert!(!script.contains(&format!("record.{field}")), "{field}");
        }
    }

    /// The focus and the selection survive updates: elements are changed only where they differ.
    #[test]
    fn unchanged_elements_are_not_replaced() {
        let script = within("<script>", "</script>");
        for id in ["totals", "days", "heads", "list", "columns", "requests", "name"] {
            assert_eq!(script.matches(&format!("put($('{id}'), ")).count(), 1, "{id}");
        }
        for id in ["notes", "zone", "count", "rest", "shown", "state", "wrong"] {
            assert!(script.contains(&format!("say($('{id}'), ")), "{id}");
            assert!(!script.contains(&format!("$('{id}').textContent")), "{id}");
        }
        // Only a change of the view begins anew.
        let (_, turn) = script.split_once("\nfunction turn() {").unwrap();
        let (turn, _) = turn.split_once("\n}").unwrap();
        assert_eq!(script.matches("replaceChildren(").count(), turn.matches("replaceChildren(").count());
    }

    #[test]
    fn views_have_links_titles_and_places() {
        let script = within("<script>", "</script>");
        for code in [
            "named('a', one.id)",
            "open.href = '#' + encodeURIComponent(",
            "document.title = ",
            "scrollTo(0, place)",
            "new URLSearchParams(location.search)",
            ".focus({ preventScroll: true })",
        ] {
            assert!(script.contains(code), "{code}");
        }
        // Only errors are announced.
        let announced: Vec<&str> = HTML.lines().filter(|line| line.contains("role=\"status\"")).collect();
        assert!(matches!(announced[..], [line] if line.contains("id=\"wrong\"")), "{announced:?}");
        assert!(!HTML.contains("aria-live"));
    }

    #[test]
    fn long_names_are_truncated_on_the_page() {
        let script = within("<script>", "</script>");
        for name in ["one.id", "one.clients", "one.models", "found.conversation)", "record.model "] {
            let mut shown = script
                .lines()
                .filter(|line| line.contains(name) && !line.contains("location.hash"))
                .peekable();
            assert!(shown.peek().is_some(), "{name} is shown");
            for line in shown {
                let cut = ["named('", "list("].iter().any(|cut| line.contains(cut));
                assert!(cut, "{line}");
            }
        }
    }

    #[test]
    fn only_estimates_are_marked_as_such() {
        let script = within("<script>", "</script>");
        assert!(script.contains("const about = figure => figure?.estimated ? '~' : '';"));
        for code in [
            "about(saved) + dollars(saved.net)",
            "about(saved) + dollars(cost.total + saved.net)",
            "about(record.counterfactual) + dollars(saved)",
            "about(zone) + zone.name",
        ] {
            assert!(script.contains(code), "{code}");
        }
        // What rewriting would have saved, and a zone that was not measured by the provider, are always estimates.
        let always = ["const about", "would have saved ~", "measured && window.zone"];
        let marked: Vec<&str> = script.lines().filter(|line| line.contains('~')).collect();
        assert!(marked.iter().all(|line| always.iter().any(|one| line.contains(one))), "{marked:?}");
        assert_eq!(marked.len(), always.len());
    }

    /// Text from outside may contain characters that change the direction of adjacent text.
    #[test]
    fn no_text_changes_the_direction_of_adjacent_text() {
        let script = within("<script>", "</script>");
        assert!(script.contains("const plain = text => text.replace(/\\p{Bidi_C}/gu, '\u{fffd}');"));
        for code in ["made.textContent = plain(text);", "made.title = plain(name);", "plain(short(id))"] {
            assert!(script.contains(code), "{code}");
        }
        let (_, say) = script.split_once("\nfunction say(into, said) {").unwrap();
        assert!(say.trim_start().starts_with("const text = plain(said);"));
        assert_eq!(script.matches(".textContent = ").count(), 2);
    }

    #[test]
    fn the_csp_allows_only_the_pages_own_script_and_style() {
        // `printf abc | openssl dgst -sha256 -binary | base64`
        assert_eq!(digest("abc"), "sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
        assert_eq!((within("<script>", "<never>"), within("<never>", "</script>")), ("", ""));
        let policy = policy();
        let (script, style) = (within("<script>", "</script>"), within("<style>", "</style>"));
        assert!(script.contains("fetch(") && style.contains("color"));
        for part in [format!("script-src '{}';", digest(script)), format!("style-src '{}';", digest(style))] {
            assert!(policy.contains(&part), "{policy}");
        }
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    }
}
