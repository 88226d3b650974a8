//! Finds what watches do not report: drift, copied marks, and what the patrol lists.

pub(super) mod copies;
pub(super) mod drift;
pub(super) mod patrol;

use copies::Copies;
use patrol::Patrol;

/// What is looked for, and what was found and is none of ours to change.
#[derive(Debug, Default)]
pub(super) struct Audit {
    pub(super) patrol: Patrol,
    pub(super) copies: Copies,
}
