//! Decisions about each object, as pure functions of the model, and [`Guards`], which have some of them wait.
//!
//! [`plan`] decides for what is assigned, [`remove`] for what is not, as the one gate for deletions. [`gate`] has a wave wait for
//! the one before it, [`fuse`] holds what is too much at once until [`approve`] says that a person wants it, and [`ran`] knows what
//! is not to run again. [`removal_policy`] says under which policy a removal is, and [`set_back`] when the journal is not to be
//! believed.

pub(super) mod approve;
pub(super) mod fuse;
pub(super) mod gate;
pub(super) mod plan;
pub(super) mod ran;
pub(super) mod removal_policy;
pub(super) mod remove;
pub(super) mod set_back;

use approve::Approvals;
use fuse::Fuse;
use gate::Gates;
use ran::Ran;

/// What may keep a decision from being carried out.
#[derive(Debug)]
pub(super) struct Guards {
    pub(super) fuse: Fuse,
    pub(super) approvals: Approvals,
    pub(super) gates: Gates,
    pub(super) ran: Ran,
}

impl Guards {
    pub(super) fn new(fuse: Fuse, ran: Ran) -> Self {
        Self { fuse, approvals: Approvals::default(), gates: Gates::default(), ran }
    }
}
