//! One state of a live object, as far as decisions are made from it.

use std::sync::Arc;

use tideline_common::{Digest, Mark, Uid};

use crate::core::interface::observed::{Details, ListedItem, Observed};

/// What decisions are made from.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is of one thing about an object, as its metadata says it")]
pub(in crate::core) struct Seen {
    pub(in crate::core) uid: Uid,
    pub(in crate::core) resource_version: Arc<str>,
    pub(in crate::core) generation: i64,
    pub(in crate::core) managed: Option<Digest>,
    pub(in crate::core) mark: Option<Arc<Mark>>,
    /// There is a mark, and it cannot be read.
    pub(in crate::core) illegible: bool,
    pub(in crate::core) labelled: bool,
    pub(in crate::core) deleting: bool,
    pub(in crate::core) managed_elsewhere: bool,
    pub(in crate::core) observed_generation: Option<i64>,
    /// Which fields others manage. Known as long as some are left to them.
    pub(in crate::core) others: Option<Digest>,
}

impl From<&Observed> for Seen {
    fn from(observed: &Observed) -> Self {
        Self {
            uid: observed.uid.clone(),
            resource_version: Arc::clone(&observed.resource_version),
            generation: observed.generation,
            managed: observed.managed,
            mark: observed.mark.clone(),
            illegible: observed.illegible,
            labelled: observed.labelled,
            deleting: observed.deleting,
            managed_elsewhere: observed.managed_elsewhere,
            observed_generation: observed.observed_generation,
            others: observed.others,
        }
    }
}

impl Seen {
    /// None if the details cannot be read.
    pub(in crate::core) fn of_listed(item: &ListedItem) -> Option<Self> {
        let Details { generation, managed, mark, illegible, deleting, managed_elsewhere, others } =
            item.details()?.clone();
        Some(Self {
            uid: item.uid.clone(),
            resource_version: Arc::clone(&item.resource_version),
            generation,
            managed,
            mark,
            illegible,
            labelled: item.labelled,
            deleting,
            managed_elsewhere,
            observed_generation: None,
            others,
        })
    }

    /// Whether a decision could differ; a change of status alone makes no difference.
    pub(in crate::core) fn decides_like(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.generation == other.generation
            && self.managed == other.managed
            && self.labelled == other.labelled
            && self.deleting == other.deleting
            && self.mark == other.mark
            && self.illegible == other.illegible
    }

    /// Whether it carries a mark that cannot be read, and no label that names this target. Whoever wrote that mark wrote the
    /// label with it, so it is treated as another's, also where the journal knows the object.
    pub(in crate::core) const fn is_under_anothers_illegible_mark(&self) -> bool {
        self.illegible && !self.labelled
    }

    /// Whether this is an earlier state of the same object. Resource versions of one object are comparable where they
    /// are decimal numbers (KEP-5504); where they are not, what comes later is taken to be later.
    pub(in crate::core) fn is_older_than(&self, other: &Self) -> bool {
        self.uid == other.uid && self.is_before(&other.resource_version)
    }

    /// Whether this is from before a resource version of the same object.
    pub(in crate::core) fn is_before(&self, version: &str) -> bool {
        let number = |version: &str| version.parse::<u128>().ok();
        number(&self.resource_version).zip(number(version)).is_some_and(|(this, other)| this < other)
    }
}
