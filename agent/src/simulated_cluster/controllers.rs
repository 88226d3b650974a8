//! What controllers do in their own time, and what becomes of objects by itself.

use tideline_common::ObjectKey;

use super::Cluster;
use crate::core::Deleted;

/// What a controller does in its own time.
#[derive(Clone, Debug)]
pub enum Chore {
    /// Observes the present generation.
    Observe(ObjectKey),
    /// Removes what is being deleted, once nothing is in it any more: that is deleted first.
    Finalize(ObjectKey),
}

impl Cluster {
    /// A request to delete an object: by an agent, or by anybody.
    pub fn delete(&mut self, key: &ObjectKey) -> Deleted {
        let Some(local) = self.objects.get(key) else { return Deleted::Gone };
        let holds = key.kind.is_namespace() || key.kind.is_definition();
        if local.finalizer || holds || self.faults.unfinalized.contains(key) {
            if !local.deleting {
                self.change(key, |local| local.deleting = true);
                self.chores.push(Chore::Finalize(key.clone()));
            }
            return Deleted::Finalizing;
        }
        self.remove(key);
        Deleted::Gone
    }

    /// Every controller does what it has to do by now.
    pub fn do_chores(&mut self) {
        for chore in std::mem::take(&mut self.chores) {
            self.do_chore(&chore);
        }
    }

    pub fn do_chore(&mut self, chore: &Chore) {
        match chore {
            Chore::Observe(key) => {
                if self.objects.get(key).is_some_and(|local| local.lags(key)) {
                    self.change(key, |local| {
                        local.observed_generation = local.generation;
                        local.status += 1;
                    });
                }
            }
            // It is tried again.
            Chore::Finalize(key) if self.faults.unfinalized.contains(key) => self.chores.push(chore.clone()),
            Chore::Finalize(key) => {
                if self.objects.get(key).is_some_and(|local| local.deleting) {
                    let contents: Vec<_> = self.contents(key).cloned().collect();
                    for inner in &contents {
                        self.delete(inner);
                    }
                    if self.contents(key).next().is_some() {
                        self.chores.push(chore.clone());
                    } else {
                        self.remove(key);
                    }
                }
            }
        }
    }

    pub fn progress(&mut self, key: &ObjectKey) {
        self.change(key, |local| local.status += 1);
    }

    pub fn set_status(&mut self, key: &ObjectKey, status: u64) {
        self.change(key, |local| local.status = status);
    }

    /// What was slow has become ready.
    pub fn become_ready(&mut self, key: &ObjectKey) {
        self.change(key, |local| local.starting = false);
    }

    /// A Job ends.
    pub fn finish(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key).filter(|local| !local.finished) {
            self.finished.extend(local.owner.clone());
            self.change(key, |local| local.finished = true);
        }
    }

    /// It ends and is collected, and no watch tells more of that than that it is gone.
    pub fn end_unseen(&mut self, key: &ObjectKey) {
        if let Some(local) = self.objects.get(key) {
            self.finished.extend(local.owner.clone());
            self.remove(key);
        }
    }

    /// What ended is collected, as by its time to live or by whoever has looked for it.
    pub fn collect(&mut self, key: &ObjectKey) {
        if self.objects.get(key).is_some_and(|local| local.finished) {
            self.remove(key);
        }
    }
}
