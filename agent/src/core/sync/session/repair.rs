//! What the next complete set must repair: something is missing that only the hub has, or its delta contradicted the accepted
//! set. Both are remembered until there is a set that was requested since.

use crate::core::sync::gather::{Absence, Gather, SyncError};

#[derive(Debug, Default)]
pub(super) struct Repair {
    snapshot: Snapshot,
    absence: Absence,
}

/// Whether everything is to be requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Snapshot {
    #[default]
    NotNeeded,
    Needed,
    /// It was requested since it is needed.
    Asked,
}

impl Repair {
    /// The accepted set, or what was to be kept with it, is incomplete.
    pub(super) fn distrust(&mut self) {
        self.snapshot = Snapshot::Needed;
    }

    pub(super) fn is_needed(&self) -> bool {
        self.snapshot != Snapshot::NotNeeded
    }

    pub(super) fn everything(&self) -> Gather {
        Gather::everything(self.absence)
    }

    /// Asks for everything after a failure. Where nothing may be concluded from absence, that holds whatever becomes of the
    /// next request.
    pub(super) fn anew(&mut self, gather: &Gather, error: SyncError) -> Gather {
        let anew = gather.anew(error);
        if anew.absence() == Absence::Unexplained {
            self.absence = Absence::Unexplained;
            self.distrust();
        }
        anew
    }

    /// This is requested now.
    pub(super) fn asks(&mut self, gather: &Gather) {
        if self.is_needed() && gather.begins_with_everything() {
            self.snapshot = Snapshot::Asked;
        }
    }

    /// A set is complete. What was found missing after it was requested is not in it.
    pub(super) fn has_whole_set(&mut self) {
        self.absence = Absence::default();
        if self.snapshot == Snapshot::Asked {
            self.snapshot = Snapshot::NotNeeded;
        }
    }
}
