//! What an agent understands, by name, and what an older one is therefore not sent.
//!
//! Everything on the link that an agent could ignore, and then do half of what was meant, has a name. An agent says which it
//! knows whenever it opens a session; the hub withholds the rest from it. An entry that needs what its agent does not know is
//! sent as [`Withheld`](EntryState::Withheld) for [`AgentTooOld`](Reason::AgentTooOld), without any content, so that its
//! object stays, and nothing follows from its absence.
//!
//! What decides over removals has no name: tombstones, prune policies, approvals in advance and implied namespaces are
//! understood by every agent of version 1. A removal cannot be withheld, for absence from a set says it too.
//!
//! A [`Reason`] for which an entry is held or withheld is part of the set's digest, and an agent that does not know its name
//! comes to another digest. So one that entries are given after the first release needs a capability, too; `AgentTooOld` is of
//! version 1.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::desired::{Entry, EntryState};
use crate::policy::{ApplyMode, ApplyPolicy, ConflictPolicy, DriftPolicy, Recreate, Takeover};
use crate::reason::Reason;

/// Declares what may be withheld, each with its name on the wire and the first version of the agent that knows it.
macro_rules! capabilities {
    ($($(#[$doc:meta])* $variant:ident = $name:literal since $since:literal),+ $(,)?) => {
        /// A feature that an agent must know before it is sent any of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Capability {
            $($(#[$doc])* $variant,)+
        }

        impl Capability {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The first version of the agent that understands it.
            pub const fn since(self) -> &'static str {
                match self { $(Self::$variant => $since),+ }
            }
        }
    };
}

capabilities!(
    /// Jobs and create-only objects: what is known to have happened once is not done again.
    RunOnce = "run-once" since "0.1.0",
    /// Labels and annotations that an object gets besides its source's.
    Additions = "additions" since "0.1.0",
    /// Fields that others own are reported, not forced.
    ConflictReports = "conflict-reports" since "0.1.0",
    /// When an object is taken over that was there before, other than by default.
    Takeover = "takeover" since "0.1.0",
    /// Objects are made again where an immutable field changed.
    Recreate = "recreate" since "0.1.0",
    /// Local changes are reported, not corrected.
    DriftReports = "drift-reports" since "0.1.0",
    FieldPolicies = "field-policies" since "0.1.0",
    /// An object waits for others before it is written anew.
    Gates = "gates" since "0.1.0",
    /// Associated objects are counted.
    AssociatedCounts = "associated-counts" since "0.1.0",
    /// An object is applied as a ServiceAccount of the target.
    Impersonation = "impersonation" since "0.1.0",
    /// A cluster goes out of service; an empty set alone would have everything deleted.
    Decommission = "decommission" since "0.1.0",
    /// Removals that a person approved.
    Approvals = "approvals" since "0.1.0",
    /// What a person released stays, without its mark.
    Releases = "releases" since "0.1.0",
    /// An agent is handed to a SyncTarget that was made again.
    Handover = "handover" since "0.1.0",
);

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names that are kept of what an agent says it understands, and bytes of each. There are 13 today.
pub const CAPABILITIES_MAX: usize = 128;
pub const CAPABILITY_BYTES_MAX: usize = 64;
const _: () = assert!(Capability::ALL.len() * 4 <= CAPABILITIES_MAX);

/// The names of what somebody understands. Names that this build does not know are kept, not interpreted: a later version of
/// it may know them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Capabilities(BTreeSet<Arc<str>>);

impl Capabilities {
    /// All that this build understands.
    pub fn all() -> Self {
        Capability::ALL.iter().copied().collect()
    }

    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(capability.as_str())
    }

    /// Names that this build does not know.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        let known = |name: &str| Capability::ALL.iter().any(|known| known.as_str() == name);
        self.0.iter().map(|name| &**name).filter(move |name| !known(name))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn without(mut self, capability: Capability) -> Self {
        self.0.remove(capability.as_str());
        self
    }

    /// What this build knows and they do not understand.
    pub fn missing(&self) -> BTreeSet<Capability> {
        Capability::ALL.iter().copied().filter(|capability| !self.has(*capability)).collect()
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Self(capabilities.into_iter().map(|capability| Arc::from(capability.as_str())).collect())
    }
}

impl<'de> Deserialize<'de> for Capabilities {
    /// Names that are too long, or one too many, are left out: they mean nothing.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut names = BTreeSet::<Arc<str>>::deserialize(deserializer)?;
        names.retain(|name| name.len() <= CAPABILITY_BYTES_MAX);
        let (known, unknown): (BTreeSet<_>, BTreeSet<_>) =
            names.into_iter().partition(|name| Capability::ALL.iter().any(|known| known.as_str() == &**name));
        let room = CAPABILITIES_MAX - known.len();
        Ok(Self(known.into_iter().chain(unknown.into_iter().take(room)).collect()))
    }
}

