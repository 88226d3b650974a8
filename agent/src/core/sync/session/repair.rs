//! What the next whole set has to mend: something is missing that only the hub has, or its changes contradicted the accepted
//! set. Both are known until there is a set that was asked for since.

use crate::core::sync::gather::{Absence, Gather, SyncError};

#[derive(Debug, Default)]
pub(super) struct Repair {
    snapshot: Snapshot,
    absence: Absence,
}

/// Whether everything is to be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Snapshot {
    #[default]
    NotNeeded,
    Needed,
    /// It was asked for since it is needed.
    Asked,
}

impl Repair {
    /// The accepted set, or what was to be kept with it, is not whole.
    pub(super) fn distrust(&mut self) {
        self.snapshot = Snapshot::Needed;
    }

    pub(super) fn is_needed(&self) -> bool {
        self.snapshot != Snapshot::NotNeeded
    }

    pub(super) fn everything(&self) -> Gather {
        Gather::everything(self.absence)
    }

    /// Asks for everything after this came to nothing. Where nothing may be concluded from what the hub does not have, that
    /// outlasts whatever becomes of the next question.
    pub(super) fn anew(&mut self, gather: &Gather, error: SyncError) -> Gather {
        let anew = gather.anew(error);
        if anew.absence() == Absence::Unexplained {
            self.absence = Absence::Unexplained;
            self.distrust();
        }
        anew
    }

    /// This is asked now.
    pub(super) fn asks(&mut self, gather: &Gather) {
        if self.is_needed() && gather.begins_with_everything() {
            self.snapshot = Snapshot::Asked;
        }
    }

    /// A set is whole. What was found missing after it was asked for is not in it.
    pub(super) fn has_whole_set(&mut self) {
        self.absence = Absence::default();
        if self.snapshot == Snapshot::Asked {
            self.snapshot = Snapshot::NotNeeded;
        }
    }
}
