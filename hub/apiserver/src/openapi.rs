//! OpenAPI documents, rendered from the types that the server works with.
//!
//! v3 is one document per group version; v2 is one for all. Clients read from them which query
//! parameters PATCH has (kubectl's fieldValidation and dryRun checks), how lists merge (`kubectl
//! apply`, `diff`) and what fields there are (`kubectl explain`); descriptions are there for custom
//! resources alone.
//!
//! kubectl 1.35 reads v3 and falls back to v2 only where v3 fails, and then asks for protobuf
//! (`application/com.github.proto-openapi.spec.v2@v1.0+protobuf`) and nothing else. We serve v2 as
//! JSON: such a request is to be answered with 406, or the client fails on bytes it cannot read.

mod components;
mod paths;
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
