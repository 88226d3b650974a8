//! Finds what watches do not report: drift, copied marks, restored objects.

pub(super) mod copies;
pub(super) mod drift;
pub(super) mod patrol;
