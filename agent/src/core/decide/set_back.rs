//! A journal that was set back: its machine was restored from a backup, or an old copy of the data directory was started.
//!
//! A set is on disk before anything of it is applied. So where a mark of ours is of a later generation of its source than the
//! set in the journal, a later journal wrote it, and this one is out of date: acting on it would undo later applies, run again
//! what has run, and remove what is assigned by now. Nothing is changed until the hub has said what the target is to hold. If
//! a copy runs beside the first agent, the hub itself reports that there are two.
//!
//! A mark is an annotation, and who may edit one placed object may write any generation into it. So what others wrote is not
//! believed, as far as managedFields tell; and where they are forged too, the objects of one namespace speak for that alone. The
//! whole cluster is left as it is once those of a second namespace show the same, as after a snapshot of the machine.
//!
//! At a start, what exists is listed before anything is changed, for a bounded time.

use std::sync::Arc;
use std::time::Duration;

use tideline_common::{ApplyPolicy, Entry, EntryState, Mark, Monotonic, ObjectKey, Ownership};

use super::plan::is_left_alone;
use crate::core::interface::observed::Observed;
use crate::core::interface::write::AppliedRecord;
use crate::core::model::object::Me;
use crate::core::model::removal::JournalAge;
use crate::core::model::{Model, namespace_of};

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

/// Whether somebody else may have written the mark, as far as managedFields tell. A later journal's agent manages what it has
/// applied. Whoever edits the annotation takes it out of our entry, which then differs from the recorded one, and has it in an
/// entry of their own.
fn may_be_edited(record: Option<&AppliedRecord>, observed: &Observed) -> bool {
    let same = record.filter(|record| record.uid == observed.uid);
    observed.managed.is_none()
        || same.is_some_and(|record| record.managed != observed.managed && observed.others.is_some())
}

/// Whether an object as it was observed shows that the journal was set back.
pub(in crate::core) fn shows_set_back(model: &Model, key: &ObjectKey, observed: &Observed) -> bool {
    if model.journal_age != JournalAge::Unknown {
        return false;
    }
    let (Some(me), Some(mark), Some(entry)) = (model.me(), observed.mark.as_deref(), model.desired.get(key)) else {
        return false;
    };
    let policy = model.policies.get(&entry.policy).map(|policy| &**policy);
    // An accepted loss of history may have set the source back, for an object that cannot be applied since.
    let object = model.objects.get(key);
    let record = object.as_ref().and_then(|object| object.record.as_ref());
    let known =
        record.is_some_and(|record| record.source == mark.source.uid && record.source_generation >= mark.generation);
    !known && !may_be_edited(record, observed) && is_later(me, key, mark, (entry, policy))
}

/// An object has shown that the journal was set back: its namespace is left as it is from now on, or the whole cluster.
pub(in crate::core) fn note_set_back(model: &mut Model, key: &ObjectKey) {
    match &model.later_in {
        None => model.later_in = Some(Arc::clone(namespace_of(key))),
        Some(first) if first == namespace_of(key) => {}
        Some(_) => model.journal_age = JournalAge::SetBack,
    }
}

/// An object was read by itself.
pub(in crate::core) fn read_by_itself(model: &mut Model, key: &ObjectKey, observed: &Observed) {
    if shows_set_back(model, key, observed) {
        note_set_back(model, key);
    }
}

/// What is said of an object of a namespace that is left as it is.
pub(in crate::core) const NAMESPACE_SET_BACK: &str = "objects of this namespace are of later generations than the agent's data directory knows; nothing is changed here \
     before the hub has sent the desired set";

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
