//! CustomResourceDefinitions: what is accepted, what it makes the server serve, and its status.

use std::sync::Arc;

use ring::digest;
use serde_json::{Map, Value, json};

use super::{Served, Source};
use crate::extent::DEPTH_MAX;
use crate::resource_kind::ResourceKind;
use crate::schema::Subresource;
use crate::schema::field_error::{FieldError, FieldErrorKind, FieldErrors};
use crate::schema::field_path::FieldPath;
use crate::schema::validate::{is_dns_label, is_dns_subdomain};
use crate::structural::{Compilation, CustomType};

/// Versions of one definition. Each has the types of metadata for itself, 100 KB; definitions in use have five at most.
const VERSIONS_MAX: usize = 100;

/// Printer columns of one version; `kubectl get` shows as many as fit on a screen.
const COLUMNS_MAX: usize = 64;
/// Bytes of the path of a column. It is looked up in each object of a table, and its filters in each item of a list.
const COLUMN_PATH_BYTES_MAX: usize = 1 << 10;

/// Keeps a definition until its objects are gone.
pub(crate) const CUSTOM_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A definition that compiled.
#[derive(Debug)]
pub(crate) struct Definition {
    name: String,
    resource: Arc<ResourceKind>,
    served: Vec<Arc<Served>>,
    accepted: bool,
    terminating: bool,
    warnings: Vec<String>,
}

/// What is particular to one version of a custom resource.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The digest of the definition's spec.
    pub(crate) spec: [u8; 32],
    pub(crate) ty: CustomType,
    /// The schema as written, for OpenAPI.
    pub(crate) schema: Option<Value>,
    pub(crate) columns: Vec<PrinterColumn>,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) selectable: Vec<String>,
    /// Sent with every answer, if the version is deprecated.
    pub(crate) deprecation: Option<String>,
}

/// One of `additionalPrinterColumns`.
#[derive(Clone, Debug)]
pub(crate) struct PrinterColumn {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    pub(crate) path: String,
}

/// Where the scale subresource finds its values: the names of the fields on the way.
#[derive(Clone, Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: Vec<String>,
    pub(crate) status: Vec<String>,
    pub(crate) selector: Option<Vec<String>>,
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    let items = value.pointer(pointer).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn versions(crd: &Value) -> &[Value] {
    crd.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

impl Definition {
    /// Compiles a CustomResourceDefinition; all that is wrong with it otherwise.
    pub(crate) fn compile(crd: &Value) -> Result<Self, FieldErrors> {
        let mut compilation = Compilation::default();
        check(crd, &mut compilation.errors);
        let resource = Arc::new(resource_of(crd));
        let digest = digest::digest(&digest::SHA256, crd["spec"].to_string().as_bytes());
        let spec = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
        let mut served = Vec::new();
        let mut warnings = Vec::new();
        for (at, version) in versions(crd).iter().take(VERSIONS_MAX).enumerate() {
            let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
            let schema = version.pointer("/schema/openAPIV3Schema");
            let Some(ty) = CustomType::compile(schema, &FieldPath::Text(&path), &mut compilation) else { continue };
            warnings.extend_from_slice(ty.warnings());
            if flag(version, "served") {
                served.push(Arc::new(served_version(crd, version, &resource, CompiledVersion { spec, ty })));
            }
        }
        if text(crd, "/spec/conversion/strategy") == "Webhook" {
            warnings.push("spec.conversion: conversion webhooks are not called by this server".into());
        }
        let errors = compilation.errors.finished();
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            name: text(crd, "/metadata/name").to_owned(),
            resource,
            accepted: condition_is(crd, "Established", "True"),
            terminating: crd.pointer("/metadata/deletionTimestamp").is_some(),
            served,
            warnings,
        })
    }

    /// The resource that a definition makes, if its names are accepted.
    pub(crate) fn kind_of(crd: &Value) -> Option<ResourceKind> {
        condition_is(crd, "Established", "True").then(|| resource_of(crd))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn resource(&self) -> &Arc<ResourceKind> {
        &self.resource
    }

    /// The names are not taken by another definition.
    pub(crate) fn is_accepted(&self) -> bool {
        self.accepted
    }

    pub(crate) fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// What the definition asks for and this server does not do.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    pub(super) fn served(&self) -> &[Arc<Served>] {
        if self.accepted { &self.served } else { &[] }
    }
}

