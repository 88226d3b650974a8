//! What controllers make of Deployments, and how the agent learns of it: one ReplicaSet each, and Pods, which come and go with
//! its status. Others' objects are there too.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_agent::core::{Associate, AssociatedNews, Condition, Follow, Owner};
use tideline_agent::simulated_cluster::{Cluster, is_deployment};
use tideline_common::associated::Phase;
use tideline_common::{AssociatedKind, GroupKind, Reason, Uid};

use super::{Happening, World};
use crate::faults::{ABSENCE, WATCH};
use crate::ids::parse;

/// Objects on one page of a list.
const PAGE: usize = 2;

/// One watch.
pub(super) struct Following {
    follow: Follow,
    /// What it showed.
    told: BTreeMap<Uid, Associate>,
    /// When it showed its last event; none is shown before that.
    last: u64,
    lost: bool,
}

fn owner(group: &str, kind: &str, name: String, uid: &str) -> Owner {
    Owner { kind: GroupKind::new(group, kind), name, uid: Some(parse(uid)) }
}

fn replica_set(namespace: &str, of: &str, uid: &str) -> Associate {
    Associate {
        uid: parse(&format!("set-{uid}")),
        namespace: namespace.to_owned(),
        name: format!("{of}-set"),
        owner: Some(owner("apps", "Deployment", of.to_owned(), uid)),
        condition: Condition::default(),
    }
}

fn pod(namespace: &str, of: &str, uid: &str, nth: u64, restarts: u64) -> Associate {
    let restarts = u32::try_from(restarts).expect("they are few");
    Associate {
        uid: parse(&format!("pod-{uid}-{nth}")),
        namespace: namespace.to_owned(),
        name: format!("{of}-set-{nth}"),
        owner: Some(owner("apps", "ReplicaSet", format!("{of}-set"), &format!("set-{uid}"))),
        condition: Condition { phase: Phase::Running, restarts, ..Condition::default() },
    }
}

fn made(cluster: &Cluster, kind: AssociatedKind) -> BTreeMap<Uid, Associate> {
    let deployments = cluster.objects.iter().filter(|(key, _)| is_deployment(&key.kind));
    let mut all = Vec::new();
    for (key, local) in deployments {
        match kind {
            AssociatedKind::ReplicaSets => all.push(replica_set(&key.namespace, &key.name, &local.uid.text())),
            AssociatedKind::Pods => {
                let pod = |nth| pod(&key.namespace, &key.name, &local.uid.text(), nth, local.status);
                all.extend((0..local.pods()).map(pod));
            }
            AssociatedKind::Jobs | AssociatedKind::EndpointSlices | AssociatedKind::Unknown => {}
        }
    }
    match kind {
        AssociatedKind::ReplicaSets => all.push(replica_set("shop", "theirs", "theirs")),
        AssociatedKind::Pods => all.push(pod("shop", "theirs", "theirs", 0, 9)),
        AssociatedKind::Jobs | AssociatedKind::EndpointSlices | AssociatedKind::Unknown => {}
    }
    all.into_iter().map(|associate| (associate.uid.clone(), associate)).collect()
}

impl World {
    pub(super) fn follow(&mut self, wanted: BTreeMap<AssociatedKind, Follow>) {
        self.agent.following.retain(|kind, known| wanted.get(kind) == Some(&known.follow));
        for (kind, follow) in wanted {
            if !self.agent.following.contains_key(&kind) {
                let following = Following { follow, told: BTreeMap::new(), last: self.now, lost: false };
                self.agent.following.insert(kind, following);
                self.list_followed(kind);
            }
        }
    }

    fn visible(&self, kind: AssociatedKind) -> BTreeMap<Uid, Associate> {
        let namespace: Option<Arc<str>> =
            self.agent.following.get(&kind).and_then(|following| following.follow.namespace.clone());
        let mut made = made(&self.cluster, kind);
        made.retain(|_, associate| namespace.as_ref().is_none_or(|namespace| **namespace == associate.namespace));
        made
    }

    fn list_followed(&mut self, kind: AssociatedKind) {
        let present = self.visible(kind);
        self.tell_followed(kind, AssociatedNews::Listing);
        for page in present.values().cloned().collect::<Vec<_>>().chunks(PAGE) {
            self.tell_followed(kind, AssociatedNews::Seen(page.to_vec()));
        }
        self.tell_followed(kind, AssociatedNews::Listed);
        if let Some(following) = self.agent.following.get_mut(&kind) {
            following.told = present;
        }
    }

    pub(super) fn refollow(&mut self, kind: AssociatedKind, follow: u32) {
        if let Some(following) = self.agent.following.get_mut(&kind)
            && following.follow.run == follow
        {
            following.lost = false;
            self.list_followed(kind);
        }
    }

    /// One of the watches breaks for a while; what happens meanwhile is in the next list only.
    pub(super) fn lose_follow(&mut self) {
        let kinds: Vec<_> = self.agent.following.keys().copied().collect();
        if kinds.is_empty() {
            return;
        }
        let kind = *self.random.pick(&kinds);
        self.tell_followed(kind, AssociatedNews::Lost { reason: Reason::Unavailable, message: "cut".to_owned() });
        let after = self.random.within(ABSENCE);
        let Some(following) = self.agent.following.get_mut(&kind) else { return };
        following.lost = true;
        let (run, follow) = (self.agent.run, following.follow.run);
        let wait = following.last.saturating_sub(self.now);
        self.schedule(wait + after, Happening::Refollow { run, kind, follow });
    }

    /// Shows what came, changed and went since the last event.
    pub(super) fn associates_changed(&mut self) {
        let kinds: Vec<_> =
            self.agent.following.iter().filter(|(_, known)| !known.lost).map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let present = self.visible(kind);
            let Some(following) = self.agent.following.get_mut(&kind) else { continue };
            let told = std::mem::replace(&mut following.told, present.clone());
            for (uid, associate) in &present {
                if told.get(uid) != Some(associate) {
                    self.tell_followed(kind, AssociatedNews::Seen(vec![associate.clone()]));
                }
            }
            for uid in told.keys().filter(|uid| !present.contains_key(*uid)) {
                self.tell_followed(kind, AssociatedNews::Gone(uid.clone()));
            }
        }
    }

    fn tell_followed(&mut self, kind: AssociatedKind, news: AssociatedNews) {
        let delay = self.random.within(WATCH);
        let now = self.now;
        let Some(following) = self.agent.following.get_mut(&kind) else { return };
        following.last = following.last.max(now + delay);
        let (follow, after) = (following.follow.run, following.last - now);
        let run = self.agent.run;
        self.schedule(after, Happening::Followed { run, kind, follow, news });
    }
}
