//! What the clock of this machine is worth: whether it can be right, and by which time certificates are judged if not.
//!
//! Small machines start in 1970, or where they were when they were switched off, and some have their clocks set to nonsense.
//! Two times are known beside the clock: when this version was made, and what the hub signed last.
//!
//! The hub's time is bounded, for its clock may be wrong too. Its last answer counts, not its latest time, so that a hub whose
//! clock is corrected is believed at once. And only while that answer is fresh it can refuse a certificate that is valid by a
//! clock that may be right: a proxy before the hub that has such a certificate is reached again an hour later at most.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use tideline_common::Monotonic;

/// How far the clock may be from the hub's. More than any time zone by which a clock is set wrong, and less than any
/// certificate is issued for.
const FAR: Duration = Duration::from_hours(24);
/// How long the hub's word is fresh: longer than the pause between two answers on any link that works.
const FRESH_FOR: Duration = Duration::from_hours(1);

/// When this version was begun. A release sets it to its day; see CONTRIBUTING.md.
const RELEASED: UnixSeconds = UnixSeconds(1_793_491_200); // 2026-11-01

/// When this binary was built, as far as that can be known without making two builds of one tree differ: the time that
/// whoever builds it gives by `SOURCE_DATE_EPOCH` (<https://reproducible-builds.org/specs/source-date-epoch/>), or else
/// [`RELEASED`]. A clock that says less is wrong.
pub(crate) const BUILT: UnixSeconds = built(option_env!("SOURCE_DATE_EPOCH"));

const fn built(source_date: Option<&str>) -> UnixSeconds {
    let Some(source_date) = source_date else { return RELEASED };
    match u64::from_str_radix(source_date, 10) {
        // Some tools build everything in 1980.
        Ok(seconds) if seconds > RELEASED.0 => UnixSeconds(seconds),
        Ok(_) => RELEASED,
        Err(_) => panic!("SOURCE_DATE_EPOCH must be seconds since 1970"),
    }
}

/// Seconds since 1970, by whatever clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixSeconds(pub(crate) u64);

impl UnixSeconds {
    fn after(self, elapsed: Duration) -> Self {
        Self(self.0.saturating_add(elapsed.as_secs()))
    }

    fn is_far_from(self, other: Self) -> bool {
        self.0.abs_diff(other.0) > FAR.as_secs()
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
        match time {
            Some(time) => time.fmt(f),
            None => write!(f, "{} s after 1970", self.0),
        }
    }
}

/// The time that the hub signed last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubTime {
    pub(crate) signed: UnixSeconds,
    /// When that was heard.
    pub(crate) heard: Monotonic,
}

/// What a clock is worth at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judgement {
    pub(crate) clock: UnixSeconds,
    pub(crate) worth: Worth,
    /// It is this late at least: the later of the time of the build and the hub's.
    pub(crate) at_least: UnixSeconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worth {
    /// The hub has just signed a time near it.
    Confirmed,
    /// It may be right: the hub was not heard yet, or not for a while.
    Unconfirmed,
    /// It is before the build.
    BeforeBuild,
    /// It is far from what the hub has just signed: that would say this now.
    FarFromHub { hub: UnixSeconds },
}

/// Judges what the clock says `now`.
pub(crate) fn judge(clock: UnixSeconds, now: Monotonic, hub: Option<HubTime>) -> Judgement {
    let elapsed = |hub: HubTime| now.since(hub.heard);
    let hub_now = hub.map(|it| it.signed.after(elapsed(it)));
    let worth = match (hub_now, hub) {
        _ if clock < BUILT => Worth::BeforeBuild,
        (Some(hub_now), Some(it)) if elapsed(it) <= FRESH_FOR && clock.is_far_from(hub_now) => {
            Worth::FarFromHub { hub: hub_now }
        }
        (Some(_), Some(it)) if elapsed(it) <= FRESH_FOR => Worth::Confirmed,
        _ => Worth::Unconfirmed,
    };
    Judgement { clock, worth, at_least: hub_now.map_or(BUILT, |hub_now| hub_now.max(BUILT)) }
}

impl Judgement {
    /// Whether the clock is wrong, or that of the hub.
    pub(crate) const fn is_implausible(&self) -> bool {
        match self.worth {
            Worth::BeforeBuild | Worth::FarFromHub { .. } => true,
            Worth::Confirmed | Worth::Unconfirmed => false,
        }
    }
}

/// What the clock says, what may be wrong with it, and what to do.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock, worth, at_least: _ } = self;
        write!(f, "the clock of this machine says {clock}")?;
        match worth {
            Worth::Confirmed => f.write_str(", within a day of what the hub says: if that is wrong, set it"),
            Worth::Unconfirmed => f.write_str(", which no answer of the hub confirms: if that is wrong, set it"),
            Worth::BeforeBuild => write!(f, ", which is before this version was built ({BUILT}): set it, as by NTP"),
            Worth::FarFromHub { hub } => write!(f, ", and the hub says {hub}: set the one that is wrong, as by NTP"),
        }
    }
}

#[cfg(test)]
mod tests;
