//! Interned strings: kinds, versions, spaces, namespaces, object names, messages of health.

use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_common::{Entry, Impersonation, ObjectKey, SpaceName};

use crate::core::interface::write::AppliedRecord;

/// Texts that are remembered to be shared, with some 100 bytes each. Beyond, it begins anew.
const TEXTS_MAX: usize = 4_096;
/// Of longer ones the last alone is remembered: what a webhook says of one object, it says of no other, and so many of the
/// longest that are said would take four megabytes. What an unready wave says, all that wait for it say one after the other.
const TEXT_BYTES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Shared {
    texts: BTreeSet<Arc<str>>,
    last_long: Arc<str>,
    spaces: BTreeSet<SpaceName>,
    accounts: BTreeSet<Arc<Impersonation>>,
}

impl Shared {
    /// Has an entry that nobody else holds point to what others point to.
    pub(crate) fn entry(&mut self, entry: &mut Arc<Entry>) {
        let Some(Entry { key, version, source, impersonate, .. }) = Arc::get_mut(entry) else { return };
        self.key(key);
        self.text(version);
        self.text(&mut source.namespace);
        if source.name == key.name {
            source.name = Arc::clone(&key.name);
        }
        share(&mut self.spaces, &mut source.space);
        if let Some(account) = impersonate {
            share(&mut self.accounts, account);
        }
    }

    /// As [`Shared::entry`].
    pub(crate) fn applied(&mut self, key: &mut ObjectKey, record: &mut AppliedRecord) {
        self.key(key);
        self.text(&mut record.version);
        if let Some(account) = &mut record.impersonate {
            share(&mut self.accounts, account);
        }
    }

    /// As [`Shared::entry`]; the name stays its own.
    pub(crate) fn key(&mut self, ObjectKey { kind, namespace, name: _ }: &mut ObjectKey) {
        self.text(&mut kind.group);
        self.text(&mut kind.kind);
        self.text(namespace);
    }

    /// The text that others hold that say the same.
    pub(in crate::core) fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return Arc::clone(shared);
        }
        if *self.last_long == *text {
            return Arc::clone(&self.last_long);
        }
        let mut text: Arc<str> = text.into();
        if text.len() <= TEXT_BYTES_MAX {
            self.text(&mut text);
        } else {
            self.last_long = Arc::clone(&text);
        }
        text
    }

    fn text(&mut self, text: &mut Arc<str>) {
        share(&mut self.texts, text);
    }
}

fn share<T: Ord + Clone>(known: &mut BTreeSet<T>, text: &mut T) {
    if let Some(shared) = known.get(text) {
        text.clone_from(shared);
        return;
    }
    if known.len() >= TEXTS_MAX {
        known.clear();
    }
    known.insert(text.clone());
}

#[cfg(test)]
mod tests;
