//! Which workloads an autoscaler scales.
//!
//! Asked when such a workload is about to be applied; no watch is kept for it. An answer must be from a list that began after
//! the question: an older one may miss the autoscaler that is the reason for applying. Callers that arrive during a list share
//! the next one, so there is at most one at a time per namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kube::Client;
use serde::Deserialize;
use tideline_common::{GroupKind, ObjectKey};

use super::discovery::confirm_missing;
use super::failure::{Failure, Refused};
use super::pages::Page;
use super::request::{Call, Want, call};

/// Autoscalers on one page: 8 KiB each, they are a quarter of the bytes read of an answer.
const PAGE: u32 = 500;

/// Workloads of one namespace, by kind and name; none if that may not be asked.
type Workloads = Option<Arc<BTreeSet<(GroupKind, String)>>>;

pub(super) struct Autoscaled {
    client: Client,
    /// Namespaces that are being asked about.
    namespaces: Mutex<BTreeMap<Arc<str>, Arc<Namespace>>>,
}

#[derive(Debug, Default)]
struct Namespace {
    /// Lists begun so far.
    begun: AtomicU64,
    /// The number and outcome of the last list.
    last: tokio::sync::Mutex<(u64, Workloads)>,
}

#[derive(Deserialize)]
struct Autoscaler {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    scale_target_ref: Reference,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    api_version: String,
    kind: String,
    name: String,
}

impl Autoscaled {
    pub(super) fn new(client: Client) -> Self {
        Self { client, namespaces: Mutex::default() }
    }

    /// Whether a HorizontalPodAutoscaler has this object as its target. None where autoscalers may not be listed.
    pub(super) async fn holds(&self, key: &ObjectKey) -> Result<Option<bool>, Failure> {
        let namespace = self.namespace(&key.namespace);
        let workloads = namespace.workloads(&self.client, &key.namespace).await;
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's and this one: nobody else asks.
        if Arc::strong_count(&namespace) == 2 {
            namespaces.remove(&key.namespace);
        }
        drop(namespaces);
        Ok(workloads?.map(|workloads| workloads.contains(&(key.kind.clone(), key.name.as_ref().to_owned()))))
    }

    fn namespace(&self, name: &Arc<str>) -> Arc<Namespace> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(namespaces.entry(Arc::clone(name)).or_default())
    }
}

impl Namespace {
    async fn workloads(&self, client: &Client, name: &str) -> Result<Workloads, Failure> {
        let asked = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.0 <= asked {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *last = (number, list(client, name).await?);
        }
        Ok(last.1.clone())
    }
}

/// In the oldest version, which every API server serves and which says all that is asked here.
async fn list(client: &Client, namespace: &str) -> Result<Workloads, Failure> {
    let first = format!("/apis/autoscaling/v1/namespaces/{namespace}/horizontalpodautoscalers?limit={PAGE}");
    let mut workloads = BTreeSet::new();
    let mut next = Some(first.clone());
    while let Some(uri) = next {
        let page: Page<Autoscaler> = match call(client, Call::get(uri, Want::Whole)).await {
            Ok(page) => page,
            Err(Refused::Status { code: 403, .. }) => return Ok(None),
            Err(Refused::Status { code: 404, .. }) => {
                confirm_missing(client, "autoscaling", Some("v1")).await?;
                break;
            }
            Err(refused) => return Err(refused.failure()),
        };
        let (autoscalers, following) = page.turn(&first);
        for Autoscaler { spec: Spec { scale_target_ref: Reference { api_version, kind, name } } } in autoscalers {
            workloads.insert((GroupKind::of(&api_version, kind), name));
        }
        next = following;
    }
    Ok(Some(Arc::new(workloads)))
}

#[cfg(test)]
mod tests;
