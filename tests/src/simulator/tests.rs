//! The controllers against a cluster of three maps, which does with each step what an API server would.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::step::Step;
use super::{controlled, deployment, orphan, pod, replica_set};

/// Rounds until nothing is to be done. A rollout takes about ten; a loop that writes for ever takes all.
const ROUNDS_MAX: usize = 40;

#[derive(Default)]
struct Cluster {
    deployments: BTreeMap<String, Arc<Deployment>>,
    replica_sets: BTreeMap<String, Arc<ReplicaSet>>,
    pods: BTreeMap<String, Arc<Pod>>,
    uids: u64,
    rounds: i64,
}

impl Cluster {
    fn with(replicas: i32) -> Self {
        let mut cluster = Self::default();
        cluster.put(&json!({"replicas": replicas}), "one");
        cluster
    }

    /// Creates or changes the Deployment `web`.
    fn put(&mut self, spec: &serde_json::Value, image: &str) {
        let mut spec = spec.clone();
        spec["selector"] = json!({"matchLabels": {"app": "web"}});
        spec["template"] = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]},
        });
        let former = self.deployments.get("web");
        let mut deployment: Deployment = serde_json::from_value(json!({
            "metadata": {
                "name": "web", "namespace": "shop", "uid": "uid-of-web",
                "annotations": {"note": "copied", "kubectl.kubernetes.io/last-applied-configuration": "not"},
                "generation": former.map_or(0, |former| former.metadata.generation.unwrap_or(0)) + 1,
            },
            "spec": spec,
        }))
        .unwrap();
        deployment.status = former.and_then(|former| former.status.clone());
        if let Some(revision) = former.and_then(|former| former.annotations().get(deployment::REVISION)) {
            deployment.annotations_mut().insert(deployment::REVISION.to_owned(), revision.clone());
        }
        self.deployments.insert("web".to_owned(), Arc::new(deployment));
    }

    fn steps(&mut self, started: bool) -> Vec<Step> {
        self.rounds += 1;
        let now = Time(Timestamp::from_second(self.rounds).unwrap());
        let deployments: Vec<_> = self.deployments.values().cloned().collect();
        let replica_sets: Vec<_> = self.replica_sets.values().cloned().collect();
        let pods: Vec<_> = self.pods.values().cloned().collect();
        let mut steps = orphan::plan(&deployments, &replica_sets, &pods);
        for it in &deployments {
            steps.extend(deployment::plan(it, &controlled(it.as_ref(), &replica_sets), &now));
        }
        for it in &replica_sets {
            steps.extend(replica_set::plan(it, &controlled(it.as_ref(), &pods)));
        }
        for it in &pods {
            if let pod::Next::Now(step) = pod::plan(it, started, &now) {
                steps.push(step);
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::CreateReplicaSet(mut it) => {
                self.identify(&mut *it);
                self.replica_sets.entry(it.name_any()).or_insert(Arc::new(*it));
            }
            Step::CreatePod(mut it) => {
                self.identify(&mut *it);
                self.pods.entry(it.name_any()).or_insert(Arc::new(*it));
            }
            Step::Scale { replica_set, replicas, .. } => {
                let it = Arc::make_mut(self.replica_sets.get_mut(&replica_set).unwrap());
                it.spec.as_mut().unwrap().replicas = Some(replicas);
                *it.metadata.generation.as_mut().unwrap() += 1;
            }
            Step::SetRevision { deployment, revision, .. } => {
                let it = Arc::make_mut(self.deployments.get_mut(&deployment).unwrap());
                it.annotations_mut().insert(deployment::REVISION.to_owned(), revision.to_string());
            }
            Step::WriteDeploymentStatus(it) => {
                let held = self.deployments.get_mut(&it.name_any()).unwrap();
                Arc::make_mut(held).status = it.status;
            }
            Step::WriteReplicaSetStatus(it) => {
                if let Some(held) = self.replica_sets.get_mut(&it.name_any()) {
                    Arc::make_mut(held).status = it.status;
                }
            }
            Step::WritePodStatus(it) => {
                if let Some(held) = self.pods.get_mut(&it.name_any()) {
                    Arc::make_mut(held).status = it.status;
                }
            }
            Step::DeleteReplicaSet(it) => self.replica_sets.retain(|_, held| held.uid().as_ref() != Some(&it.uid)),
            Step::DeletePod(it) => self.pods.retain(|_, held| held.uid().as_ref() != Some(&it.uid)),
        }
    }

    fn identify(&mut self, object: &mut impl Resource) {
        self.uids += 1;
        object.meta_mut().uid = Some(format!("uid-{}", self.uids));
        object.meta_mut().generation = Some(1);
    }

    /// Takes steps until there are none.
    fn run_until_idle(&mut self) {
        self.run_until_idle_with(true);
    }

    fn run_until_idle_with(&mut self, started: bool) {
        for _ in 0..ROUNDS_MAX {
            let steps = self.steps(started);
            if steps.is_empty() {
                return;
            }
            for step in steps {
                self.take(step);
            }
        }
        panic!("still busy after {ROUNDS_MAX} rounds: {:?}", self.steps(started));
    }

    fn status(&self) -> &DeploymentStatus {
        self.deployments["web"].status.as_ref().unwrap()
    }

    /// The conditions as `type=status reason`.
    fn conditions(&self) -> Vec<String> {
        let conditions = self.status().conditions.iter().flatten();
        conditions.map(|it| format!("{}={} {}", it.type_, it.status, it.reason.as_deref().unwrap())).collect()
    }

    /// The replicas asked of each ReplicaSet, in the order of their revisions.
    fn rollout(&self) -> Vec<i32> {
        let mut sets: Vec<_> = self.replica_sets.values().collect();
        sets.sort_by_key(|it| it.annotations()[deployment::REVISION].parse::<i64>().unwrap());
        sets.iter().map(|it| it.spec.as_ref().unwrap().replicas.unwrap()).collect()
    }
}

