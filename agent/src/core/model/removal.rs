//! What is known of one removal: why it is to be, how far it is, and when it is judged next.
//!
//! | | from | by | to |
//! |---|---|---|---|
//! | why | `Approved`, `Retired`, `Spared` | `unassign`, `see_through` | `Unassigned` |
//! | | `Retired` | `spare` | `Spared` |
//! | | `Spared` | `retire` | `Retired` |
//! | how far | all but `Done` | `wait` | `Waiting` |
//! | | all but `Done` | `wait_for_wave` | `WaitingForWave` |
//! | | all but `Done` | `hold` | `Held` |
//! | | `Held` | `come_back` | `Waiting` |
//! | | all but `Done` | `finalize` | `Finalizing` |
//! | | all but `Done` | `end` | `Done`, and it stays so |
//!
//! When it is judged next, its [`Turn`] says. All combinations occur: one that is held waits for its next try, or is in the queue.

use std::sync::Arc;

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{Digest, Entry, Monotonic, ObjectKey, PrunePolicy, Reason, Tombstone, Version};

use super::Model;
use super::change::Change;
use super::turn::Turn;
use crate::core::interface::write::{AppliedRecord, RemovalPolicy, Write};

/// A removal under way.
#[derive(Debug)]
pub(in crate::core) struct Removal {
    cause: Cause,
    policy: RemovalPolicy,
    wave: i32,
    version: Option<Arc<str>>,
    /// Names the policy that the set had last for it, if that is still known: whose gates it waits for.
    last: Option<Digest>,
    /// Which removal of this source it is: the set in which it was taken out, as its tombstone says.
    left: Option<Version>,
    state: RemovalState,
    failures: u32,
    /// Whether its object was looked at for it in this run.
    looked_at: bool,
    /// Whether the deletion, or the orphaning, was begun in this run.
    begun: bool,
    turn: Turn,
}

/// Why something is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Cause {
    /// It is not assigned any more: the hub says so, or a set of the same epoch lacks it. The journal keeps that until
    /// the removal is done.
    Unassigned,
    /// Nothing explains that it is in no set, and a person has approved its removal. Ends with the approval.
    Approved,
    /// Nothing explains that it is in no set, and the cluster goes out of service. Ends if it stays in service.
    Retired,
    /// Was `Retired`, and the cluster is in service again. One live read shows what was already done; then it ends.
    Spared,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum RemovalState {
    Waiting,
    /// A wave is to be ready before it goes; which, for people.
    WaitingForWave(String),
    /// The last look or try came to this.
    Held(Reason, String),
    /// Deletion was accepted.
    Finalizing,
    /// Done; the hub is to be told, and the journal forgets it when the hub knows.
    Done,
}

/// What came of a transition. Those that wait for finalizers are counted by wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(in crate::core) enum Moved {
    /// It was in that state, or is done.
    Nowhere,
    Elsewhere,
    IntoFinalizing,
    OutOfFinalizing,
}

impl Removal {
    /// One that nothing was done about. `former` is the entry by which it was assigned, if that is known.
    pub(in crate::core) fn new(cause: Cause, policy: RemovalPolicy, wave: i32, former: Option<&Entry>) -> Self {
        Self {
            cause,
            policy,
            wave,
            version: former.map(|entry| Arc::clone(&entry.version)),
            last: former.map(|entry| entry.policy),
            left: None,
            state: RemovalState::Waiting,
            failures: 0,
            looked_at: false,
            begun: false,
            turn: Turn::Idle,
        }
    }

    pub(in crate::core) const fn wave(&self) -> i32 {
        self.wave
    }

    pub(in crate::core) const fn last_policy(&self) -> Option<Digest> {
        self.last
    }

    pub(in crate::core) const fn left(&self) -> Option<Version> {
        self.left
    }

    /// The set in which it was taken out.
    pub(in crate::core) fn set_left(&mut self, left: Option<Version>) {
        self.left = left;
    }
}

/// Why it is to be, and what becomes of the object.
impl Removal {
    pub(in crate::core) const fn cause(&self) -> Cause {
        self.cause
    }

    pub(in crate::core) const fn policy(&self) -> RemovalPolicy {
        self.policy
    }

    /// Whether it ends when it was looked at once more.
    pub(in crate::core) fn is_spared(&self) -> bool {
        self.cause == Cause::Spared && !self.is_done()
    }

    /// The hub says that it is not assigned any more, whatever the reason to remove it was before.
    pub(in crate::core) fn unassign(&mut self, policy: RemovalPolicy) {
        (self.cause, self.policy) = (Cause::Unassigned, policy);
    }

    /// It has begun, and is seen through whatever becomes of the reason for it. Returns whether the journal is to have that.
    #[must_use]
    fn see_through(&mut self, decommission: Decommission) -> bool {
        if self.cause == Cause::Unassigned {
            return false;
        }
        self.cause = Cause::Unassigned;
        if decommission.keeps() {
            self.policy = ORPHAN;
        }
        true
    }

