//! Agents of other versions: the same core, which claims to understand less.

use std::collections::BTreeMap;

use tideline_common::Capabilities;

/// What the process of each run of the agent understands.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    pub(crate) by_run: BTreeMap<u64, Capabilities>,
    /// The version that is installed; none before the first start.
    pub(crate) installed: Option<Capabilities>,
}
