//! The controllers of a cluster that has none: Deployment → ReplicaSet → Pods, which are ready after a moment.
//!
//! ```text
//! Deployments ─┐
//! ReplicaSets ─┼─ watch ─▶ stores ─▶ plan (pure) ─▶ steps ─▶ the API server
//! Pods ────────┘              ▲                                   │
//!                             └──────────── events ◀──────────────┘
//! ```
//!
//! It writes what the real controllers write, as far as clients read it: owner references, template hashes, revisions, copied
//! annotations, statuses with observedGeneration and conditions. It also does what the garbage collector and the kubelet
//! would: children of deleted owners are deleted, Pods that are asked to end do. Names of children follow from their owners,
//! so a step taken twice on an old view is refused, not doubled.
//!
//! Not simulated: paused Deployments, `minReadySeconds`, progress deadlines, the steps of a rolling update (the new
//! Pods all come before the old ones all go), later changes of copied annotations, and trimming of the revision history.

mod deployment;
mod orphan;
mod pod;
mod replica_set;
mod step;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::reflector::{self, Lookup, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::step::Step;

/// How long a new Pod takes to be ready: long enough to be seen on the way.
const POD_START: Duration = Duration::from_millis(400);
/// When to try again after the API server refused a step for a reason that may pass.
const RETRY: Duration = Duration::from_secs(1);
/// When to reconcile again though nothing happened, as the real controllers do.
const RESYNC: Duration = Duration::from_mins(5);
/// Requests at once: an embedded server on two cores is busy with four.
const CONCURRENCY: usize = 4;

/// Controllers at work on one cluster, until dropped.
#[derive(Debug)]
pub struct Simulator {
    _stop: DropGuard,
}

impl Simulator {
    /// Starts the controllers on all namespaces that `client` sees. Must be called within a Tokio runtime.
    pub fn start(client: Client) -> Self {
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(run(client)));
        Self { _stop: stop.drop_guard() }
    }
}

async fn run(client: Client) {
    let (changed, wake) = watch::channel(());
    let (deployments, follow_deployments) = follow(&client, changed.clone());
    let (replica_sets, follow_replica_sets) = follow(&client, changed.clone());
    let (pods, follow_pods) = follow(&client, changed);
    let controllers = Controllers { client, deployments, replica_sets, pods, first_seen: BTreeMap::new() };
    tokio::join!(follow_deployments, follow_replica_sets, follow_pods, controllers.run(wake));
}

/// Keeps a store of all objects of one kind, and says when it changed.
fn follow<K>(client: &Client, changed: watch::Sender<()>) -> (Store<K>, impl Future<Output = ()> + use<K>)
where
    K: Resource<DynamicType = ()> + Lookup<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff().reflect(writer);
    let followed = events.for_each(move |event| {
        match event {
            Ok(_) => changed.send_replace(()),
            Err(error) => tracing::debug!(%error, kind = %<K as Resource>::kind(&()), "watching failed; trying again"),
        }
        ready(())
    });
    (store, followed)
}

struct Controllers {
    client: Client,
    deployments: Store<Deployment>,
    replica_sets: Store<ReplicaSet>,
    pods: Store<Pod>,
    /// When each Pod that is not ready was first seen, by UID.
    first_seen: BTreeMap<String, Instant>,
}

impl Controllers {
    async fn run(mut self, mut wake: watch::Receiver<()>) {
        let ready = async {
            self.deployments.wait_until_ready().await?;
            self.replica_sets.wait_until_ready().await?;
            self.pods.wait_until_ready().await
        };
        if ready.await.is_err() {
            return;
        }
        loop {
            wake.borrow_and_update();
            let (steps, next_start) = self.plan(Instant::now(), &Time(Timestamp::now()));
            let refused = self.execute(steps).await;
            let resync = Instant::now() + if refused { RETRY } else { RESYNC };
            let next = next_start.map_or(resync, |start| start.min(resync));
            // A time that has come is as good a reason as a change; only the end of the watches is an end.
            if let Ok(Err(_closed)) = timeout_at(next, wake.changed()).await {
                return;
            }
        }
    }

    /// Returns what is to be done now, and when the next Pod will have started.
    fn plan(&mut self, now: Instant, written: &Time) -> (Vec<Step>, Option<Instant>) {
        let (deployments, replica_sets, pods) =
            (self.deployments.state(), self.replica_sets.state(), self.pods.state());
        let mut steps = orphan::plan(&deployments, &replica_sets, &pods);
        for deployment in &deployments {
            steps.extend(deployment::plan(deployment, &controlled(deployment.as_ref(), &replica_sets), written));
        }
        for replica_set in &replica_sets {
            steps.extend(replica_set::plan(replica_set, &controlled(replica_set.as_ref(), &pods)));
        }

        let mut starting = BTreeMap::new();
        for pod in &pods {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            let seen = *self.first_seen.get(&uid).unwrap_or(&now);
            match pod::plan(pod, now >= seen + POD_START, written) {
                pod::Next::Nothing => {}
                pod::Next::Later => {
                    starting.insert(uid, seen);
                }
                pod::Next::Now(step) => {
                    starting.insert(uid, seen);
                    steps.push(step);
                }
            }
        }
        let next_start = starting.values().map(|seen| *seen + POD_START).filter(|start| *start > now).min();
        self.first_seen = starting;
        (steps, next_start)
    }

    /// Takes all steps, and returns whether one was refused for a reason that may pass unseen.
    async fn execute(&self, steps: Vec<Step>) -> bool {
        let taken = stream::iter(steps).map(|step| step.take(&self.client)).buffer_unordered(CONCURRENCY);
        taken.fold(false, |refused, outcome| ready(refused || outcome.is_err())).await
    }
}

/// Returns the children whose controller is `owner`, by name.
fn controlled<K>(owner: &impl Resource<DynamicType = ()>, children: &[Arc<K>]) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()>,
{
    let uid = owner.meta().uid.as_deref();
    let mut controlled: Vec<_> =
        children.iter().filter(|child| uid.is_some() && controller(child.as_ref()) == uid).cloned().collect();
    controlled.sort_by_key(|child| child.name_any());
    controlled
}

/// Returns the UID of the controller of `object`.
fn controller(object: &impl Resource<DynamicType = ()>) -> Option<&str> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str()).next()
}

/// Names a child after its owner, always alike: `bytes` as characters that Kubernetes uses for such names, which spell no
/// words.
fn suffix(bytes: &[u8], length: usize) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    bytes.iter().take(length).map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])).collect()
}

#[cfg(test)]
mod tests;
