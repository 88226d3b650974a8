//! What was applied, as the journal has it.

use tideline_common::ObjectKey;

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
            self.disk.write(Write::Applied { key: key.clone(), record: record.clone() });
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
}