    /// The cluster goes out of service after all.
    pub(in crate::core) fn retire(&mut self) {
        if self.is_spared() {
            self.cause = Cause::Retired;
        }
    }

    /// The cluster is in service again.
    pub(in crate::core) fn spare(&mut self) {
        debug_assert_eq!(self.cause, Cause::Retired, "only what rests on the decommission ends with it");
        self.cause = Cause::Spared;
    }

    /// A set says how it is to go, unless it is done.
    pub(in crate::core) fn govern(&mut self, policy: RemovalPolicy) {
        if !self.is_done() {
            self.policy = policy;
        }
    }

    /// An approval says how it is to go, if it rests on that.
    pub(in crate::core) fn approve(&mut self, policy: RemovalPolicy) {
        if self.cause == Cause::Approved {
            self.policy = policy;
        }
    }
}

/// How far it is.
impl Removal {
    pub(in crate::core) const fn state(&self) -> &RemovalState {
        &self.state
    }

    pub(in crate::core) const fn is_done(&self) -> bool {
        matches!(self.state, RemovalState::Done)
    }

    pub(in crate::core) const fn is_held(&self) -> bool {
        matches!(self.state, RemovalState::Held(..))
    }

    /// Whether it has its turn, or nothing is in its way but that the API server is away or has no time.
    pub(in crate::core) const fn waits_for_api_server(&self) -> bool {
        match self.state {
            RemovalState::Waiting => true,
            RemovalState::Held(reason, _) => is_of_api_server(reason),
            RemovalState::WaitingForWave(_) | RemovalState::Finalizing | RemovalState::Done => false,
        }
    }

    pub(in crate::core) const fn is_finalizing(&self) -> bool {
        matches!(self.state, RemovalState::Finalizing)
    }

    pub(in crate::core) const fn waits_for_wave(&self) -> bool {
        matches!(self.state, RemovalState::WaitingForWave(_))
    }

    /// It has its turn, or what must come first is under way.
    pub(in crate::core) fn wait(&mut self) -> Moved {
        self.go(RemovalState::Waiting)
    }

    /// It waits for a wave, which is described for people.
    pub(in crate::core) fn wait_for_wave(&mut self, what: String) -> Moved {
        self.go(RemovalState::WaitingForWave(what))
    }

    pub(in crate::core) fn hold(&mut self, reason: Reason, message: String) -> Moved {
        self.go(RemovalState::Held(reason, message))
    }

    /// The object is being deleted, and waits for its finalizers.
    pub(in crate::core) fn finalize(&mut self) -> Moved {
        self.go(RemovalState::Finalizing)
    }

    /// No object of its source has the key any more.
    pub(in crate::core) fn end(&mut self) -> Moved {
        self.go(RemovalState::Done)
    }

    /// Its source is assigned again, so that nothing holds it.
    pub(in crate::core) fn come_back(&mut self) {
        if self.is_held() {
            self.state = RemovalState::Waiting;
        }
    }

    fn go(&mut self, to: RemovalState) -> Moved {
        if self.is_done() || self.state == to {
            return Moved::Nowhere;
        }
        let finalized = self.is_finalizing();
        self.state = to;
        match (finalized, self.is_finalizing()) {
            (true, _) => Moved::OutOfFinalizing,
            (false, true) => Moved::IntoFinalizing,
            (false, false) => Moved::Elsewhere,
        }
    }
}

/// When it is judged next.
impl Removal {
    /// Tries that came to nothing.
    pub(in crate::core) const fn failures(&self) -> u32 {
        self.failures
    }

    pub(in crate::core) fn fail(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    /// What has gone wrong counts as so many failures, and not as more than that if there were as many before.
    pub(in crate::core) fn fail_at_least(&mut self, times: u32) {
        self.failures = self.failures.max(times);
    }

    /// Its object is looked at. Returns whether for the first time.
    #[must_use]
    pub(in crate::core) fn look(&mut self) -> bool {
        !std::mem::replace(&mut self.looked_at, true)
    }

    /// Its deletion, or orphaning, begins. Returns whether for the first time. How long it was held before that says nothing of how
    /// often it fails.
    #[must_use]
    pub(in crate::core) fn begin(&mut self) -> bool {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.failures = 0;
        }
        first
    }

    /// When its next try is, if it waits for that.
    pub(in crate::core) const fn retry_at(&self) -> Option<Monotonic> {
        self.turn.until()
    }

    /// Whether it waits for its next try.
    pub(in crate::core) const fn is_backing_off(&self) -> bool {
        self.turn.is_waiting()
    }

    pub(in crate::core) fn enqueue(&mut self) {
        self.turn.enqueue(self.wave);
    }

    pub(in crate::core) fn back_off(&mut self, until: Monotonic) {
        self.turn.wait(until);
    }

    /// It has no turn any more. Returns the one that it had, which is to be struck from the queue or the retries.
    #[must_use]
    pub(in crate::core) fn dequeue(&mut self) -> Turn {
        self.turn.dequeue()
    }

