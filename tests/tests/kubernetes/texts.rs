//! Bodies in memory, in the place of a journal.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tideline_agent::cluster::{Bodies, BodyError};
use tideline_common::Digest;

#[derive(Default)]
pub(crate) struct Texts(Mutex<BTreeMap<Digest, Arc<str>>>);

impl Texts {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<Digest, Arc<str>>> {
        self.0.lock().expect("no holder panics")
    }
}

impl Bodies for Texts {
    fn body(&self, input: Digest) -> Result<Arc<str>, BodyError> {
        self.lock().get(&input).cloned().ok_or_else(|| BodyError::Missing("no such body".to_owned()))
    }
}
