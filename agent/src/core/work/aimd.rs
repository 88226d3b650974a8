//! How many operations may be in flight at the API server: one more for each round in which it keeps up, half as many as soon
//! as it does not (AIMD, as TCP does).
//!
//! A round is as many writes as may be in flight. Rounds in which there was no more to do, or in which writes took longer than
//! usual, change nothing. Refusals of operations that were begun before a decrease are about the former limit, and are counted
//! once. Failures of a single object, by a webhook or a missing right, say nothing about the API server; a write that got no
//! answer may be either, and [`ConcurrencyLimiter`](super::limiter::ConcurrencyLimiter) decides which.

use std::time::Duration;

use tideline_common::{Monotonic, Reason};

use crate::core::interface::effect::OpId;
use crate::core::interface::op_result::{Failure, OpResult};
use crate::core::jitter::Jitter;

/// At first. Four fifths of it may be of one kind, and throughput of server-side applies peaks near 32.
const FIRST: usize = 40;
/// At most: 64 of one kind. A fast API server gains little from more, and each holds a body in memory.
const MAX: usize = 80;
/// At least, or nothing would ever be measured.
const MIN: usize = 1;
const _: () = assert!(MIN <= FIRST && FIRST <= MAX);
/// Pauses between attempts to exceed a limit that the API server could not bear: doubled by each attempt that fails, up to the
/// second, halved by each that succeeds. An API server with a single seat for us gets two operations at once only once a
/// minute then.
const CAUTION: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Nothing is begun for so long after a sign of overload that came without a Retry-After, doubled for each that follows
/// without a success between, up to the second.
const HOLD: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The longest that one answer may keep everything from being begun. The object that got it waits as long as it was told.
pub(in crate::core) const HOLD_MAX: Duration = Duration::from_mins(1);
/// A failure that took so long got no answer. The edge waits 35 s for one, and the API server gives up a write after 34 s, all
/// its webhooks together.
pub(in crate::core) const UNANSWERED: Duration = Duration::from_secs(30);
/// Writes that get no answer lower the limit no further than this: four that take 30 s each are one in 7.5 s, which overloads no
/// API server, and what is behind no silent webhook still finds a slot.
pub(super) const UNANSWERED_MIN: usize = 4;
const _: () = assert!(MIN <= UNANSWERED_MIN && UNANSWERED_MIN <= FIRST);
/// Added to half as much again as is usual, before a round counts as slow: below it, it is noise.
const NOISE: Duration = Duration::from_millis(20);

/// What the end of an operation says about the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Sign {
    /// A write was answered.
    Well,
    /// Nothing, or next to nothing: a read, a failure of the object's own or of ours.
    None,
    /// It is overloaded, and perhaps says for how long.
    Strained(Option<Duration>),
    /// A write got no answer in all the time that there is for one: from an overloaded API server, or from webhooks.
    Unanswered,
}

impl Sign {
    pub(in crate::core) fn of(result: &OpResult, took: Duration) -> Self {
        // Webhooks are called for writes alone.
        let (well, unanswered) = match result {
            OpResult::Inspect(_) | OpResult::Compare(_) => (Self::None, Self::Strained(None)),
            OpResult::Get(_) => (Self::Well, Self::Strained(None)),
            OpResult::Create(_)
            | OpResult::DryRunCreate(_)
            | OpResult::Apply(_)
            | OpResult::TransferOwnership(_)
            | OpResult::ReTarget(_)
            | OpResult::Delete(_)
            | OpResult::Orphan(_) => (Self::Well, Self::Unanswered),
        };
        match result.failure() {
            None => well,
            Some(
                Failure { reason: Reason::Throttled, retry_after: None, .. }
                | Failure { reason: Reason::Unavailable, .. },
            ) if took >= UNANSWERED => unanswered,
            Some(Failure { reason: Reason::Throttled, retry_after, .. }) => Self::Strained(*retry_after),
            Some(_) => Self::None,
        }
    }
}

/// An operation that ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Ended {
    pub(in crate::core) id: OpId,
    pub(in crate::core) took: Duration,
    pub(in crate::core) sign: Sign,
    /// The last operation that was begun by now.
    pub(in crate::core) last: OpId,
}

/// Values for a person to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConcurrencyReading {
    /// Operations that may be in flight at once.
    pub limit: usize,
    /// How often the limit was lowered since the start.
    pub decreases: u64,
}

