//! OpenAPI documents, rendered from the types that the server works with.
//!
//! v3 is one document per group version; v2 is one for all. Clients read from them which query
//! parameters PATCH has (kubectl's fieldValidation and dryRun checks), how lists merge (`kubectl
//! apply`, `diff`) and what fields there are (`kubectl explain`); descriptions are there for custom
//! resources alone.
//!
//! Go clients read v3 and fall back to v2 for what they do not find there, such as a `kind: List`, and then ask for protobuf and
//! nothing else; others ask for JSON.

mod components;
mod paths;
pub(crate) mod protobuf;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::components::{Components, Dialect};
use crate::schema::{Resource, TypeRef};

/// A resource to describe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint<'a> {
    pub resource: &'a Resource,
    pub source: Source<'a>,
}

/// Where a resource's type comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Builtin(TypeRef<'a>),
    /// The `openAPIV3Schema` of the version as the CRD has it.
    Custom(Option<&'a Value>),
}

/// The OpenAPI v3 document of one group version; all endpoints must be of it.
pub(crate) fn v3(group: &str, version: &str, endpoints: &[Endpoint<'_>]) -> Value {
    let mut components = Components::new(Dialect::V3);
    let mut paths = Map::new();
    for endpoint in endpoints {
        let reference = components.add(endpoint);
        paths::add(Dialect::V3, endpoint, &reference, &mut paths);
    }
    let title = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned", "description": title},
        "paths": paths,
        "components": {"schemas": components.finish()},
    })
}

/// The OpenAPI v2 document of all group versions.
pub(crate) fn v2(kubernetes_version: &str, endpoints: &[Endpoint<'_>]) -> Value {
    let mut components = Components::new(Dialect::V2);
    let mut paths = Map::new();
    for endpoint in endpoints {
        let reference = components.add(endpoint);
        paths::add(Dialect::V2, endpoint, &reference, &mut paths);
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": kubernetes_version},
        "paths": paths,
        "definitions": components.finish(),
    })
}

/// The index at `/openapi/v3`.
///
/// `documents` maps the path of a document (`api/v1`, `apis/apps/v1`) to a hash of its content;
/// `prefix` is what stands before `/openapi` in the server's own addresses, or nothing.
pub(crate) fn v3_index(prefix: &str, documents: &BTreeMap<String, String>) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(path, hash)| {
            let url = format!("{prefix}/openapi/v3/{path}?hash={hash}");
            (path.clone(), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}
