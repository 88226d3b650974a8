//! Which bodies the journal holds, and how many entries name each.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::Digest;

#[derive(Debug, Default)]
pub(super) struct Inputs(BTreeMap<Digest, Input>);

#[derive(Clone, Copy, Debug, Default)]
struct Input {
    held: bool,
    named: u32,
}

impl Inputs {
    pub(super) fn new(held: BTreeSet<Digest>) -> Self {
        Self(held.into_iter().map(|digest| (digest, Input { held: true, named: 0 })).collect())
    }

    pub(super) fn is_held(&self, digest: &Digest) -> bool {
        self.0.get(digest).is_some_and(|input| input.held)
    }

    pub(super) fn hold(&mut self, digest: Digest) {
        self.0.entry(digest).or_default().held = true;
    }

    /// The journal cannot give it, whatever it said.
    pub(super) fn lost(&mut self, digest: &Digest) {
        if let Some(input) = self.0.get_mut(digest) {
            input.held = false;
        }
    }

    pub(super) fn name(&mut self, digest: Digest) {
        self.0.entry(digest).or_default().named += 1;
    }

    /// Returns whether nothing names it any more and the journal holds it.
    pub(super) fn unname(&mut self, digest: &Digest) -> bool {
        let Some(input) = self.0.get_mut(digest) else { return false };
        input.named = input.named.saturating_sub(1);
        input.named == 0 && input.held
    }

    /// Forgets and returns, of the candidates, what is held and not named.
    pub(super) fn take_unnamed(&mut self, candidates: impl IntoIterator<Item = Digest>) -> Vec<Digest> {
        let mut unnamed = Vec::new();
        for digest in candidates {
            if self.0.get(&digest).is_some_and(|input| input.named == 0) {
                let held = self.0.remove(&digest).is_some_and(|input| input.held);
                unnamed.extend(held.then_some(digest));
            }
        }
        unnamed
    }

    pub(super) fn all(&self) -> Vec<Digest> {
        self.0.keys().copied().collect()
    }
}
