use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use tideline_common::{ObjectKey, SpaceName, Uid};

use super::pages::Pages;
use super::tombstones::Tombstones;

/// By destination and source.
pub(super) type Places<T> = BTreeMap<ObjectKey, BTreeMap<Uid, T>>;
/// The same, of all that is known.
pub(super) type Known<T> = Pages<ObjectKey, BTreeMap<Uid, T>>;

/// The removals that targets have not confirmed.
#[derive(Clone, Debug, Default)]
pub(super) struct Removals {
    places: Known<Tombstones>,
    /// Those that say whose they are, by where their source was.
    from: Pages<(SpaceName, ObjectKey), BTreeSet<(ObjectKey, Uid)>>,
    /// Those that older hubs wrote, which do not say.
    unnamed: BTreeSet<(ObjectKey, Uid)>,
}

impl Removals {
    pub(super) fn places(&self) -> &Known<Tombstones> {
        &self.places
    }

    pub(super) fn at(&self, key: &ObjectKey) -> Option<&BTreeMap<Uid, Tombstones>> {
        self.places.get(key)
    }

    pub(super) fn get(&self, key: &ObjectKey, source: &Uid) -> Option<&Tombstones> {
        self.places.get(key)?.get(source)
    }

    /// What is being removed of sources that were at this place.
    pub(super) fn from(
        &self,
        space: &SpaceName,
        place: &ObjectKey,
    ) -> impl Iterator<Item = (&ObjectKey, &Uid, &Tombstones)> {
        let named = self.from.get(&(space.clone(), place.clone())).into_iter().flatten();
        named.filter_map(|(key, source)| Some((key, source, self.get(key, source)?)))
    }

    /// What does not say whose it is.
    pub(super) fn unnamed(&self) -> impl Iterator<Item = (&ObjectKey, &Uid, &Tombstones)> {
        self.unnamed.iter().filter_map(|(key, source)| Some((key, source, self.get(key, source)?)))
    }

    /// The first place from here on that a source was at.
    pub(super) fn next_place(&self, from: Bound<&(SpaceName, ObjectKey)>) -> Option<&(SpaceName, ObjectKey)> {
        self.from.range_from(from).next().map(|(place, _)| place)
    }

    pub(super) fn put(&mut self, removal: (ObjectKey, Uid), tombstones: Option<Tombstones>) {
        self.unlist(&removal);
        if let Some(tombstones) = &tombstones {
            if let Some(place) = place_of(&removal.0, tombstones) {
                match self.from.get_mut(&place) {
                    Some(there) => _ = there.insert(removal.clone()),
                    None => _ = self.from.insert(place, [removal.clone()].into()),
                }
            } else {
                self.unnamed.insert(removal.clone());
            }
        }
        put_or_remove(&mut self.places, removal, tombstones);
    }

    fn unlist(&mut self, removal: &(ObjectKey, Uid)) {
        let (key, source) = removal;
        let Some(former) = self.get(key, source) else { return };
        let Some(place) = place_of(key, former) else {
            self.unnamed.remove(removal);
            return;
        };
        if let Some(there) = self.from.get_mut(&place) {
            there.remove(removal);
            if there.is_empty() {
                self.from.remove(&place);
            }
        }
    }
}

/// Where the source was that is removed, if that is known.
fn place_of(key: &ObjectKey, tombstones: &Tombstones) -> Option<(SpaceName, ObjectKey)> {
    let origin = tombstones.origin.as_ref()?;
    Some((origin.space.clone(), origin.key(&key.kind)))
}

/// Keeps no destination without a value.
pub(super) fn put_or_remove<T: Clone>(places: &mut Known<T>, (key, source): (ObjectKey, Uid), value: Option<T>) {
    match (places.get_mut(&key), value) {
        (Some(by_source), Some(value)) => {
            by_source.insert(source, value);
        }
        (None, Some(value)) => {
            places.insert(key, BTreeMap::from([(source, value)]));
        }
        (Some(by_source), None) => {
            by_source.remove(&source);
            if by_source.is_empty() {
                places.remove(&key);
            }
        }
        (None, None) => {}
    }
}
