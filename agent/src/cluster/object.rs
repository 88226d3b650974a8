//! Objects as the API server sends them.
//!
//! serde_json reads no JSON of more than 127 levels, and a status may have any number: whoever writes it decides, where its
//! schema preserves unknown fields. So the parts of an object stay text, which is skipped without recursion, until something
//! in them is known to be needed. What is too deep there is then wrong with this object, and with none of those that came in
//! the same list.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use kube::Resource;
use kube::api::{ApiResource, ObjectMeta};
use kube::core::DynamicResourceScope;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tideline_common::Uid;

use super::metadata::{ManagedFields, Metadata};

/// An object, taken apart. Of one of which only the metadata was asked for there is nothing else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Object {
    pub(super) metadata: Metadata,
    pub(super) spec: Option<Box<RawValue>>,
    pub(super) status: Option<Box<RawValue>>,
}

impl Object {
    pub(super) fn managed(&self) -> &[ManagedFields] {
        self.metadata.managed()
    }

    pub(super) fn is(&self, uid: &Uid) -> bool {
        self.metadata.uid.as_deref() == Some(&*uid.text())
    }
}

/// All of an object that anybody may assign, of its text: not its status, nor who manages its fields.
pub(super) fn assignable(text: &[u8]) -> serde_json::Result<Value> {
    let mut object = Map::new();
    for (name, part) in serde_json::from_slice::<BTreeMap<String, &RawValue>>(text)? {
        let part = match &*name {
            "status" => continue,
            "metadata" => {
                let mut metadata: BTreeMap<String, &RawValue> = serde_json::from_str(part.get())?;
                metadata.remove("managedFields");
                let fields = metadata.into_iter().map(|(name, field)| Ok((name, serde_json::from_str(field.get())?)));
                Value::Object(fields.collect::<serde_json::Result<_>>()?)
            }
            _ => serde_json::from_str(part.get())?,
        };
        object.insert(name, part);
    }
    Ok(Value::Object(object))
}

/// How much of an object a watch asks for.
pub(super) trait Reach {
    const METADATA_ONLY: bool;
}

#[derive(Clone, Debug)]
pub(super) struct Whole;

#[derive(Clone, Debug)]
pub(super) struct MetadataOnly;

impl Reach for Whole {
    const METADATA_ONLY: bool = false;
}

impl Reach for MetadataOnly {
    const METADATA_ONLY: bool = true;
}

/// An object of a list or watch of kube's, for which it has the resourceVersion as kube reads that.
///
/// It can be read where an event names its type before its object, as all that is built on Kubernetes' own library does: serde
/// keeps what comes before the type, decoded, and there is no text of it any more.
#[derive(Clone, Debug)]
pub(super) struct Watched<R> {
    pub(super) object: Object,
    meta: ObjectMeta,
    reach: PhantomData<R>,
}

impl<'de, R> Deserialize<'de> for Watched<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Object::deserialize(deserializer)?;
        let resource_version = object.metadata.resource_version.clone();
        Ok(Self { object, meta: ObjectMeta { resource_version, ..ObjectMeta::default() }, reach: PhantomData })
    }
}

impl<R: Reach> Resource for Watched<R> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        R::METADATA_ONLY
    }

    fn kind(served: &ApiResource) -> Cow<'_, str> {
        served.kind.as_str().into()
    }

    fn group(served: &ApiResource) -> Cow<'_, str> {
        served.group.as_str().into()
    }

    fn version(served: &ApiResource) -> Cow<'_, str> {
        served.version.as_str().into()
    }

    fn plural(served: &ApiResource) -> Cow<'_, str> {
        served.plural.as_str().into()
    }

    fn api_version(served: &ApiResource) -> Cow<'_, str> {
        served.api_version.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests;
