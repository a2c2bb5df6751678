//! JSON documents parsed without the members that hold the model's output.
//!
//! The end of a stream may repeat the whole answer, the instructions and the tools, and parsing them would cost more
//! than all figures. Strings without escapes are borrowed from the document.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number};

/// The initial capacity for an object's members: most objects that are read have fewer than that.
const OBJECT_CAPACITY: usize = 8;

/// A JSON value, without the members that hold the model's output.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value<'d> {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string, without its escapes.
    Text(Cow<'d, str>),
    /// An array.
    List(Vec<Self>),
    /// An object. If a name occurs twice, the last member counts.
    Object(Vec<(Cow<'d, str>, Self)>),
}

impl<'d> Value<'d> {
    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        self.members().iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    /// The names of an object's members in their order; none for other values.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.members().iter().map(|(name, _)| &**name)
    }

    fn members(&self) -> &[(Cow<'d, str>, Self)] {
        if let Self::Object(members) = self { members } else { &[] }
    }

    /// The items of an array.
    pub(crate) fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// The items of an array; none for other values.
    pub(crate) fn items(&self) -> &[Self] {
        self.as_list().unwrap_or_default()
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(crate) fn as_number(&self) -> Option<&Number> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }

    pub(crate) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) const fn is_object(&self) -> bool {
        matches!(self, Self::Object(_))
    }
}

impl From<&Value<'_>> for serde_json::Value {
    fn from(value: &Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::Text(text) => Self::String(text.to_string()),
            Value::List(items) => items.iter().map(Self::from).collect(),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.to_string(), Self::from(value)));
                Self::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

/// Writes the value as JSON.
impl fmt::Display for Value<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde_json::Value::from(self).fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Value<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Pruner)
    }
}

/// Whether a member of this name is skipped, at any depth. In no dialect does such a member hold figures.
pub(super) fn is_content(name: &str) -> bool {
    matches!(
        name,
        "arguments"
            | "content"
            | "embedding"
            | "encrypted_content"
            | "instructions"
            | "logprobs"
            | "reasoning_content"
            | "reasoning_details"
            | "summary"
            | "tool_calls"
            | "tools"
    )
}

struct Pruner;

impl<'de> Visitor<'de> for Pruner {
    type Value = Value<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value<'de>, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value<'de>, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value<'de>, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value<'de>, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value<'de>, E> {
        Ok(Value::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value<'de>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value<'de>, A::Error> {
        let mut kept = Vec::with_capacity(OBJECT_CAPACITY);
        while let Some(Name(name)) = members.next_key()? {
            if is_content(&name) {
                members.next_value::<IgnoredAny>()?;
            } else {
                kept.push((name, members.next_value()?));
            }
        }
        Ok(Value::Object(kept))
    }
}

/// A member's name.
struct Name<'d>(Cow<'d, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Name<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Reader)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use serde_json::Value as Json;

    fn prune(value: &mut Json) {
        match value {
            Json::Array(items) => items.iter_mut().for_each(prune),
            Json::Object(members) => {
                members.retain(|name, _| !is_content(name));
                members.values_mut().for_each(prune);
            }
            _ => {}
        }
    }

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<u64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            "[a\"\\\\\u{e9}\u{1f6a2}\n]{0,6}".prop_map(Json::from),
        ];
        let name = prop_oneof![Just("content".to_owned()), Just("tools".to_owned()), "[a-d\"\n]{0,3}"];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Json::Array),
                proptest::collection::btree_map(name.clone(), inner, 0..5)
                    .prop_map(|members| Json::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Members are found as in the complete document.
    fn same(read: &Value<'_>, expected: &Json) -> Result<(), TestCaseError> {
        for (name, member) in expected.as_object().into_iter().flatten() {
            let found = read.get(name);
            prop_assert_eq!(found.map(Json::from), Some(member.clone()), "{}", name);
            same(found.unwrap(), member)?;
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn everything_but_pruned_members_is_read_unchanged(value in json()) {
            let text = value.to_string();
            let mut expected: Json = serde_json::from_str(&text).unwrap();
            prune(&mut expected);
            same(&serde_json::from_str::<Value<'_>>(&text).unwrap(), &expected)?;
            prop_assert_eq!(Json::from(&serde_json::from_str::<Value<'_>>(&text).unwrap()), expected, "{}", text);
        }
    }

    #[test]
    fn invalid_json_is_refused_and_content_is_pruned() {
        for text in
            ["", "{", "{} {}", "{\"content\":}", "{\"content\":[}", "{\"a\":1,}", "nul", "{\"a\":1e999}"]
        {
            assert!(serde_json::from_str::<Value<'_>>(text).is_err(), "{text}");
        }
        let twice = serde_json::from_str::<Value<'_>>("{\"a\":1,\"a\":[2]}").unwrap();
        assert_eq!(twice.get("a").map(Value::items), Some(&[Value::Number(2.into())][..]));
        for (text, expected) in [
            ("{\"content\":{\"usage\":3},\"a\":1}", "{\"a\":1}"),
            ("{\"\\u0063ontent\":1}", "{}"),
            ("{\"a\":1,\"a\":2}", "{\"a\":2}"),
            (" [1.0, -0, 1e2] ", "[1.0,-0.0,100.0]"),
        ] {
            assert_eq!(serde_json::from_str::<Value<'_>>(text).unwrap().to_string(), expected, "{text}");
        }
    }
}
