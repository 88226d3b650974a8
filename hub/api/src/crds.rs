use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

use crate::{
    DeletionApproval, EnrolmentToken, HistoryAcceptance, Location, Placement, Space, SyncTarget, UnassignmentApproval,
};

/// What of a clause says which objects it means.
const OBJECT_CRITERIA: [&str; 6] =
    ["apiGroup", "resources", "namespaces", "namespaceSelectors", "objectSelectors", "names"];

/// Every CRD of the group, by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = root_crds();
    all.extend(workload_crds());
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    all
}

/// What the root space serves: the inventory and the hub's own configuration.
pub fn root_crds() -> Vec<CustomResourceDefinition> {
    vec![
        finished(DeletionApproval::crd()),
        finished(EnrolmentToken::crd()),
        finished(HistoryAcceptance::crd()),
        finished(Location::crd()),
        finished(one_provider(Space::crd())),
        finished(SyncTarget::crd()),
        finished(UnassignmentApproval::crd()),
    ]
}

/// What every workload space serves.
pub fn workload_crds() -> Vec<CustomResourceDefinition> {
    vec![finished(one_criterion(Placement::crd()))]
}

/// Brings a derived CRD to what an API server takes without a warning, and to what is meant.
fn finished(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for root in schemas(&mut crd) {
        finish(root);
        if let Some(status) = root.properties.as_mut().and_then(|properties| properties.get_mut("status")) {
            // What is not known yet is absent, not a default.
            without_defaults(status);
        }
        defaults_in_lists_as_words(root);
    }
    crd
}

/// Has the API server refuse a space that is nowhere, or in two places.
fn one_provider(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for root in schemas(&mut crd) {
        if let Some(spec) = root.properties.as_mut().and_then(|properties| properties.get_mut("spec")) {
            spec.one_of = Some(vec![requires("embedded"), requires("kubeconfig")]);
        }
    }
    crd
}

/// Has the API server refuse a clause that does not say which objects it means.
fn one_criterion(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for root in schemas(&mut crd) {
        let spec = root.properties.as_mut().and_then(|properties| properties.get_mut("spec"));
        let objects = spec.and_then(|spec| spec.properties.as_mut()?.get_mut("objects"));
        let Some(JSONSchemaPropsOrArray::Schema(clause)) = objects.and_then(|objects| objects.items.as_mut()) else {
            continue;
        };
        clause.any_of = Some(OBJECT_CRITERIA.iter().copied().map(requires).collect());
    }
    crd
}

fn requires(field: &str) -> JSONSchemaProps {
    JSONSchemaProps { required: Some(vec![field.to_owned()]), ..JSONSchemaProps::default() }
}

fn schemas(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    let versions = crd.spec.versions.iter_mut();
    versions.filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn finish(schema: &mut JSONSchemaProps) {
    // An absent field is how "not set" is written; a null is pruned, and then defaulted.
    schema.nullable = None;
    if let Some(choices) = &mut schema.enum_ {
        choices.retain(|choice| !choice.0.is_null());
    }
    // Formats of Rust, which an API server warns about. Kubernetes knows signed integers only.
    if let Some("uint32" | "uint64" | "uint") = schema.format.as_deref() {
        schema.format = Some("int64".to_owned());
    }
    // The kind is said by the CRD; the line breaks are those of our source.
    schema.title = None;
    if let Some(description) = &mut schema.description {
        *description = description.replace('\n', " ");
    }
    // An empty list or map says no more than an absent one, and would be written into every object.
    let empty = match &schema.default {
        Some(default) => match &default.0 {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty() && schema.properties.is_none(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        },
        None => false,
    };
    if empty {
        schema.default = None;
    }
    for_each_child(schema, finish);
}

fn without_defaults(schema: &mut JSONSchemaProps) {
    schema.default = None;
    for_each_child(schema, without_defaults);
}

/// A default inside a list is told and not filled in. `kubectl apply` compares lists as wholes: with what a server added to
/// one, it would find it changed each time.
fn defaults_in_lists_as_words(schema: &mut JSONSchemaProps) {
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => defaults_as_words(items),
        Some(JSONSchemaPropsOrArray::Schemas(several)) => several.iter_mut().for_each(defaults_as_words),
        None => {}
    }
    for_each_child(schema, defaults_in_lists_as_words);
}

fn defaults_as_words(schema: &mut JSONSchemaProps) {
    let said = schema.default.take().and_then(|default| match default.0 {
        Value::String(text) if !text.is_empty() => Some(text),
        scalar @ (Value::Bool(_) | Value::Number(_)) => Some(scalar.to_string()),
        Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_) => None,
    });
    if let (Some(said), Some(description)) = (said, &mut schema.description) {
        *description = format!("{description} Default: {said}.");
    }
    for_each_child(schema, defaults_as_words);
}

fn for_each_child(schema: &mut JSONSchemaProps, visit: fn(&mut JSONSchemaProps)) {
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        visit(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => visit(items),
        Some(JSONSchemaPropsOrArray::Schemas(several)) => several.iter_mut().for_each(visit),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        visit(values);
    }
}

#[cfg(test)]
mod tests;
