use std::collections::BTreeMap;
use std::io::Read;
use std::sync::LazyLock;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;

use super::{Field, ListType, Node, NodeId, PatchStrategy, ScalarType, Schema, Shape, TypeRef};

/// The built-in kinds of the pinned Kubernetes version; parsed at first use.
pub(crate) fn builtin() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        Table::decode(EMBEDDED).expect("the embedded table is written by tests/schema-table and tested")
    });
    &TABLE
}

/// Written by `tests/schema-table/generate.py`.
const EMBEDDED: &[u8] = include_bytes!("../../schema/kubernetes-1.35.json.gz");

/// Kinds and resources of one Kubernetes version.
#[derive(Debug)]
pub(crate) struct Table {
    version: String,
    schema: Schema,
    kinds: BTreeMap<(String, String, String), NodeId>,
    names: BTreeMap<String, NodeId>,
    resources: Vec<Resource>,
}

/// A resource as discovery describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    #[serde(default)]
    pub short_names: Vec<String>,
    #[serde(default)]
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    #[serde(default)]
    pub subresources: Vec<Subresource>,
    /// Absent for resources that are not stored (reviews, bindings).
    #[serde(default)]
    pub storage_version_hash: Option<String>,
}

impl Resource {
    /// The subresource `name`, such as `status` or `scale`.
    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }
}

/// Joins group and version as `apiVersion` does.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A subresource; its kind may be of another group (`autoscaling/v1` `Scale`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Subresource {
    pub name: String,
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

impl Table {
    /// The Kubernetes version that the table was taken from, such as `v1.35.4`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// All resources, groups in the order in which a server lists them.
    pub(crate) fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// The resource with this plural name.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.plural == plural && resource.group == group && resource.version == version)
    }

    /// The type of a kind.
    pub(crate) fn type_of(&self, group: &str, version: &str, kind: &str) -> Option<TypeRef<'_>> {
        let key = (group.to_owned(), version.to_owned(), kind.to_owned());
        self.kinds.get(&key).map(|id| self.schema.at(*id))
    }

    /// The type with this OpenAPI component name.
    pub(crate) fn named(&self, name: &str) -> Option<TypeRef<'_>> {
        self.names.get(name).map(|id| self.schema.at(*id))
    }

    /// The type of `metadata` in every object.
    pub(crate) fn object_meta(&self) -> TypeRef<'_> {
        self.named(OBJECT_META).expect("the generator always writes ObjectMeta")
    }

    fn decode(compressed: &[u8]) -> Result<Self, serde_json::Error> {
        let mut text = Vec::new();
        GzDecoder::new(compressed).read_to_end(&mut text).map_err(serde_json::Error::io)?;
        let file: File = serde_json::from_slice(&text)?;
        let mut nodes = Vec::with_capacity(file.nodes.len());
        for raw in &file.nodes {
            // A variant takes over everything but the attributes it states itself.
            let target = raw.base.and_then(|base| file.nodes.get(base as usize)).unwrap_or(raw);
            nodes.push(raw.node(target));
        }
        let names = nodes
            .iter()
            .zip(0..)
            .filter_map(|(node, at)| Some((node.name.as_deref()?.to_owned(), NodeId(at))))
            .collect();
        Ok(Self {
            version: file.version,
            schema: Schema { nodes: nodes.into_boxed_slice() },
            kinds: file
                .kinds
                .into_iter()
                .map(|(group, version, kind, id)| ((group, version, kind), NodeId(id)))
                .collect(),
            names,
            resources: file.resources,
        })
    }
}

/// Component name of `metadata`.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

#[derive(Deserialize)]
struct File {
    version: String,
    kinds: Vec<(String, String, String, u32)>,
    resources: Vec<Resource>,
    nodes: Vec<RawNode>,
}

/// A node as the generator writes it; one or two letters a key.
#[derive(Deserialize)]
struct RawNode {
    #[serde(rename = "t", default)]
    shape: String,
    #[serde(rename = "f", default)]
    fields: Vec<(Box<str>, u32)>,
    #[serde(rename = "r", default)]
    required: Vec<String>,
    #[serde(rename = "a")]
    additional: Option<u32>,
    #[serde(rename = "i", default)]
    items: u32,
    #[serde(rename = "m")]
    map_type: Option<String>,
    #[serde(rename = "l")]
    list_type: Option<String>,
    #[serde(rename = "k", default)]
    keys: Vec<Box<str>>,
    #[serde(rename = "p", default)]
    patch_strategy: String,
    #[serde(rename = "mk")]
    merge_key: Option<Box<str>>,
    #[serde(rename = "e", default)]
    enumeration: Vec<Value>,
    #[serde(rename = "d")]
    default: Option<Box<Value>>,
    #[serde(rename = "z", default)]
    always_present: u8,
    #[serde(rename = "n")]
    name: Option<Box<str>>,
    #[serde(rename = "b")]
    base: Option<u32>,
}

impl RawNode {
    fn node(&self, target: &RawNode) -> Node {
        let map_type = self.map_type.as_ref().or(target.map_type.as_ref());
        let patch_strategy = PatchStrategy::parse(&self.patch_strategy);
        Node {
            shape: target.shape(),
            atomic: map_type.is_some_and(|kind| kind == "atomic"),
            list: self.list(patch_strategy),
            patch_strategy,
            merge_key: self.merge_key.clone(),
            enumeration: self.enumeration.clone().into_boxed_slice(),
            default: self.default.clone(),
            always_present: self.always_present != 0,
            name: self.name.clone(),
            base: self.base.map(NodeId),
            ..Node::default()
        }
    }

    fn shape(&self) -> Shape {
        match self.shape.as_str() {
            "s" => Shape::Scalar(ScalarType::String),
            "y" => Shape::Scalar(ScalarType::Bytes),
            "T" => Shape::Scalar(ScalarType::Time),
            "q" => Shape::Scalar(ScalarType::Quantity),
            "x" => Shape::Scalar(ScalarType::IntOrString),
            "j" => Shape::Scalar(ScalarType::Int32),
            "i" => Shape::Scalar(ScalarType::Int64),
            "n" => Shape::Scalar(ScalarType::Number),
            "b" => Shape::Scalar(ScalarType::Boolean),
            "l" => Shape::List { items: NodeId(self.items) },
            "o" => Shape::Object { fields: self.fields(), additional: self.additional.map(NodeId) },
            _any => Shape::Any,
        }
    }

    fn fields(&self) -> Box<[Field]> {
        let mut fields: Box<[Field]> = self
            .fields
            .iter()
            .map(|(name, node)| Field {
                name: name.clone(),
                node: NodeId(*node),
                required: self.required.iter().any(|required| **required == **name),
            })
            .collect();
        fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        fields
    }

    /// The list type, from the patch strategy where a type predates list types.
    fn list(&self, strategy: PatchStrategy) -> ListType {
        match self.list_type.as_deref() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(self.keys.clone().into_boxed_slice()),
            Some(_atomic) => ListType::Atomic,
            None if strategy.merges() => match &self.merge_key {
                Some(key) => ListType::Map(Box::new([key.clone()])),
                None => ListType::Set,
            },
            None => ListType::Atomic,
        }
    }
}
