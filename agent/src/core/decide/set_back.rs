//! A journal that was set back: its machine was restored from a backup, or an old copy of the data directory was started.
//!
//! A set is on disk before anything of it is applied. So where a mark of ours is of a later generation of its source than the
//! set in the journal, a later journal wrote it, and this one is out of date: acting on it would undo later applies, run again
//! what has run, and remove what is assigned by now. Nothing is changed until the hub has said what the target is to hold. If
//! a copy runs beside the first agent, the hub itself reports that there are two.
//!
//! At a start, what exists is listed before anything is changed, for a bounded time.

use std::time::Duration;

use tideline_common::{ApplyPolicy, Entry, EntryState, Mark, Monotonic, ObjectKey, Ownership};

use super::plan::is_left_alone;
use crate::core::model::Model;
use crate::core::model::object::Me;
use crate::core::model::removal::JournalAge;

/// Longest that a start without the hub waits for lists, from the first answer of the API server on. They take some seconds;
/// other kinds do not wait longer for a kind that answers later.
pub(in crate::core) const LIST_FIRST_MAX: Duration = Duration::from_secs(30);

/// Whether a mark shows that an entry is older than what was applied under its key. It shows nothing for an object that is not
/// maintained as its source says: an accepted loss of history may have set its source back, and nobody writes its mark.
fn is_later(me: Me, key: &ObjectKey, mark: &Mark, (entry, policy): (&Entry, Option<&ApplyPolicy>)) -> bool {
    entry.state == EntryState::Apply
        && policy.is_some_and(|policy| !is_left_alone(entry, policy))
        && mark.ownership(me, key) == Ownership::Ours
        && mark.source.uid == entry.source.uid
        && mark.generation > entry.generation
}

/// Whether an object under this mark shows that the journal was set back.
pub(in crate::core) fn shows_set_back(model: &Model, key: &ObjectKey, mark: Option<&Mark>) -> bool {
    if model.journal_age != JournalAge::Unknown {
        return false;
    }
    let (Some(me), Some(mark), Some(entry)) = (model.me(), mark, model.desired.get(key)) else {
        return false;
    };
    let policy = model.policies.get(&entry.policy).map(|policy| &**policy);
    // An accepted loss of history may have set the source back, for an object that cannot be applied since.
    let known = model.objects.get(key).is_some_and(|object| {
        let record = object.record.as_ref().filter(|record| record.source == mark.source.uid);
        record.is_some_and(|record| record.source_generation >= mark.generation)
    });
    !known && is_later(me, key, mark, (entry, policy))
}

/// An object was read by itself.
pub(in crate::core) fn read_by_itself(model: &mut Model, key: &ObjectKey, mark: Option<&Mark>) {
    if shows_set_back(model, key, mark) {
        model.journal_age = JournalAge::SetBack;
    }
}

/// Whether nothing is begun yet, because the cluster may still show that the journal was set back.
pub(in crate::core) fn lists_first(model: &Model, now: Monotonic) -> bool {
    let known = model.journal_age != JournalAge::Unknown || model.kinds.are_heard_of();
    !known && model.heard_at.is_none_or(|heard| now < heard + LIST_FIRST_MAX)
}

/// When that ends at the latest. Before the API server has answered there is nothing to begin with.
pub(in crate::core) fn list_first_until(model: &Model, now: Monotonic) -> Option<Monotonic> {
    model.heard_at.filter(|_| lists_first(model, now)).map(|heard| heard + LIST_FIRST_MAX)
}

#[cfg(test)]
mod tests;
