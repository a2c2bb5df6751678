//! JSON documents without what the model says in them.
//!
//! The end of a stream may repeat all of an answer, and the instructions and the tools besides: to look for figures
//! there would cost more than to find them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Members that no dialect has figures in. They are read over, wherever they stand.
const SAYINGS: &[&str] = &[
    "arguments",
    "content",
    "encrypted_content",
    "instructions",
    "logprobs",
    "reasoning_content",
    "reasoning_details",
    "summary",
    "tool_calls",
    "tools",
];

/// A value, but for what the model says in it.
pub(super) struct Pruned(pub(super) Value);

impl<'de> Deserialize<'de> for Pruned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Pruner).map(Self)
    }
}

struct Pruner;

impl<'de> Visitor<'de> for Pruner {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Pruned(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if SAYINGS.contains(&&*name) {
                members.next_value::<IgnoredAny>()?;
            } else {
                map.insert(name, members.next_value::<Pruned>()?.0);
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prune(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(prune),
            Value::Object(members) => {
                members.retain(|name, _| !SAYINGS.contains(&&**name));
                members.values_mut().for_each(prune);
            }
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a\"\\\\\u{e9}\u{1f6a2}\n]{0,6}".prop_map(Value::from),
        ];
        let name = prop_oneof![proptest::sample::select(SAYINGS).prop_map(str::to_owned), "[a-d\"\n]{0,3}"];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                proptest::collection::btree_map(name.clone(), inner, 0..5)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn all_else_is_read_as_it_stands(value in json()) {
            let text = value.to_string();
            let mut expected: Value = serde_json::from_str(&text).unwrap();
            prune(&mut expected);
            prop_assert_eq!(serde_json::from_str::<Pruned>(&text).unwrap().0, expected, "{}", text);
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for text in
            ["", "{", "{} {}", "{\"content\":}", "{\"content\":[}", "{\"a\":1,}", "nul", "{\"a\":1e999}"]
        {
            assert!(serde_json::from_str::<Pruned>(text).is_err(), "{text}");
        }
        for (text, expected) in [
            ("{\"content\":{\"usage\":3},\"a\":1}", "{\"a\":1}"),
            ("{\"\\u0063ontent\":1}", "{}"),
            ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
            (" [1.0, -0, 1e2] ", "[1.0,-0.0,100.0]"),
        ] {
            assert_eq!(serde_json::from_str::<Pruned>(text).unwrap().0.to_string(), expected, "{text}");
        }
    }
}
