//! An independent watcher: which of the placed objects a cluster has.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

/// Returns when the watcher has seen so many objects that have this label.
///
/// # Errors
///
/// When it has not after `limit`.
pub(crate) async fn all(client: Client, label: &str, expected: usize, limit: Duration) -> Result<Instant> {
    let mut seen = BTreeSet::new();
    let watching = async {
        let config_maps = present::<ConfigMap>(client.clone(), label, "ConfigMap");
        let deployments = present::<Deployment>(client.clone(), label, "Deployment");
        let mut objects = pin!(stream::select(config_maps, deployments));
        while let Some(object) = objects.next().await {
            seen.insert(object);
            if seen.len() >= expected {
                return Some(Instant::now());
            }
        }
        None
    };
    let ended = timeout(limit, watching).await;
    let at = ended.with_context(|| format!("{} of {expected} objects after {limit:?}", seen.len()))?;
    at.context("the watch ended by itself")
}

/// Names the objects of one kind as they come, again when they change.
fn present<K>(
    client: Client,
    label: &str,
    kind: &'static str,
) -> impl Stream<Item = (&'static str, Option<String>, Option<String>)>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::<PartialObjectMeta<K>>::all(client), watcher::Config::default().labels(label));
    // Its failures the watcher mends by itself.
    events.filter_map(move |event| {
        ready(match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                Some((kind, object.metadata.namespace, object.metadata.name))
            }
            Ok(Event::Init | Event::InitDone | Event::Delete(_)) | Err(_) => None,
        })
    })
}
