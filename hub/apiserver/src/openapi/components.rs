use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{Endpoint, Source};
use crate::schema::{ListType, NodeId, Resource, ScalarType, Shape, TypeRef, builtin};

/// The two versions differ in where schemas live and in what they may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    V2,
    V3,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> Value {
        let root = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{root}{name}")})
    }
}

/// The named schemas that a document refers to.
pub(super) struct Components {
    dialect: Dialect,
    schemas: BTreeMap<String, Value>,
}

impl Components {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self { dialect, schemas: BTreeMap::new() }
    }

    pub(super) fn finish(self) -> Map<String, Value> {
        self.schemas.into_iter().collect()
    }

    /// Adds the type of a resource, with all that it refers to, and returns the reference to it.
    pub(super) fn add(&mut self, endpoint: &Endpoint<'_>) -> Value {
        let Resource { group, version, kind, .. } = endpoint.resource;
        let gvk = json!([{"group": group, "version": version, "kind": kind}]);
        let name = match endpoint.source {
            Source::Builtin(ty) => {
                self.named(ty);
                ty.node().name.as_deref().unwrap_or_default().to_owned()
            }
            Source::Custom(schema) => {
                let name = custom_name(group, version, kind);
                let schema = self.custom(schema);
                self.schemas.insert(name.clone(), schema);
                name
            }
        };
        if let Some(Value::Object(schema)) = self.schemas.get_mut(&name) {
            schema.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
        }
        self.dialect.reference(&name)
    }

    /// Makes sure that a named type is there, and refers to it.
    fn named(&mut self, ty: TypeRef<'_>) -> Value {
        let name = ty.node().name.as_deref().unwrap_or_default();
        if !self.schemas.contains_key(name) {
            // Before its fields: types may refer to themselves.
            self.schemas.insert(name.to_owned(), Value::Null);
            let schema = self.inline(ty);
            self.schemas.insert(name.to_owned(), schema);
        }
        self.dialect.reference(name)
    }

    fn schema(&mut self, ty: TypeRef<'_>) -> Value {
        let node = ty.node();
        if node.name.is_some() {
            return self.named(ty);
        }
        let Some(base) = node.base else {
            return self.inline(ty);
        };
        let reference = self.named(ty.sibling(base));
        let mut out = Map::new();
        attributes(ty, &mut out);
        match self.dialect {
            // Next to a reference v3 ignores everything.
            Dialect::V3 => {
                out.insert("allOf".to_owned(), json!([reference]));
            }
            Dialect::V2 => out.extend(reference.as_object().cloned().unwrap_or_default()),
        }
        Value::Object(out)
    }

    fn inline(&mut self, ty: TypeRef<'_>) -> Value {
        let mut out = Map::new();
        let mut typed = |kind: &str, format: &str| {
            out.insert("type".to_owned(), json!(kind));
            if !format.is_empty() {
                out.insert("format".to_owned(), json!(format));
            }
        };
        match ty.shape() {
            Shape::Any if ty.node().atomic => typed("object", ""),
            Shape::Any => {}
            Shape::Scalar(scalar) => match scalar {
                ScalarType::String => typed("string", ""),
                ScalarType::Bytes => typed("string", "byte"),
                ScalarType::Time => typed("string", "date-time"),
                ScalarType::Int32 => typed("integer", "int32"),
                ScalarType::Int64 => typed("integer", "int64"),
                ScalarType::Number => typed("number", "double"),
                ScalarType::Boolean => typed("boolean", ""),
                ScalarType::Quantity => match self.dialect {
                    Dialect::V2 => typed("string", ""),
                    Dialect::V3 => {
                        out.insert("oneOf".to_owned(), json!([{"type": "string"}, {"type": "number"}]));
                    }
                },
                ScalarType::IntOrString => match self.dialect {
                    Dialect::V2 => typed("string", "int-or-string"),
                    Dialect::V3 => {
                        out.insert("format".to_owned(), json!("int-or-string"));
                        out.insert("oneOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
                    }
                },
            },
            Shape::List { items } => {
                typed("array", "");
                out.insert("items".to_owned(), self.schema(ty.sibling(*items)));
            }
            Shape::Object { additional, .. } => {
                typed("object", "");
                self.object(ty, *additional, &mut out);
            }
        }
        attributes(ty, &mut out);
        Value::Object(out)
    }

    fn object(&mut self, ty: TypeRef<'_>, additional: Option<NodeId>, out: &mut Map<String, Value>) {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in ty.fields() {
            properties.insert(field.name.to_string(), self.schema(ty.sibling(field.node)));
            if field.required {
                required.push(json!(field.name));
            }
        }
        if !properties.is_empty() {
            out.insert("properties".to_owned(), Value::Object(properties));
        }
        if !required.is_empty() {
            out.insert("required".to_owned(), Value::Array(required));
        }
        // An object without properties is free-form as it stands.
        if let Some(additional) = additional.filter(|id| *id != NodeId::ANY) {
            let values = self.schema(ty.sibling(additional));
            out.insert("additionalProperties".to_owned(), values);
        }
    }

    /// The schema of a custom resource as published: its own, with what every object has.
    fn custom(&mut self, schema: Option<&Value>) -> Value {
        let metadata = self.named(builtin().object_meta());
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut schema = schema.cloned().unwrap_or(open);
        if self.dialect == Dialect::V2 {
            downgrade(&mut schema);
        }
        if let Value::Object(schema) = &mut schema {
            let properties = schema.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(properties) = properties {
                properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
                properties.insert("kind".to_owned(), json!({"type": "string"}));
                let metadata = match self.dialect {
                    Dialect::V2 => metadata,
                    Dialect::V3 => json!({"allOf": [metadata]}),
                };
                properties.insert("metadata".to_owned(), metadata);
            }
        }
        schema
    }
}

