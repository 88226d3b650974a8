use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tideline_common::{
    ASSIGNED_LOCATIONS_ANNOTATION, FieldPath, GroupKind, KEEP_FIELDS_ANNOTATION, MARK_ANNOTATION, MARK_LABEL,
    ObjectPath, PathElement, WAVE_ANNOTATION,
};

use super::{Labels, SpaceServer};

/// Set by the space's server, or meant for it alone.
const METADATA: &[&str] = &[
    "managedFields",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "finalizers",
    "generateName",
    "ownerReferences",
    "selfLink",
];

const ANNOTATIONS: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "pv.kubernetes.io/bind-completed",
    BOUND_BY_CONTROLLER,
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
    ASSIGNED_LOCATIONS_ANNOTATION,
    WAVE_ANNOTATION,
    KEEP_FIELDS_ANNOTATION,
    // Of an object that somebody copied from a workload cluster: what is written there says whose copy the new one is.
    MARK_ANNOTATION,
];

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

const LABELS: &[&str] = &["kubernetes.io/metadata.name", MARK_LABEL];

/// What a Job's Pods are found by, unless its author chose a selector.
const JOB_LABELS: &[&str] =
    &["controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"];

/// Where certificates are put into each cluster's own copy by a controller there.
const INJECTED: &[&str] = &[
    "cert-manager.io/inject-ca-from",
    "cert-manager.io/inject-ca-from-secret",
    "cert-manager.io/inject-apiserver-ca",
    "service.beta.openshift.io/inject-cabundle",
];

/// What people write where a bundle of certificates has to be said and is not known: nothing, or a line break.
const NO_CERTIFICATE: &[&str] = &["", "Cg==", "Cgo="];

/// The object without what belongs to its space alone. Of what its server, or a controller beside it, may have assigned,
/// `keep` stays.
pub(super) fn stripped(server: SpaceServer, kind: &GroupKind, object: &Value, keep: &[FieldPath]) -> Value {
    let object = as_stored(kind, object.clone());
    let found = keep.iter().flat_map(|path| path.find(&object)).filter(
        |way| !matches!(way.elements(), [PathElement::Field(name), ..] if name == "metadata" || name == "status"),
    );
    let mut kept: Vec<(ObjectPath, Value)> = Vec::new();
    // In order, so that what is part of a field before it is not copied once more.
    for way in found.collect::<BTreeSet<_>>() {
        if kept.last().is_some_and(|(whole, _)| way.elements().starts_with(whole.elements())) {
            continue;
        }
        kept.extend(way.read(&object).cloned().map(|value| (way, value)));
    }
    let mut object = without_assigned(server, kind, object);
    for (way, value) in kept {
        way.put(&mut object, value);
    }
    object
}

/// The object in the form that the servers of targets keep. What they turn into something else, or have a controller write,
/// nobody could own there: neither would a change of it be seen, nor would it go when its source drops it.
fn as_stored(kind: &GroupKind, mut object: Value) -> Value {
    let Some(root) = object.as_object_mut() else { return object };
    match (&*kind.group, &*kind.kind) {
        ("", "Secret") => encode_strings(root),
        ("rbac.authorization.k8s.io", "ClusterRole") => leave_aggregated_rules(root),
        _ => {}
    }
    object
}

/// Moves `stringData` to `data`, where it wins, as API servers do. What is no map of strings is left as it is: they are to
/// say what is wrong with it.
fn encode_strings(root: &mut Map<String, Value>) {
    let is_map = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_object());
    if !is_map(root.get("data")) || !is_map(root.get("stringData")) {
        return;
    }
    let mut encoded = Map::new();
    for (name, value) in child(root, "stringData").into_iter().flatten() {
        let Some(text) = value.as_str() else { return };
        encoded.insert(name.clone(), Value::String(STANDARD.encode(text)));
    }
    root.remove("stringData");
    if !encoded.is_empty() {
        match child(root, "data") {
            Some(data) => data.extend(encoded),
            None => drop(root.insert("data".to_owned(), Value::Object(encoded))),
        }
    }
}

/// A controller at each target gathers the rules of a role that says which others it is made of.
fn leave_aggregated_rules(root: &mut Map<String, Value>) {
    if root.get("aggregationRule").is_some_and(|rule| !rule.is_null()) {
        root.remove("rules");
    }
}

