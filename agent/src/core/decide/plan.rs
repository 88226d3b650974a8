//! Decides, for one assigned object, what to do next. Pure: the same situation always gives the same decision, and
//! carrying it out leads to a situation in which nothing is to be done.

use std::sync::Arc;

use tideline_common::wire::v1::Terminal;
use tideline_common::{
    ApplyMode, ApplyPolicy, Digest, DriftPolicy, Entry, EntryState, Mark, Origin, Ownership, Prune, PruneAdopted,
    Reason, Recreate, Takeover, Uid,
};

use crate::core::interface::effect::ApplyTakeover;
use crate::core::interface::write::{AppliedRecord, ChangeDetector, LocalField};
use crate::core::model::Model;
use crate::core::model::kinds::View;
use crate::core::model::object::{Me, Object};
use crate::core::model::seen::Seen;

/// All that is known about an assigned object.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct Situation<'a> {
    pub(in crate::core) me: Me,
    pub(in crate::core) entry: &'a Entry,
    /// Absent if it was lost with the journal.
    pub(in crate::core) policy: Option<&'a ApplyPolicy>,
    pub(in crate::core) body: Body,
    pub(in crate::core) record: Option<&'a AppliedRecord>,
    pub(in crate::core) seen: Option<&'a Seen>,
    pub(in crate::core) view: View,
    /// A fact of this very source.
    pub(in crate::core) terminal: Option<Terminal>,
    pub(in crate::core) marks: Marks,
    pub(in crate::core) found: Found,
}

impl<'a> Situation<'a> {
    /// What is known about an object, if this is what is seen of it.
    pub(in crate::core) fn of(
        model: &Model,
        me: Me,
        entry: &'a Entry,
        policy: Option<&'a ApplyPolicy>,
        object: &'a Object,
        seen: Option<&'a Seen>,
        view: View,
    ) -> Self {
        Self {
            me,
            entry,
            policy,
            body: if model.inputs.is_stored(&entry.input) { Body::Present } else { Body::Missing },
            record: object.record.as_ref(),
            seen,
            view,
            terminal: object.happened(&entry.source.uid),
            marks: if model.believe_marks { Marks::Believed } else { Marks::Checked },
            found: if model.is_overtaken(&entry.key) { Found::DueForOrphaning } else { Found::AsKnown },
        }
    }
}

/// What exists under the key of an entry, besides what journal and mark know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Found {
    AsKnown,
    /// It was due to be orphaned before this entry was assigned, and was not yet; it counts as adopted.
    DueForOrphaning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Body {
    Present,
    Missing,
}