#[derive(Debug)]
pub(in crate::core) struct Aimd {
    limit: usize,
    round: Round,
    /// How long writes take, smoothed over rounds.
    usual: Option<Duration>,
    /// The last operation that was begun under a higher limit.
    former: OpId,
    /// The limit that was too high, the last time.
    knee: usize,
    caution: Duration,
    probe_at: Monotonic,
    /// The limit has reached the knee, and has not been there for a round.
    probing: bool,
    resume_at: Option<Monotonic>,
    /// Decreases since something succeeded.
    strains: u32,
    decreases: u64,
}

#[derive(Debug, Default)]
struct Round {
    well: usize,
    took: Duration,
    /// There was more to do than could be begun.
    full: bool,
}

impl Default for Aimd {
    fn default() -> Self {
        Self {
            limit: FIRST,
            round: Round::default(),
            usual: None,
            former: OpId(0),
            knee: MAX + 1,
            caution: Duration::ZERO,
            probe_at: Monotonic::START,
            probing: false,
            resume_at: None,
            strains: 0,
            decreases: 0,
        }
    }
}

impl Aimd {
    pub(in crate::core) fn limit(&self) -> usize {
        self.limit
    }

    pub(in crate::core) fn reading(&self) -> ConcurrencyReading {
        ConcurrencyReading { limit: self.limit, decreases: self.decreases }
    }

    /// Whether something may be begun beside so many.
    pub(in crate::core) fn has_room(&mut self, now: Monotonic, under_way: usize) -> bool {
        self.resume(now);
        self.resume_at.is_none() && under_way < self.limit
    }

    /// Ends a pause that is over, also where nothing is to be begun: it is waited for no longer.
    pub(in crate::core) fn resume(&mut self, now: Monotonic) {
        self.resume_at = self.resume_at.filter(|at| *at > now);
    }

    /// When something may be begun again, if now nothing may whatever is in flight.
    pub(in crate::core) fn resume_at(&self) -> Option<Monotonic> {
        self.resume_at
    }

    /// Something had to wait because of the limit.
    pub(in crate::core) fn is_full(&mut self) {
        self.round.full = true;
    }

    pub(in crate::core) fn ended(&mut self, now: Monotonic, ended: Ended, jitter: &mut Jitter) {
        match ended.sign {
            Sign::None => {}
            Sign::Well => self.well(now, ended.took),
            Sign::Strained(retry_after) => self.strained(now, ended, retry_after.unwrap_or_default(), MIN, jitter),
            Sign::Unanswered => self.strained(now, ended, Duration::ZERO, UNANSWERED_MIN, jitter),
        }
    }

    fn well(&mut self, now: Monotonic, took: Duration) {
        self.strains = 0;
        self.round.well += 1;
        self.round.took += took;
        if self.round.well < self.limit {
            return;
        }
        let Round { well, took, full } = std::mem::take(&mut self.round);
        let mean = took / u32::try_from(well).unwrap_or(u32::MAX).max(1);
        let slow = self.usual.is_some_and(|usual| mean > usual + usual / 2 + NOISE);
        self.usual = Some(self.usual.map_or(mean, |usual| (usual * 7 + mean) / 8));
        if std::mem::take(&mut self.probing) {
            self.knee = self.limit + 1;
            self.caution = if self.caution > CAUTION.0 { self.caution / 2 } else { Duration::ZERO };
        }
        let known = self.limit + 1 < self.knee;
        if full && !slow && self.limit < MAX && (known || now >= self.probe_at) {
            self.limit += 1;
            if !known {
                self.probing = true;
                self.probe_at = now + self.caution;
            }
        }
    }

    fn strained(&mut self, now: Monotonic, ended: Ended, mut hold: Duration, min: usize, jitter: &mut Jitter) {
        let min = min.min(self.limit);
        if ended.id > self.former {
            self.former = ended.last;
            if std::mem::take(&mut self.probing) {
                self.caution *= 2;
            }
            self.caution = self.caution.clamp(CAUTION.0, CAUTION.1);
            self.probe_at = now + self.caution;
            self.decreases += u64::from(self.limit > min);
            self.knee = self.limit.max(MIN + 1);
            self.limit = (self.limit / 2).max(min);
            self.round = Round::default();
            self.strains = self.strains.saturating_add(1);
            hold = hold.max(jitter.half(self.strains, HOLD.0, HOLD.1));
        }
        self.resume_at = self.resume_at.max(Some(now + hold.min(HOLD_MAX)));
    }
}

#[cfg(test)]
mod tests;
