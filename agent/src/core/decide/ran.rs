//! What ran here, of sources that are no longer assigned: if the same source is assigned again, it does not run again. Sources
//! that are assigned have that with their object.
//!
//! The hub remembers it too and says it with the entry: it is reported with the end of the removal, for the hub may not have
//! heard of it before. But the hub may have lost that.

use std::collections::BTreeMap;

use tideline_common::wire::v1::{Terminal, TerminalFact};
use tideline_common::{Entry, ObjectKey, Reason, Tombstone, Uid};

use super::plan::{Decision, NoAction};
use crate::core::Core;
use crate::core::interface::write::{AppliedRecord, Write};
use crate::core::model::object::Object;

/// So many are remembered; each takes some 200 bytes, so 400 KiB. Beyond that, the sources that left first are forgotten
/// first, here; the hub remembers more.
pub const RAN_MAX: usize = 2_000;

/// The message for a Job that is gone, and that nobody has seen end.
pub(in crate::core) const VANISHED: &str = "this Job was created here and is gone, so it may have run; it is not created again. To run it again, \
                                            recreate its source, or change its Pod template with apply.recreate: OnImmutable";

/// What ran, by key and source.
#[derive(Debug, Default)]
pub(in crate::core) struct Ran {
    numbers: BTreeMap<Tombstone, u64>,
    by_number: BTreeMap<u64, Tombstone>,
}

impl Ran {
    pub(in crate::core) fn new(loaded: Vec<(u64, Tombstone)>) -> Self {
        let numbers = loaded.iter().map(|(number, ran)| (ran.clone(), *number)).collect();
        Self { numbers, by_number: loaded.into_iter().collect() }
    }

    /// Returns its number, if that is news.
    fn put(&mut self, ran: &Tombstone) -> Option<u64> {
        if self.numbers.contains_key(ran) {
            return None;
        }
        let number = self.by_number.last_key_value().map_or(0, |(last, _)| last + 1);
        self.numbers.insert(ran.clone(), number);
        self.by_number.insert(number, ran.clone());
        Some(number)
    }

    fn take(&mut self, ran: &Tombstone) -> Option<u64> {
        let number = self.numbers.remove(ran)?;
        self.by_number.remove(&number);
        Some(number)
    }

    /// That it ran, as the hub is told with the end of its removal.
    pub(in crate::core) fn fact(&self, ran: &Tombstone) -> Option<TerminalFact> {
        let Tombstone { key, source } = ran.clone();
        let known = self.numbers.contains_key(ran);
        known.then_some(TerminalFact { key, source_uid: source, fact: Terminal::Finished })
    }

    /// What is too much.
    fn take_first(&mut self) -> Option<u64> {
        let first = self.by_number.values().next().filter(|_| self.by_number.len() > RAN_MAX)?.clone();
        self.take(&first)
    }
}

impl Core {
    /// An object is about to be forgotten; that it ran is not.
    pub(in crate::core) fn remember_run(&mut self, key: &ObjectKey) {
        let fact = self.model.objects.get(key).and_then(|object| object.terminal.clone());
        // A Job that nobody has seen end has ended, or was deleted by others.
        if let Some((source, Terminal::Finished | Terminal::Started)) = fact {
            let tombstone = Tombstone { key: key.clone(), source };
            if let Some(number) = self.guards.ran.put(&tombstone) {
                self.model.disk.write(Write::Ran { number, tombstone });
            }
            while let Some(number) = self.guards.ran.take_first() {
                self.model.disk.write(Write::RanForgotten { number });
            }
        }
    }

    /// A source is assigned that may have been here before.
    pub(in crate::core) fn recall_run(&mut self, key: &ObjectKey, source: &Uid) {
        let tombstone = Tombstone { key: key.clone(), source: source.clone() };
        if let Some(number) = self.guards.ran.take(&tombstone) {
            self.note_terminal(key, source.clone(), Terminal::Finished);
            self.model.disk.write(Write::RanForgotten { number });
        }
    }

