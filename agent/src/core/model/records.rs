//! What was applied, as the journal has it.

use tideline_common::wire::v1::Terminal;
use tideline_common::{Digest, Entry, ObjectKey, Uid};

use super::Model;
use super::disk::Then;
use crate::core::interface::write::{AppliedRecord, Write};

impl Model {
    pub(in crate::core) fn set_record(&mut self, key: &ObjectKey, record: AppliedRecord) {
        self.there_was(&key.kind, &record.version);
        if self.restored.is(key, &record.uid) {
            self.came_back_no_more(key);
        }
        let object = self.objects.at(key);
        if object.record.as_ref().is_some_and(|former| former.source != record.source) {
            object.live.observed_generation = None;
        }
        if object.record.is_none() {
            self.recorded += 1;
            self.kinds.refer(key, &record.version);
        }
        if object.record.as_ref() != Some(&record) {
            object.unrecorded += 1;
            self.disk.write(Write::Applied { key: key.clone(), record: Box::new(record.clone()) });
            self.disk.then(Then::Recorded(key.clone()));
            object.record = Some(record);
        }
        object.translate_generation();
    }

    pub(in crate::core) fn clear_record(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(key)
            && object.record.take().is_some()
        {
            self.recorded -= 1;
            self.kinds.unrefer(key);
            self.disk.write(Write::Forgotten { key: key.clone() });
        }
    }

    /// Nothing was found under a key, or the object there was orphaned. Of whatever source it was, the journal need not know
    /// it any more, unless that source has a removal of its own.
    pub(in crate::core) fn clear_record_of_what_went(&mut self, key: &ObjectKey) {
        if self.desired.get(key).is_some() {
            return;
        }
        let source = self.objects.get(key).and_then(|object| Some(object.record.as_ref()?.source.clone()));
        if let Some(source) = source
            && !self.open_removals_of(key).any(|(tombstone, _)| tombstone.source == source)
        {
            self.clear_record(key);
        }
    }

    /// An object that this agent has deleted itself is created anew if it is assigned again, unless it was seen to end.
    pub(in crate::core) fn forget_start_of_deleted(&mut self, key: &ObjectKey, source: &Uid) {
        self.creation_is_known(key, source);
        self.forget_fact(key, source, Terminal::Started);
    }

    /// Forgets the fact, if that is what is known of this source. Returns whether it was.
    pub(in crate::core) fn forget_fact(&mut self, key: &ObjectKey, source: &Uid, fact: Terminal) -> bool {
        let known = self.objects.get_mut(key).filter(|object| object.happened(source) == Some(fact));
        let Some(object) = known else { return false };
        object.terminal = None;
        self.disk.write(Write::Sent { key: key.clone() });
        true
    }

    /// A Job may have run as its entry says, or as it said then, with this Pod template.
    pub(in crate::core) fn may_have_run(&mut self, entry: &Entry, template: Option<Digest>) {
        let key = &entry.key;
        let record = self.objects.get(key).and_then(|object| object.record.clone());
        if let Some(record) = record.filter(|record| record.source == entry.source.uid) {
            let template = template.or(record.template);
            self.set_record(key, AppliedRecord { input: entry.input, template, ..record });
        }
    }

    /// A Job that is gone was to run with another Pod template, and its source has changed in something else.
    pub(in crate::core) fn has_run_as_it_is(&mut self, entry: &Entry) {
        let key = &entry.key;
        if let Some(record) = self.objects.get(key).and_then(|object| object.record.clone()) {
            self.set_record(key, AppliedRecord { input: entry.input, ..record });
        }
    }
}
