use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Hasher;

/// The readiness gate of one Placement: its objects of a wave are not begun before those of the waves before are ready,
/// or had their time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// `<space>/<placement>`: objects with the same name here wait for each other, and for no others.
    pub placement: String,
    /// Seconds that each wave has to become ready. After that the next goes anyway.
    pub deadline_seconds: u32,
}

impl Gate {
    /// An object that several gated Placements assign waits for all of them; the longer time holds. At most one for each
    /// Placement comes out, in their order.
    pub(super) fn merge(these: &[Self], those: &[Self]) -> Vec<Self> {
        let mut gates: BTreeMap<&str, u32> = BTreeMap::new();
        for Self { placement, deadline_seconds } in these.iter().chain(those) {
            let deadline = gates.entry(placement).or_default();
            *deadline = (*deadline).max(*deadline_seconds);
        }
        let made =
            |(placement, deadline_seconds): (&str, u32)| Self { placement: placement.to_owned(), deadline_seconds };
        gates.into_iter().map(made).collect()
    }

    /// Policies without gates keep the names that they had before there were any.
    pub(super) fn hash_all(gates: &[Self], hasher: &mut Hasher) {
        for Self { placement, deadline_seconds } in gates {
            hasher.field(b"gate").field(placement.as_bytes()).number(i64::from(*deadline_seconds));
        }
    }
}
