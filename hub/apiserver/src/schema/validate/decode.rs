use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::schema::field_error::FIELD_ERRORS_MAX;
use crate::schema::field_path::FieldPath;

/// A decoded document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub value: Value,
    /// Paths of fields that came more than once; the last one counts.
    pub duplicates: Vec<String>,
}

/// Decodes JSON, noting duplicate fields. Nesting beyond 128 levels is refused, as is all that
/// follows the document.
pub(crate) fn decode(bytes: &[u8]) -> Result<Decoded, serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Node { path: FieldPath::ROOT, duplicates: &mut duplicates }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(Decoded { value, duplicates })
}

struct Node<'a> {
    path: FieldPath<'a>,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(item) =
            items.next_element_seed(Node { path: self.path.index(out.len()), duplicates: &mut *self.duplicates })?
        {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = self.path.field(&name);
            let value = fields.next_value_seed(Node { path, duplicates: &mut *self.duplicates })?;
            if self.duplicates.len() < FIELD_ERRORS_MAX && out.contains_key(&name) {
                let path = path.to_string();
                if !self.duplicates.contains(&path) {
                    self.duplicates.push(path);
                }
            }
            out.insert(name, value);
            if out.len() > FIELDS_MAX {
                return Err(A::Error::custom(format!("{}: more than {FIELDS_MAX} fields", self.path)));
            }
        }
        Ok(Value::Object(out))
    }
}

/// Fields in one object: a 1.5 MiB object with five-byte fields, rounded down. 100,000 keys are
/// refused.
const FIELDS_MAX: usize = 50_000;
