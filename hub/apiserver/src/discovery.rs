//! Discovery, OpenAPI, version and health.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::catalog::{Catalog, Served, Source};
use crate::negotiate::{self, AGGREGATED_DISCOVERY, DiscoveryShape, JSON, OPENAPI_V2_PROTOBUF, OpenApiV2Format};
use crate::openapi::{self, Endpoint};
use crate::path::Path;
use crate::schema::{Resource, TypeRef, api_version, builtin};
use crate::status::ApiError;

pub(crate) fn answer(call: &Call, path: &Path) -> Result<Reply, ApiError> {
    let catalog = call.space.catalog();
    match path {
        Path::Health => Ok(Reply::document("text/plain; charset=utf-8", Bytes::from_static(b"ok"))),
        Path::Version => Ok(Reply::ok(version(&call.inner.config.git_version))),
        Path::Root => Ok(Reply::ok(json!({"paths": roots(&catalog)}))),
        Path::CoreVersions => match negotiate::discovery_shape(&call.headers)? {
            DiscoveryShape::Aggregated => Ok(aggregated(&catalog, str::is_empty)),
            DiscoveryShape::Legacy => Ok(Reply::ok(json!({
                "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
            }))),
        },
        Path::Groups => match negotiate::discovery_shape(&call.headers)? {
            DiscoveryShape::Aggregated => Ok(aggregated(&catalog, |group| !group.is_empty())),
            DiscoveryShape::Legacy => {
                let groups: Vec<Value> = groups(&catalog)
                    .into_iter()
                    .filter(|group| !group.name.is_empty())
                    .map(|group| group.legacy())
                    .collect();
                Ok(Reply::ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
            }
        },
        Path::Group(name) => {
            let group = groups(&catalog).into_iter().find(|group| group.name == *name);
            let mut value = group.ok_or_else(ApiError::no_such_path)?.legacy();
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            Ok(Reply::ok(value))
        }
        Path::GroupVersion { group, version } => resources(&catalog, group, version),
        Path::OpenApiV2 => {
            let format = negotiate::openapi_v2_format(&call.headers)?;
            let resources: Vec<_> = catalog.served().filter_map(described).collect();
            let endpoints: Vec<Endpoint<'_>> = resources.iter().map(endpoint).collect();
            let document = openapi::v2(&call.inner.config.git_version, &endpoints);
            Ok(match format {
                OpenApiV2Format::Json => Reply::ok(document),
                OpenApiV2Format::Protobuf => Reply::document(OPENAPI_V2_PROTOBUF, openapi::protobuf::encode(&document)),
            })
        }
        Path::OpenApiIndex => {
            // Without a prefix clients keep their own, whatever the path is that the server is behind.
            let documents: BTreeMap<String, String> = groups(&catalog)
                .iter()
                .flat_map(|group| group.versions.iter().map(|(version, served)| (group.path(version), hash(served))))
                .collect();
            Ok(Reply::ok(openapi::v3_index("", &documents)))
        }
        Path::OpenApiV3(document) => open_api_v3(&catalog, document),
        Path::Resource(_) => Err(ApiError::no_such_path()),
    }
}

/// What `/version` says; major and minor are taken from the version itself.
fn version(git_version: &str) -> Value {
    let mut numbers = git_version.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next().unwrap_or_default(), "minor": numbers.next().unwrap_or_default(),
        "gitVersion": git_version, "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// A group with its versions, the preferred one first.
struct Group {
    name: String,
    versions: Vec<(String, Vec<Arc<Served>>)>,
}

impl Group {
    fn path(&self, version: &str) -> String {
        if self.name.is_empty() { format!("api/{version}") } else { format!("apis/{}/{version}", self.name) }
    }

    fn legacy(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|(version, _)| json!({"groupVersion": api_version(&self.name, version), "version": version}))
            .collect();
        json!({"name": self.name, "preferredVersion": versions.first(), "versions": versions})
    }
}

/// All groups in order of appearance: built-in ones first.
fn groups(catalog: &Catalog) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for served in catalog.served() {
        let name = &served.resource.group;
        let at = groups.iter().position(|group| group.name == *name).unwrap_or_else(|| {
            groups.push(Group { name: name.clone(), versions: Vec::new() });
            groups.len() - 1
        });
        let versions = &mut groups[at].versions;
        match versions.iter_mut().find(|(version, _)| *version == served.version) {
            Some((_, list)) => list.push(Arc::clone(served)),
            None => versions.push((served.version.clone(), vec![Arc::clone(served)])),
        }
    }
    for group in &mut groups {
        group.versions.sort_by(|(a, _), (b, _)| priority(b).cmp(&priority(a)).then_with(|| a.cmp(b)));
    }
    groups
}

/// The order of versions: `v2` over `v1` over `v1beta2` over `v1alpha1` over all that has no such form.
fn priority(version: &str) -> (u8, u64, u64) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let Ok(major) = rest[..digits].parse() else { return (0, 0, 0) };
    let (stage, minor) = match &rest[digits..] {
        "" => return (3, major, 0),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (None, Some(minor)) => (1, minor),
            (None, None) => return (0, 0, 0),
        },
    };
    minor.parse().map_or((0, 0, 0), |minor| (stage, major, minor))
}

