//! What ran here, of sources that are no longer assigned: if the same source is assigned again, it does not run again. Sources
//! that are assigned have that with their object: one fact has its place there, which no other source takes from them.
//!
//! The hub remembers it too and says it with the entry: it is reported with the end of the removal, for the hub may not have
//! heard of it before. But the hub may have lost that.

use std::collections::BTreeMap;

use tideline_common::health::Health;
use tideline_common::wire::v1::{ObjectReport, Progress, Terminal, TerminalFact};
use tideline_common::{Digest, ObjectKey, Reason, Tombstone, Uid};

use super::plan::{Decision, NoAction};
use crate::core::interface::write::Write;
use crate::core::model::Model;
use crate::core::model::object::Object;

/// So many are remembered; each takes some 200 bytes, so 400 KiB. Beyond that, the sources that left first are forgotten
/// first, here; the hub remembers more.
pub const RAN_MAX: usize = 2_000;

/// The message for a Job that is gone, and that nobody has seen end. With which Pod template it was created this agent may not
/// know: its creation had no answer, or the hub alone remembers it.
pub(in crate::core) fn vanished(template: Option<Digest>) -> &'static str {
    if template.is_some() {
        "this Job was created here and is gone, so it may have run; it is not created again. To run it again, recreate its \
         source, or change its Pod template with apply.recreate: OnImmutable"
    } else {
        "this Job was created here before, or its creation had no answer, and it is not there, so it may have run; it is not \
         created again. To run it again, recreate its source"
    }
}

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

    /// An object is about to be forgotten; that it ran is not.
    pub(in crate::core) fn remember(&mut self, model: &mut Model, key: &ObjectKey) {
        let fact = model.objects.get(key).and_then(|object| object.terminal.clone());
        // A Job that nobody has seen end has ended, or was deleted by others.
        if let Some((source, Terminal::Finished | Terminal::Started)) = fact {
            self.add(model, Tombstone { key: key.clone(), source });
        }
    }

    fn add(&mut self, model: &mut Model, tombstone: Tombstone) {
        if let Some(number) = self.put(&tombstone) {
            model.disk.write(Write::Ran { number, tombstone });
        }
        while let Some(number) = self.take_first() {
            model.disk.write(Write::RanForgotten { number });
        }
    }

    /// A source is assigned that may have been here before.
    pub(in crate::core) fn recall(&mut self, model: &mut Model, key: &ObjectKey, source: &Uid) {
        let tombstone = Tombstone { key: key.clone(), source: source.clone() };
        if let Some(number) = self.take(&tombstone) {
            self.keep(model, key, source.clone(), Terminal::Finished);
            model.disk.write(Write::RanForgotten { number });
        }
    }

    /// The hub says what it knows of an object that runs once.
    pub(in crate::core) fn note_told(
        &mut self,
        model: &mut Model,
        TerminalFact { key, source_uid, fact }: &TerminalFact,
    ) {
        let known = model.objects.get(key).and_then(|object| object.happened(source_uid));
        let noted = match fact {
            // The object may run anew, with another Pod template.
            Terminal::Finished => !model.stands_for(key, source_uid),
            Terminal::CreatedOnce | Terminal::Unknown => true,
            Terminal::Started | Terminal::MayHaveRun => {
                !known.is_some_and(Terminal::happened) && !self.knows_of(model, key, source_uid)
            }
            Terminal::Released => known == Some(Terminal::MayHaveRun),
        };
        // It is about to be assigned, or is.
        if noted {
            self.keep(model, key, source_uid.clone(), *fact);
        }
    }

    /// A Job was created just now: that one before it ended says nothing of it, and it may end unseen as well.
    pub(in crate::core) fn runs_anew(&mut self, model: &mut Model, key: &ObjectKey, source: &Uid) {
        if model.forget_fact(key, source, Terminal::Finished) {
            self.note(model, key, source.clone(), Terminal::Started);
        }
    }

    /// A Job may have been created, and is not there: whatever one before it did, this one counts as started.
    pub(in crate::core) fn may_have_run(&mut self, model: &mut Model, key: &ObjectKey, source: &Uid) {
        model.forget_fact(key, source, Terminal::Finished);
        self.note(model, key, source.clone(), Terminal::Started);
    }

    /// An existing object of ours leaves no doubt: if it goes, it is recreated as anywhere else. Except a Job, which may have
    /// ended by then and have been collected unseen.
    pub(in crate::core) fn undoubt(&mut self, model: &mut Model, key: &ObjectKey) {
        let Some(object) = model.objects.get(key).filter(|_| !key.kind.is_job()) else { return };
        if let Some((source, Terminal::MayHaveRun)) = object.terminal.clone()
            && model.stands_for(key, &source)
        {
            self.note(model, key, source, Terminal::Released);
        }
    }

    /// Whether this source was here before: what it did since is in the journal, or exists in the cluster.
    fn knows_of(&self, model: &Model, key: &ObjectKey, source: &Uid) -> bool {
        if self.numbers.contains_key(&Tombstone { key: key.clone(), source: source.clone() }) {
            return true;
        }
        let object = model.objects.get(key);
        let object = object.as_ref();
        let assigned = model.assigns(key, source);
        let recorded = object.and_then(|object| object.record.as_ref()).is_some_and(|record| record.source == *source);
        let withheld = object.and_then(|object| object.happened(source)) == Some(Terminal::MayHaveRun);
        recorded || model.stands_for(key, source) || (assigned && !withheld)
    }

    /// Remembers a terminal fact across restarts: the cluster may not show it any more by then. A finished Job stays finished,
    /// whatever is heard late. What is heard of a source beside the one whose place it is takes nothing from that.
    pub(in crate::core) fn note(&mut self, model: &mut Model, key: &ObjectKey, source: Uid, fact: Terminal) {
        if has_place_for(model, key, &source, fact) {
            return self.keep(model, key, source, fact);
        }
        match fact {
            Terminal::Finished | Terminal::Started => self.add(model, Tombstone { key: key.clone(), source }),
            Terminal::CreatedOnce | Terminal::MayHaveRun | Terminal::Released | Terminal::Unknown => {}
        }
    }

    /// At the start: what the journal knows. The entries are known by then, and what is remembered of their sources.
    pub(in crate::core) fn resume(&mut self, model: &mut Model, key: &ObjectKey, source: Uid, fact: Terminal) {
        let known = model.objects.at(key).terminal.clone();
        match known {
            None if has_place_for(model, key, &source, fact) => model.objects.at(key).terminal = Some((source, fact)),
            Some((of, _)) if of == source => self.keep(model, key, source, fact),
            None | Some(_) => self.note(model, key, source, fact),
        }
    }

    /// Keeps a fact with its object, in place of another source's.
    fn keep(&mut self, model: &mut Model, key: &ObjectKey, source_uid: Uid, fact: Terminal) {
        let known = model.objects.at(key).happened(&source_uid);
        if !fact.is_news_after(known) {
            return;
        }
        if known.is_none() {
            self.remember(model, key);
        }
        let object = model.objects.at(key);
        object.terminal = Some((source_uid.clone(), fact));
        model.disk.write(Write::Unsent(Box::new(ObjectReport {
            key: key.clone(),
            source_uid,
            progress: Progress::Applied,
            reason: None,
            message: String::new(),
            input: object.record.as_ref().map(|record| record.input),
            health: Health::Unknown,
            observed_generation: None,
            terminal: Some(fact),
            status: None,
        })));
    }
}

/// Whether a fact of this source is kept with the object. The place is the assigned source's, and of one that is to be
/// assigned as soon as its set is on disk, if the hub has said anything of it. Without either it is the first one's; but
/// what is not remembered elsewhere is kept there as long as nothing else is.
fn has_place_for(model: &Model, key: &ObjectKey, source: &Uid, fact: Terminal) -> bool {
    let object = model.objects.get(key);
    let kept = object.as_ref().and_then(|object| object.terminal.as_ref()).map(|(of, _)| of);
    let another = kept.filter(|of| *of != source);
    let assigned = model.desired.get(key).map(|entry| &entry.source.uid);
    if another.is_some() && model.told_ahead.contains(key) {
        return false;
    }
    match (assigned, fact) {
        (Some(assigned), _) if assigned == source => true,
        (Some(_), Terminal::Finished | Terminal::Started) => false,
        (None, Terminal::Finished | Terminal::Started) => another.is_none(),
        (assigned, _) => another.is_none() || another != assigned,
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