fn resource_of(crd: &Value) -> ResourceKind {
    ResourceKind {
        group: text(crd, "/spec/group").to_owned(),
        version: storage_version(crd).to_owned(),
        kind: text(crd, "/spec/names/kind").to_owned(),
        plural: text(crd, "/spec/names/plural").to_owned(),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
    }
}

fn storage_version(crd: &Value) -> &str {
    versions(crd)
        .iter()
        .find(|version| flag(version, "storage"))
        .map(|version| text(version, "/name"))
        .unwrap_or_default()
}

/// The names with those filled in that may be left out.
fn accepted_names(crd: &Value) -> Value {
    let mut names = crd.pointer("/spec/names").cloned().unwrap_or_else(|| json!({}));
    let kind = text(crd, "/spec/names/kind");
    if text(&names, "/singular").is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if text(&names, "/listKind").is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    names
}

/// What was made of a version's schema, and which spec that is in.
struct CompiledVersion {
    spec: [u8; 32],
    ty: CustomType,
}

fn served_version(crd: &Value, version: &Value, resource: &Arc<ResourceKind>, compiled: CompiledVersion) -> Served {
    let CompiledVersion { spec, ty } = compiled;
    let names = accepted_names(crd);
    let name = text(version, "/name").to_owned();
    let verbs = |list: &[&str]| list.iter().map(|verb| (*verb).to_owned()).collect::<Vec<_>>();
    let mut subresources = Vec::new();
    if version.pointer("/subresources/status").is_some() {
        subresources.push(Subresource {
            name: "status".into(),
            group: resource.group.clone(),
            version: name.clone(),
            kind: resource.kind.clone(),
            verbs: verbs(&["get", "patch", "update"]),
        });
    }
    let scale = version.pointer("/subresources/scale").map(scale_paths);
    if scale.is_some() {
        subresources.push(Subresource {
            name: "scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            kind: "Scale".into(),
            verbs: verbs(&["get", "patch", "update"]),
        });
    }
    let deprecation = flag(version, "deprecated").then(|| match text(version, "/deprecationWarning") {
        "" => format!("{}/{name} {} is deprecated", resource.group, resource.kind),
        own => own.to_owned(),
    });
    let selectable = version.get("selectableFields").and_then(Value::as_array).into_iter().flatten();
    Served {
        resource: Arc::clone(resource),
        api_version: format!("{}/{name}", resource.group),
        version: name,
        singular: text(&names, "/singular").to_owned(),
        list_kind: text(&names, "/listKind").to_owned(),
        short_names: texts(&names, "/shortNames"),
        categories: texts(&names, "/categories"),
        verbs: verbs(&["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        subresources,
        storage_version_hash: None,
        source: Source::Custom(Arc::new(CustomVersion {
            spec,
            ty,
            schema: version.pointer("/schema/openAPIV3Schema").cloned(),
            columns: columns(version),
            scale,
            selectable: selectable.map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned()).collect(),
            deprecation,
        })),
    }
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let steps = |name: &str| text(scale, &format!("/{name}")).split('.').skip(1).map(str::to_owned).collect::<Vec<_>>();
    let selector = Some(steps("labelSelectorPath")).filter(|steps| !steps.is_empty());
    ScalePaths { spec: steps("specReplicasPath"), status: steps("statusReplicasPath"), selector }
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    columns
        .map(|column| PrinterColumn {
            name: text(column, "/name").to_owned(),
            kind: text(column, "/type").to_owned(),
            format: text(column, "/format").to_owned(),
            description: text(column, "/description").to_owned(),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
            path: text(column, "/jsonPath").to_owned(),
        })
        .collect()
}

/// The rules of `apiextensions` validation that keep the catalog sound.
fn check(crd: &Value, errors: &mut FieldErrors) {
    let mut say = |path: &str, kind: FieldErrorKind, detail: String| {
        errors.push_with(|| FieldError::new(&FieldPath::Text(path), kind, detail));
    };
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    if !is_dns_subdomain(group) || !group.contains('.') {
        say("spec.group", FieldErrorKind::Invalid, "should be a domain with at least one dot".into());
    }
    let name = text(crd, "/metadata/name");
    if name != format!("{plural}.{group}") {
        let detail = format!("{name:?}: must be spec.names.plural+\".\"+spec.group");
        say("metadata.name", FieldErrorKind::Invalid, detail);
    }
    for (path, pointer) in
        [("spec.names.plural", "/spec/names/plural"), ("spec.names.singular", "/spec/names/singular")]
    {
        let value = text(crd, pointer);
        if !value.is_empty() && !is_dns_label(value) {
            say(path, FieldErrorKind::Invalid, format!("{value:?}: must be a lowercase RFC 1035 label"));
        }
    }
    let kind = text(crd, "/spec/names/kind");
    if !kind.is_empty() && !is_dns_label(&kind.to_lowercase()) {
        say(
            "spec.names.kind",
            FieldErrorKind::Invalid,
            format!("{kind:?}: may have mixed case, but should otherwise match a DNS label"),
        );
    }
    let protected = [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix));
    let annotations = crd.pointer("/metadata/annotations");
    if protected && annotations.and_then(|all| all.get("api-approved.kubernetes.io")).is_none() {
        say(
            "metadata.annotations[api-approved.kubernetes.io]",
            FieldErrorKind::Required,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111"
                .into(),
        );
    }
    let storage = versions(crd).iter().filter(|version| flag(version, "storage")).count();
    if storage != 1 {
        say("spec.versions", FieldErrorKind::Invalid, "must have exactly one version marked as storage version".into());
    }
    if versions(crd).len() > VERSIONS_MAX {
        say("spec.versions", FieldErrorKind::TooLong, format!("must have at most {VERSIONS_MAX} items"));
    }
    for (at, version) in versions(crd).iter().take(VERSIONS_MAX).enumerate() {
        let name = text(version, "/name");
        if !is_dns_label(name) {
            say(
                &format!("spec.versions[{at}].name"),
                FieldErrorKind::Invalid,
                format!("{name:?}: must be a DNS label"),
            );
        }
        if versions(crd).iter().take(at).any(|earlier| text(earlier, "/name") == name) {
            say(&format!("spec.versions[{at}].name"), FieldErrorKind::Duplicate, format!("{name:?}"));
        }
        let columns = columns(version);
        let columns_at = format!("spec.versions[{at}].additionalPrinterColumns");
        if columns.len() > COLUMNS_MAX {
            say(&columns_at, FieldErrorKind::TooLong, format!("must have at most {COLUMNS_MAX} items"));
        }
        if let Some(long) = columns.iter().position(|column| column.path.len() > COLUMN_PATH_BYTES_MAX) {
            let detail = format!("may not be more than {COLUMN_PATH_BYTES_MAX} bytes");
            say(&format!("{columns_at}[{long}].jsonPath"), FieldErrorKind::TooLong, detail);
        }
        if let Some(scale) = version.pointer("/subresources/scale") {
            check_scale(scale, at, &mut say);
        }
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
            say(&path, FieldErrorKind::Required, "schemas are required".into());
        }
    }
    let stored = texts(crd, "/status/storedVersions");
    for version in stored.iter().filter(|stored| !versions(crd).iter().any(|own| text(own, "/name") == stored.as_str()))
    {
        let detail = format!(
            "{version:?}: missing from spec.versions; it was previously a storage version, and must \
             remain in spec.versions until a storage migration ensures no data remains persisted in it"
        );
        say("status.storedVersions", FieldErrorKind::Invalid, detail);
    }
}

