//! Manifests into an API server.

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

/// Applies one manifest on the server's side.
pub(crate) async fn apply(client: &Client, manifest: &Value) -> Result<()> {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str);
    let api_version = text("/apiVersion").context("a manifest has an apiVersion")?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = text("/kind").context("a manifest has a kind")?;
    let name = text("/metadata/name").context("a manifest has a name")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match text("/metadata/namespace") {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply("bench").force();
    api.patch(name, &params, &Patch::Apply(manifest)).await.with_context(|| format!("applying {kind} {name}"))?;
    Ok(())
}
