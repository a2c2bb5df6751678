//! What was made of a request, held against its plan.

use super::*;

#[test]
fn texts_in_place_of_images_are_verified() {
    let before = read("anthropic", IMAGES);
    let plan = Plan {
        ops: vec![text(2, 0, &[(0, None), (2, Some("seen"))]), text(2, 1, &[(0, None), (1, Some("gone"))])],
    };
    let protocol = protocol::named("anthropic").unwrap();
    let after = protocol::apply_verified(protocol, &before, &plan, &NoMemo).unwrap().body;
    let after = String::from_utf8(after.to_vec()).unwrap();
    let (seen, two) = (r#"{"type":"text","text":"seen"}"#, r#"{"type":"text","text":"two"}"#);
    let (gone, image) =
        (r#"{"type":"text","text":"gone"}"#, r#"{"type":"image","source":{"type":"base64","data":"BB"}}"#);
    assert!(after.contains(&format!(r#""content":[{seen},{two}]"#)), "{after}");
    assert!(after.contains(&format!(r#""content":[{gone}]"#)), "{after}");
    for (after, expected) in [
        (after.clone(), Ok(())),
        (after.replace("gone", "lost"), Err(Mismatch::Wrong(2))),
        (after.replace(&format!("{seen},{two}"), &format!("{two},{seen}")), Err(Mismatch::Wrong(2))),
        (after.replace(gone, &format!("{gone},{image}")), Err(Mismatch::Wrong(2))),
        (after.replace(gone, image), Err(Mismatch::Wrong(2))),
        (IMAGES.to_owned(), Err(Mismatch::Wrong(2))),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

#[test]
fn deviations_from_the_plan_are_detected() {
    let before = read("anthropic", BLOCKS);
    let plan = Plan { ops: vec![text(2, 1, &[(0, Some("2")), (1, None)])] };
    let planned = BLOCKS.replace(r#""two""#, r#""2""#).replace(r#",{"type":"text","text":"three"}"#, "");
    for (after, expected) in [
        (planned.clone(), Ok(())),
        (planned.replace(r#""2""#, r#""\u0032""#), Ok(())),
        (planned.replace(r#""2""#, r#""3""#), Err(Mismatch::Wrong(2))),
        (BLOCKS.to_owned(), Err(Mismatch::Wrong(2))),
        (planned.replace(r#""one""#, r#""1""#), Err(Mismatch::Wrong(2))),
        (planned.replace(r#""tool_use_id":"b""#, r#""tool_use_id":"x""#), Err(Mismatch::Wrong(2))),
        (
            planned.replace(r#","content":"one"}"#, r#","content":"one","is_error":true}"#),
            Err(Mismatch::Wrong(2)),
        ),
        (planned.replace("goal", "foal"), Err(Mismatch::Changed(0))),
        (planned.replace(r#"{"role":"assistant","content":"hm"},"#, ""), Err(Mismatch::Count)),
        (planned.replace(r#""model":"m""#, r#""model":"n""#), Err(Mismatch::Frame)),
        (planned.replace("]}", "] }"), Err(Mismatch::Frame)),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}

#[test]
fn insertions_and_drops_are_verified() {
    let before = read("anthropic", BLOCKS);
    let plan = Plan { ops: vec![drop(1, 4), insert(1, Role::Assistant, "so far")] };
    let protocol = protocol::named("anthropic").unwrap();
    let after = protocol::apply_verified(protocol, &before, &plan, &NoMemo).unwrap().body;
    let after = String::from_utf8(after.to_vec()).unwrap();
    assert!(
        after.contains(r#"{"role":"user","content":"goal"},{"role":"assistant","content":"so far"}"#),
        "{after}"
    );
    for (after, expected) in [
        (after.clone(), Ok(())),
        (after.replace("so far", "so what"), Err(Mismatch::Wrong(1))),
        (
            after.replace(
                r#"{"role":"assistant","content":"so far"}"#,
                r#"{"role":"user","content":"so far"}"#,
            ),
            Err(Mismatch::Wrong(1)),
        ),
        (
            after.replace(
                r#","content":"so far""#,
                r#","content":[{"type":"text","text":"so far"},{"type":"text","text":"x"}]"#,
            ),
            Err(Mismatch::Wrong(1)),
        ),
    ] {
        assert_eq!(verify(&before, &plan, &read("anthropic", &after)), expected, "{after}");
    }
}
