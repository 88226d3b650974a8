//! Many manifests into an API server, each of a size.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::Value;

use crate::apply::apply;

/// Requests at once while a space is filled. It is not measured.
pub(crate) const FILLING: usize = 16;
pub(crate) const CONFIG_MAP_BYTES: usize = 1_000;

/// Applies manifests on the server's side, so many at once.
pub(crate) async fn apply_all(client: &Client, manifests: &[Value], at_once: usize) -> Result<()> {
    let requests = stream::iter(manifests).map(|manifest| apply(client, manifest));
    requests.buffer_unordered(at_once).try_collect().await
}

/// Fills the text at `path` so that the manifest has so many bytes as JSON.
pub(crate) fn padded(mut manifest: Value, path: &str, bytes: usize) -> Value {
    let missing = bytes.saturating_sub(manifest.to_string().len());
    if let Some(text) = manifest.pointer_mut(path) {
        *text = Value::String("x".repeat(missing));
    }
    manifest
}