/// What a mark says that the journal does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Marks {
    /// The journal was lost: where a mark says just what is desired, the object is compared before anything is applied to it,
    /// so that nothing is applied twice. See `rebuild`.
    Believed,
    /// The journal is whole: it misses at most a write that was under way, which is repeated.
    Checked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::core) enum Decision {
    /// It is as it should be, or is to be left as it is.
    Nothing(NoAction),
    /// The object stays unchanged; its record takes the new policy or account, which governs its later removal.
    UpdateRecord,
    /// The object is ours and right; only the journal does not know.
    Record {
        uid: Uid,
        origin: Origin,
    },
    /// The mark matches, but the journal has no record; one live read decides.
    Verify {
        uid: Uid,
        origin: Origin,
    },
    Create,
    /// It ran with the Pod template of this digest: it is created if it has another by now.
    RunAnew(Digest),
    Apply {
        uid: Uid,
        takeover: ApplyTakeover,
        origin: Origin,
    },
    /// The object is left as it is, and is this source's from now on: its mark is to say so.
    TransferOwnership {
        uid: Uid,
        origin: Origin,
    },
    /// Something must happen first, and an event will show that.
    Wait(Reason),
    /// Assigned, but not to be applied.
    Withhold(Reason),
    /// Another object has its key, so it is not applied. No event announces when that object is gone.
    Skip(Reason, &'static str),
    /// Cannot be done, for now.
    Fail(Reason, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum NoAction {
    Unchanged,
    /// It was changed locally, and the policy says to report that and no more.
    Drifted,
    /// Done once and for all.
    Terminal,
}

/// What is said of an object that nothing but its mark could tell the owner of.
pub(in crate::core) const ILLEGIBLE: &str = "the existing object carries a mark that this version of the agent cannot read, and is left alone. Upgrade the agent, or \
     remove the annotation tideline.dev/source if no Tideline agent wrote it";

/// The mark that a local object of this entry must carry.
pub(in crate::core) fn mark_of(me: Me, entry: &Entry, policy: &ApplyPolicy, origin: Origin) -> Mark {
    // The report policy is no part of what is written: a change of it writes nothing anew.
    mark_naming(policy.written_digest(), me, entry, policy, origin)
}

fn mark_naming(named: Digest, me: Me, entry: &Entry, policy: &ApplyPolicy, origin: Origin) -> Mark {
    Mark {
        v: 1,
        hub: me.hub,
        target: me.target,
        source: entry.source.clone(),
        local: entry.key.clone(),
        generation: entry.generation,
        input: entry.input,
        policy: Some(named),
        // An implied namespace is nobody's to delete.
        prune: if entry.implied { Prune::Orphan } else { policy.prune },
        prune_adopted: if entry.implied { PruneAdopted::Orphan } else { policy.prune_adopted },
        origin,
    }
}

pub(in crate::core) fn plan(situation: Situation<'_>) -> Decision {
    let Situation { entry, policy, body, seen, view, terminal, .. } = situation;
    match entry.state {
        EntryState::Apply => {}
        EntryState::Hold(reason) | EntryState::Withheld(reason) => return Decision::Withhold(reason),
    }
    match view {
        View::Unlisted => return Decision::Wait(Reason::Progressing),
        View::Unknown => return Decision::Wait(Reason::Unavailable),
        View::Missing => {
            return Decision::Fail(Reason::KindMissing, format!("this cluster does not serve {}", entry.key.kind));
        }
        // A namespace that is kept exists, or the objects in it report that it does not.
        View::NamespaceExcluded if entry.implied => return Decision::Nothing(NoAction::Unchanged),
        View::NamespaceExcluded => return Decision::Withhold(Reason::OtherNamespace),
        View::Current | View::Lost => {}
    }
    let Some(policy) = policy else {
        return Decision::Fail(Reason::BodyMissing, "its policy was lost with the journal; it is fetched again".into());
    };
    let decision = match seen {
        Some(seen) => present(situation, policy, seen),
        None => match (terminal, template_that_ran(situation, policy)) {
            (Some(Terminal::Finished | Terminal::Started), Some(ran)) => Decision::RunAnew(ran),
            (Some(Terminal::Finished), None) => Decision::Nothing(NoAction::Terminal),
            (Some(Terminal::CreatedOnce | Terminal::Started), _) if stays_gone(situation, policy) => {
                Decision::Nothing(NoAction::Terminal)
            }
            // The object may exist though nothing shows it.
            (Some(Terminal::Started), None) if view == View::Current || situation.record.is_none() => {
                Decision::Withhold(Reason::Vanished)
            }
            (Some(Terminal::MayHaveRun), _) => Decision::Withhold(Reason::MayHaveRun),
            (Some(Terminal::CreatedOnce | Terminal::Started | Terminal::Released | Terminal::Unknown) | None, _) => {
                absent(situation, policy)
            }
        },
    };
    match (&decision, body) {
        (Decision::Create | Decision::RunAnew(_) | Decision::Apply { .. } | Decision::Verify { .. }, Body::Missing) => {
            Decision::Fail(Reason::BodyMissing, "its body is not in the journal; it is fetched again".into())
        }
        _ => decision,
    }
}

/// Nothing is seen under its key.
fn absent(situation: Situation<'_>, policy: &ApplyPolicy) -> Decision {
    let Situation { entry, record, view, .. } = situation;
    // An orphaned object is there without its label, or is gone.
    let record = record.filter(|record| !record.orphaning);
    match (record, view) {
        (Some(record), _) if stays_gone(situation, policy) && record.source == entry.source.uid => {
            Decision::Nothing(NoAction::Terminal)
        }
        // Whether it may be taken over must be seen first.
        (Some(_), View::Lost) if situation.found == Found::DueForOrphaning => Decision::Create,
        // While the view is not current, nothing follows from not seeing it; the known object is written to.
        (Some(record), View::Lost) if is_left_alone(entry, policy) => {
            if is_known(situation, record) {
                Decision::Nothing(NoAction::Unchanged)
            } else {
                Decision::TransferOwnership { uid: record.uid.clone(), origin: origin_of(situation, record) }
            }
        }
        (Some(record), View::Lost) => {
            if is_as_recorded(entry, record) && origin_of(situation, record) == record.origin {
                Decision::Nothing(NoAction::Unchanged)
            } else {
                apply_onto(situation, record)
            }
        }
        // A creation is safe without a read: if an object exists, it is refused and learns what exists.
        (Some(_) | None, _) => Decision::Create,
    }
}

/// The Pod template of a Job that is gone, if the Job may run again with another one.
fn template_that_ran(situation: Situation<'_>, policy: &ApplyPolicy) -> Option<Digest> {
    let Situation { entry, record, view, .. } = situation;
    let changed = record.filter(|record| record.source == entry.source.uid && record.input != entry.input)?;
    let runs_anew = policy.recreate == Recreate::OnImmutable && policy.mode == ApplyMode::Continuous;
    changed.template.filter(|_| runs_anew && view == View::Current)
}

/// Whether it is not recreated when it is gone. An implied namespace is: nothing could be in it otherwise.
pub(in crate::core) fn is_made_once(entry: &Entry, policy: &ApplyPolicy) -> bool {
    policy.mode == ApplyMode::CreateOnly && !entry.implied
}

/// Whether a create-only object of which nothing is seen is left as it is: unless it was due for orphaning meanwhile.
fn stays_gone(situation: Situation<'_>, policy: &ApplyPolicy) -> bool {
    is_made_once(situation.entry, policy) && situation.found == Found::AsKnown
}

/// An object has its key.
fn present(situation: Situation<'_>, policy: &ApplyPolicy, seen: &Seen) -> Decision {
    let Situation { me, entry, record, .. } = situation;
    // Without its mark an orphaned object is not ours any more.
    let orphaned = |record: &AppliedRecord| record.orphaning && seen.mark.is_none();
    let record = record.filter(|record| record.uid == seen.uid && !orphaned(record));
    let ownership = seen.mark.as_ref().map(|mark| mark.ownership(me, &entry.key));
    match (ownership, record) {
        // It exists, whoever's it is, and that is all that is asked for.
        (Some(Ownership::Foreign | Ownership::Copy) | None, None) if entry.implied => {
            return Decision::Nothing(NoAction::Unchanged);
        }
        (Some(Ownership::Foreign), _) => {
            return Decision::Skip(Reason::Conflict, "it is managed by another hub");
        }
        (Some(Ownership::Copy), None) => {
            return Decision::Skip(
                Reason::Copy,
                "the existing object carries the mark of another object (a copy), and is left alone. Remove its label \
                 tideline.dev/agent and annotation tideline.dev/source",
            );
        }
        // Whoever wrote it knew more than this build: it is adopted by no policy.
        (None, None) if seen.illegible => return Decision::Skip(Reason::AgentTooOld, ILLEGIBLE),
        // The journal knows the object, and a newer agent of another target may have taken it over since.
        (None, Some(_)) if seen.is_under_anothers_illegible_mark() => {
            return Decision::Skip(Reason::AgentTooOld, ILLEGIBLE);
        }
        // A create-only object that is about to be deleted would count as created.
        (None, None) if !seen.deleting => return adopt(entry, policy, seen),
        (Some(Ownership::Copy | Ownership::Ours) | None, _) => {}
    }
    if seen.deleting {
        return Decision::Wait(Reason::Finalizing);
    }
    if situation.found == Found::DueForOrphaning
        && let Some(why) = refuses(entry, policy, seen)
    {
        return Decision::Skip(Reason::Unmanaged, why);
    }
    let origin = match (record, &seen.mark) {
        (Some(record), _) => origin_of(situation, record),
        (None, Some(mark)) if situation.found == Found::AsKnown => mark.origin,
        (None, _) => Origin::Adopted,
    };
    match record {
        None => {
            let right = seen.mark.as_deref() == Some(&mark_of(me, entry, policy, origin));
            if is_left_alone(entry, policy) {
                take_up(situation, seen, origin)
            } else if right && seen.labelled && seen.managed.is_some() && situation.marks == Marks::Believed {
                Decision::Verify { uid: seen.uid.clone(), origin }
            } else {
                Decision::Apply { uid: seen.uid.clone(), takeover: ApplyTakeover::Posted, origin }
            }
        }
        Some(record) => ours(situation, policy, seen, record),
    }
}

fn origin_of(situation: Situation<'_>, record: &AppliedRecord) -> Origin {
    match situation.found {
        Found::AsKnown => record.origin,
        Found::DueForOrphaning => Origin::Adopted,
    }
}

/// It is ours, and the journal knows it.
fn ours(situation: Situation<'_>, policy: &ApplyPolicy, seen: &Seen, record: &AppliedRecord) -> Decision {
    let Situation { me, entry, .. } = situation;
    if is_left_alone(entry, policy) {
        let known = is_known(situation, record);
        // A handover may not have written its mark: an older build did not. The mark of an implied namespace may be nobody's
        // to write: nothing waits for it.
        let another = marked_source(me, entry, seen).is_some_and(|source| *source != entry.source.uid);
        return if !known || (!entry.implied && (another || is_formers(me, seen))) {
            take_up(situation, seen, origin_of(situation, record))
        } else if record.policy == entry.policy && is_same_account(entry, record) && !record.orphaning {
            Decision::Nothing(NoAction::Unchanged)
        } else {
            Decision::UpdateRecord
        };
    }
    // A change of a field of ours by anybody else takes the field out of our entry. Other changes do not matter: an
    // autoscaler's, or a status that is written as a part of the object.
    let touched = seen.managed != record.managed
        || match record.change_detector {
            ChangeDetector::Owner => false,
            ChangeDetector::Version if seen.generation != 0 => seen.generation != record.generation,
            ChangeDetector::Version => seen.resource_version != record.resource_version,
        };
    if !is_as_recorded(entry, record) || origin_of(situation, record) != record.origin {
        // Which fields are to be left as they are must be known before others are written.
        let unknown = touched && record.drifted.is_none() && policy.drift == DriftPolicy::Report;
        let compare_first =
            unknown && record.input == entry.input && record.source == entry.source.uid && !record.orphaning;
        return if compare_first { Decision::Nothing(NoAction::Drifted) } else { apply_onto(situation, record) };
    }
    let drifted = touched
        || record.drifted.is_some()
        || !seen.labelled
        || !seen.mark.as_deref().is_some_and(|mark| is_right(mark, me, entry, policy, record.origin));
    // Somebody has taken or released fields: perhaps of those that were left to them.
    let released = record.left.as_ref().is_some_and(|left| left.others != seen.others);
    match (drifted, policy.drift) {
        (false, _) if released => apply_onto(situation, record),
        (false, _) if !is_same_account(entry, record) => Decision::UpdateRecord,
        (false, _) => Decision::Nothing(NoAction::Unchanged),
        // The local change is known by now, and stays.
        (true, DriftPolicy::Report) if is_formers(me, seen) && (!touched || record.drifted.is_some()) => {
            apply_onto(situation, record)
        }
        (true, DriftPolicy::Report) => Decision::Nothing(NoAction::Drifted),
        (true, DriftPolicy::Correct) => apply_onto(situation, record),
    }
}

/// Whether a mark says what [`mark_of`] would write. An older build named the whole policy in it, which is as good.
fn is_right(mark: &Mark, me: Me, entry: &Entry, policy: &ApplyPolicy, origin: Origin) -> bool {
    // That of the whole first: it is known, and most policies have no other. A patrol asks this of every object.
    *mark == mark_naming(entry.policy, me, entry, policy, origin) || *mark == mark_of(me, entry, policy, origin)
}

/// Whether the object stays as it is, whatever its source says.
pub(in crate::core) fn is_left_alone(entry: &Entry, policy: &ApplyPolicy) -> bool {
    policy.mode == ApplyMode::CreateOnly || entry.implied
}

/// Whether the journal knows an object that is never applied as this source's.
fn is_known(situation: Situation<'_>, record: &AppliedRecord) -> bool {
    let entry = situation.entry;
    record.source == entry.source.uid
        && record.implied == entry.implied
        && record.origin == origin_of(situation, record)
}

/// Whether its mark names a former target of this agent: it is to name the present one.
fn is_formers(me: Me, seen: &Seen) -> bool {
    seen.mark.as_ref().is_some_and(|mark| mark.hub == me.hub && me.formers.contains(mark.target))
}

/// Its source by its own mark, if that is ours and names this object.
fn marked_source<'a>(me: Me, entry: &Entry, seen: &'a Seen) -> Option<&'a Uid> {
    let mark = seen.mark.as_ref()?;
    (mark.ownership(me, &entry.key) == Ownership::Ours).then_some(&mark.source.uid)
}

/// An object that is never applied is this source's from now on. Nothing else would ever write the mark by which it is known
/// when it is to be removed, or when the journal is lost.
fn take_up(situation: Situation<'_>, seen: &Seen, origin: Origin) -> Decision {
    let Situation { me, entry, .. } = situation;
    let uid = seen.uid.clone();
    let says_so = situation.found == Found::AsKnown || seen.mark.as_ref().is_some_and(|mark| mark.origin == origin);
    if marked_source(me, entry, seen) == Some(&entry.source.uid) && says_so && !is_formers(me, seen) {
        Decision::Record { uid, origin }
    } else {
        Decision::TransferOwnership { uid, origin }
    }
}

/// An object exists without a mark that the journal does not know.
fn adopt(entry: &Entry, policy: &ApplyPolicy, seen: &Seen) -> Decision {
    let (uid, origin) = (seen.uid.clone(), Origin::Adopted);
    let adopted = if is_left_alone(entry, policy) {
        Decision::TransferOwnership { uid, origin }
    } else {
        Decision::Apply { uid, takeover: ApplyTakeover::Adopt, origin }
    };
    refuses(entry, policy, seen).map_or(adopted, |why| Decision::Skip(Reason::Unmanaged, why))
}

/// Why a foreign object may not be adopted, if so.
pub(in crate::core) fn refuses(entry: &Entry, policy: &ApplyPolicy, seen: &Seen) -> Option<&'static str> {
    match policy.takeover {
        _ if entry.implied => None,
        Takeover::Always => None,
        Takeover::IfUnmanaged if !seen.managed_elsewhere => None,
        Takeover::IfUnmanaged => Some(
            "the existing object is managed by another tool, and is not adopted. To adopt it, set apply.takeover: \
                  Always in its Placement",
        ),
        Takeover::Never => Some(
            "the object already exists, and apply.takeover is Never in its Placement. Delete it, or change \
                                 apply.takeover",
        ),
    }
}

