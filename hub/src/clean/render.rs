use serde_json::Value;
use tideline_common::{FieldPath, GroupKind, ObjectKey};

use super::canonical;
use super::{Destination, Input, NamespaceMapping, place_at};

/// The fields in which built-in kinds name a namespace other than the one that they are in, and mean an object that is
/// placed with them.
///
/// Not here are names inside of texts (`system:serviceaccounts:shop`, DNS names, environment variables) and in selectors
/// of labels: nobody but their author knows what they mean.
const REFERENCES: &[(&str, &str, &str)] = &[
    ("rbac.authorization.k8s.io", "RoleBinding", "$.subjects[?(@.kind=='ServiceAccount')].namespace"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "$.subjects[?(@.kind=='ServiceAccount')].namespace"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "$.webhooks[*].clientConfig.service.namespace"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "$.webhooks[*].clientConfig.service.namespace"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding", "$.spec.paramRef.namespace"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding", "$.spec.paramRef.namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "$.spec.conversion.webhook.clientConfig.service.namespace"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", "$.spec.rules[*].subjects[*].serviceAccount.namespace"),
    ("", "PersistentVolume", "$.spec.claimRef.namespace"),
];

/// Whether objects of a kind name namespaces that they are not in themselves.
pub fn refers_to_namespaces(kind: &GroupKind) -> bool {
    references(kind).next().is_some()
}

/// The object as it is at a destination. `key` is its place in the space.
pub fn rendered(input: &Input, key: &ObjectKey, destination: &Destination, mapping: &NamespaceMapping) -> Input {
    let refers = !mapping.is_same() && refers_to_namespaces(&key.kind);
    if destination.is_none() && !refers {
        return input.clone();
    }
    let mut object: Value = serde_json::from_str(&input.text).expect("what travels is JSON");
    if destination.is_some() {
        let ObjectKey { kind: _, namespace, name } = place_at(key, destination);
        object["metadata"]["name"] = Value::from(&*name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = Value::from(&*namespace);
        }
    }
    for path in references(&key.kind) {
        let path = FieldPath::parse(path).expect("a test reads every path of the table");
        for way in path.find(&object) {
            let name = way.read(&object).and_then(Value::as_str).unwrap_or_default();
            // What cannot be mapped is not placed either, so that the name means what is there.
            if let Ok(Some(mapped)) = mapping.namespace(name) {
                way.put(&mut object, Value::from(&*mapped));
            }
        }
    }
    Input::new(canonical(&object))
}

fn references(kind: &GroupKind) -> impl Iterator<Item = &'static str> {
    REFERENCES.iter().filter(|(group, of, _)| kind.is(group, of)).map(|(_, _, path)| *path)
}
