//! Namespaces and definitions, which hold other objects.

use super::status::{Object, Verdict};

pub(super) fn namespace(object: Object<'_>) -> Verdict {
    object.ready_in(&["Active"], &[])
}

/// "Installing" is how `Established` begins, before it is ever true.
pub(super) fn custom_resource_definition(object: Object<'_>) -> Verdict {
    if let Some(condition) = object.fails("NamesAccepted") {
        return Verdict::failed(condition.message());
    }
    match object.fails("Established") {
        Some(condition) if condition.reason != "Installing" && condition.reason != "NotAccepted" => {
            Verdict::failed(condition.message())
        }
        Some(_) | None => object.ready_as("Established"),
    }
}

pub(super) fn api_service(object: Object<'_>) -> Verdict {
    object.ready_as("Available")
}
