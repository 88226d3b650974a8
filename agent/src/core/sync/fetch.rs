//! Fetches the bodies that a set needs: several requests in flight, large bodies in parts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tideline_common::limits::{BODY_BATCH_BYTES_MAX, BODY_BATCH_COUNT_MAX, BODY_BYTES_MAX};
use tideline_common::wire::v1::{BodiesAnswer, Body, BodyWanted};
use tideline_common::{Digest, Entry};

use crate::core::interface::effect::RequestId;
use crate::core::model::change::Change;

/// Requests for bodies in flight at once: enough to keep a link of 100 ms and 40 MB/s busy with 1 MiB answers.
pub(in crate::core) const BODY_REQUESTS_MAX: usize = 4;
/// Bodies asked for at once: of 2 KiB, which is common, as many as an answer holds.
const BODIES_PER_REQUEST: usize = BODY_BATCH_BYTES_MAX / (2 << 10);
const _: () = assert!(BODIES_PER_REQUEST <= BODY_BATCH_COUNT_MAX);

/// A complete set on its way to be accepted, and the bodies it still lacks.
#[derive(Debug)]
pub(in crate::core) struct Fetch {
    pub(in crate::core) change: Box<Change>,
    /// One entry of each body that was not asked for yet.
    wanted: VecDeque<Arc<Entry>>,
    /// What was asked for and has not come, or in part: first.
    again: VecDeque<BodyWanted>,
    parts: BTreeMap<Digest, String>,
    in_flight: BTreeMap<RequestId, Vec<BodyWanted>>,
    whole: usize,
}

/// What an answer brought.
#[derive(Debug, Default)]
pub(in crate::core) struct Fetched {
    pub(in crate::core) bodies: Vec<(Digest, Arc<str>)>,
    /// The set is outdated: some body is no longer available.
    pub(in crate::core) outdated: bool,
    /// Anything came at all.
    pub(in crate::core) progress: bool,
}

impl Fetch {
    pub(in crate::core) fn new(change: Box<Change>, wanted: Vec<Arc<Entry>>) -> Self {
        Self {
            change,
            wanted: wanted.into(),
            again: VecDeque::new(),
            parts: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            whole: 0,
        }
    }

    /// Bytes of bodies that may come of what was asked for.
    pub(in crate::core) fn bytes_in_flight(&self) -> usize {
        self.in_flight.len() * BODY_BATCH_BYTES_MAX
    }

    /// How many bodies arrived whole: those are kept, whatever becomes of the set.
    pub(in crate::core) fn whole(&self) -> usize {
        self.whole
    }

    pub(in crate::core) fn is_done(&self) -> bool {
        self.is_all_asked() && self.in_flight.is_empty()
    }

    fn is_all_asked(&self) -> bool {
        self.wanted.is_empty() && self.again.is_empty()
    }

    pub(in crate::core) fn is_flying(&self, id: RequestId) -> bool {
        self.in_flight.contains_key(&id)
    }

    /// The next request, if anything is left and may be requested now.
    pub(in crate::core) fn next(&mut self, id: RequestId) -> Option<Vec<BodyWanted>> {
        if self.is_all_asked() || self.in_flight.len() >= BODY_REQUESTS_MAX {
            return None;
        }
        let again = self.again.len().min(BODIES_PER_REQUEST);
        let mut batch: Vec<BodyWanted> = self.again.drain(..again).collect();
        let first = self.wanted.len().min(BODIES_PER_REQUEST - again);
        let whole = |entry: Arc<Entry>| BodyWanted { key: entry.key.clone(), input: entry.input, offset: 0 };
        batch.extend(self.wanted.drain(..first).map(whole));
        self.in_flight.insert(id, batch.clone());
        Some(batch)
    }

    /// A request failed: its bodies are requested again.
    pub(in crate::core) fn failed(&mut self, id: RequestId) {
        for wanted in self.in_flight.remove(&id).into_iter().flatten().rev() {
            self.again.push_front(wanted);
        }
    }

    pub(in crate::core) fn answered(&mut self, id: RequestId, answer: BodiesAnswer) -> Fetched {
        let asked = self.in_flight.remove(&id).unwrap_or_default();
        let mut bodies: BTreeMap<Digest, Body> = answer.bodies.into_iter().map(|body| (body.input, body)).collect();
        let mut fetched = Fetched::default();
        for wanted in asked.into_iter().rev() {
            if answer.outdated.contains(&wanted.input) {
                fetched.outdated = true;
                continue;
            }
            let Some(body) = bodies.remove(&wanted.input) else {
                self.again.push_front(wanted);
                continue;
            };
            match self.take(&wanted, body) {
                Taken::Whole(text) => {
                    fetched.progress = true;
                    self.whole += 1;
                    fetched.bodies.push((wanted.input, text));
                }
                Taken::Part { had } => {
                    fetched.progress |= had > wanted.offset;
                    self.again.push_front(BodyWanted { offset: had, ..wanted });
                }
            }
        }
        fetched
    }

    fn take(&mut self, wanted: &BodyWanted, body: Body) -> Taken {
        let Body { input, sha256, size, offset, text } = body;
        let fits = usize::try_from(size).is_ok_and(|size| size <= BODY_BYTES_MAX);
        let mut had = self.parts.remove(&input).unwrap_or_default();
        if !fits || offset != wanted.offset || offset != had.len() as u64 || text.is_empty() {
            return Taken::Part { had: 0 };
        }
        had.push_str(&text);
        if (had.len() as u64) < size {
            let len = had.len() as u64;
            self.parts.insert(input, had);
            return Taken::Part { had: len };
        }
        // A body in one piece was checked when it arrived; one in parts can be checked only now.
        if offset > 0 && Digest::of(had.as_bytes()) != sha256 {
            return Taken::Part { had: 0 };
        }
        Taken::Whole(had.into())
    }
}

enum Taken {
    Whole(Arc<str>),
    Part { had: u64 },
}

#[cfg(test)]
mod tests;
