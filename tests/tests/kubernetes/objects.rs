//! Objects of the tests on whole fleets, and waits on them. All namespaced ones are in `shop`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use tideline_tests::eventually_ok;

/// Far above the second that a change takes; short enough to tell which wait fails.
pub(crate) const SOON: Duration = Duration::from_secs(90);

pub(crate) const DEPLOYMENT: (&str, &str) = ("apps/v1", "Deployment");
pub(crate) const CONFIG: (&str, &str) = ("v1", "ConfigMap");
pub(crate) const THING: (&str, &str) = ("test.example/v1", "Thing");
pub(crate) const NAMESPACE: (&str, &str) = ("v1", "Namespace");
pub(crate) const DEFINITION: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
pub(crate) const ROLLUP: (&str, &str) = ("summary.tideline.dev/v1alpha1", "Rollup");

fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

pub(crate) fn api(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = resource(api_version, kind);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

pub(crate) async fn apply(client: &Client, object: Value) -> Result<()> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str);
    let (api_version, kind) = (text("/apiVersion").context("a version")?, text("/kind").context("a kind")?);
    let name = text("/metadata/name").context("a name")?.to_owned();
    let api = api(client, api_version, kind, text("/metadata/namespace"));
    api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
        .await
        .with_context(|| name.clone())?;
    Ok(())
}

pub(crate) fn deployment(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "0.5"}}}]},
            },
        },
    })
}

pub(crate) fn config(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "data": {"value": value},
    })
}

/// Things are namespaced, and have a status without a subresource for it.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.example"},
        "spec": {
            "group": "test.example", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

pub(crate) fn thing(name: &str) -> Value {
    json!({
        "apiVersion": "test.example/v1", "kind": "Thing",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "thing"}},
        "spec": {"size": 1},
    })
}

pub(crate) fn placement(name: &str, targets: &Value, app: &str, resources: &[(&str, &str)]) -> Value {
    let clauses: Vec<_> = resources
        .iter()
        .map(|(group, resource)| {
            json!({"apiGroup": group, "resources": [resource], "objectSelectors": [{"matchLabels": {"app": app}}]})
        })
        .collect();
    json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement",
        "metadata": {"name": name},
        "spec": {"targets": [targets], "objects": clauses},
    })
}

pub(crate) fn api_cluster(client: &Client, api_version: &str, kind: &str) -> Api<DynamicObject> {
    api(client, api_version, kind, None)
}

/// Waits until a namespaced object satisfies `check`.
pub(crate) async fn shows(
    client: &Client,
    kind: (&str, &str),
    name: &str,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> Result<()> {
    seen(&api(client, kind.0, kind.1, Some("shop")), name, what, check).await
}

/// Waits until an object without a namespace satisfies `check`.
pub(crate) async fn shows_cluster(
    client: &Client,
    kind: (&str, &str),
    name: &str,
    what: &str,
    check: impl Fn(&Value) -> bool,
) -> Result<()> {
    seen(&api_cluster(client, kind.0, kind.1), name, what, check).await
}

async fn seen(api: &Api<DynamicObject>, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<()> {
    eventually_ok(SOON, what, async || {
        let object = serde_json::to_value(api.get(name).await?)?;
        ensure!(check(&object), "{object}");
        anyhow::Ok(())
    })
    .await
}

pub(crate) async fn gone(client: &Client, kind: (&str, &str), name: &str) -> Result<()> {
    absent(&api(client, kind.0, kind.1, Some("shop")), kind, name).await
}

pub(crate) async fn gone_cluster(client: &Client, kind: (&str, &str), name: &str) -> Result<()> {
    absent(&api_cluster(client, kind.0, kind.1), kind, name).await
}

async fn absent(api: &Api<DynamicObject>, (_, kind): (&str, &str), name: &str) -> Result<()> {
    eventually_ok(SOON, &format!("{kind} {name} to be gone"), async || {
        ensure!(api.get_opt(name).await?.is_none(), "it is there");
        anyhow::Ok(())
    })
    .await
}
