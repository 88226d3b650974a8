//! The outcome of a run, and how another may differ from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use tideline_common::wire::v1::ObjectReport;
use tideline_common::{Digest, ObjectKey, Tombstone};

use super::probe::Writes;
use crate::world::World;

/// Everything that is the same at the end, however the run was disturbed; as text, to be compared and shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    facts: BTreeMap<String, String>,
    writes: BTreeMap<ObjectKey, Writes>,
}

impl Outcome {
    pub(crate) fn of(world: &World) -> Self {
        let mut facts = BTreeMap::new();
        for (key, local) in &world.cluster.objects {
            let text = format!(
                "input {:?}, mark {:?}, label {:?}, deleting {}, created by us {}",
                local.input, local.mark, local.label, local.deleting, local.created
            );
            facts.insert(format!("{key} at the cluster"), text);
        }
        let journal = world.journal();
        for (key, record) in &journal.applied {
            // How it was written last, and which versions the API server gave it, depends on the way.
            let text = format!(
                "{} {:?} {:?} {} {:?} {} {} {:?} {}",
                record.source,
                record.input,
                record.policy,
                record.source_generation,
                record.origin,
                record.implied,
                record.orphaning,
                record.wave,
                record.drifted.is_some()
            );
            facts.insert(format!("{key} in the journal"), text);
        }
        let bodies: BTreeSet<&Digest> = journal.bodies.keys().collect();
        facts.insert("bodies in the journal".to_owned(), format!("{bodies:?}"));
        facts.insert("removals in the journal".to_owned(), format!("{:?}", journal.removing));
        for (key, unsent) in &journal.unsent {
            let text = format!("{} {:?}", unsent.source_uid, unsent.terminal);
            facts.insert(format!("{key} once and for all"), text);
        }
        let reports = world.hub.summary.target(world.hub.target());
        for report in reports.into_iter().flat_map(|reports| reports.objects().chain(reports.held())) {
            // How often a controller wrote a status depends on what it saw in between.
            let ObjectReport { key, status, message, .. } = &**report;
            let told = ObjectReport { status: None, message: timeless(message), ..(**report).clone() };
            let text = format!("{told:?} {}", status.is_some());
            facts.insert(format!("{key} as reported"), text);
        }
        let tombstones: BTreeSet<Tombstone> = world.hub.tombstones().into_iter().collect();
        facts.insert("tombstones at the hub".to_owned(), format!("{tombstones:?}"));
        facts.insert("histories accepted".to_owned(), world.hub.accepts.to_string());
        let writes = world.probe.as_ref().map(|probe| probe.writes.clone()).unwrap_or_default();
        Self { facts, writes }
    }

    /// How this differs from the undisturbed run in a way that it must not; nothing if it does not.
    ///
    /// Fewer writes are right: an agent that was away while an object changed twice writes it once. More are not, except:
    /// - An apply is repeated once where its agent ended before the journal knew of it (`unacknowledged`). It cannot be told
    ///   from one whose object somebody changed since: the result was in the answer that nobody heard. The same holds for the
    ///   patch that orphans an object; the second finds no mark to remove.
    /// - A creation is never repeated as such: the API server refuses it, and the existing object is applied onto, once.
    /// - A mark alone is never written twice: it is compared with what is there. It may replace a deletion and a creation,
    ///   where the agent did not see that the key was unassigned in between.
    /// - A deletion is never repeated: it carries the UID of its object.
    ///
    /// How often the hub commits is not compared: it batches changes that come together, which depends on the way.
    pub(crate) fn surplus(&self, undisturbed: &Self, unacknowledged: &BTreeMap<ObjectKey, u64>) -> String {
        let mut text = String::new();
        let names: BTreeSet<&String> = self.facts.keys().chain(undisturbed.facts.keys()).collect();
        for name in names {
            let (ours, theirs) = (self.facts.get(name), undisturbed.facts.get(name));
            if ours != theirs {
                let none = "nothing".to_owned();
                let (ours, theirs) = (ours.unwrap_or(&none), theirs.unwrap_or(&none));
                let _ = write!(text, "\n    {name}: {ours}\n      undisturbed: {theirs}");
            }
        }
        for (key, writes) in &self.writes {
            let usual = undisturbed.writes.get(key).copied().unwrap_or_default();
            let again = unacknowledged.get(key).copied().unwrap_or_default();
            let written = |writes: &Writes| writes.created + writes.applied + writes.marked;
            let applied = written(writes) <= written(&usual) + again;
            let orphaned = writes.orphaned <= usual.orphaned + again;
            let kept = writes.created <= usual.created && writes.deleted <= usual.deleted;
            if !(applied && orphaned && kept) {
                let _ = write!(text, "\n    {key}: {writes:?}, undisturbed {usual:?}, {again} not acknowledged");
            }
        }
        text
    }
}

/// A message without the time at which it was first seen, which depends on the way.
fn timeless(message: &str) -> String {
    const SEEN: &str = "seen first at ";
    let Some((before, after)) = message.split_once(SEEN) else { return message.to_owned() };
    let rest = after.split_once(':').map_or("", |(_, rest)| rest);
    format!("{before}{SEEN}some time:{rest}")
}
