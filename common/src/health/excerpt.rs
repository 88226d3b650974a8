//! Some fields of a text. Whoever may write a status decides how large it is and how deep, and what is dense in small maps
//! takes a hundred times its text once it is decoded: so no more of it is than the rule of its kind reads.

use std::fmt;

use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::nesting;

/// Bytes of one field that is decoded: three conditions with messages of 32 KiB, the longest that their schema permits, or the
/// statuses of a hundred containers. A map takes some 650 bytes decoded and 8 as text, `{"a":0},`, so this becomes 10 MiB at
/// most; a rule reads three fields of such size.
pub(super) const FIELD_BYTES_MAX: usize = 128 << 10;
/// Levels of one field that is decoded: no more are by what parses JSON here.
pub(super) const FIELD_LEVELS_MAX: usize = 127;

/// What was read of a part of an object.
#[derive(Debug, Default)]
pub(super) struct Excerpt {
    /// The fields that were asked for, as far as they are there and can be read; null without any part.
    pub(super) fields: Value,
    /// The part has some field, asked for or not.
    pub(super) present: bool,
    /// Why some field that was asked for cannot be read, for people.
    pub(super) unread: Option<String>,
}

impl Excerpt {
    /// Reads the fields of these names; what is no object has none.
    pub(super) fn of<'n>(
        text: Option<&RawValue>,
        part: &str,
        names: impl IntoIterator<Item = &'n &'n str> + Clone,
    ) -> Self {
        let Some(text) = text.filter(|text| text.get().starts_with('{')) else { return Self::default() };
        let mut reader = serde_json::Deserializer::from_str(text.get());
        Asked { part, names }.deserialize(&mut reader).unwrap_or_else(|error| Self {
            unread: Some(format!("its .{part} cannot be read: {error}")),
            ..Self::default()
        })
    }
}

struct Asked<'p, N> {
    part: &'p str,
    names: N,
}

impl<'de, 'n, N: IntoIterator<Item = &'n &'n str> + Clone> DeserializeSeed<'de> for Asked<'_, N> {
    type Value = Excerpt;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Excerpt, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, 'n, N: IntoIterator<Item = &'n &'n str> + Clone> Visitor<'de> for Asked<'_, N> {
    type Value = Excerpt;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Excerpt, A::Error> {
        let (mut fields, mut present, mut unread) = (Map::new(), false, None);
        while let Some(name) = map.next_key::<String>()? {
            present = true;
            if !self.names.clone().into_iter().any(|asked| **asked == name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            match decoded(map.next_value()?) {
                Ok(value) => {
                    fields.insert(name, value);
                }
                Err(why) => unread = Some(format!("its .{}.{name} {why}", self.part)),
            }
        }
        Ok(Excerpt { fields: Value::Object(fields), present, unread })
    }
}

fn decoded(text: &RawValue) -> Result<Value, String> {
    let text = text.get();
    if text.len() > FIELD_BYTES_MAX {
        let (has, most) = (text.len() >> 10, FIELD_BYTES_MAX >> 10);
        return Err(format!("has {has} KiB, more than the {most} KiB that are read to judge it"));
    }
    if nesting(text) > FIELD_LEVELS_MAX {
        return Err(format!("is nested deeper than {FIELD_LEVELS_MAX} levels and cannot be judged"));
    }
    Value::deserialize(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| format!("cannot be read: {error}"))
}
