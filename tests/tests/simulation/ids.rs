use std::str::FromStr;

use tideline_common::{Formers, GroupKind, ObjectKey, Owner, TargetId};

pub(crate) const HUB: &str = "11111111-1111-4111-8111-111111111111";
pub(crate) const OTHER_HUB: &str = "99999999-9999-4999-8999-999999999999";
pub(crate) const TARGET: &str = "22222222-2222-4222-8222-222222222222";
/// Another target of the same hub. Its agent is not simulated.
pub(crate) const OTHER_TARGET: &str = "33333333-3333-4333-8333-333333333333";
/// The SyncTarget that is created again after the first was deleted.
pub(crate) const HEIR: &str = "44444444-4444-4444-8444-444444444444";
/// The one that is created when the hub was set back to before that.
pub(crate) const SECOND_HEIR: &str = "55555555-5555-4555-8555-555555555555";
/// The identity of the cluster.
pub(crate) const CLUSTER: &str = "kube-system-uid";

/// Parses a valid constant.
pub(crate) fn parse<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("it is written here")
}

/// An object of a namespace, or of none.
pub(crate) fn key(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new(group, kind), namespace, name)
}

/// Whose marks an agent of that target takes for its own, which was another before.
pub(crate) fn owner(target: TargetId, formers: Formers) -> Owner {
    Owner { hub: parse(HUB), target, formers }
}
