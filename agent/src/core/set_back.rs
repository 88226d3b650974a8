//! A journal that was set back: its machine was restored from a backup, or an old copy of the data directory was started.
//!
//! A set is on disk before anything of it is applied. So where a mark of ours is of a later generation of its source than the
//! set in the journal, a later journal put it there, and what this one says of anything is out of date: acted upon, it would
//! undo what was applied since, run again what has run, and remove what is assigned by now. Nothing is changed until the hub has
//! said what the target is to hold. Of a copy that goes on beside the first agent the hub says itself that there are two.
//!
//! That is looked for before anything is changed, as long as it takes to list what is there, and not for long.

use std::time::Duration;

use tideline_common::{Entry, Mark, Monotonic, ObjectKey, Ownership};

use super::Core;
use super::plan::Me;
use super::remove::JournalAge;

/// Longest that a start without the hub waits for lists. They take some seconds; of a kind that answers later than this, the
/// other kinds do not wait to be put right.
pub(super) const LOOK_FIRST_MAX: Duration = Duration::from_secs(30);

/// Whether a mark shows that an entry is older than what was applied in its place.
fn is_later(me: Me, key: &ObjectKey, mark: &Mark, entry: &Entry) -> bool {
    mark.ownership(me, key) == Ownership::Ours
        && mark.source.uid == entry.source.uid
        && mark.generation > entry.generation
}

impl Core {
    pub(super) fn is_set_back(&self) -> bool {
        self.journal_age == JournalAge::SetBack
    }

    /// Whether an object under this mark shows that the journal was set back.
    pub(super) fn shows_set_back(&self, key: &ObjectKey, mark: Option<&Mark>) -> bool {
        self.journal_age == JournalAge::Unknown
            && matches!(
                (self.me(), mark, self.desired.get(key)),
                (Some(me), Some(mark), Some(entry)) if is_later(me, key, mark, entry)
            )
    }

    /// Whether nothing is begun yet, because what stands at the cluster may still show that the journal was set back.
    pub(super) fn looks_first(&self, now: Monotonic) -> bool {
        self.look_first_until(now).is_some()
    }

    /// Until when, at the latest.
    pub(super) fn look_first_until(&self, now: Monotonic) -> Option<Monotonic> {
        let until = self.started_at? + LOOK_FIRST_MAX;
        (self.journal_age == JournalAge::Unknown && now < until && !self.kinds.are_heard_of()).then_some(until)
    }

    /// The hub has said what the target is to hold: what the journal says of removals is part of that, or is there no more.
    pub(super) fn journal_is_current(&mut self) {
        if std::mem::replace(&mut self.journal_age, JournalAge::Current) != JournalAge::Current {
            let waiting: Vec<_> = self.removals.keys().map(|tombstone| tombstone.key.clone()).collect();
            for key in waiting {
                self.enqueue_removals(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests;
