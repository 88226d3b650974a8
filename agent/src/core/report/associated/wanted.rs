//! Which kinds must be followed for a placed object, by its kind and by what is asked for.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::{AssociatedKind, GroupKind};

use crate::core::interface::effect::Depth;

/// The kinds followed for one object, and how much of each must be known.
pub(super) type Wanted = BTreeMap<AssociatedKind, Depth>;

/// The kinds that controllers make for a kind. Custom resources may have any of them but slices, which only Services have.
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

/// Kinds between an object and its Pods.
pub(super) fn is_link(kind: AssociatedKind) -> bool {
    match kind {
        AssociatedKind::ReplicaSets | AssociatedKind::Jobs => true,
        AssociatedKind::Pods | AssociatedKind::EndpointSlices | AssociatedKind::Unknown => false,
    }
}

/// The kinds to follow for an object: those asked for that it may have, and those that lead to them.
pub(super) fn follows(kind: &GroupKind, asked: &BTreeSet<AssociatedKind>) -> Wanted {
    let makes = makes(kind);
    let mut follows = Wanted::new();
    if asked.contains(&AssociatedKind::Pods) {
        follows.extend(makes.iter().filter(|made| is_link(**made)).map(|link| (*link, Depth::Links)));
    }
    follows.extend(makes.iter().filter(|made| asked.contains(made)).map(|made| (*made, Depth::Whole)));
    follows
}