    /// It was the first of the queue, and has its turn.
    pub(in crate::core) fn take_turn(&mut self) {
        self.turn.take();
    }
}

/// How old what the journal says of removals may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum JournalAge {
    /// The hub has said in this run what the target is to hold.
    Current,
    /// Nobody has: the data directory may have been set back, and a removal in it may be of years ago.
    Unknown,
    /// Not yet, and the journal is older than the cluster: a later one applied what is there.
    SetBack,
}

/// Whether this says nothing of the object: the API server is away, or has no time.
pub(in crate::core) const fn is_of_api_server(reason: Reason) -> bool {
    matches!(reason, Reason::Throttled | Reason::Unavailable)
}

/// Of what is to be let go of, whatever was said of it before.
pub(in crate::core) const ORPHAN: RemovalPolicy = RemovalPolicy::Tombstone(PrunePolicy::LEAST);

/// Where the tombstones of a place begin: no UID is shorter than one character.
pub(in crate::core) fn before_all_of(key: &ObjectKey) -> Tombstone {
    Tombstone { key: key.clone(), source: "\u{0}".parse().expect("it is one byte long") }
}

impl Model {
    /// The removals under way for one key.
    pub(in crate::core) fn removals_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        let key = key.clone();
        self.removals.range(before_all_of(&key)..).take_while(move |(tombstone, _)| tombstone.key == key)
    }

    pub(in crate::core) fn open_removals_of(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        let any = (!self.removals.is_empty()).then(|| self.removals_of(key));
        any.into_iter().flatten().filter(|(_, removal)| !removal.is_done())
    }

    /// Removals that were to orphan the object under this key, and had not when something was assigned to it again.
    pub(in crate::core) fn overtaken(&self, key: &ObjectKey) -> impl Iterator<Item = (&Tombstone, &Removal)> {
        self.open_removals_of(key).filter(|(_, removal)| removal.policy.orphans())
    }

    pub(in crate::core) fn is_overtaken(&self, key: &ObjectKey) -> bool {
        self.overtaken(key).next().is_some()
    }

    pub(in crate::core) fn is_assigned_again(&self, tombstone: &Tombstone) -> bool {
        self.assigns(&tombstone.key, &tombstone.source)
    }

    pub(in crate::core) fn is_spared(&self, removal: &Tombstone) -> bool {
        self.removals.get(removal).is_some_and(Removal::is_spared)
    }

    /// The removal of the object under the key, if that is of another source.
    pub(in crate::core) fn other_removal(&self, tombstone: &Tombstone) -> Option<(Tombstone, &Removal)> {
        let key = &tombstone.key;
        let source = self.left_over(key).filter(|source| *source != tombstone.source)?;
        let other = Tombstone { key: key.clone(), source };
        let removal = self.removals.get(&other)?;
        Some((other, removal))
    }

    pub(in crate::core) fn version_of(
        &self,
        tombstone: &Tombstone,
        removal: &Removal,
        record: Option<&AppliedRecord>,
    ) -> Arc<str> {
        let recorded = record.map(|record| Arc::clone(&record.version)).filter(|version| !version.is_empty());
        removal.version.clone().or(recorded).unwrap_or_else(|| self.kinds.version(&tombstone.key.kind))
    }

    /// A removal that was approved begins. Once it has, it is carried out like any other, whenever its approval ends.
    pub(in crate::core) fn begun(&mut self, removal: &Tombstone) {
        if self.removals.get(removal).is_some_and(|state| state.cause == Cause::Approved) {
            self.see_through(removal);
        }
    }

    /// From now on this removal needs no approval, in the journal too.
    pub(in crate::core) fn see_through(&mut self, removal: &Tombstone) {
        if let Some(state) = self.removals.get_mut(removal)
            && state.see_through(self.decommission)
        {
            self.disk.write(Write::Removing { tombstone: removal.clone(), policy: state.policy });
        }
    }

    /// Its progress; none for a cluster in service.
    pub(in crate::core) fn decommissioned(&self) -> Option<DecommissionReport> {
        let how = self.decommission;
        (how != Decommission::No).then_some(DecommissionReport { how, left: self.removals.len() as u64 })
    }

    /// Removals under way that were to orphan an object because all was to be kept, if the set says otherwise. They end as
    /// they would have if they had been done by then.
    pub(in crate::core) fn left_by_keeping(&self, change: &Change) -> Vec<Tombstone> {
        if !self.decommission.keeps() || change.decommission.keeps() {
            return Vec::new();
        }
        let orphans = |(tombstone, removal): &(&Tombstone, &Removal)| {
            let under_way = removal.cause != Cause::Retired && !removal.is_done();
            under_way && removal.policy != ORPHAN && !change.tombstones.contains_key(*tombstone)
        };
        self.removals.iter().filter(orphans).map(|(tombstone, _)| tombstone.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
