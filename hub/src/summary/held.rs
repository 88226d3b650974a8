use tideline_common::Reason;
use tideline_common::wire::v1::{ObjectReport, Progress};

/// What waits for a person at one target: removals, and what may have run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// More than pass within an hour.
    pub fused: usize,
    /// Of objects that are in no set since the hub lost history: nothing says that they were taken out.
    pub unexplained: usize,
    /// Of objects that nothing assigns and that came back.
    pub restored: usize,
    /// What runs once, was assigned before history was lost, and is not known to the agent.
    pub may_have_run: usize,
}

impl Waiting {
    /// How many removals.
    pub fn total(self) -> usize {
        self.fused + self.unexplained + self.restored
    }

    /// What a report counts for.
    pub(super) fn of(report: &ObjectReport) -> Self {
        let nothing = Self::default();
        match report.reason {
            Some(Reason::FuseHeld) if is_held(report) => Self { fused: 1, ..nothing },
            Some(Reason::HistoryLost) if is_held(report) => Self { unexplained: 1, ..nothing },
            Some(Reason::Restored) if is_held(report) => Self { restored: 1, ..nothing },
            Some(Reason::MayHaveRun) => Self { may_have_run: 1, ..nothing },
            Some(_) | None => nothing,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        let Self { fused, unexplained, restored, may_have_run } = other;
        self.fused += fused;
        self.unexplained += unexplained;
        self.restored += restored;
        self.may_have_run += may_have_run;
    }

    /// Takes off what was added before.
    pub(super) fn subtract(&mut self, other: Self) {
        let Self { fused, unexplained, restored, may_have_run } = other;
        self.fused -= fused;
        self.unexplained -= unexplained;
        self.restored -= restored;
        self.may_have_run -= may_have_run;
    }
}

/// Whether a removal is held, for whatever reason.
pub(super) fn is_held(report: &ObjectReport) -> bool {
    report.progress == Progress::DeletionHeld
}