#[test]
fn a_new_deployment_becomes_ready() {
    let mut cluster = Cluster::with(3);
    cluster.run_until_idle_with(false);
    assert_eq!(cluster.pods.len(), 3);
    assert_eq!(cluster.status().replicas, Some(3));
    assert_eq!(cluster.status().ready_replicas, None);
    assert_eq!(cluster.status().unavailable_replicas, Some(3));
    assert_eq!(
        cluster.conditions(),
        ["Available=False MinimumReplicasUnavailable", "Progressing=True ReplicaSetUpdated"]
    );

    cluster.run_until_idle();
    let status = cluster.status();
    assert_eq!((status.replicas, status.updated_replicas), (Some(3), Some(3)));
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(3), Some(3)));
    assert_eq!((status.unavailable_replicas, status.observed_generation), (None, Some(1)));
    assert_eq!(
        cluster.conditions(),
        ["Available=True MinimumReplicasAvailable", "Progressing=True NewReplicaSetAvailable"]
    );
}

#[test]
fn children_name_their_owner_and_template() {
    let mut cluster = Cluster::with(1);
    cluster.run_until_idle();
    let set = cluster.replica_sets.values().next().unwrap();
    let pod = cluster.pods.values().next().unwrap();
    let owner = &set.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Deployment", "uid-of-web", Some(true)));
    assert_eq!(pod.owner_references()[0].uid, set.uid().unwrap());
    assert!(pod.name_any().starts_with(&set.name_any()));
    let hash = &pod.labels()["pod-template-hash"];
    assert_eq!(set.name_any(), format!("web-{hash}"));
    assert_eq!(pod.labels()["app"], "web");
    assert_eq!(set.spec.as_ref().unwrap().selector.match_labels.as_ref().unwrap()["pod-template-hash"], *hash);
    // As in a real cluster, a mark on a Deployment is copied too: that is how copies come about.
    let annotations: Vec<_> = set.annotations().keys().map(String::as_str).collect();
    assert_eq!(annotations, [deployment::REVISION, "note"]);
}

#[test]
fn scaling_changes_only_the_number_of_pods() {
    let mut cluster = Cluster::with(1);
    cluster.run_until_idle();
    let first = cluster.pods.keys().next().unwrap().clone();

    cluster.put(&json!({"replicas": 4}), "one");
    cluster.run_until_idle();
    assert_eq!((cluster.pods.len(), cluster.rollout()), (4, vec![4]));
    assert_eq!(cluster.status().available_replicas, Some(4));
    assert_eq!(cluster.status().observed_generation, Some(2));

    cluster.put(&json!({"replicas": 0}), "one");
    cluster.run_until_idle();
    assert!(cluster.pods.is_empty());
    assert_eq!(cluster.status().replicas, None);
    assert_eq!(cluster.conditions()[0], "Available=True MinimumReplicasAvailable");

    cluster.put(&json!({"replicas": 1}), "one");
    cluster.run_until_idle();
    assert_eq!(*cluster.pods.keys().next().unwrap(), first, "the name follows from the owner");
}

