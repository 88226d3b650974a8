use std::collections::{BTreeMap, BTreeSet};

use tideline_common::{ObjectKey, SpaceName, Uid};

use super::tombstones::Tombstones;

/// By destination and source.
pub(super) type Places<T> = BTreeMap<ObjectKey, BTreeMap<Uid, T>>;

/// The removals that targets have not confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Removals {
    places: Places<Tombstones>,
    /// Those that say whose they are, by where their source was.
    from: BTreeMap<(SpaceName, ObjectKey), BTreeSet<(ObjectKey, Uid)>>,
    /// Those that older hubs wrote, which do not say.
    unnamed: BTreeSet<(ObjectKey, Uid)>,
}

impl Removals {
    pub(super) fn places(&self) -> &Places<Tombstones> {
        &self.places
    }

    pub(super) fn at(&self, key: &ObjectKey) -> Option<&BTreeMap<Uid, Tombstones>> {
        self.places.get(key)
    }

    pub(super) fn get(&self, key: &ObjectKey, source: &Uid) -> Option<&Tombstones> {
        self.places.get(key)?.get(source)
    }

    /// What is being removed of a source that was at this place, and whatever does not say whose it is.
    pub(super) fn from(
        &self,
        space: &SpaceName,
        place: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectKey, &Uid, &Tombstones)> {
        let named = self.from.get(&(space.clone(), place.clone())).into_iter().flatten();
        let kind = place.kind.clone();
        let unnamed = self.unnamed.iter().filter(move |(key, _)| key.kind == kind);
        named.chain(unnamed).filter_map(|(key, source)| Some((key, source, self.get(key, source)?)))
    }

    pub(super) fn put(&mut self, (key, source): (ObjectKey, Uid), tombstones: Option<Tombstones>) {
        self.unlist(&key, &source);
        let by_source = self.places.entry(key.clone()).or_default();
        let Some(tombstones) = tombstones else {
            by_source.remove(&source);
            if by_source.is_empty() {
                self.places.remove(&key);
            }
            return;
        };
        match &tombstones.origin {
            Some(origin) => {
                let place = (origin.space.clone(), origin.key(&key.kind));
                self.from.entry(place).or_default().insert((key, source.clone()));
            }
            None => {
                self.unnamed.insert((key, source.clone()));
            }
        }
        by_source.insert(source, tombstones);
    }

    fn unlist(&mut self, key: &ObjectKey, source: &Uid) {
        let Some(former) = self.get(key, source) else { return };
        let removal = (key.clone(), source.clone());
        let Some(origin) = &former.origin else {
            self.unnamed.remove(&removal);
            return;
        };
        let place = (origin.space.clone(), origin.key(&key.kind));
        if let Some(there) = self.from.get_mut(&place) {
            there.remove(&removal);
            if there.is_empty() {
                self.from.remove(&place);
            }
        }
    }
}
