//! What the server knows of the shape of objects.
//!
//! One node type describes both Kubernetes' built-in kinds (read once from the embedded table) and
//! the structural schema of a custom resource (built at run time), so that server-side apply,
//! strategic merge, strict decoding, validation and pruning each need one walker.
//!
//! Nodes live in an arena and name each other by index: schemas may be recursive, a thousand spaces
//! share one table, and a [`TypeRef`] is two words.

mod builder;
pub(crate) mod constraint;
pub(crate) mod field_error;
pub(crate) mod field_path;
mod table;
#[cfg(test)]
mod tests;
mod text;
pub(crate) mod validate;

use std::fmt;

use serde_json::Value;

pub(crate) use self::builder::SchemaBuilder;
use self::constraint::Constraint;
pub(crate) use self::table::api_version;
pub(crate) use self::table::{Resource, Subresource, builtin};

/// Index of a node in its [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

impl NodeId {
    /// The free-form value, node 0 of every schema.
    pub(crate) const ANY: Self = Self(0);

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// An arena of nodes; immutable once built.
#[derive(Debug)]
pub(crate) struct Schema {
    nodes: Box<[Node]>,
}

impl Schema {
    /// The node at `id`, which must come from this schema.
    pub(crate) fn at(&self, id: NodeId) -> TypeRef<'_> {
        TypeRef { schema: self, id }
    }
}

/// One type: its shape, how it merges, and what its values must satisfy.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a keyword of the schema language, independent of the others"
)]
pub(crate) struct Node {
    pub shape: Shape,
    /// The map, struct or free-form value is replaced as a whole by server-side apply.
    pub atomic: bool,
    pub list: ListType,
    pub patch_strategy: PatchStrategy,
    /// Merge key of a strategic merge patch; may differ from the list-map keys.
    pub merge_key: Option<Box<str>>,
    pub enumeration: Box<[Value]>,
    pub default: Option<Box<Value>>,
    /// The fields of a custom resource's object that have a default, by their place in its shape: all others cost nothing where
    /// defaults are filled in.
    pub defaulted: Box<[usize]>,
    /// A Go struct held by value: in a real server it is never absent, which decides whether field
    /// ownership names the struct itself or only what is in it.
    pub always_present: bool,
    /// Component name in OpenAPI, such as `io.k8s.api.apps.v1.Deployment`.
    pub name: Option<Box<str>>,
    /// The named type of which this node is a variant with other attributes.
    pub base: Option<NodeId>,
    pub nullable: bool,
    /// Pruning keeps fields that are not declared here.
    pub preserve_unknown: bool,
    /// Server-side apply tolerates undeclared fields: this node or an ancestor preserves them.
    pub lenient: bool,
    /// Value validation of a custom resource's schema.
    pub constraint: Option<Box<Constraint>>,
}

/// What a value looks like in JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Shape {
    /// Any JSON value.
    #[default]
    Any,
    Scalar(ScalarType),
    List {
        items: NodeId,
    },
    Object {
        /// Sorted by name.
        fields: Box<[Field]>,
        /// Type of the values under keys that are not fields.
        additional: Option<NodeId>,
    },
}

/// A value that holds no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScalarType {
    String,
    /// Base64 text.
    Bytes,
    /// RFC 3339 text.
    Time,
    /// A quantity such as `500m`; text or number.
    Quantity,
    IntOrString,
    Int32,
    Int64,
    Number,
    Boolean,
}

/// A declared field of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub name: Box<str>,
    pub node: NodeId,
    pub required: bool,
}

/// How the items of a list are told apart (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects, told apart by these fields.
    Map(Box<[Box<str>]>),
}

/// How a strategic merge patch combines a value (`x-kubernetes-patch-strategy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Objects merge, lists are replaced.
    #[default]
    Unset,
    Merge,
    Replace,
    RetainKeys,
    MergeRetainKeys,
}

impl PatchStrategy {
    fn parse(text: &str) -> Self {
        match text {
            "merge" => Self::Merge,
            "replace" => Self::Replace,
            "retainKeys" => Self::RetainKeys,
            "merge,retainKeys" | "retainKeys,merge" => Self::MergeRetainKeys,
            _ => Self::Unset,
        }
    }

    /// Whether a list is merged item by item.
    pub(crate) fn merges(self) -> bool {
        matches!(self, Self::Merge | Self::MergeRetainKeys)
    }

    /// The text of the OpenAPI extension, if there is one.
    pub(crate) fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Unset => None,
            Self::Merge => Some("merge"),
            Self::Replace => Some("replace"),
            Self::RetainKeys => Some("retainKeys"),
            Self::MergeRetainKeys => Some("merge,retainKeys"),
        }
    }
}

/// A node together with the schema that holds it.
#[derive(Clone, Copy)]
pub(crate) struct TypeRef<'a> {
    schema: &'a Schema,
    id: NodeId,
}

impl fmt::Debug for TypeRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeRef({}, {:?})", self.id.0, self.node().name)
    }
}

impl<'a> TypeRef<'a> {
    pub(crate) fn id(self) -> NodeId {
        self.id
    }

    pub(crate) fn node(self) -> &'a Node {
        &self.schema.nodes[self.id.index()]
    }

    pub(crate) fn shape(self) -> &'a Shape {
        &self.node().shape
    }

    /// Another node of the same schema.
    #[must_use]
    pub(crate) fn sibling(self, id: NodeId) -> TypeRef<'a> {
        self.schema.at(id)
    }

    /// The declared fields; empty unless this is an object.
    pub(crate) fn fields(self) -> &'a [Field] {
        match self.shape() {
            Shape::Object { fields, .. } => fields,
            Shape::Any | Shape::Scalar(_) | Shape::List { .. } => &[],
        }
    }

    /// The declaration of the field `name`.
    pub(crate) fn declared(self, name: &str) -> Option<&'a Field> {
        let fields = self.fields();
        fields.binary_search_by(|field| (*field.name).cmp(name)).ok().map(|at| &fields[at])
    }

    /// The type of the declared field `name`.
    pub(crate) fn field(self, name: &str) -> Option<TypeRef<'a>> {
        self.declared(name).map(|field| self.sibling(field.node))
    }

    /// The type of the value under `name`, declared or additional; `None` for an unknown field.
    pub(crate) fn child(self, name: &str) -> Option<TypeRef<'a>> {
        self.field(name).or_else(|| self.additional())
    }

    /// The type of values under undeclared keys.
    pub(crate) fn additional(self) -> Option<TypeRef<'a>> {
        match self.shape() {
            Shape::Any => Some(self.sibling(NodeId::ANY)),
            Shape::Object { additional, .. } => additional.map(|id| self.sibling(id)),
            Shape::Scalar(_) | Shape::List { .. } => None,
        }
    }

    /// The type of list items; the free-form value where the node is not a list.
    #[must_use]
    pub(crate) fn items(self) -> TypeRef<'a> {
        match self.shape() {
            Shape::List { items } => self.sibling(*items),
            Shape::Any | Shape::Scalar(_) | Shape::Object { .. } => self.sibling(NodeId::ANY),
        }
    }
}
