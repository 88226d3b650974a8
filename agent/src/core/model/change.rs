//! What an accepted set changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::wire::v1::{Attested, Decommission, TerminalFact};
use tideline_common::{ApplyPolicy, Digest, Entry, ObjectKey, Revision, Tombstone};

use crate::core::interface::write::RemovalPolicy;

/// A set that is complete and whose digest was verified, as the difference from the accepted one.
#[derive(Debug)]
pub(in crate::core) struct Change {
    pub(in crate::core) accepted: Attested,
    /// Only what differs.
    pub(in crate::core) put: Vec<Arc<Entry>>,
    pub(in crate::core) remove: Vec<ObjectKey>,
    pub(in crate::core) policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// Every removal that is authorised: told by a tombstone, or by absence within one epoch.
    pub(in crate::core) tombstones: BTreeMap<Tombstone, RemovalPolicy>,
    /// When what was there was taken out, of places of which a tombstone says it.
    pub(in crate::core) left_at: BTreeMap<ObjectKey, Revision>,
    pub(in crate::core) terminal: Vec<TerminalFact>,
    pub(in crate::core) decommission: Decommission,
}
