//! One identity out of its two copies. Pure.

use std::collections::BTreeSet;

use tideline_common::wire::v1::Attested;
use tideline_common::{Formers, SessionName, TargetId};

use super::contents::Contents;

/// What the copies come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Merged {
    pub(super) contents: Contents,
    pub(super) data: Data,
}

/// Whether what else is in the data directory may be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// This identity was at work with no other since.
    Current,
    /// Another process with this identity was at work since, or it belongs to another identity: what it says was accepted
    /// and applied is not how things are.
    Outdated,
}

/// The copies are of two targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TwoTargets {
    pub(super) secret: TargetId,
    pub(super) file: TargetId,
}

/// Which copy of the identity is the session store: the one whose session is this agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStore {
    /// The data directory; the Secret only for a start without one. So each of two copies of a data directory in one cluster
    /// is a store of its own.
    Directory,
    /// The Secret as well: replicas share it, and a Lease decides which of them is active.
    Secret,
}

/// Joins what Secret and file say; None if neither says anything. The Secret is the truth; but an agent that is enrolled stays
/// so, how far an identity has come never sinks, and the session is that of the session store.
pub(super) fn merge(
    secret: Option<Contents>,
    file: Option<Contents>,
    store: SessionStore,
) -> Result<Option<Merged>, TwoTargets> {
    let (secret, file) = match (secret, file) {
        (None, None) => return Ok(None),
        (Some(contents), None) => return Ok(Some(Merged { contents, data: Data::Outdated })),
        (None, Some(contents)) => return Ok(Some(Merged { contents, data: Data::Current })),
        (Some(secret), Some(file)) => (secret, file),
    };
    if let (Some(of_secret), Some(of_file)) = (&secret.enrolled, &file.enrolled)
        && secret.generation != file.generation
    {
        // Of one lineage: one of the two was handed over, or got a new key, and the other does not know that yet.
        let alike = of_secret.target == of_file.target;
        let (secret_is, file_is) = (of_secret.target, of_file.target);
        if alike || secret.formers.contains(&file_is) || file.formers.contains(&secret_is) {
            // An epoch is of one target: after a handover, sets of before are no measure.
            let comparable = alike && secret.formers == file.formers;
            let floor = comparable.then(|| newest(secret.floor, file.floor));
            let of = |newer: Contents| Contents { floor: floor.unwrap_or(newer.floor), ..newer };
            let behind = comparable && file.floor.map(version) < secret.floor.map(version);
            return Ok(Some(if secret.generation > file.generation {
                // What it has become is true of this directory too; which session its agent had is not.
                let session = session_of(store, &secret, &file);
                Merged { contents: Contents { session, ..of(secret) }, data: Data::Outdated }
            } else {
                Merged { contents: of(file), data: if behind { Data::Outdated } else { Data::Current } }
            }));
        }
    }
    if let (Some(of_secret), Some(of_file)) = (&secret.enrolled, &file.enrolled)
        && of_secret.target != of_file.target
    {
        if are_branches(&secret, &file) {
            return Ok(Some(joined(secret, file, store)));
        }
        return Err(TwoTargets { secret: of_secret.target, file: of_file.target });
    }
    if secret.seed != file.seed {
        let made_first = secret.enrolled.is_none() && file.enrolled.is_some();
        let (contents, data) = if made_first { (file, Data::Current) } else { (secret, Data::Outdated) };
        return Ok(Some(Merged { contents, data }));
    }
    let behind = file.session < secret.session || file.floor.map(version) < secret.floor.map(version);
    let session = session_of(store, &secret, &file);
    let floor = newest(secret.floor, file.floor);
    // It is stored before anybody sees it.
    let next_seed = match store {
        SessionStore::Directory => file.next_seed.or(secret.next_seed),
        SessionStore::Secret => secret.next_seed.or(file.next_seed),
    };
    let cluster = secret.cluster.clone().or_else(|| file.cluster.clone());
    // Of another hub they lead elsewhere.
    let same_hub = secret.pin == file.pin;
    let addresses = same_hub.then(|| secret.addresses.clone().merge(file.addresses.clone()));
    let truth = if secret.enrolled.is_none() && file.enrolled.is_some() { file } else { secret };
    let data = if behind { Data::Outdated } else { Data::Current };
    let addresses = addresses.unwrap_or_else(|| truth.addresses.clone());
    Ok(Some(Merged { contents: Contents { addresses, next_seed, cluster, session, floor, ..truth }, data }))
}

