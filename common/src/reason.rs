use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the taxonomy with its text in both directions.
macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// Why something is as it is: one taxonomy for conditions, withheld entries, reports, logs and metric labels.
        ///
        /// Closed, so that it may label metrics; a reason that this build does not know is read as `Unknown`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $($(#[$doc])* $variant,)+
            /// A reason that this build does not know.
            #[serde(other)]
            Unknown,
        }

        impl Reason {
            pub const ALL: &[Self] = &[$(Self::$variant,)+ Self::Unknown];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                    Self::Unknown => "Unknown",
                }
            }
        }
    };
}

reasons!(
    // Of entries and removals.
    /// Another source holds this destination, or a foreign object has its key.
    Conflict,
    /// The source asks for nothing yet: it is being deleted, or its removal waits for the settle time.
    Settling,
    /// The kind may not be placed from this space, or never is.
    NotAllowed,
    /// The input cannot be read, so the last good result stays in force.
    SourceUnreadable,
    /// The object cannot be read as an object of its kind.
    Undecodable,
    /// Larger than a body may be.
    TooLarge,
    /// The agent does not understand what is to be done with it.
    AgentTooOld,

    // Of Placements and Locations.
    /// It selects no target.
    NoTargets,
    /// It selects no object.
    NoObjects,

    // Of applying.
    /// An object is there that the policy forbids to take over.
    Unmanaged,
    /// Another field manager owns a field.
    FieldConflict,
    /// It was changed locally, and the policy says to report that only.
    Drifted,
    /// The API server refuses the object.
    Invalid,
    /// The change touches a field that cannot be changed.
    Immutable,
    /// The agent has no permission for it.
    Forbidden,
    /// An admission webhook, a policy or a quota of the target refuses the object.
    Denied,
    /// The target does not serve this kind.
    KindMissing,
    /// The namespace is missing or being deleted.
    NamespaceUnavailable,
    /// An admission webhook did not answer.
    Webhook,
    /// The API server asked to slow down, or had no time for the request.
    Throttled,
    /// The API server cannot be reached or failed.
    Unavailable,
    /// The body has not arrived yet.
    BodyMissing,
    /// An earlier wave is not ready.
    WaitingForWave,
    /// It runs once and was assigned before history was lost, and nobody knows whether it has run: a person releases it.
    MayHaveRun,
    /// A Job that is deleted after it ended was created, or its creation had no answer, and it is gone: it may have run to its
    /// end unseen, so it is not created again.
    Vanished,
    /// The agent keeps some namespaces only, and it is in none of them.
    OtherNamespace,

    // Of removing.
    /// Finalizers of others hold it.
    Finalizing,
    /// Something foreign is inside a namespace, or of a CRD's kind.
    NotEmpty,
    /// More removals than pass without a person.
    FuseHeld,
    /// Its mark is not its own: somebody copied it.
    Copy,
    /// Nothing assigns it, and it came back after it was gone: from a backup, or with an API server that was set back.
    Restored,

    // Of targets and links.
    /// Not heard from within its deadline.
    Stale,
    /// The hub lost history that this target has seen.
    HistoryLost,
    /// Another agent with this identity holds the target.
    Fenced,
    /// Several agents live with one identity.
    DuplicateAgent,
    /// The identity is used where it does not belong.
    Quarantined,
    /// The SyncTarget is gone.
    TargetGone,
    /// Its agent says more than it may.
    TooMuchReported,
    /// The clock of its agent's machine is far from the hub's.
    ClockImplausible,
    /// Its status cannot be written into the source as it is.
    StatusPinned,
    /// Its status is larger than may be returned.
    StatusTooLarge,

    // Of health.
    Ready,
    Progressing,
    Failed,
    Suspended,
);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
