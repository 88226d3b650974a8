//! An object's key, kept once with its entry where there is one. Whatever queues objects has these: of tens of thousands of
//! keys, each copy takes megabytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

use tideline_common::{Entry, ObjectKey};

#[derive(Clone, Debug)]
pub(in crate::core) enum KeyRef {
    Of(Arc<Entry>),
    Other(Arc<ObjectKey>),
}

impl KeyRef {
    pub(in crate::core) fn key(&self) -> &ObjectKey {
        match self {
            Self::Of(entry) => &entry.key,
            Self::Other(key) => key,
        }
    }
}

impl From<&ObjectKey> for KeyRef {
    fn from(key: &ObjectKey) -> Self {
        Self::Other(Arc::new(key.clone()))
    }
}

impl Borrow<ObjectKey> for KeyRef {
    fn borrow(&self) -> &ObjectKey {
        self.key()
    }
}

impl Ord for KeyRef {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for KeyRef {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyRef {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeyRef {}
