use std::time::Duration;

/// How often things go wrong, of a thousand times each; durations in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// A message is lost.
    pub(crate) lose: u64,
    /// A message arrives twice.
    pub(crate) double: u64,
    /// A message takes up to a minute.
    pub(crate) delay: u64,
    /// A proxy changes a message, or answers it.
    pub(crate) meddle: u64,
    /// The agent ends before an effect is begun.
    pub(crate) agent_crash: u64,
    /// The hub ends before an effect is carried out, or a chunk is written.
    pub(crate) hub_crash: u64,
    /// A write to a disk fails.
    pub(crate) disk: u64,
    /// An operation fails, having done its work or not.
    pub(crate) operation: u64,
    /// A watch misses an event, and does not notice.
    pub(crate) deaf: u64,
}

pub(crate) const CHAOS: Faults = Faults {
    lose: 60,
    double: 80,
    delay: 50,
    meddle: 25,
    agent_crash: 4,
    hub_crash: 3,
    disk: 60,
    operation: 80,
    deaf: 15,
};

/// The wire alone.
pub(crate) const BAD_WIRE: Faults = Faults { lose: 60, double: 80, delay: 50, meddle: 25, ..NONE };

pub(crate) const NONE: Faults =
    Faults { lose: 0, double: 0, delay: 0, meddle: 0, agent_crash: 0, hub_crash: 0, disk: 0, operation: 0, deaf: 0 };

/// What a message takes where all is well.
pub(crate) const TRANSIT: (u64, u64) = (1, 40);
/// What a delayed message takes.
pub(crate) const DELAYED: (u64, u64) = (40, 60_000);
/// How long an agent waits for an answer, beyond what the hub was asked to wait.
pub(crate) const GIVE_UP_AFTER: u64 = 15_000;
/// A commit, of a journal or of a store.
pub(crate) const COMMIT: (u64, u64) = (1, 30);
/// Until an operation takes effect, and from then until its end is known.
pub(crate) const OPERATION: (u64, u64) = (1, 50);
/// For how long a throttling cluster asks to be left alone, as one with priority and fairness does.
pub(crate) const THROTTLED_FOR: Duration = Duration::from_secs(1);
/// After so long a process that was asked to stop is killed.
pub(crate) const STOPPED_AFTER: u64 = 15_000;
/// From one patrol to the next, about.
pub(crate) const PATROL: Duration = Duration::from_mins(10);
/// Until a watch shows an event.
pub(crate) const WATCH: (u64, u64) = (1, 300);
/// From a watch's loss to the next list, and from a process's end to its start.
pub(crate) const ABSENCE: (u64, u64) = (100, 20_000);
