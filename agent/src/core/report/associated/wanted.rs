//! What has to be followed for a placed object, by its kind and by what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::{AssociatedKind, GroupKind};

use crate::core::interface::effect::Depth;

/// What is followed for one object, and how much of it has to be known.
pub(super) type Wanted = BTreeMap<AssociatedKind, Depth>;

/// What controllers make of an object of a kind. Of kinds that are somebody's own anything may be made but slices, which
/// only Services have.
fn makes(kind: &GroupKind) -> &'static [AssociatedKind] {
    use AssociatedKind::{EndpointSlices, Jobs, Pods, ReplicaSets};
    match (&*kind.group, &*kind.kind) {
        ("apps", "Deployment") => &[ReplicaSets, Pods],
        ("apps", "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch", "Job") | ("", "ReplicationController") => {
            &[Pods]
        }
        ("batch", "CronJob") => &[Jobs, Pods],
        ("", "Service") => &[EndpointSlices],
        // Kubernetes' own groups have no dot, or are under its domain; those of definitions always have one.
        (group, _) if group.contains('.') && !group.ends_with(".k8s.io") => &[ReplicaSets, Jobs, Pods],
        _ => &[],
    }
}

/// What is between an object and its Pods.
pub(super) fn is_link(kind: AssociatedKind) -> bool {
    match kind {
        AssociatedKind::ReplicaSets | AssociatedKind::Jobs => true,
        AssociatedKind::Pods | AssociatedKind::EndpointSlices | AssociatedKind::Unknown => false,
    }
}

/// What to follow for an object: what is asked for and may come of it, and what leads there.
pub(super) fn follows(kind: &GroupKind, asked: &BTreeSet<AssociatedKind>) -> Wanted {
    let makes = makes(kind);
    let mut follows = Wanted::new();
    if asked.contains(&AssociatedKind::Pods) {
        follows.extend(makes.iter().filter(|made| is_link(**made)).map(|link| (*link, Depth::Links)));
    }
    follows.extend(makes.iter().filter(|made| asked.contains(made)).map(|made| (*made, Depth::Whole)));
    follows
}
