//! The application and where it goes: the files in `manifests/`, and how they are applied.

use anyhow::{Context, Result};
use kube::api::{DynamicObject, Patch, PatchParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// Where the application is.
pub(crate) const NAMESPACE: &str = "shop";

pub(crate) const LOCATIONS: &str = include_str!("manifests/locations.yaml");
pub(crate) const PLACEMENTS: &str = include_str!("manifests/placements.yaml");
/// What a person or a pipeline would `kubectl apply --server-side`, in this order.
pub(crate) const APPLICATION: &[(&str, &str)] = &[
    ("shop.yaml", include_str!("manifests/shop.yaml")),
    ("storefront.yaml", include_str!("manifests/storefront.yaml")),
    ("warehouse.yaml", include_str!("manifests/warehouse.yaml")),
];

const FIELD_MANAGER: &str = "quickstart";

/// One object of a manifest.
pub(crate) struct Manifest {
    pub(crate) object: DynamicObject,
    kind: GroupVersionKind,
}

impl Manifest {
    /// Reads all documents of a file.
    pub(crate) fn read(text: &str) -> Result<Vec<Self>> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
        documents.into_iter().map(Self::new).collect()
    }

    fn new(document: Value) -> Result<Self> {
        let object: DynamicObject = serde_json::from_value(document)?;
        let types: TypeMeta = object.types.clone().context("a manifest has no apiVersion and kind")?;
        Ok(Self { object, kind: GroupVersionKind::try_from(&types)? })
    }

    /// Returns `kind name`, for people.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.kind.kind, self.object.name_any())
    }

    /// Returns the name of the rollup that sums this object up: `<kind>.<group>.<name>`.
    pub(crate) fn rollup(&self) -> String {
        let kind = self.kind.kind.to_lowercase();
        match self.kind.group.as_str() {
            "" => format!("{kind}.{}", self.object.name_any()),
            group => format!("{kind}.{group}.{}", self.object.name_any()),
        }
    }

    /// Applies the object, server-side.
    pub(crate) async fn apply(&self, client: &Client) -> Result<()> {
        let patch = Patch::Apply(&self.object);
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let api = self.api(client).await?;
        api.patch(&self.object.name_any(), &parameters, &patch)
            .await
            .with_context(|| format!("applying {}", self.title()))?;
        Ok(())
    }

    async fn api(&self, client: &Client) -> Result<Api<DynamicObject>> {
        let (resource, capabilities) = discovery::pinned_kind(client, &self.kind)
            .await
            .with_context(|| format!("looking for the kind of {}", self.title()))?;
        Ok(match (capabilities.scope, self.object.namespace()) {
            (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), &namespace, &resource),
            (Scope::Namespaced, None) => Api::default_namespaced_with(client.clone(), &resource),
            (Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
        })
    }
}

/// Changes single fields of an object of the application, as `kubectl patch` does.
pub(crate) fn replicas(count: i32) -> Patch<Value> {
    Patch::Merge(json!({"spec": {"replicas": count}}))
}

/// Changes one entry of a ConfigMap.
pub(crate) fn entry(key: &str, value: &str) -> Patch<Value> {
    Patch::Merge(json!({"data": {key: value}}))
}
