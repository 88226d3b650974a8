//! What is placed: ConfigMaps of 1 KB and Deployments of 2.5 KB, and the Placement that sends them out.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use tideline_tests::eventually_ok;

use crate::apply::apply;
use crate::filling::{CONFIG_MAP_BYTES, FILLING, apply_all, padded};

/// The label of all that a bench places; nothing else in a cluster has it.
pub(crate) const LABEL: &str = "bench";
pub(crate) const SET: &str = "set";
pub(crate) const PLACEMENT: &str = "bench";
/// Longest time until a hub has assigned all objects of a bench.
const ASSIGNED_MAX: Duration = Duration::from_mins(5);

const DEPLOYMENT_BYTES: usize = 2_500;

/// How much of what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) namespaces: usize,
    pub(crate) config_maps: usize,
    pub(crate) deployments: usize,
}

impl Shape {
    pub(crate) fn objects(self) -> usize {
        self.config_maps + self.deployments
    }

    /// Returns the manifests of the namespaces, which must be there before the rest.
    pub(crate) fn namespaces(self) -> Vec<Value> {
        (0..self.namespaces)
            .map(|index| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(index)}}))
            .collect()
    }

    /// Returns all other manifests, spread over the namespaces, the two kinds in turn.
    pub(crate) fn manifests(self) -> Vec<Value> {
        let namespace_of = |index: usize| namespace(index % self.namespaces.max(1));
        let config_maps = (0..self.config_maps).map(|index| (index, config_map(&namespace_of(index), index)));
        let deployments = (0..self.deployments).map(|index| (index, deployment(&namespace_of(index), index)));
        let mut all: Vec<_> = config_maps.chain(deployments).collect();
        all.sort_by_key(|(index, _)| *index);
        all.into_iter().map(|(_, manifest)| manifest).collect()
    }
}

/// Fills a space.
pub(crate) async fn fill(space: &Client, shape: Shape) -> Result<()> {
    apply_all(space, &shape.namespaces(), FILLING).await?;
    apply_all(space, &shape.manifests(), FILLING).await
}

/// Places all objects of a bench on the targets with `labels`, and waits until the hub has assigned `expected` of them.
pub(crate) async fn place(space: &Client, labels: &BTreeMap<String, String>, expected: usize) -> Result<()> {
    let clause = |group: &str, resource: &str| {
        json!({
            "apiGroup": group,
            "resources": [resource],
            "objectSelectors": [{"matchLabels": {(LABEL): SET}}],
            // A bench that removes everything waits for no person.
            "apply": {"approveDeletions": "InAdvance"},
        })
    };
    let placement = json!({
        "apiVersion": "tideline.dev/v1alpha1",
        "kind": "Placement",
        "metadata": {"name": PLACEMENT},
        "spec": {
            "targets": [{"matchLabels": labels}],
            "objects": [clause("", "configmaps"), clause("apps", "deployments")],
        },
    });
    apply(space, &placement).await?;
    let placements = placements(space);
    eventually_ok(ASSIGNED_MAX, "the hub to assign all objects", async || {
        let placement = placements.get(PLACEMENT).await?;
        let assigned = placement.data.pointer("/status/objects").and_then(Value::as_u64).unwrap_or_default();
        // Namespaces come along where objects need them.
        ensure!(assigned >= u64::try_from(expected)?, "{assigned} of {expected} objects are assigned");
        Ok(())
    })
    .await
}

/// The Placements of a space.
pub(crate) fn placements(space: &Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("tideline.dev", "v1alpha1", "Placement"));
    Api::all_with(space.clone(), &resource)
}

fn namespace(index: usize) -> String {
    format!("bench-{index:02}")
}

fn config_map(namespace: &str, index: usize) -> Value {
    let data = json!({"text": "", "index": index.to_string()});
    let empty = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": format!("config-{index:05}"), "namespace": namespace, "labels": {(LABEL): SET}},
        "data": data,
    });
    padded(empty, "/data/text", CONFIG_MAP_BYTES)
}

fn deployment(namespace: &str, index: usize) -> Value {
    let name = format!("web-{index:05}");
    let container = json!({
        "name": "web",
        "image": "registry.example/web:1.0.0",
        "args": ["--listen=0.0.0.0:8080", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "TEXT", "value": ""},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/web", "readOnly": true}],
    });
    let empty = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {(LABEL): SET, "app": name}},
        "spec": {
            // No Pods: what is measured is the way of the objects, not the controllers.
            "replicas": 0,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "containers": [container],
                    "volumes": [{"name": "config", "configMap": {"name": format!("config-{index:05}")}}],
                },
            },
        },
    });
    padded(empty, "/spec/template/spec/containers/0/env/1/value", DEPLOYMENT_BYTES)
}
