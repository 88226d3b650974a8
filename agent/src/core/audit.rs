//! Finds what watches do not report: drift, copied marks, what the patrol lists; and counts what is too much to keep account of.
//!
//! The [`patrol`] lists everything now and then, [`judgement`] says of each listed object whether it is as it should be, and
//! [`findings`] takes in what is not. [`drift`] says in which fields an object was changed, where that is only to be reported.
//! [`copies`] and [`unexplained`] are objects with our mark that are left alone; both are [`left_alone`].

pub(super) mod copies;
pub(super) mod drift;
mod findings;
mod judgement;
pub(super) mod left_alone;
pub(super) mod patrol;
pub(super) mod unexplained;

use left_alone::LeftAlone;
use patrol::Patrol;

/// What is looked for, and what was found and is none of ours to change.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) patrol: Patrol,
    pub(super) copies: LeftAlone,
    /// What nothing explains, beyond the bound.
    pub(super) unexplained: LeftAlone,
}
