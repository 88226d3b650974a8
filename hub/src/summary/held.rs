use tideline_common::Reason;
use tideline_common::wire::v1::{ObjectReport, Progress};

/// Removals at one target that wait for a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// More than pass within an hour.
    pub fused: usize,
    /// Of objects that are in no set since the hub lost history: nothing says that they were taken out.
    pub unexplained: usize,
}

impl Waiting {
    pub fn total(self) -> usize {
        self.fused + self.unexplained
    }

    /// What a report counts for.
    pub(super) fn of(report: &ObjectReport) -> Self {
        match report.reason.filter(|_| is_held(report)) {
            Some(Reason::FuseHeld) => Self { fused: 1, unexplained: 0 },
            Some(Reason::HistoryLost) => Self { fused: 0, unexplained: 1 },
            Some(_) | None => Self::default(),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.fused += other.fused;
        self.unexplained += other.unexplained;
    }

    /// Takes off what was added before.
    pub(super) fn subtract(&mut self, other: Self) {
        self.fused -= other.fused;
        self.unexplained -= other.unexplained;
    }
}

/// Whether a removal is held, for whatever reason.
pub(super) fn is_held(report: &ObjectReport) -> bool {
    report.progress == Progress::DeletionHeld
}
