use std::sync::Arc;

use tideline_common::ApplyPolicy;

/// The Placements that select one object, and how each would have it kept. Most objects are selected by one, and a map of one
/// takes as much as a map of eleven.
#[derive(Debug, Default)]
pub(super) struct Matches(Box<[Match]>);

/// A Placement by name.
type Match = (Arc<str>, Arc<ApplyPolicy>);

impl Matches {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<ApplyPolicy>> {
        self.place(name).ok().map(|place| &self.0[place].1)
    }

    /// By name, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ApplyPolicy>)> {
        self.0.iter().map(|(name, policy)| (name, policy))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(name, _)| name)
    }

    pub(super) fn insert(&mut self, name: Arc<str>, policy: Arc<ApplyPolicy>) {
        match self.place(&name) {
            Ok(place) => self.0[place].1 = policy,
            Err(place) => {
                let mut matches = std::mem::take(&mut self.0).into_vec();
                matches.insert(place, (name, policy));
                self.0 = matches.into();
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(place) = self.place(name) {
            let mut matches = std::mem::take(&mut self.0).into_vec();
            matches.remove(place);
            self.0 = matches.into();
        }
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| (**known).cmp(name))
    }
}

impl FromIterator<Match> for Matches {
    fn from_iter<I: IntoIterator<Item = Match>>(matches: I) -> Self {
        let mut all = Self::default();
        for (name, policy) in matches {
            all.insert(name, policy);
        }
        all
    }
}
