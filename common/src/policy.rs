use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use crate::associated::AssociatedKind;
use crate::digest::{Digest, Hasher};

mod gate;
mod path;
mod prune;
mod report;

pub use gate::Gate;
pub use path::{FieldPath, FieldPathError, ObjectPath, PathElement};
pub use prune::PrunePolicy;
pub use report::{ReportClass, StatusPathError, StatusPaths};

/// Declares a closed enum of the wire, written in CamelCase, least destructive value first: the derived order is
/// the order in which [`ApplyPolicy::merge`] prefers, and a value that this build does not know is read as the first.
macro_rules! policy_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident),+ $(,)? } default $default:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// From the least to the most destructive.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),+ }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::$default
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<str>::deserialize(deserializer)?;
                Ok(Self::ALL.iter().copied().find(|value| value.as_str() == text).unwrap_or(Self::ALL[0]))
            }
        }
    };
}

policy_enum!(
    /// Whether an object follows its source after it was created.
    ApplyMode {
        /// Created once, then left alone.
        CreateOnly,
        Continuous,
    }
    default Continuous
);
policy_enum!(
    /// What happens to a field that another manager owns.
    ConflictPolicy {
        /// The field is left out and reported; the rest is applied.
        Report,
        Force,
    }
    default Force
);
policy_enum!(
    /// Whether an object that was there before is taken over.
    Takeover {
        Never,
        /// No mark, no server-side-apply manager, no ownership by Helm, Argo CD or Flux.
        IfUnmanaged,
        Always,
    }
    default IfUnmanaged
);
policy_enum!(
    /// Whether an object is deleted and created again where an immutable field changed.
    Recreate {
        Never,
        OnImmutable,
    }
    default Never
);
policy_enum!(
    /// What becomes of the local object when it is no longer assigned.
    Prune {
        Orphan,
        Delete,
    }
    default Delete
);
policy_enum!(
    /// What becomes of a local object that was adopted, not created.
    PruneAdopted {
        Orphan,
        /// As [`Prune`] says.
        AsCreated,
    }
    default Orphan
);
policy_enum!(
    /// Whether more deletions than pass within an hour wait for a person.
    ApproveDeletions {
        /// They do, until somebody approves them.
        Ask,
        /// They are approved by the author of the Placement, and are not counted.
        InAdvance,
    }
    default Ask
);
policy_enum!(
    /// What happens to a local change of a field we own.
    DriftPolicy {
        Report,
        Correct,
    }
    default Correct
);
policy_enum!(
    /// Who decides a single field.
    FieldMode {
        /// Never sent.
        Ignored,
        /// Sent when the object is created, then left to the target.
        Initial,
        Continuous,
    }
    default Continuous
);

impl ApproveDeletions {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_ask(&self) -> bool {
        *self == Self::Ask
    }
}

/// An exception for one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FieldPolicy {
    /// A [`FieldPath`] as it was written. Of two that name one field the less destructive mode holds.
    pub path: String,
    pub mode: FieldMode,
}

/// What an object gets at its target besides what its source has. Where that has something of one name, that stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Additions {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Additions {
    pub fn is_empty(&self) -> bool {
        let Self { labels, annotations } = self;
        labels.is_empty() && annotations.is_empty()
    }

    /// All that either adds; of two values for one name the first in order.
    fn merge(&self, other: &Self) -> Self {
        let both = |ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>| {
            let mut both = ours.clone();
            for (name, value) in theirs {
                both.entry(name.clone())
                    .and_modify(|known| {
                        if value < known {
                            known.clone_from(value);
                        }
                    })
                    .or_insert_with(|| value.clone());
            }
            both
        };
        Self { labels: both(&self.labels, &other.labels), annotations: both(&self.annotations, &other.annotations) }
    }

    /// Whether both have something of one name, with different values.
    fn disagrees_with(&self, other: &Self) -> bool {
        let differ = |ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>| {
            ours.iter().any(|(name, value)| theirs.get(name).is_some_and(|other| other != value))
        };
        differ(&self.labels, &other.labels) || differ(&self.annotations, &other.annotations)
    }

    fn hash(&self, hasher: &mut Hasher) {
        let Self { labels, annotations } = self;
        for (what, map) in [("label", labels), ("annotation", annotations)] {
            for (name, value) in map {
                hasher.field(what.as_bytes()).field(name.as_bytes()).field(value.as_bytes());
            }
        }
    }
}

