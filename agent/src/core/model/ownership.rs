//! Whose an object is, by its mark and by the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_common::{EntryState, Mark, ObjectKey, Ownership, Uid};

use super::Model;
use super::kinds::View;
use super::seen::Seen;

impl Model {
    /// The source of an object of ours that is in no set, from journal or mark.
    pub(in crate::core) fn left_over(&self, key: &ObjectKey) -> Option<Uid> {
        let (object, me) = (self.objects.get(key)?, self.me()?);
        let mark = object.seen().filter(|seen| !seen.deleting).and_then(|seen| seen.mark.as_ref());
        let ours = mark.filter(|mark| mark.ownership(me, key) == Ownership::Ours);
        let recorded = object.record.as_ref().map(|record| record.source.clone());
        recorded.or_else(|| ours.map(|mark| mark.source.uid.clone()))
    }

    /// Whether nothing shows any more what nothing assigns and nothing removes, and the journal knows. It is gone, or has lost its
    /// label; a live read tells.
    pub(in crate::core) fn may_be_gone(&self, key: &ObjectKey) -> bool {
        self.desired.get(key).is_none()
            && self.kinds.view(key) == View::Current
            && self.objects.get(key).is_some_and(|object| object.record.is_some() && object.seen().is_none())
            && self.removals_of(key).next().is_none()
    }

    /// Whether the object seen under its key is ours, for this source.
    pub(in crate::core) fn stands_for(&self, key: &ObjectKey, source: &Uid) -> bool {
        let ours = || {
            let object = self.objects.get(key)?;
            let mark = object.seen()?.mark.as_deref()?;
            Some(mark.source.uid == *source && mark.ownership(self.me()?, key) == Ownership::Ours)
        };
        ours().unwrap_or(false)
    }

    /// Whose object this is: by its mark, if that is ours, and by the journal, whatever the mark says. What is another's says
    /// nothing of any source.
    pub(in crate::core) fn sources_of(&self, key: &ObjectKey, uid: &Uid, mark: Option<&Mark>) -> BTreeSet<Uid> {
        let ours = self.me().zip(mark).filter(|(me, mark)| mark.ownership(*me, key) == Ownership::Ours);
        let marked = ours.map(|(_, mark)| mark.source.uid.clone());
        let object = self.objects.get(key);
        let record = object.as_ref().and_then(|object| object.record.as_ref()).filter(|record| record.uid == *uid);
        marked.into_iter().chain(record.map(|record| record.source.clone())).collect()
    }

    /// The object under a key, if it is ours.
    pub(in crate::core) fn uid_of_ours(&self, key: &ObjectKey) -> Option<Uid> {
        let (me, object) = (self.me()?, self.objects.get(key)?);
        let seen = object.seen()?;
        let ownership = seen.mark.as_ref()?.ownership(me, key);
        (ownership == Ownership::Ours).then(|| seen.uid.clone())
    }

    /// What this place shows, if that has a mark of a former target that no application would write anew.
    pub(in crate::core) fn formers_mark(&self, key: &ObjectKey) -> Option<(Seen, Arc<Mark>)> {
        let me = self.me().filter(|me| me.formers.iter().next().is_some())?;
        if self.desired.get(key).is_some_and(|entry| entry.state == EntryState::Apply && !entry.implied) {
            return None;
        }
        match self.kinds.view(key) {
            View::Current | View::Lost => {}
            View::Unlisted | View::Unknown | View::Missing | View::NamespaceExcluded => return None,
        }
        let object = self.objects.get(key)?;
        let seen = object.seen().filter(|seen| !seen.deleting)?;
        let mark = seen.mark.as_ref()?;
        let formers = me.formers.contains(mark.target) && mark.ownership(me, key) == Ownership::Ours;
        (formers && !object.work.is_in_flight()).then(|| (seen.clone(), Arc::clone(mark)))
    }

    /// Whether another object is seen under a key than this one.
    pub(in crate::core) fn shows_another(&self, key: &ObjectKey, uid: &Uid) -> bool {
        let another = |seen: &Seen| seen.uid != *uid;
        self.objects.get(key).is_some_and(|object| object.seen().is_some_and(another))
    }
}
