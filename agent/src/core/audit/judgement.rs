//! How the patrol judges one object by its listed metadata. It asks [`plan`](crate::core::decide::plan) what it would do about the
//! object as it is listed: anything but nothing is suspect, unless it is known and reported already.

use tideline_common::wire::v1::Progress;
use tideline_common::{Entry, EntryState, ObjectKey, Ownership, Reason};

use crate::core::decide::plan;
use crate::core::decide::plan::{Decision, NoAction, Situation};
use crate::core::model::Model;
use crate::core::model::kinds::View;
use crate::core::model::object::{Me, Object};
use crate::core::model::seen::Seen;

/// The state of an object, as the patrol judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It is as it should be.
    Nothing,
    /// Something is under way: what was seen proves nothing.
    Busy,
    /// Assigned, and not to be applied.
    Withheld,
    /// Its last try failed, which was reported then.
    Failing,
    /// It is ours, nothing assigns it, and it stays until a person decides.
    Held,
    /// Like what is held, and beyond what an account is kept of.
    TooMany,
    /// Another's object has the key, which was reported.
    Foreign,
    /// Not as it should be, unless it is just in transition.
    Suspect(Finding),
}

/// In what a suspect is not as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It should be there.
    Missing,
    /// To be corrected.
    Drifted,
    /// To be reported only.
    Differs,
    /// It carries our mark, nothing assigns it, and no watch has told of it.
    Unassigned,
    /// Another's object has the key of an assigned one.
    Foreign,
    /// The watch has not told of what is listed, or that it is gone.
    Unseen,
}

/// Judges what is under a key by its listed metadata, or by its absence from the list.
pub(super) fn judge(model: &Model, me: Me, key: &ObjectKey, listed: Option<&Seen>) -> Judgement {
    let object = model.objects.get(key);
    match (model.desired.get(key), object.as_deref(), listed) {
        (Some(entry), Some(object), listed) => judge_assigned(model, me, entry, object, listed),
        // What is not assigned is gone, and the watch did not tell.
        (None, Some(object), None) if object.seen().is_some() && !is_busy(object) => {
            Judgement::Suspect(Finding::Unseen)
        }
        // Every entry has an object.
        (Some(_), None, _) | (None, _, None) => Judgement::Nothing,
        (None, object, Some(listed)) => judge_other(model, me, key, object, listed),
    }
}

fn judge_assigned(model: &Model, me: Me, entry: &Entry, object: &Object, listed: Option<&Seen>) -> Judgement {
    if entry.state != EntryState::Apply || model.kinds.view(&entry.key) == View::NamespaceExcluded {
        return Judgement::Withheld;
    }
    // It waits for another object to be gone, and the watch may have missed just that.
    let in_the_way =
        |reason| matches!(reason, Reason::Conflict | Reason::Copy | Reason::Unmanaged | Reason::AgentTooOld);
    let awaited = object.seen().filter(|seen| match object.outcome.reason {
        Some(Reason::Finalizing) => true,
        // A list shows only of objects with our label that they are gone.
        Some(reason) => in_the_way(reason) && seen.labelled,
        None => false,
    });
    if let Some(leaving) = awaited
        && !object.work.is_in_flight()
        && listed.is_none_or(|listed| listed.uid != leaving.uid)
    {
        return Judgement::Suspect(Finding::Unseen);
    }
    match object.outcome.progress {
        Progress::Applied => {}
        _ if object.outcome.reason.is_some_and(in_the_way) => return Judgement::Foreign,
        Progress::Failed | Progress::Pending if object.outcome.reason.is_some() => return Judgement::Failing,
        Progress::Pending
        | Progress::Failed
        | Progress::Withheld
        | Progress::Deleting
        | Progress::DeletionHeld
        | Progress::Unknown => return Judgement::Busy,
    }
    let labelled = object.seen().is_some_and(|seen| seen.labelled);
    if listed.is_none() && entry.implied && !labelled {
        // It is not ours, so that no list of ours shows whether it exists.
        return Judgement::Nothing;
    }
    let overtaken = |listed: &Seen| object.seen().is_some_and(|seen| listed.is_older_than(seen));
    if is_busy(object) {
        return Judgement::Busy;
    }
    // The list is late, or the cluster was set back.
    if listed.is_some_and(overtaken) {
        return Judgement::Suspect(Finding::Unseen);
    }
    let policy = model.policies.get(&entry.policy).map(|policy| &**policy);
    let situation = Situation::of(model, me, entry, policy, object, listed, View::Current);
    match plan::plan(situation) {
        Decision::Nothing(NoAction::Drifted) => Judgement::Suspect(Finding::Differs),
        Decision::Nothing(NoAction::Unchanged | NoAction::Terminal)
        | Decision::Record { .. }
        | Decision::UpdateRecord => {
            let told = match (object.seen(), listed) {
                (Some(seen), Some(listed)) => !seen.is_older_than(listed) && seen.uid == listed.uid,
                (_, None) => true,
                (None, Some(_)) => false,
            };
            if told { Judgement::Nothing } else { Judgement::Suspect(Finding::Unseen) }
        }
        Decision::Create | Decision::RunAnew(_) | Decision::Withhold(Reason::Vanished) => {
            Judgement::Suspect(Finding::Missing)
        }
        Decision::Apply { .. } | Decision::TransferOwnership { .. } => Judgement::Suspect(Finding::Drifted),
        Decision::Wait(_) | Decision::Verify { .. } => Judgement::Busy,
        Decision::Withhold(_) => Judgement::Withheld,
        Decision::Skip(..) => Judgement::Suspect(Finding::Foreign),
        Decision::Fail(..) => Judgement::Failing,
    }
}

/// It carries our label, and is not assigned.
fn judge_other(model: &Model, me: Me, key: &ObjectKey, object: Option<&Object>, listed: &Seen) -> Judgement {
    let mut removals = model.removals_of(key).peekable();
    if removals.peek().is_some() {
        // Held removals are counted apart.
        return Judgement::Busy;
    }
    let known = object.is_some_and(|object| object.seen().is_some_and(|seen| seen.uid == listed.uid));
    let recorded = object.is_some_and(|object| object.record.as_ref().is_some_and(|it| it.uid == listed.uid));
    match listed.mark.as_ref().map(|mark| mark.ownership(me, key)) {
        _ if listed.deleting || object.is_some_and(is_busy) => Judgement::Busy,
        Some(Ownership::Ours) if known => Judgement::Held,
        Some(Ownership::Ours) if object.is_none() && !model.has_room_for_unexplained() => Judgement::TooMany,
        Some(Ownership::Ours) => Judgement::Suspect(Finding::Unassigned),
        Some(Ownership::Copy | Ownership::Foreign) | None if recorded => Judgement::Held,
        Some(Ownership::Copy | Ownership::Foreign) | None => Judgement::Foreign,
    }
}

/// Whether something is under way, or planned, that the patrol must not interfere with.
fn is_busy(object: &Object) -> bool {
    object.work.is_busy() || object.unrecorded > 0
}
