use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use tideline_common::Uid;

/// An object, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) metadata: ObjectMeta,
    pub(super) rest: Value,
}

/// As `#[serde(flatten)]` would have it, without a copy of everything in between: each write is answered with an object.
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Object, A::Error> {
                let (mut metadata, mut rest) = (ObjectMeta::default(), Map::new());
                while let Some(name) = fields.next_key::<String>()? {
                    if name == "metadata" {
                        metadata = fields.next_value()?;
                    } else {
                        rest.insert(name, fields.next_value()?);
                    }
                }
                Ok(Object { metadata, rest: Value::Object(rest) })
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Object {
    pub(super) fn managed(&self) -> &[ManagedFieldsEntry] {
        self.metadata.managed_fields.as_deref().unwrap_or_default()
    }

    pub(super) fn is(&self, uid: &Uid) -> bool {
        self.metadata.uid.as_deref() == Some(&*uid.text())
    }

    /// Put together again, without managedFields.
    pub(super) fn whole(&self) -> Value {
        let mut whole = self.rest.clone();
        if whole.is_object() {
            whole["metadata"] = json!(ObjectMeta { managed_fields: None, ..self.metadata.clone() });
        }
        whole
    }
}