/// An entry that needs what its agent does not understand, as that agent gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldEntry {
    pub entry: Entry,
    pub policy: ApplyPolicy,
}

/// What an agent must understand to be sent an entry. Exhaustive: a new field does not compile until it is decided who ignores
/// it.
pub fn needs(entry: &Entry, policy: &ApplyPolicy) -> BTreeSet<Capability> {
    let Entry {
        key,
        state,
        impersonate,
        // Of version 1.
        version: _,
        source: _,
        generation: _,
        input: _,
        policy: _,
        wave: _,
        implied,
    } = entry;
    if *implied {
        // How it is kept is told too, and was the same from the first version on.
        return BTreeSet::new();
    }
    let ApplyPolicy {
        additions,
        mode,
        conflicts,
        takeover,
        recreate,
        drift,
        fields,
        gates,
        associated,
        // They decide over removals.
        prune: _,
        prune_adopted: _,
        approve_deletions: _,
        // An agent that does not know of it reports everything, which the hub accepts as well.
        report: _,
    } = policy;
    let job = &*key.kind.group == "batch" && &*key.kind.kind == "Job";
    let runs = match state {
        EntryState::Apply | EntryState::Hold(_) => true,
        EntryState::Withheld(_) => false,
    };
    let needed = [
        (Capability::RunOnce, (job && runs) || *mode != ApplyMode::Continuous),
        (Capability::Additions, !additions.is_empty()),
        (Capability::ConflictReports, *conflicts != ConflictPolicy::Force),
        (Capability::Takeover, *takeover != Takeover::IfUnmanaged),
        (Capability::Recreate, *recreate != Recreate::Never),
        (Capability::DriftReports, *drift != DriftPolicy::Correct),
        (Capability::FieldPolicies, !fields.is_empty()),
        (Capability::Gates, !gates.is_empty()),
        (Capability::AssociatedCounts, !associated.is_empty()),
        (Capability::Impersonation, impersonate.is_some()),
    ];
    needed.into_iter().filter(|(_, needed)| *needed).map(|(capability, _)| capability).collect()
}

/// The entry as it is sent to an agent from which it is withheld, the same whatever that agent lacks: it names the key, its
/// source, what becomes of it when it is removed, and how much is reported of it.
pub fn withheld(entry: &Entry, policy: &ApplyPolicy) -> WithheldEntry {
    let ApplyPolicy { prune, prune_adopted, approve_deletions, .. } = *policy;
    let report = policy.report.clone();
    let policy = ApplyPolicy { prune, prune_adopted, approve_deletions, report, ..ApplyPolicy::default() };
    let state = EntryState::Withheld(Reason::AgentTooOld);
    let entry = Entry { state, policy: policy.digest(), impersonate: None, ..entry.clone() };
    WithheldEntry { entry, policy }
}

/// What to do, for people: which version of the agent understands all of these.
pub fn upgrade<'a>(missing: impl IntoIterator<Item = &'a Capability>) -> String {
    let missing: Vec<_> = missing.into_iter().copied().collect();
    let names: Vec<_> = missing.iter().map(|capability| capability.as_str()).collect();
    let least = missing.iter().map(|capability| capability.since()).max_by_key(|version| numbers(version));
    let least = least.map_or_else(|| "a newer version".to_owned(), |version| format!("at least {version}"));
    format!("its agent is too old for {}: upgrade the agent to {least}", names.join(", "))
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|number| number.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests;