/// The paths of the scale subresource lead to a field of spec or status, as deep as an object may be.
fn check_scale(scale: &Value, at: usize, say: &mut impl FnMut(&str, FieldErrorKind, String)) {
    for (name, parts, place) in [
        ("specReplicasPath", &["spec"][..], ".spec"),
        ("statusReplicasPath", &["status"], ".status"),
        ("labelSelectorPath", &["spec", "status"], "either .spec or .status"),
    ] {
        let field = format!("spec.versions[{at}].subresources.scale.{name}");
        let path = text(scale, &format!("/{name}"));
        if path.is_empty() {
            if name != "labelSelectorPath" {
                say(&field, FieldErrorKind::Required, String::new());
            }
            continue;
        }
        let mut steps = path.split('.');
        let problem = if steps.next() != Some("") {
            Some("must be a simple json path starting with .".to_owned())
        } else if !steps.next().is_some_and(|first| parts.contains(&first)) || steps.clone().next().is_none() {
            Some(format!("should be a json path under {place}"))
        } else if steps.clone().any(str::is_empty) {
            Some("must be a json path in the dot notation".to_owned())
        } else if steps.count() >= DEPTH_MAX {
            Some(format!("must not be deeper than an object, which has {DEPTH_MAX} levels at most"))
        } else {
            None
        };
        if let Some(problem) = problem {
            say(&field, FieldErrorKind::Invalid, format!("{path:?}: {problem}"));
        }
    }
}

