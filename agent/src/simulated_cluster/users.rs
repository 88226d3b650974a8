//! What others do at the cluster: people, their tools, and agents of other hubs.

use std::sync::Arc;

use tideline_common::{Digest, HubId, Mark, ObjectKey, TargetId, Uid};
use uuid::Uuid;

use super::Cluster;
use super::objects::{Local, Managed};

/// How somebody manages what is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    ByHand,
    Declaratively,
}

/// What somebody takes off an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stripped {
    Mark,
    Label,
    Both,
}

impl Cluster {
    /// Somebody changes a field of ours.
    pub fn edit(&mut self, key: &ObjectKey) {
        self.change(key, |local| {
            local.input = None;
            local.generation += 1;
            if let Some(managed) = &mut local.managed {
                managed.field_taken = true;
            }
        });
    }

    /// Who changed a field of ours changes it again, to what it was.
    pub fn put_back(&mut self, key: &ObjectKey, input: Digest) {
        self.change(key, |local| {
            local.input = Some(input);
            local.generation += 1;
        });
    }

    /// Somebody applies a field of ours, or gives it up.
    pub fn contest(&mut self, key: &ObjectKey, rival: Option<u8>) {
        self.change(key, |local| local.rival = rival);
    }

    pub fn strip(&mut self, key: &ObjectKey, what: Stripped) {
        self.change(key, |local| {
            let (mark, label) = (what != Stripped::Label, what != Stripped::Mark);
            if mark {
                local.mark = None;
            }
            if label {
                local.label = None;
            }
            if let Some(managed) = &mut local.managed {
                managed.mark_taken |= mark;
                managed.label_taken |= label;
            }
        });
    }

    /// A controller of somebody's holds on to it.
    pub fn hold(&mut self, key: &ObjectKey) {
        self.change(key, |local| local.finalizer = true);
    }

    /// Somebody makes an object of theirs, where there is none.
    pub fn intrude(&mut self, key: &ObjectKey, means: Means) {
        self.add(key, |local| local.declarative = means == Means::Declaratively);
    }

    /// The same, with a mark that was written for another place, or by another hub.
    pub fn copy_to(&mut self, key: &ObjectKey, mark: &Arc<Mark>) {
        self.add(key, |local| *local = local.clone().marked(mark));
    }

    /// An object with our own mark, of a source that is not assigned.
    pub fn plant(&mut self, key: &ObjectKey, like: &ObjectKey) {
        self.plant_of(key, like, "s99");
    }

    pub fn plant_of(&mut self, key: &ObjectKey, like: &ObjectKey, source: &str) {
        let mark = self.mark_like(key, like, source);
        let local = Local { declarative: true, ..self.new_object().marked(&mark) };
        self.put(key, local);
    }

    /// What the agent made of this source before, and was deleted since.
    pub fn restore_from_backup(&mut self, key: &ObjectKey, like: &ObjectKey, source: &str) {
        let mark = self.mark_like(key, like, source);
        let (input, managed) = (Some(mark.input), Some(Managed::applied(mark.input)));
        let local = Local { input, managed, owner: Some(mark.source.uid.clone()), created: true, ..self.new_object() };
        self.put(key, local.marked(&mark));
    }

    /// What another target has in this place, restored here.
    pub fn carry(&mut self, key: &ObjectKey, like: &ObjectKey) {
        let mark = Mark { local: key.clone(), target: another_target(), ..self.mark_of(like) };
        let local = Local { declarative: true, ..self.new_object().marked(&Arc::new(mark)) };
        self.put(key, local);
    }

    /// Another hub's agent takes the object over: it is the same, under that one's mark and label.
    pub fn seize(&mut self, key: &ObjectKey) {
        let mark = Mark { hub: HubId::from_uuid(Uuid::from_u128(98)), target: another_target(), ..self.mark_of(key) };
        self.change(key, |local| *local = local.clone().marked(&Arc::new(mark)));
    }

    fn add(&mut self, key: &ObjectKey, how: impl FnOnce(&mut Local)) {
        if self.admits(key).is_ok() && !self.objects.contains_key(key) {
            let mut local = self.new_object();
            how(&mut local);
            self.put(key, local);
        }
    }

    fn mark_of(&self, key: &ObjectKey) -> Mark {
        (**self.objects[key].mark.as_ref().expect("it is ours")).clone()
    }

    fn mark_like(&self, key: &ObjectKey, like: &ObjectKey, source: &str) -> Arc<Mark> {
        let mut mark = self.mark_of(like);
        mark.local = key.clone();
        mark.source.uid = source.parse::<Uid>().expect("it is written in a test");
        Arc::new(mark)
    }
}

fn another_target() -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(99))
}
