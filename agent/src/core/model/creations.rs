//! Jobs whose creation was begun, and of which nobody has heard yet what came of it.
//!
//! ```text
//!          creation_begins                on disk               no answer, or a restart
//!   none ──────────────────▶ Recording ─────────────▶ Sent ────────────────────────────▶ Unanswered
//!    ▲                           │                     │                                     │
//!    └── not sent ───────────────┴── refused, made ────┘        seen, or known to be gone ───┘
//! ```
//!
//! A Job with `ttlSecondsAfterFinished` that an API server made without an answer may have run, ended and been collected before
//! anybody looks. So the journal has it that a creation is begun before the request is sent, of every Job: which of them have
//! a TTL only their bodies say. What is unanswered is looked for before it is created again, and if it is not there, it counts as
//! one that was started (see [`Created::Vanished`]). Where the journal is lost with an answer, nothing remembers this.
//!
//! [`Created::Vanished`]: crate::core::interface::op_result::Created::Vanished

use std::collections::BTreeMap;

use tideline_common::{Mark, ObjectKey, Tombstone, Uid};

use super::Model;
use crate::core::interface::effect::{Earlier, OpId};
use crate::core::interface::op_result::{Created, Failure, Fate};
use crate::core::interface::write::Write;

/// So many are remembered beside those of sources that are assigned, which are no more than Jobs in the set. Each takes some 200
/// bytes, so 400 KiB: as much as what ran.
const CREATIONS_MAX: usize = 2_000;

#[derive(Debug, Default)]
pub(in crate::core) struct Creations(BTreeMap<Tombstone, Stage>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The journal is to have it before this operation goes out.
    Recording(OpId),
    Sent,
    /// Some request of this run or an earlier one was.
    Unanswered,
}

impl Creations {
    /// What the journal has of an earlier run may have been sent.
    pub(in crate::core) fn new(loaded: Vec<Tombstone>) -> Self {
        Self(loaded.into_iter().map(|creation| (creation, Stage::Unanswered)).collect())
    }

    /// What came of earlier requests to create an object for this source.
    pub(in crate::core) fn earlier(&self, key: &ObjectKey, source: &Uid) -> Earlier {
        if self.0.is_empty() {
            return Earlier::Answered;
        }
        match self.0.get(&Tombstone { key: key.clone(), source: source.clone() }) {
            Some(Stage::Sent | Stage::Unanswered) => Earlier::Unanswered,
            Some(Stage::Recording(_)) | None => Earlier::Answered,
        }
    }

    /// The operations that wait for the journal.
    pub(in crate::core) fn unrecorded(&self) -> Vec<OpId> {
        let waits = |stage: &Stage| if let Stage::Recording(id) = stage { Some(*id) } else { None };
        self.0.values().filter_map(waits).collect()
    }
}

impl Model {
    /// A Job is about to be created by this operation, which waits until the journal has that.
    pub(in crate::core) fn creation_begins(&mut self, creation: Tombstone, id: OpId) {
        if self.creations.0.len() >= CREATIONS_MAX
            && let Some(spare) = self.creations.0.keys().find(|it| !self.assigns(&it.key, &it.source)).cloned()
        {
            self.forget_creation(&spare);
        }
        self.disk.write(Write::Creating(creation.clone()));
        self.creations.0.insert(creation, Stage::Recording(id));
    }

    /// The journal has it.
    pub(in crate::core) fn creation_is_recorded(&mut self, creation: &Tombstone) {
        if let Some(stage @ Stage::Recording(_)) = self.creations.0.get_mut(creation) {
            *stage = Stage::Sent;
        }
    }

    /// A request to create it ended so. Whether it is known by that what came of it: the creation is forgotten after what is
    /// known is written.
    #[must_use]
    pub(in crate::core) fn creation_ended(&mut self, creation: &Tombstone, result: &Result<Created, Failure>) -> bool {
        let Some(stage) = self.creations.0.get_mut(creation) else { return false };
        let earlier = *stage == Stage::Unanswered;
        let known = match result {
            Ok(Created::Made(_) | Created::Vanished { .. }) => true,
            // If an earlier request has made just this, its mark says so. Of what is another's nothing follows.
            Ok(Created::Exists(there)) => {
                let made = |mark: &Mark| mark.source.uid == creation.source;
                !earlier || there.mark.as_deref().is_some_and(made)
            }
            // What is refused now may have been made before.
            Err(Failure { fate: Fate::NotDone, .. }) => !earlier,
            Err(Failure { fate: Fate::Unknown, .. }) => false,
        };
        if !known {
            *stage = Stage::Unanswered;
        }
        known
    }

    /// What was to be created for this source stands there, or was deleted by this agent. What is still to be sent is not that.
    pub(in crate::core) fn creation_is_known(&mut self, key: &ObjectKey, source: &Uid) {
        if self.creations.earlier(key, source) == Earlier::Unanswered {
            self.forget_creation(&Tombstone { key: key.clone(), source: source.clone() });
        }
    }

    pub(in crate::core) fn forget_creation(&mut self, creation: &Tombstone) {
        if self.creations.0.remove(creation).is_some() {
            self.disk.write(Write::CreationKnown(creation.clone()));
        }
    }
}