/// How an assigned object is kept at its target. Merged from every Placement that assigns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplyPolicy {
    #[serde(skip_serializing_if = "Additions::is_empty")]
    pub additions: Additions,
    pub mode: ApplyMode,
    pub conflicts: ConflictPolicy,
    pub takeover: Takeover,
    pub recreate: Recreate,
    pub prune: Prune,
    pub prune_adopted: PruneAdopted,
    pub drift: DriftPolicy,
    #[serde(skip_serializing_if = "ApproveDeletions::is_ask")]
    pub approve_deletions: ApproveDeletions,
    /// At most one per path, ordered by path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldPolicy>,
    /// What it waits for before it is written anew. At most one for each Placement, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<Gate>,
    /// Which associated objects are to be counted at its target.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub associated: BTreeSet<AssociatedKind>,
    /// How much of its state is to come back.
    #[serde(skip_serializing_if = "ReportClass::is_status")]
    pub report: ReportClass,
}

impl ApplyPolicy {
    /// What holds where two Placements assign one object: per field, the least destructive value, and the most that is asked
    /// of it.
    ///
    /// Associative, commutative and idempotent, so that the order in which Placements are read does not matter.
    #[must_use]
    pub fn merge(&self, other: &Self) -> Self {
        let mut fields: BTreeMap<&str, FieldMode> = BTreeMap::new();
        for field in self.fields.iter().chain(&other.fields) {
            fields.entry(&field.path).and_modify(|mode| *mode = (*mode).min(field.mode)).or_insert(field.mode);
        }
        Self {
            additions: self.additions.merge(&other.additions),
            mode: self.mode.min(other.mode),
            conflicts: self.conflicts.min(other.conflicts),
            takeover: self.takeover.min(other.takeover),
            recreate: self.recreate.min(other.recreate),
            prune: self.prune.min(other.prune),
            prune_adopted: self.prune_adopted.min(other.prune_adopted),
            drift: self.drift.min(other.drift),
            approve_deletions: self.approve_deletions.min(other.approve_deletions),
            fields: fields.into_iter().map(|(path, mode)| FieldPolicy { path: path.to_owned(), mode }).collect(),
            gates: Gate::merge(&self.gates, &other.gates),
            associated: &self.associated | &other.associated,
            report: self.report.merge(&other.report),
        }
    }

    /// Whether merging takes away what one of the two says. What both may have at once is no disagreement.
    pub fn disagrees_with(&self, other: &Self) -> bool {
        let alone = |policy: &Self| Self {
            additions: Additions::default(),
            gates: Vec::new(),
            associated: BTreeSet::new(),
            ..policy.clone()
        };
        self.additions.disagrees_with(&other.additions) || alone(self) != alone(other)
    }

    /// What names this policy in entries and indexes.
    pub fn digest(&self) -> Digest {
        let Self {
            additions,
            mode,
            conflicts,
            takeover,
            recreate,
            prune,
            prune_adopted,
            drift,
            approve_deletions,
            fields,
            gates,
            associated,
            report,
        } = self;
        let mut hasher = Hasher::new("tideline/policy/v1");
        for text in [
            mode.as_str(),
            conflicts.as_str(),
            takeover.as_str(),
            recreate.as_str(),
            prune.as_str(),
            prune_adopted.as_str(),
            drift.as_str(),
        ] {
            hasher.field(text.as_bytes());
        }
        for FieldPolicy { path, mode } in fields {
            hasher.field(path.as_bytes()).field(mode.as_str().as_bytes());
        }
        additions.hash(&mut hasher);
        // What came later is hashed only where it says something, so that policies keep their names. No field has such a
        // mode, so that it is taken for none.
        match approve_deletions {
            ApproveDeletions::Ask => {}
            ApproveDeletions::InAdvance => {
                hasher.field(b"approveDeletions").field(approve_deletions.as_str().as_bytes());
            }
        }
        Gate::hash_all(gates, &mut hasher);
        for kind in associated {
            hasher.field(b"associated").field(kind.as_str().as_bytes());
        }
        report.hash_into(&mut hasher);
        hasher.finish()
    }

    /// Names this policy in marks and decides whether something is written anew: as [`ApplyPolicy::digest`], without the
    /// fields that only decide what is reported.
    pub fn written_digest(&self) -> Digest {
        if self.associated.is_empty() && self.report.is_status() {
            return self.digest();
        }
        Self { associated: BTreeSet::new(), report: ReportClass::Status, ..self.clone() }.digest()
    }
}

#[cfg(test)]
pub(crate) mod tests;
