//! What an accepted set changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::wire::v1::{Attested, Decommission, TerminalFact};
use tideline_common::{ApplyPolicy, Digest, Entry, ObjectKey, Revision, Tombstone};

use super::write::RemovalPolicy;

/// A set that is complete and whose digest was verified, as the difference from the accepted one.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) accepted: Attested,
    /// Only what differs.
    pub(super) put: Vec<Arc<Entry>>,
    pub(super) remove: Vec<ObjectKey>,
    pub(super) policies: BTreeMap<Digest, Arc<ApplyPolicy>>,
    /// Every removal that is authorised: told by a tombstone, or by absence within one epoch.
    pub(super) tombstones: BTreeMap<Tombstone, RemovalPolicy>,
    /// When what was there was taken out, of places of which a tombstone says it.
    pub(super) left_at: BTreeMap<ObjectKey, Revision>,
    pub(super) terminal: Vec<TerminalFact>,
    pub(super) decommission: Decommission,
}