fn apply_onto(situation: Situation<'_>, record: &AppliedRecord) -> Decision {
    let takeover = if record.posted { ApplyTakeover::Posted } else { ApplyTakeover::None };
    Decision::Apply { uid: record.uid.clone(), takeover, origin: origin_of(situation, record) }
}

/// The local changes that an apply leaves, where such changes are only reported.
pub(in crate::core) fn left_alone(policy: &ApplyPolicy, record: Option<&AppliedRecord>) -> Arc<[LocalField]> {
    match (policy.drift, record) {
        (DriftPolicy::Report, Some(record)) => Arc::clone(&record.local),
        (DriftPolicy::Report, None) | (DriftPolicy::Correct, _) => Arc::default(),
    }
}

/// Whether it would be removed as the account that its entry names.
fn is_same_account(entry: &Entry, record: &AppliedRecord) -> bool {
    record.impersonate == entry.impersonate
}

/// Whether the last apply was of this entry. To an object that was only implied nothing was applied.
pub(in crate::core) fn is_as_recorded(entry: &Entry, record: &AppliedRecord) -> bool {
    (entry.implied || !record.implied)
        && record.input == entry.input
        && record.policy == entry.policy
        && record.source == entry.source.uid
        && record.source_generation == entry.generation
        && !record.orphaning
}

/// Whether what was applied last, under another policy, would be written alike under this one.
pub(in crate::core) fn is_written_alike(
    record: &AppliedRecord,
    former: &ApplyPolicy,
    entry: &Entry,
    policy: &ApplyPolicy,
) -> bool {
    record.policy != entry.policy && former.written_digest() == policy.written_digest()
}

/// The record for the journal after a write, or of an object that was found to be right.
pub(in crate::core) fn record_of(entry: &Entry, seen: &Seen, origin: Origin, posted: bool) -> AppliedRecord {
    AppliedRecord {
        uid: seen.uid.clone(),
        version: Arc::clone(&entry.version),
        source: entry.source.uid.clone(),
        input: entry.input,
        policy: entry.policy,
        source_generation: entry.generation,
        managed: seen.managed,
        generation: seen.generation,
        resource_version: Arc::clone(&seen.resource_version),
        origin,
        posted,
        implied: entry.implied,
        orphaning: false,
        wave: Some(entry.wave),
        impersonate: entry.impersonate.clone(),
        drifted: None,
        change_detector: ChangeDetector::Owner,
        left: None,
        local: Arc::default(),
        template: None,
    }
}

#[cfg(test)]
mod tests;
