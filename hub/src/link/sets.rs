use tideline_common::{Digest, ObjectKey, Revision, TargetId, Version};

use super::core::{SetInfo, SetPage, Sets};
use crate::ledger::Ledger;

impl Sets for Ledger {
    fn info(&self, target: TargetId) -> Option<SetInfo> {
        let view = self.target(target)?;
        Some(SetInfo { version: view.version(), digest: view.digest(), entries: view.len() as u64 })
    }

    fn page(
        &self,
        target: TargetId,
        since: Option<Revision>,
        after: Option<&ObjectKey>,
        limit: usize,
    ) -> Option<SetPage> {
        let view = self.target(target)?;
        let since = since.map(|revision| Version { epoch: view.epoch(), revision });
        let page = view.page(since, after, limit)?;
        Some(SetPage {
            entries: page.entries,
            tombstones: page.tombstones,
            policies: page.policies,
            terminal: Vec::new(),
            next: page.next,
        })
    }

    fn names(&self, target: TargetId, key: &ObjectKey, input: Digest) -> bool {
        self.target(target).is_some_and(|view| view.body(key, input).is_some())
    }
}
