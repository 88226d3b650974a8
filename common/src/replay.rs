//! What keeps a request from being taken twice, without a clock.
//!
//! ```text
//!  agent                                                hub
//!  [`RunNumbers`] ── tideline-run: R=17,Q=3 ──────────▶ [`ReplayWindow`] of run R: 17 was not seen, and is taken once
//!                 ◀───────── tideline-run: R=18 ──────── every answer: this run, and the next number that is free
//! ```
//!
//! Each run of a hub's process has a random id. A request names the runs that its sender knows, each with a number that
//! was not used in that run before; the hub takes a number once, in any order within [`WINDOW`]. A request that names
//! another run, such as one that was recorded before the hub was restarted, is answered with the id of this one and nothing
//! else. Both sides' headers are covered by the signatures of [`crate::signature`].
//!
//! A request that somebody on the way keeps back has a number that is free. So where a hub has not heard from a signer for too
//! long, it leaps over all numbers that may have been used by then.
//!
//! The scheme is that of the anti-replay window of IPsec (RFC 4303 §3.4.3), with the run in the place of the security
//! association; a refused number is answered with a good one, as in ACME (RFC 8555 §6.5.1).

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::ids::{InvalidId, RunId};

/// Runs that a request has room for: replicas of a hub behind one balancer.
pub const RUNS_MAX: usize = 16;
/// Numbers below the highest one seen that are still taken, once each. An agent has a handful of requests under way.
pub const WINDOW: u64 = 256;
/// How far a number may be ahead of the highest one seen. An agent that asked other replicas meanwhile comes back with a
/// leap; a number near the end of the range would leave no room for the next ones.
const LEAP_MAX: u64 = 1 << 32;
/// How far the window goes on when it leaps: more numbers than a signer has used that never arrived. The range has room for
/// 2^40 of these.
const LEAP: u64 = 1 << 24;

/// One number of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunNumber {
    pub run: RunId,
    pub number: u64,
}

impl fmt::Display for RunNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.run, self.number)
    }
}

impl FromStr for RunNumber {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = |why| InvalidId { what: "number of a run", value: text.chars().take(80).collect(), why };
        let (run, number) = text.split_once('=').ok_or_else(|| invalid("it must be RUN=NUMBER"))?;
        let number = number.parse().map_err(|_| invalid("its number cannot be read"))?;
        Ok(Self { run: run.parse()?, number })
    }
}

/// The agent's side: the runs it knows, the last to answer first, each with the next number to use.
#[derive(Clone, Debug, Default)]
pub struct RunNumbers {
    next: VecDeque<RunNumber>,
}

/// The header of a request whose sender knows no run yet.
const NO_RUN: &str = "-";

impl RunNumbers {
    /// Takes a number of each known run, and returns the header that names them. Never the same twice, but for `-`, which
    /// names none.
    pub fn take(&mut self) -> String {
        let mut header = String::new();
        for next in &mut self.next {
            let separator = if header.is_empty() { "" } else { "," };
            write!(header, "{separator}{next}").expect("a String takes any text");
            next.number += 1;
        }
        if header.is_empty() { NO_RUN.to_owned() } else { header }
    }

    /// Takes in what a hub's answer said of its run. The run that answered longest ago gives way to a new one.
    pub fn answered(&mut self, said: RunNumber) {
        let known = self.next.iter().position(|next| next.run == said.run).and_then(|at| self.next.remove(at));
        let number = known.map_or(1, |next| next.number).max(said.number);
        self.next.push_front(RunNumber { run: said.run, number });
        self.next.truncate(RUNS_MAX);
    }
}

/// The number that a request's header names for `run`; none if it names none, or cannot be read.
pub fn number_for(run: RunId, header: &str) -> Option<u64> {
    let named = header.split(',').take(RUNS_MAX).filter_map(|text| text.parse::<RunNumber>().ok());
    named.filter(|named| named.run == run).map(|named| named.number).next()
}

/// The hub's side, for one signer in one run: which numbers were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    highest: u64,
    /// Whether each of the last [`WINDOW`] numbers was taken, at the number modulo the window.
    taken: [u64; (WINDOW / 64) as usize],
}

impl ReplayWindow {
    /// Takes `number`. False if it was taken before, or is too old, or too far ahead, to tell.
    pub fn take(&mut self, number: u64) -> bool {
        if number == 0
            || number.saturating_sub(self.highest) > LEAP_MAX
            || self.highest.saturating_sub(number) >= WINDOW
        {
            return false;
        }
        for passed in (self.highest + 1..=number).rev().take(self.taken.len() * 64) {
            *self.word(passed) &= !bit(passed);
        }
        self.highest = self.highest.max(number);
        let word = self.word(number);
        let fresh = *word & bit(number) == 0;
        *word |= bit(number);
        fresh
    }

    /// Refuses everything that was signed before, whether it arrived or not. A sender that still signs is told the next
    /// number, and signs anew.
    pub fn leap(&mut self) {
        self.highest = self.highest.saturating_add(LEAP);
        self.taken = [u64::MAX; (WINDOW / 64) as usize];
    }

    /// The lowest number that none ever reached.
    pub fn next(&self) -> u64 {
        self.highest + 1
    }

    fn word(&mut self, number: u64) -> &mut u64 {
        let at = usize::try_from(number % WINDOW / 64).expect("it is below the number of words");
        &mut self.taken[at]
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests;
