use kube::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An object of ours that cannot be read. The message is complete: kind, name, field, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?} cannot be read: {path}: {what}")]
pub struct DecodeError {
    pub kind: String,
    /// Empty where not even the name can be read.
    pub name: String,
    /// The field, as `spec.objects[0].apply.mode`; `.` is the whole object.
    pub path: String,
    pub what: String,
}

/// Reads one object, so that one that cannot be read is its own problem and not that of the list it came in.
///
/// Unknown fields are ignored; unknown values of enums are errors that name the field and the values there are.
///
/// # Errors
///
/// A field is missing or holds what it may not; the error names it.
pub fn decode<K>(object: Value) -> Result<K, DecodeError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    serde_path_to_error::deserialize(object).map_err(|error| DecodeError {
        kind: K::kind(&()).into_owned(),
        name,
        path: error.path().to_string(),
        what: error.into_inner().to_string(),
    })
}

#[cfg(test)]
mod tests;
