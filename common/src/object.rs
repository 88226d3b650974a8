use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{SpaceName, Uid};

/// A kind without its version: what an object *is*, whichever version it is served at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupKind {
    /// Empty for the core group.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub group: Arc<str>,
    pub kind: Arc<str>,
}

impl GroupKind {
    pub fn new(group: impl Into<Arc<str>>, kind: impl Into<Arc<str>>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }

    /// By the `apiVersion` and `kind` of an object.
    pub fn of(api_version: &str, kind: impl Into<Arc<str>>) -> Self {
        Self::new(api_version.split_once('/').map_or("", |(group, _)| group), kind)
    }

    pub fn is(&self, group: &str, kind: &str) -> bool {
        &*self.group == group && &*self.kind == kind
    }

    pub fn is_namespace(&self) -> bool {
        self.is("", "Namespace")
    }

    /// Whether it is that of CustomResourceDefinitions.
    pub fn is_definition(&self) -> bool {
        self.is("apiextensions.k8s.io", "CustomResourceDefinition")
    }

    pub fn is_job(&self) -> bool {
        self.is("batch", "Job")
    }
}

impl fmt::Display for GroupKind {
    /// `Deployment.apps`, `ConfigMap`: as kubectl writes kinds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// An object's key within one cluster or space: group, kind, namespace, name.
///
/// At a target this is the *destination key*. Cheap to clone; the parts are shared where the maker shared them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "KeyFields")]
pub struct ObjectKey {
    #[serde(flatten)]
    pub kind: GroupKind,
    /// Empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

/// A key as it is read, see [`keyed`].
#[derive(Deserialize)]
struct KeyFields {
    #[serde(default)]
    group: Arc<str>,
    kind: Arc<str>,
    #[serde(default)]
    namespace: Arc<str>,
    name: Arc<str>,
}

impl From<KeyFields> for ObjectKey {
    fn from(KeyFields { group, kind, namespace, name }: KeyFields) -> Self {
        Self { kind: GroupKind { group, kind }, namespace, name }
    }
}

/// Declares a structure that is written with the fields of its key among its own, and read without `#[serde(flatten)]`: that
/// keeps every field that it does not know in memory, at many times its size, and a peer sends as many as it likes.
macro_rules! keyed {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(#[$key_meta:meta])*
            pub key: ObjectKey,
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(::serde::Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(#[$key_meta])*
            #[serde(flatten)]
            pub key: $crate::object::ObjectKey,
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(::serde::Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Fields {
                    #[serde(default)]
                    group: ::std::sync::Arc<str>,
                    kind: ::std::sync::Arc<str>,
                    #[serde(default)]
                    namespace: ::std::sync::Arc<str>,
                    name: ::std::sync::Arc<str>,
                    $($(#[$field_meta])* $field: $type,)*
                }

                let Fields { group, kind, namespace, name, $($field),* } =
                    <Fields as ::serde::Deserialize>::deserialize(deserializer)?;
                let kind = $crate::object::GroupKind { group, kind };
                let key = $crate::object::ObjectKey { kind, namespace, name };
                Ok(Self { key, $($field),* })
            }
        }
    };
}

pub(crate) use keyed;

impl Ord for GroupKind {
    fn cmp(&self, other: &Self) -> Ordering {
        let Self { group, kind } = self;
        compare(group, &other.group).then_with(|| compare(kind, &other.kind))
    }
}

impl PartialOrd for GroupKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        let Self { kind, namespace, name } = self;
        let order = kind.cmp(&other.kind).then_with(|| compare(namespace, &other.namespace));
        order.then_with(|| compare(name, &other.name))
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As texts compare. Maps of tens of thousands of keys compare little else, and most of their texts are shared.
fn compare(one: &Arc<str>, other: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(one, other) { Ordering::Equal } else { one.cmp(other) }
}

impl ObjectKey {
    pub fn new(kind: GroupKind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    pub fn is_namespaced(&self) -> bool {
        !self.namespace.is_empty()
    }
}

impl fmt::Display for ObjectKey {
    /// `Deployment.apps shop/web`, `Namespace shop`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if self.is_namespaced() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Which object of which space something is a copy of. The kind is the copy's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceRef {
    pub space: SpaceName,
    pub uid: Uid,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl SourceRef {
    /// The key of the source in its space.
    pub fn key(&self, kind: &GroupKind) -> ObjectKey {
        let Self { space: _, uid: _, namespace, name } = self;
        ObjectKey { kind: kind.clone(), namespace: namespace.clone(), name: name.clone() }
    }
}
