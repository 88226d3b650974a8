use serde_json::Value;
use tideline_common::wire::v1::ObjectReport;

/// Fields of a status that no API server lets another writer set back: they only ever rise.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    ("apps", "Deployment", "collisionCount"),
    ("apps", "StatefulSet", "collisionCount"),
    ("apps", "DaemonSet", "collisionCount"),
];

/// The status of a source that is placed on one target: that target's, whole, with the generations that it speaks of
/// turned from the local object's into the source's. None where the target reports no status.
pub fn exact_status(report: &ObjectReport) -> Option<Value> {
    let mut status: Value = serde_json::from_str(report.status.as_ref()?.get()).ok()?;
    let object = status.as_object_mut()?;
    for (group, kind, field) in LEFT_OUT {
        if report.key.kind.is(group, kind) {
            object.remove(*field);
        }
    }
    translate(object, report.observed_generation);
    if let Some(conditions) = object.get_mut("conditions").and_then(Value::as_array_mut) {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            translate(condition, report.observed_generation);
        }
    }
    Some(status)
}

/// Local generations mean nothing in the space: better none than one of another count.
fn translate(object: &mut serde_json::Map<String, Value>, generation: Option<i64>) {
    if let Some(observed) = object.get_mut("observedGeneration") {
        match generation {
            Some(generation) => *observed = generation.into(),
            None => {
                object.remove("observedGeneration");
            }
        }
    }
}
