//! JSON patches (RFC 6902) that the hub writes: each tests what it was decided upon, and no more. So it is refused where that has
//! changed, and not because others write the rest of the object at the same moment.

use http::{Method, Request};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tideline_common::{FIELD_MANAGER_HUB, pointer_escaped};

/// How a patch is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Steps, made by the functions of this module.
    Json,
    Merge,
}

/// The value at a path is this; null: there is none.
pub(crate) fn test(path: &[&str], value: &Value) -> Value {
    json!({"op": "test", "path": pointer(path), "value": value})
}

/// Puts a value at a path, whether there is one or not.
pub(crate) fn add(path: &[&str], value: &Value) -> Value {
    json!({"op": "add", "path": pointer(path), "value": value})
}

/// Takes away the value at a path, which must be there.
pub(crate) fn remove(path: &[&str]) -> Value {
    json!({"op": "remove", "path": pointer(path)})
}

fn pointer(path: &[&str]) -> String {
    path.iter().flat_map(|name| ["/".to_owned(), pointer_escaped(name)]).collect()
}

/// Sends a patch, and returns the object as it is then.
pub(crate) async fn send<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    form: Form,
    patch: &Value,
) -> Result<T, kube::Error> {
    let media_type = match form {
        Form::Json => "application/json-patch+json",
        Form::Merge => "application/merge-patch+json",
    };
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("{path}?fieldManager={FIELD_MANAGER_HUB}"))
        .header("content-type", media_type)
        .body(patch.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

/// Whether a patch was refused because of what the object is at the moment: to decide again may help.
pub(crate) fn is_outdated(error: &kube::Error) -> bool {
    // A test that fails is answered with 422, as is what no object may be.
    matches!(error, kube::Error::Api(status) if status.code == 409 || status.code == 422)
}
