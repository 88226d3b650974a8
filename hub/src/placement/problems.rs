use std::collections::BTreeMap;

use tideline_common::Reason;

/// What of one Placement's objects cannot be as it asks, kept up to date as they are resolved: a summary costs what it
/// says, however many objects there are.
#[derive(Debug, Default)]
pub(super) struct Problems {
    by_object: BTreeMap<u32, Vec<(Reason, String)>>,
    pub(super) counts: BTreeMap<Reason, u64>,
}

impl Problems {
    pub(super) fn remove(&mut self, index: u32) {
        self.put(index, Vec::new());
    }

    /// In place of what was said of the object before.
    pub(super) fn put(&mut self, index: u32, problems: Vec<(Reason, String)>) {
        for (reason, _) in &problems {
            *self.counts.entry(*reason).or_default() += 1;
        }
        let former =
            if problems.is_empty() { self.by_object.remove(&index) } else { self.by_object.insert(index, problems) };
        for (reason, _) in former.into_iter().flatten() {
            if let Some(count) = self.counts.get_mut(&reason) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&reason);
                }
            }
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &(Reason, String))> {
        self.by_object.iter().flat_map(|(index, problems)| problems.iter().map(|problem| (*index, problem)))
    }
}
