//! Looks for what no event told: objects that are not as they were applied, copies of ours, and what came back.

pub(super) mod copies;
pub(super) mod drift;
pub(super) mod patrol;
pub(super) mod restored;