fn without_assigned(server: SpaceServer, kind: &GroupKind, mut object: Value) -> Value {
    let Some(root) = object.as_object_mut() else { return object };
    root.remove("status");
    match (&*kind.group, &*kind.kind) {
        ("", "Service") if server == SpaceServer::Assigning => service(root),
        ("", "PersistentVolumeClaim") => volume_claim(root),
        ("", "ServiceAccount") => {
            root.remove("secrets");
        }
        ("", "Namespace") => {
            if let Some(spec) = child(root, "spec") {
                spec.remove("finalizers");
            }
            drop_if_empty(root, "spec");
        }
        ("", "PersistentVolume") => volume(root),
        ("batch", "Job") => job(root),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            webhooks(root);
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(root),
        _ => {}
    }
    if let Some(metadata) = child(root, "metadata") {
        for field in METADATA {
            metadata.remove(*field);
        }
        remove_from(metadata, "annotations", ANNOTATIONS);
        remove_from(metadata, "labels", LABELS);
    }
    object
}

/// Takes out the labels that a server sets by itself.
pub(super) fn server_labels(labels: &mut Labels) {
    for label in LABELS {
        labels.remove(*label);
    }
}

fn service(root: &mut Map<String, Value>) {
    let Some(spec) = child(root, "spec") else { return };
    if spec.contains_key("clusterIP") {
        // A server that assigns an address says of which family it is; where there is none, the author did.
        spec.remove("ipFamilies");
    }
    if spec.get("clusterIP").and_then(Value::as_str) != Some("None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    spec.remove("healthCheckNodePort");
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

fn volume_claim(root: &mut Map<String, Value>) {
    let annotations = child(root, "metadata").and_then(|metadata| child(metadata, "annotations"));
    // Where no controller wrote the volume's name, the author did.
    let bound = annotations.is_some_and(|annotations| annotations.contains_key(BOUND_BY_CONTROLLER));
    if bound && let Some(spec) = child(root, "spec") {
        spec.remove("volumeName");
    }
}

/// Which claim a volume is for may be said beforehand, but not which object of another cluster that is.
fn volume(root: &mut Map<String, Value>) {
    let annotations = child(root, "metadata").and_then(|metadata| child(metadata, "annotations"));
    let bound = annotations.is_some_and(|annotations| annotations.contains_key(BOUND_BY_CONTROLLER));
    let Some(spec) = child(root, "spec") else { return };
    if bound {
        spec.remove("claimRef");
    } else if let Some(claim) = child(spec, "claimRef") {
        claim.remove("uid");
        claim.remove("resourceVersion");
    }
}

fn webhooks(root: &mut Map<String, Value>) {
    let injected = is_injected(root);
    for webhook in root.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
        certificates(webhook.get_mut("clientConfig"), injected);
    }
}

fn definition(root: &mut Map<String, Value>) {
    let injected = is_injected(root);
    certificates(root.get_mut("spec").and_then(|spec| spec.pointer_mut("/conversion/webhook/clientConfig")), injected);
}

fn is_injected(root: &mut Map<String, Value>) -> bool {
    let annotations = child(root, "metadata").and_then(|metadata| child(metadata, "annotations"));
    annotations.is_some_and(|annotations| INJECTED.iter().any(|name| annotations.contains_key(*name)))
}

fn certificates(client: Option<&mut Value>, injected: bool) {
    let Some(client) = client.and_then(Value::as_object_mut) else { return };
    let said = client.get("caBundle").and_then(Value::as_str);
    if injected || said.is_some_and(|said| NO_CERTIFICATE.contains(&said)) {
        client.remove("caBundle");
    }
}

fn job(root: &mut Map<String, Value>) {
    let Some(spec) = child(root, "spec") else { return };
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    spec.remove("selector");
    if let Some(metadata) = child(spec, "template").and_then(|template| child(template, "metadata")) {
        remove_from(metadata, "labels", JOB_LABELS);
    }
    if let Some(metadata) = child(root, "metadata") {
        remove_from(metadata, "labels", JOB_LABELS);
    }
}

fn child<'v>(parent: &'v mut Map<String, Value>, field: &str) -> Option<&'v mut Map<String, Value>> {
    parent.get_mut(field).and_then(Value::as_object_mut)
}

/// Takes keys out of a map of strings, and the map itself if that leaves it empty.
fn remove_from(parent: &mut Map<String, Value>, field: &str, keys: &[&str]) {
    if let Some(map) = child(parent, field) {
        for key in keys {
            map.remove(*key);
        }
    }
    drop_if_empty(parent, field);
}

fn drop_if_empty(parent: &mut Map<String, Value>, field: &str) {
    let empty = parent.get(field).is_some_and(|value| value.is_null() || value.as_object().is_some_and(Map::is_empty));
    if empty {
        parent.remove(field);
    }
}
