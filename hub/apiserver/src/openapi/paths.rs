use serde_json::{Map, Value, json};

use super::components::Dialect;
use super::{Endpoint, Source};
use crate::schema::Subresource;

/// One HTTP operation on a path.
#[derive(Clone, Copy)]
struct Operation {
    method: &'static str,
    action: &'static str,
    /// The verb in discovery without which the operation is left out.
    verb: &'static str,
}

const ITEM: [Operation; 4] = [
    Operation { method: "get", action: "get", verb: "get" },
    Operation { method: "put", action: "put", verb: "update" },
    Operation { method: "patch", action: "patch", verb: "patch" },
    Operation { method: "delete", action: "delete", verb: "delete" },
];

const COLLECTION: [Operation; 3] = [
    Operation { method: "get", action: "list", verb: "list" },
    Operation { method: "post", action: "post", verb: "create" },
    Operation { method: "delete", action: "deletecollection", verb: "deletecollection" },
];

/// Adds the paths of a resource and its subresources.
pub(super) fn add(dialect: Dialect, endpoint: &Endpoint<'_>, body: &Value, paths: &mut Map<String, Value>) {
    let resource = endpoint.resource;
    let root = if resource.group.is_empty() {
        format!("/api/{}", resource.version)
    } else {
        format!("/apis/{}/{}", resource.group, resource.version)
    };
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("{root}/{}", resource.plural)
    };
    let target = Target {
        gvk: json!({"group": resource.group, "version": resource.version, "kind": resource.kind}),
        kind: &resource.kind,
        namespaced: resource.namespaced,
        verbs: &resource.verbs,
        body: Some(body),
        // kubectl takes from here whether it may send a strategic merge.
        patches: match endpoint.source {
            Source::Builtin(_) => &PATCH_TYPES,
            Source::Custom(_) => &PATCH_TYPES[..3],
        },
    };
    let item = format!("{collection}/{{name}}");
    let mut put = |path: String, operations: &[Operation], named, target: &Target<'_>| {
        if let Some(described) = describe(dialect, operations, named, target) {
            paths.insert(path, described);
        }
    };
    put(collection, &COLLECTION, false, &target);
    put(item.clone(), &ITEM, true, &target);
    if resource.namespaced {
        let verbs: Vec<String> = resource.verbs.iter().filter(|verb| *verb == "list").cloned().collect();
        let all = Target { namespaced: false, verbs: &verbs, ..target.clone() };
        put(format!("{root}/{}", resource.plural), &COLLECTION, false, &all);
    }
    for Subresource { name, group, version, kind, verbs } in &resource.subresources {
        let same = *kind == resource.kind && *group == resource.group;
        let sub = Target {
            gvk: json!({"group": group, "version": version, "kind": kind}),
            kind,
            namespaced: resource.namespaced,
            verbs,
            body: same.then_some(body),
            patches: target.patches,
        };
        put(format!("{item}/{name}"), &ITEM, true, &sub);
    }
}

/// What the operations of a path are about.
#[derive(Clone)]
struct Target<'a> {
    gvk: Value,
    kind: &'a str,
    namespaced: bool,
    verbs: &'a [String],
    /// Reference to the schema; subresources of other kinds go without.
    body: Option<&'a Value>,
    patches: &'static [&'static str],
}

fn describe(dialect: Dialect, operations: &[Operation], named: bool, target: &Target<'_>) -> Option<Value> {
    let mut path = Map::new();
    for operation in operations {
        if target.verbs.iter().any(|verb| verb == operation.verb) {
            path.insert(operation.method.to_owned(), operation.describe(dialect, target));
        }
    }
    if path.is_empty() {
        return None;
    }
    let mut parameters = Vec::new();
    if named {
        parameters.push(parameter(dialect, "path", "name", "string"));
    }
    if target.namespaced {
        parameters.push(parameter(dialect, "path", "namespace", "string"));
    }
    parameters.push(parameter(dialect, "query", "pretty", "string"));
    path.insert("parameters".to_owned(), Value::Array(parameters));
    Some(Value::Object(path))
}

fn parameter(dialect: Dialect, place: &str, name: &str, kind: &str) -> Value {
    let mut out = match dialect {
        Dialect::V2 => json!({"in": place, "name": name, "type": kind, "uniqueItems": true}),
        Dialect::V3 => json!({"in": place, "name": name, "schema": {"type": kind, "uniqueItems": true}}),
    };
    if place == "path" {
        out["required"] = json!(true);
    }
    out
}

/// Media types of patches; the last one is for built-in kinds alone.
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

impl Operation {
    fn parameters(self) -> &'static [(&'static str, &'static str)] {
        match self.action {
            "post" | "put" => &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")],
            "patch" => {
                &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")]
            }
            "delete" => &[
                ("dryRun", "string"),
                ("gracePeriodSeconds", "integer"),
                ("orphanDependents", "boolean"),
                ("propagationPolicy", "string"),
            ],
            "list" | "deletecollection" => &[
                ("allowWatchBookmarks", "boolean"),
                ("continue", "string"),
                ("fieldSelector", "string"),
                ("labelSelector", "string"),
                ("limit", "integer"),
                ("resourceVersion", "string"),
                ("resourceVersionMatch", "string"),
                ("sendInitialEvents", "boolean"),
                ("timeoutSeconds", "integer"),
                ("watch", "boolean"),
            ],
            _get => &[],
        }
    }

    fn describe(self, dialect: Dialect, target: &Target<'_>) -> Value {
        let parameters = self.parameters().iter();
        let mut parameters: Vec<Value> =
            parameters.map(|(name, kind)| parameter(dialect, "query", name, kind)).collect();
        let schema = target.body.cloned().unwrap_or_else(|| json!({"type": "object"}));
        let sent = match self.action {
            "post" | "put" => Some((schema.clone(), &["application/json"][..])),
            "patch" => Some((json!({"type": "object"}), target.patches)),
            _bodiless => None,
        };
        let answer = match self.action {
            "get" | "post" | "put" | "patch" => schema,
            _list_or_status => json!({"type": "object"}),
        };
        let mut out = Map::new();
        match dialect {
            Dialect::V3 => {
                let content = |schema: &Value, types: &[&str]| -> Value {
                    types.iter().map(|kind| ((*kind).to_owned(), json!({"schema": schema}))).collect()
                };
                if let Some((schema, types)) = &sent {
                    let body = json!({"content": content(schema, types), "required": true});
                    out.insert("requestBody".to_owned(), body);
                }
                let content = content(&answer, &["application/json"]);
                out.insert("responses".to_owned(), json!({"200": {"description": "OK", "content": content}}));
            }
            Dialect::V2 => {
                if let Some((schema, types)) = &sent {
                    parameters.push(json!({"in": "body", "name": "body", "required": true, "schema": schema}));
                    out.insert("consumes".to_owned(), json!(types));
                }
                out.insert("produces".to_owned(), json!(["application/json"]));
                out.insert("responses".to_owned(), json!({"200": {"description": "OK", "schema": answer}}));
            }
        }
        out.insert("description".to_owned(), json!(format!("{} {}", self.action, target.kind)));
        out.insert("parameters".to_owned(), Value::Array(parameters));
        out.insert("x-kubernetes-action".to_owned(), json!(self.action));
        out.insert("x-kubernetes-group-version-kind".to_owned(), target.gvk.clone());
        Value::Object(out)
    }
}