#[test]
fn a_new_template_takes_over_before_the_old_one_goes() {
    let mut cluster = Cluster::with(2);
    cluster.run_until_idle();
    cluster.put(&json!({"replicas": 2}), "two");
    cluster.run_until_idle_with(false);
    assert_eq!((cluster.rollout(), cluster.pods.len()), (vec![2, 2], 4));
    assert_eq!((cluster.status().replicas, cluster.status().updated_replicas), (Some(4), Some(2)));
    assert_eq!(cluster.status().available_replicas, Some(2));
    assert_eq!(cluster.conditions()[1], "Progressing=True ReplicaSetUpdated");

    cluster.run_until_idle();
    assert_eq!((cluster.rollout(), cluster.pods.len()), (vec![0, 2], 2));
    assert_eq!(cluster.status().updated_replicas, Some(2));
    assert_eq!(cluster.deployments["web"].annotations()[deployment::REVISION], "2");
    assert_eq!(cluster.conditions()[1], "Progressing=True NewReplicaSetAvailable");

    cluster.put(&json!({"replicas": 2}), "one");
    cluster.run_until_idle();
    assert_eq!(cluster.rollout(), [2, 0], "the old template's ReplicaSet is used again");
}

#[test]
fn recreate_ends_the_old_pods_first() {
    let recreate = json!({"replicas": 2, "strategy": {"type": "Recreate"}});
    let mut cluster = Cluster::default();
    cluster.put(&recreate, "one");
    cluster.run_until_idle();
    cluster.put(&recreate, "two");
    while cluster.rollout() != [0, 2] {
        assert!(cluster.rounds < 40);
        for step in cluster.steps(false) {
            cluster.take(step);
        }
        let images = cluster.pods.values().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap());
        let images: std::collections::BTreeSet<_> = images.collect();
        assert!(images.len() <= 1, "Pods of both templates at once");
    }
    cluster.run_until_idle();
    assert_eq!(cluster.status().available_replicas, Some(2));
}

#[test]
fn a_lost_pod_is_replaced_and_an_ending_one_ends() {
    let mut cluster = Cluster::with(2);
    cluster.run_until_idle();
    let (name, mut ending) = cluster.pods.pop_first().unwrap();
    cluster.run_until_idle();
    assert_eq!(cluster.pods.len(), 2);

    cluster.pods.pop_first().unwrap();
    Arc::make_mut(&mut ending).metadata.deletion_timestamp = Some(Time(Timestamp::from_second(1).unwrap()));
    cluster.pods.insert(name, ending);
    cluster.run_until_idle();
    assert_eq!(cluster.pods.len(), 2);
    assert!(cluster.pods.values().all(|pod| pod.metadata.deletion_timestamp.is_none()));
}

#[test]
fn children_go_with_their_owner_and_others_stay() {
    let mut cluster = Cluster::with(2);
    cluster.run_until_idle();
    let foreign: Pod = serde_json::from_value(json!({
        "metadata": {"name": "bare", "namespace": "shop", "uid": "uid-bare", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job", "controller": true},
        ]},
        "status": {"phase": "Succeeded"},
    }))
    .unwrap();
    cluster.pods.insert("bare".to_owned(), Arc::new(foreign));
    cluster.deployments.clear();
    cluster.run_until_idle();
    assert!(cluster.replica_sets.is_empty());
    assert_eq!(cluster.pods.keys().collect::<Vec<_>>(), ["bare"]);
}

#[test]
fn times_move_only_with_what_they_are_of() {
    let mut cluster = Cluster::with(1);
    cluster.run_until_idle();
    let transition = |cluster: &Cluster| cluster.status().conditions.as_ref().unwrap()[1].last_transition_time.clone();
    let before = transition(&cluster);
    cluster.put(&json!({"replicas": 1}), "two");
    cluster.run_until_idle();
    assert_eq!(transition(&cluster), before, "Progressing was true all the time");
    assert!(cluster.status().conditions.as_ref().unwrap()[1].last_update_time > before);
}
