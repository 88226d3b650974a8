//! Finds what watches do not report: drift, copied marks, what the patrol lists; and counts what is too much to keep account of.

pub(super) mod copies;
pub(super) mod drift;
mod findings;
mod judgement;
pub(super) mod patrol;
pub(super) mod sightings;
pub(super) mod unexplained;

use patrol::Patrol;
use sightings::Sightings;

/// What is looked for, and what was found and is none of ours to change.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) patrol: Patrol,
    pub(super) copies: Sightings,
    /// What nothing explains, beyond the bound.
    pub(super) unexplained: Sightings,
}