fn condition_is(crd: &Value, kind: &str, status: &str) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| text(one, "/type") == kind && text(one, "/status") == status)
}

impl Definition {
    /// Brings the status of a definition up to date: names, conditions, stored versions. `others` are the definitions
    /// of the space; of two that claim a kind or name in a group, the one that is there keeps it.
    pub(crate) fn refresh_status<'a>(crd: &mut Value, others: impl Iterator<Item = &'a Arc<Definition>>, now: &str) {
        let names = accepted_names(crd);
        let group = text(crd, "/spec/group").to_owned();
        let own = text(crd, "/metadata/name").to_owned();
        let kind = text(crd, "/spec/names/kind").to_owned();
        let taken = others
            .filter(|other| other.name != own && other.accepted && other.resource.group == group)
            .find(|other| other.resource.kind == kind);
        let stored_now = storage_version(crd).to_owned();
        let mut stored = texts(crd, "/status/storedVersions");
        if !stored.contains(&stored_now) {
            stored.push(stored_now);
        }
        let established_before = condition_is(crd, "Established", "True");
        let conditions = match taken {
            None => [
                ("NamesAccepted", "True", "NoConflicts", "no conflicts found".to_owned()),
                ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted".to_owned()),
            ],
            Some(other) => [
                ("NamesAccepted", "False", "KindConflict", format!("{kind:?} is already in use by {}", other.name)),
                if established_before {
                    ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted".into())
                } else {
                    ("Established", "False", "NotAccepted", "not all names are accepted".into())
                },
            ],
        };
        if !crd.get("status").is_some_and(Value::is_object) {
            crd["status"] = json!({});
        }
        crd["status"]["acceptedNames"] = if taken.is_none() { names } else { json!({"plural": "", "kind": ""}) };
        crd["status"]["storedVersions"] = stored.into();
        for (kind, status, reason, message) in conditions {
            set_condition(crd, kind, status, reason, &message, now);
        }
    }
}

/// Sets one condition; its time moves only when its status does.
pub(crate) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = &mut object["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let mut fresh = Map::new();
    for (name, value) in [("type", kind), ("status", status), ("reason", reason), ("message", message)] {
        fresh.insert(name.into(), value.into());
    }
    let known = list.iter_mut().find(|one| text(one, "/type") == kind);
    let unchanged = known.as_ref().filter(|old| text(old, "/status") == status);
    let since = unchanged.map_or(now, |old| text(old, "/lastTransitionTime")).to_owned();
    fresh.insert("lastTransitionTime".into(), since.into());
    if let Some(old) = known {
        *old = Value::Object(fresh);
    } else {
        list.push(Value::Object(fresh));
    }
}
