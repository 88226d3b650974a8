//! Schemas of types that are not ours, and of lists that recur. Written out: deriving them would compile a schema for
//! every type of Kubernetes.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Selectors in one list, and expressions in one selector. A person writes a few; a tool that writes more wants labels.
const SELECTORS_MAX: usize = 64;
/// Names in one list; beyond that, labels are the better way.
const NAMES_MAX: usize = 1024;

pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(selector()).expect("an object is a schema")
}

pub(crate) fn label_selectors(_: &mut SchemaGenerator) -> Schema {
    selectors(&selector())
}

/// [`crate::TargetSelector`]s: a label selector that may name what it selects.
pub(crate) fn target_selectors(generator: &mut SchemaGenerator) -> Schema {
    let mut selector = selector();
    selector["description"] = json!("Selects SyncTargets; all that it says must hold. An empty one selects all.");
    let mut names = names(generator).to_value();
    names["description"] = json!("The SyncTargets, by name. Empty: any.");
    selector["properties"]["names"] = names;
    selectors(&selector)
}

fn selectors(selector: &Value) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": SELECTORS_MAX,
        "x-kubernetes-list-type": "atomic",
        "items": selector,
    })
}

pub(crate) fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": NAMES_MAX,
        "x-kubernetes-list-type": "set",
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
    })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// `metav1.Condition`, with the limits that Kubernetes gives it.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "description": "One aspect of the state.",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {"type": "string", "maxLength": 316, "description": "Which aspect, in CamelCase."},
                "status": {
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                    "description": "Whether it holds.",
                },
                "observedGeneration": {
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                    "description": "The generation that this condition describes.",
                },
                "lastTransitionTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When the status last changed.",
                },
                "reason": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Why it last changed, in CamelCase.",
                },
                "message": {"type": "string", "maxLength": 32768, "description": "Details for people."},
            },
        },
    })
}

fn selector() -> Value {
    json!({
        "type": "object",
        "description": "A label selector; all that it says must hold. An empty one selects everything.",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": SELECTORS_MAX,
                "additionalProperties": {"type": "string", "maxLength": 63},
                "description": "Labels and the values they must have.",
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": SELECTORS_MAX,
                "x-kubernetes-list-type": "atomic",
                "description": "Conditions on labels.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "description": "A condition on one label.",
                    "properties": {
                        "key": {"type": "string", "minLength": 1, "maxLength": 317, "description": "The label."},
                        "operator": {
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                            "description": "How the label is compared. NotIn holds also where it is absent.",
                        },
                        "values": {
                            "type": "array",
                            "maxItems": NAMES_MAX,
                            "x-kubernetes-list-type": "atomic",
                            "description": "At least one for In and NotIn; none for Exists and DoesNotExist.",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                },
            },
        },
    })
}