    /// The hub says what it knows of an object that runs once.
    pub(in crate::core) fn note_told(&mut self, TerminalFact { key, source_uid, fact }: &TerminalFact) {
        let known = self.model.objects.get(key).and_then(|object| object.happened(source_uid));
        let noted = match fact {
            // The object may run anew, with another Pod template.
            Terminal::Finished => !self.model.stands_for(key, source_uid),
            Terminal::CreatedOnce | Terminal::Unknown => true,
            Terminal::Started | Terminal::MayHaveRun => {
                !known.is_some_and(Terminal::happened) && !self.knows_of(key, source_uid)
            }
            Terminal::Released => known == Some(Terminal::MayHaveRun),
        };
        if noted {
            self.note_terminal(key, source_uid.clone(), *fact);
        }
    }

    /// An object that this agent has deleted itself is created anew if it is assigned again, unless it was seen to end.
    pub(in crate::core) fn forget_start_of_deleted(&mut self, key: &ObjectKey, source: &Uid) {
        self.forget_fact(key, source, Terminal::Started);
    }

    /// Forgets the fact, if that is what is known of this source. Returns whether it was.
    pub(in crate::core) fn forget_fact(&mut self, key: &ObjectKey, source: &Uid, fact: Terminal) -> bool {
        let known = self.model.objects.get_mut(key).filter(|object| object.happened(source) == Some(fact));
        let Some(object) = known else { return false };
        object.terminal = None;
        self.model.disk.write(Write::Sent { key: key.clone() });
        true
    }

    /// A Job was created just now: that one before it ended says nothing of it, and it may end unseen as well.
    pub(in crate::core) fn runs_anew(&mut self, key: &ObjectKey, source: &Uid) {
        if self.forget_fact(key, source, Terminal::Finished) {
            self.note_terminal(key, source.clone(), Terminal::Started);
        }
    }

    /// A Job that is gone was to run with another Pod template, and its source has changed in something else.
    pub(in crate::core) fn has_run_as_it_is(&mut self, entry: &Entry) {
        let key = &entry.key;
        if let Some(record) = self.model.objects.get(key).and_then(|object| object.record.clone()) {
            self.model.set_record(key, AppliedRecord { input: entry.input, ..record });
        }
    }

    /// An existing object of ours leaves no doubt: if it goes, it is recreated as anywhere else. Except a Job, which may have
    /// ended by then and have been collected unseen.
    pub(in crate::core) fn undoubt(&mut self, key: &ObjectKey) {
        let Some(object) = self.model.objects.get(key).filter(|_| !key.kind.is("batch", "Job")) else { return };
        if let Some((source, Terminal::MayHaveRun)) = object.terminal.clone()
            && self.model.stands_for(key, &source)
        {
            self.note_terminal(key, source, Terminal::Released);
        }
    }

    /// Whether this source was here before: what it did since is in the journal, or exists in the cluster.
    fn knows_of(&self, key: &ObjectKey, source: &Uid) -> bool {
        if self.guards.ran.numbers.contains_key(&Tombstone { key: key.clone(), source: source.clone() }) {
            return true;
        }
        let object = self.model.objects.get(key);
        let object = object.as_ref();
        let assigned = self.model.assigns(key, source);
        let recorded = object.and_then(|object| object.record.as_ref()).is_some_and(|record| record.source == *source);
        let withheld = object.and_then(|object| object.happened(source)) == Some(Terminal::MayHaveRun);
        recorded || self.model.stands_for(key, source) || (assigned && !withheld)
    }
}

/// Whether a Job counts as gone though nobody has read it: somebody may only have taken its label.
pub(in crate::core) fn is_gone_unread(object: &Object, source: &Uid, decision: &Decision) -> bool {
    let gone = matches!(
        decision,
        Decision::RunAnew(_) | Decision::Nothing(NoAction::Terminal) | Decision::Withhold(Reason::Vanished)
    );
    gone && object.happened(source) == Some(Terminal::Started) && !object.presence.is_doubted()
}

#[cfg(test)]
mod tests;
