//! What many targets say of one object in the same words, kept once.
//!
//! Of an object that ten thousand targets have, nearly all say that it is applied and ready, or one of a few things else. So it
//! is enough to look among the last things that were said of it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tideline_common::wire::v1::ObjectReport;

/// Objects of which the last words are known, as many as are reported in a row by targets with the same 50,000 of them. It takes
/// 3 MB at most.
const OBJECTS_MAX: usize = 1 << 16;
/// Things that are said of one object, as that it is applied, and that it is denied.
const WORDS: usize = 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Alike {
    /// By the place and the source, the last first.
    said: HashMap<u64, [Option<Arc<ObjectReport>>; WORDS]>,
    state: RandomState,
}

impl Alike {
    /// The report as it was kept for another target, if it was. One with a status differs from all others by that.
    pub(super) fn once(&mut self, report: ObjectReport) -> Arc<ObjectReport> {
        if report.status.is_some() {
            return Arc::new(report);
        }
        let name = self.state.hash_one((&report.key, &report.source_uid));
        if self.said.len() >= OBJECTS_MAX && !self.said.contains_key(&name) {
            self.said.clear();
        }
        let said = self.said.entry(name).or_default();
        let at = said.iter().position(|known| known.as_deref() == Some(&report)).unwrap_or(WORDS - 1);
        said[..=at].rotate_right(1);
        let first = said[0].take().filter(|known| **known == report).unwrap_or_else(|| Arc::new(report));
        said[0] = Some(Arc::clone(&first));
        first
    }
}
