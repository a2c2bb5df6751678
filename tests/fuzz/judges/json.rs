//! Raw JSON: spans, strings and splices agree with `serde_json` wherever both accept a text.

use plimsoll::json::container::{self, Patch};
use plimsoll::json::{Edits, Kind, Span, scan, string};
use serde_json::Value;

/// A panic is a finding.
pub(super) fn check(text: &[u8]) {
    let Ok(root) = scan::document(text) else { return };
    let listing = scan::listing(text, "messages", &mut |_, _| None);
    if root.kind == Kind::Object {
        let members = scan::members(text, root.span);
        assert_eq!(listing.as_ref().map(|listing| &listing.members).ok(), members.as_ref().ok());
    }
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
    match &value {
        Value::String(expected) => {
            assert_eq!(string::decode(root.span.of(text)).as_deref(), Some(expected.as_str()));
        }
        Value::Array(values) => array(text, root.span, values),
        _ => {}
    }
}

/// Dropping and inserting an item gives the same as the list operations.
fn array(text: &[u8], span: Span, values: &[Value]) {
    let items = scan::items(text, span).expect("it is an array");
    assert_eq!(items.len(), values.len());
    for (item, value) in items.iter().zip(values) {
        assert_eq!(&serde_json::from_slice::<Value>(item.span.of(text)).expect("an item is a value"), value);
    }
    let at = text.len() % (values.len() + 1);
    let patch = Patch { drop: vec![at], insert: vec![(at, "\"new\"".to_owned())] };
    let spans: Vec<Span> = items.iter().map(|item| item.span).collect();
    let edits = Edits::new(container::edits(span, &spans, &patch)).expect("they are disjoint");
    let mut expected = values.to_vec();
    if at < expected.len() {
        expected.remove(at);
    }
    expected.insert(at, Value::from("new"));
    let got: Value = serde_json::from_slice(&edits.apply(text)).expect("the result is JSON");
    assert_eq!(got, Value::Array(expected));
}
