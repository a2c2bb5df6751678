//! A record as a line of JSON.
//!
//! Every request has one, and most of it is the names of its fields. They hold nothing that JSON escapes, which a
//! serialiser for whatever comes cannot know: it looks at each byte of them. What is written here is what `serde_json`
//! would write, in a quarter of the instructions.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde::ser::{Impossible, SerializeMap, SerializeSeq, SerializeStruct, Serializer};

/// Bytes that a line is taken to have: most have less.
const LINE: usize = 2048;

type Written = Result<(), fmt::Error>;
type Never = Impossible<(), fmt::Error>;

/// A value of the kinds that records are made of, as JSON; an error for any other.
pub(super) fn line(value: &impl Serialize) -> Result<String, fmt::Error> {
    let mut line = Line(String::with_capacity(LINE));
    value.serialize(&mut line)?;
    Ok(line.0)
}

struct Line(String);

impl Line {
    fn string(&mut self, text: &str) -> Written {
        let escapes = |any, byte: &u8| any | (*byte < b' ') | (*byte == b'"') | (*byte == b'\\');
        if text.as_bytes().iter().fold(false, escapes) {
            return self.whatever(text);
        }
        self.0.push('"');
        self.0.push_str(text);
        self.0.push('"');
        Ok(())
    }

    fn whatever<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.0.push_str(&serde_json::to_string(value).map_err(|_| fmt::Error)?);
        Ok(())
    }
}

impl<'a> Serializer for &'a mut Line {
    type Ok = ();
    type Error = fmt::Error;
    type SerializeSeq = Items<'a>;
    type SerializeMap = Items<'a>;
    type SerializeStruct = Items<'a>;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeStructVariant = Never;

    fn serialize_bool(self, value: bool) -> Written {
        self.0.push_str(if value { "true" } else { "false" });
        Ok(())
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Written {
        match u64::try_from(value) {
            Ok(value) => self.serialize_u64(value),
            Err(_) => write!(self.0, "{value}"),
        }
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Written {
        match value {
            // Most are 0.
            0..10 => {
                self.0.push(char::from(b'0' + value as u8));
                Ok(())
            }
            _ => write!(self.0, "{value}"),
        }
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.whatever(&value)
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.whatever(&value)
    }

    fn serialize_char(self, value: char) -> Written {
        self.whatever(&value)
    }

    fn serialize_str(self, value: &str) -> Written {
        self.string(value)
    }

    fn serialize_bytes(self, _: &[u8]) -> Written {
        Err(fmt::Error)
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.0.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.string(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Written {
        Err(fmt::Error)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'a>, fmt::Error> {
        Ok(Items::begin(self, '['))
    }

    fn serialize_tuple(self, _: usize) -> Result<Never, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, fmt::Error> {
        Err(fmt::Error)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Items<'a>, fmt::Error> {
        Ok(Items::begin(self, '{'))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Items<'a>, fmt::Error> {
        Ok(Items::begin(self, '{'))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, fmt::Error> {
        Err(fmt::Error)
    }
}

/// A list or an object that has begun.
struct Items<'a> {
    line: &'a mut Line,
    is_first: bool,
}

impl<'a> Items<'a> {
    fn begin(line: &'a mut Line, bracket: char) -> Self {
        line.0.push(bracket);
        Self { line, is_first: true }
    }

    fn separate(&mut self) {
        if !std::mem::take(&mut self.is_first) {
            self.line.0.push(',');
        }
    }

    fn end(self, bracket: char) -> Written {
        self.line.0.push(bracket);
        Ok(())
    }
}

impl SerializeStruct for Items<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        self.separate();
        self.line.0.push('"');
        self.line.0.push_str(name);
        self.line.0.push_str("\":");
        value.serialize(&mut *self.line)
    }

    fn end(self) -> Written {
        self.end('}')
    }
}

impl SerializeMap for Items<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.separate();
        key.serialize(&mut *self.line)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.line.0.push(':');
        value.serialize(&mut *self.line)
    }

    fn end(self) -> Written {
        self.end('}')
    }
}

impl SerializeSeq for Items<'_> {
    type Ok = ();
    type Error = fmt::Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.separate();
        value.serialize(&mut *self.line)
    }

    fn end(self) -> Written {
        self.end(']')
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;

    use super::*;

    /// Every kind of value that a record has.
    #[derive(Debug, Default, Serialize)]
    struct Kinds {
        text: String,
        some: Option<String>,
        flag: bool,
        count: u64,
        small: u16,
        balance: i64,
        share: Option<f64>,
        map: BTreeMap<String, u32>,
        list: Vec<String>,
        within: Option<Box<Self>>,
    }

    prop_compose! {
        fn kinds()(
            text in "[a\"\\\\\u{e9}\u{1f6a2}\u{0}\u{1f}\u{7f}\n]{0,6}",
            some in proptest::option::of("\\PC{0,9}"),
            flag: bool,
            count in prop_oneof![0..12_u64, any::<u64>()],
            small: u16,
            balance in prop_oneof![-12..12_i64, any::<i64>()],
            share in proptest::option::of(any::<f64>()),
            map in proptest::collection::btree_map("[a-c\"\\\\]{0,3}", any::<u32>(), 0..4),
            list in proptest::collection::vec("[a\"]{0,2}", 0..4),
        ) -> Kinds {
            Kinds { text, some, flag, count, small, balance, share, map, list, within: None }
        }
    }

    proptest! {
        #[test]
        fn it_is_what_is_written_elsewhere(outer in kinds(), inner in proptest::option::of(kinds())) {
            let kinds = Kinds { within: inner.map(Box::new), ..outer };
            prop_assert_eq!(line(&kinds).unwrap(), serde_json::to_string(&kinds).unwrap());
        }
    }

    #[test]
    fn what_no_record_has_is_an_error() {
        assert!(line(&(1, 2)).is_err());
        assert!(line(&BTreeMap::from([("a", Err::<(), u8>(1))])).is_err());
    }
}