/// Whether one agent was handed over from one target in two ways: one of its copies was unavailable when it went the other
/// way. The key is the same, for an agent that is handed over keeps it: where it is not, one of the two would be lost.
fn are_branches(secret: &Contents, file: &Contents) -> bool {
    let known = |contents: &Contents| contents.formers.iter().copied().chain(target(contents)).collect::<BTreeSet<_>>();
    let same_cluster = secret.cluster.is_none() || file.cluster.is_none() || secret.cluster == file.cluster;
    secret.pin == file.pin && secret.seed == file.seed && same_cluster && !known(secret).is_disjoint(&known(file))
}

/// The copies do not say with which of two branches the hub went on; but it answers to either, for a request names all former
/// targets. So the later session decides, and marks of both are its own. The data directory may be of either.
fn joined(secret: Contents, file: Contents, store: SessionStore) -> Merged {
    let session = session_of(store, &secret, &file);
    let generation = secret.generation.max(file.generation) + 1;
    let (taken, other) = if file.session.number > secret.session.number { (file, secret) } else { (secret, file) };
    let also = taken.formers.iter().filter(|former| !other.formers.contains(former));
    let mut formers: Formers = other.formers.iter().chain(also).copied().collect();
    formers = target(&other).map_or(formers, |target| formers.with(target));
    formers = target(&taken).map_or(formers, |target| formers.without(target));
    let formers = formers.iter().collect();
    // An epoch is of one target.
    let inherited = taken.inherited.or(other.floor).or(other.inherited);
    Merged { contents: Contents { generation, formers, inherited, session, ..taken }, data: Data::Outdated }
}

fn target(contents: &Contents) -> Option<TargetId> {
    contents.enrolled.as_ref().map(|enrolled| enrolled.target)
}

/// What the Secret is to hold where `there` is in it by now: of each field that only ever rises, the newer one. A data
/// directory that is behind, and which was used while the Secret could not be read, lowers nothing there.
pub(super) fn onto(there: &Contents, ours: Contents) -> Contents {
    if there.pin != ours.pin {
        return ours;
    }
    let comparable = target(there) == target(&ours) && there.formers == ours.formers;
    let floor = if comparable { newest(there.floor, ours.floor) } else { ours.floor };
    let cluster = ours.cluster.or_else(|| there.cluster.clone());
    // The hub may know it by now, and no other. Of a key that was replaced since it is no next one.
    let next_seed = ours.next_seed.or(there.next_seed.filter(|_| there.seed == ours.seed));
    // The newer one, and of two that are as new, our own.
    let addresses = ours.addresses.merge(there.addresses.clone());
    Contents { addresses, next_seed, cluster, floor, ..ours }
}

/// Each of two copies of a data directory in one cluster is a session store of its own.
fn session_of(store: SessionStore, secret: &Contents, file: &Contents) -> SessionName {
    match store {
        SessionStore::Directory if !file.session.is_none() => file.session,
        SessionStore::Directory | SessionStore::Secret => secret.session.max(file.session),
    }
}

pub(super) fn newest(a: Option<Attested>, b: Option<Attested>) -> Option<Attested> {
    [a, b].into_iter().flatten().max_by_key(|floor| floor.set.version)
}

fn version(floor: Attested) -> tideline_common::Version {
    floor.set.version
}