/// `example.com/v1 Widget` is `com.example.v1.Widget`.
fn custom_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// Takes out of a schema what v2 cannot say.
fn downgrade(schema: &mut Value) {
    let Value::Object(fields) = schema else { return };
    let free = fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
        || fields.get("nullable") == Some(&Value::Bool(true));
    for keyword in ["oneOf", "anyOf", "allOf", "not", "nullable"] {
        fields.remove(keyword);
    }
    if free {
        // v2 clients would refuse null and undeclared fields.
        for keyword in ["type", "properties", "items", "additionalProperties"] {
            fields.remove(keyword);
        }
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(keyword) {
            downgrade(inner);
        }
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(downgrade);
    }
}

fn attributes(ty: TypeRef<'_>, out: &mut Map<String, Value>) {
    let node = ty.node();
    let mut set = |name: &str, value: Value| {
        out.insert(name.to_owned(), value);
    };
    if node.always_present {
        set("default", json!({}));
    }
    if let Some(default) = &node.default {
        set("default", (**default).clone());
    }
    if !node.enumeration.is_empty() {
        set("enum", Value::Array(node.enumeration.to_vec()));
    }
    if node.atomic && matches!(node.shape, Shape::Object { .. }) {
        set("x-kubernetes-map-type", json!("atomic"));
    }
    if matches!(node.shape, Shape::List { .. }) {
        match &node.list {
            ListType::Atomic => set("x-kubernetes-list-type", json!("atomic")),
            ListType::Set => set("x-kubernetes-list-type", json!("set")),
            ListType::Map(keys) => {
                set("x-kubernetes-list-type", json!("map"));
                set("x-kubernetes-list-map-keys", json!(keys));
            }
        }
    }
    if let Some(strategy) = node.patch_strategy.as_str() {
        set("x-kubernetes-patch-strategy", json!(strategy));
    }
    if let Some(key) = &node.merge_key {
        set("x-kubernetes-patch-merge-key", json!(key));
    }
}
