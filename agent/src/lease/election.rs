//! What a candidate does about the Lease: decided from what it saw and when, without a clock or a network.

use std::time::Duration;

use tideline_common::Monotonic;

/// How long others wait for a holder that renews nothing, before one of them takes the Lease.
pub(super) const LEASE_DURATION: Duration = Duration::from_secs(15);
/// When a holder that could not renew it holds it no more, by its own judgement.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Between two reads, or renewals.
pub(super) const RETRY_EVERY: Duration = Duration::from_secs(2);

// A holder that lost it has ended before another begins, and may miss some renewals before it has.
const _: () = assert!(RENEW_DEADLINE.as_secs() + 5 <= LEASE_DURATION.as_secs());
const _: () = assert!(RETRY_EVERY.as_secs() * 3 < RENEW_DEADLINE.as_secs());

/// What a Lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<T> {
    /// None if nobody holds it.
    pub(super) holder: Option<String>,
    /// How long its holder wants to be waited for.
    pub(super) duration: Option<Duration>,
    /// By the holder's clock. Only whether they change matters.
    pub(super) acquired: Option<T>,
    pub(super) renewed: Option<T>,
    pub(super) transitions: i32,
}

/// The next move about a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Move<T> {
    /// There is none: make it.
    Create(Record<T>),
    /// Write this over the Lease as read, unless it changed since.
    Replace(Record<T>),
    /// Another holds it.
    Wait,
    /// It was ours, and is not any more.
    Lost(Loss),
}

/// Why the Lease is not ours any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Taken { by: String },
    NotRenewed,
}

/// One candidate's view of the Lease.
#[derive(Debug)]
pub(super) struct Election<T> {
    me: String,
    /// The Lease as read last, and when that version was read first.
    seen: Option<(Record<T>, Monotonic)>,
    /// When the last write that made it ours, or kept it so, was begun.
    held_since: Option<Monotonic>,
}

impl<T: Clone + PartialEq> Election<T> {
    /// `me` is a name that no other candidate has, nor this one had before.
    pub(super) fn new(me: String) -> Self {
        Self { me, seen: None, held_since: None }
    }

    /// Takes in the Lease as read.
    pub(super) fn see(&mut self, now: Monotonic, found: Option<Record<T>>) {
        match (found, &self.seen) {
            (None, _) => self.seen = None,
            (Some(found), Some((known, _))) if *known == found => {}
            (Some(found), _) => self.seen = Some((found, now)),
        }
    }

    /// Takes that a write, begun at `begun`, was taken.
    pub(super) fn wrote(&mut self, begun: Monotonic, written: Record<T>) {
        self.held_since = Some(begun);
        self.seen = Some((written, begun));
    }

    /// Until when it is ours, if it is.
    pub(super) fn ours_until(&self) -> Option<Monotonic> {
        self.held_since.map(|since| since + RENEW_DEADLINE)
    }

    /// The next move. `clock` is written as the time.
    pub(super) fn next(&self, now: Monotonic, clock: T) -> Move<T> {
        if self.ours_until().is_some_and(|until| until <= now) {
            return Move::Lost(Loss::NotRenewed);
        }
        let Some((seen, since)) = &self.seen else { return Move::Create(self.ours(clock.clone(), clock, 0)) };
        match &seen.holder {
            Some(holder) if *holder == self.me => {
                let acquired = seen.acquired.clone().unwrap_or_else(|| clock.clone());
                Move::Replace(self.ours(acquired, clock, seen.transitions))
            }
            Some(holder) if self.held_since.is_some() => Move::Lost(Loss::Taken { by: holder.clone() }),
            Some(_) if now.since(*since) < seen.duration.unwrap_or(LEASE_DURATION) => Move::Wait,
            Some(_) | None => Move::Replace(self.ours(clock.clone(), clock, seen.transitions.saturating_add(1))),
        }
    }

    /// What to write so that another may begin at once; None if it is not ours.
    pub(super) fn release(&self, clock: T) -> Option<Record<T>> {
        let (seen, _) = self.seen.as_ref()?;
        (seen.holder.as_ref() == Some(&self.me)).then(|| Record {
            holder: None,
            duration: Some(Duration::from_secs(1)),
            acquired: Some(clock.clone()),
            renewed: Some(clock),
            transitions: seen.transitions,
        })
    }

    /// The holder, if it is another.
    pub(super) fn holder(&self) -> Option<&str> {
        let (seen, _) = self.seen.as_ref()?;
        seen.holder.as_deref().filter(|holder| *holder != self.me)
    }

    fn ours(&self, acquired: T, renewed: T, transitions: i32) -> Record<T> {
        Record {
            holder: Some(self.me.clone()),
            duration: Some(LEASE_DURATION),
            acquired: Some(acquired),
            renewed: Some(renewed),
            transitions,
        }
    }
}