fn roots(catalog: &Catalog) -> Vec<String> {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned()];
    for group in groups(catalog).iter().filter(|group| !group.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|(version, _)| format!("/{}", group.path(version))));
    }
    paths.extend(["/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned));
    paths
}

/// `APIResourceList`: resources and their subresources.
fn resources(catalog: &Catalog, group: &str, version: &str) -> Result<Reply, ApiError> {
    let mut list = Vec::new();
    for served in catalog.served().filter(|one| one.resource.group == group && one.version == version) {
        let resource = &served.resource;
        let mut entry = json!({
            "name": resource.plural, "singularName": served.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": served.verbs,
        });
        if !served.short_names.is_empty() {
            entry["shortNames"] = json!(served.short_names);
        }
        if !served.categories.is_empty() {
            entry["categories"] = json!(served.categories);
        }
        if let Some(hash) = &served.storage_version_hash {
            entry["storageVersionHash"] = hash.clone().into();
        }
        list.push(entry);
        for sub in &served.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, sub.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": sub.kind, "verbs": sub.verbs,
            });
            if sub.group != resource.group || sub.version != served.version {
                entry["group"] = sub.group.clone().into();
                entry["version"] = sub.version.clone().into();
            }
            list.push(entry);
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let group_version = api_version(group, version);
    Ok(Reply::ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list,
    })))
}

/// `APIGroupDiscoveryList`: everything below `/api` or `/apis` in one document.
fn aggregated(catalog: &Catalog, wanted: impl Fn(&str) -> bool) -> Reply {
    let items: Vec<Value> = groups(catalog)
        .iter()
        .filter(|group| wanted(&group.name))
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|(version, served)| {
                    let resources: Vec<Value> = served.iter().map(|one| aggregated_resource(one)).collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = match group.name.as_str() {
                "" => json!({"creationTimestamp": null}),
                name => json!({"name": name, "creationTimestamp": null}),
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    Reply::document(AGGREGATED_DISCOVERY, document.to_string())
}

fn aggregated_resource(served: &Served) -> Value {
    let resource = &served.resource;
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": served.version, "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": served.singular,
        "verbs": served.verbs,
    });
    if !served.short_names.is_empty() {
        entry["shortNames"] = json!(served.short_names);
    }
    if !served.categories.is_empty() {
        entry["categories"] = json!(served.categories);
    }
    let subresources: Vec<Value> = served
        .subresources
        .iter()
        .map(|sub| {
            json!({
                "subresource": sub.name,
                "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
                "verbs": sub.verbs,
            })
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

/// A resource in the form that the OpenAPI documents are written from.
struct Described {
    resource: Resource,
    shape: DescribedShape,
}

enum DescribedShape {
    BuiltIn(TypeRef<'static>),
    Custom(Option<Value>),
}

fn described(served: &Arc<Served>) -> Option<Described> {
    let shape = match &served.source {
        Source::BuiltIn(ty) => DescribedShape::BuiltIn(*ty),
        Source::Custom(custom) => DescribedShape::Custom(custom.schema.clone()),
        Source::Virtual(_) | Source::Review => return None,
    };
    let resource = Resource {
        group: served.resource.group.clone(),
        version: served.version.clone(),
        kind: served.resource.kind.clone(),
        plural: served.resource.plural.clone(),
        singular: served.singular.clone(),
        short_names: served.short_names.clone(),
        categories: served.categories.clone(),
        namespaced: served.resource.namespaced,
        verbs: served.verbs.clone(),
        subresources: served.subresources.clone(),
        storage_version_hash: served.storage_version_hash.clone(),
    };
    Some(Described { resource, shape })
}

fn endpoint(described: &Described) -> Endpoint<'_> {
    let source = match &described.shape {
        DescribedShape::BuiltIn(ty) => openapi::Source::Builtin(*ty),
        DescribedShape::Custom(schema) => openapi::Source::Custom(schema.as_ref()),
    };
    Endpoint { resource: &described.resource, source }
}

fn open_api_v3(catalog: &Catalog, document: &str) -> Result<Reply, ApiError> {
    for group in groups(catalog) {
        for (version, served) in &group.versions {
            if group.path(version) == document {
                let resources: Vec<Described> = served.iter().filter_map(described).collect();
                let endpoints: Vec<Endpoint<'_>> = resources.iter().map(endpoint).collect();
                let text = openapi::v3(&group.name, version, &endpoints).to_string();
                return Ok(Reply::document(JSON, text));
            }
        }
    }
    Err(ApiError::no_such_path())
}

/// Names the content of a document, so that clients may cache it: built-in kinds change with the build only, custom
/// ones with their schemas.
fn hash(served: &[Arc<Served>]) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(env!("CARGO_PKG_VERSION").as_bytes());
    context.update(builtin().version().as_bytes());
    for one in served {
        context.update(one.api_version.as_bytes());
        context.update(one.resource.kind.as_bytes());
        if let Source::Custom(custom) = &one.source {
            context.update(custom.schema.as_ref().map(Value::to_string).unwrap_or_default().as_bytes());
        }
    }
    let mut text = String::new();
    for byte in context.finish().as_ref() {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_as_kubernetes_sorts_them() {
        let mut versions = ["v1alpha1", "foo", "v1", "v10", "v1beta2", "v2", "v1beta11"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta11", "v1beta2", "v1alpha1", "foo"]);
    }
}
