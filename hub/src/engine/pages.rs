//! What people see of a space, in an order that allows to begin anywhere: places by kind, namespace and name, and the copies of
//! one object by the number of their target. Neither changes while other objects come and go.

use std::ops::Bound;

use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};
use tideline_common::{GroupKind, ObjectKey, SpaceName};

use super::outline::{Copies, Unnamed};
use super::{Engine, ReportLine, SourceOutline};
use crate::ledger::TargetIndex;

/// Which places of a space a page is about.
#[derive(Clone, Copy, Debug)]
pub enum Within<'a> {
    /// Those without a namespace.
    Cluster,
    Namespaces,
    Namespace(&'a str),
    /// This one.
    Place(&'a ObjectKey),
}

/// What a page may cost. Both are at least one.
#[derive(Clone, Copy, Debug)]
pub struct PageBound {
    pub rows: usize,
    /// Places that may be looked at, with the sets of their copies that say the same, and single copies. One object of a page
    /// of outlines may exceed it by its own.
    pub looks: usize,
}

/// A row of a page; the next page begins behind its last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PagePosition {
    place: ObjectKey,
    /// The target and the name of the last line; none where the object is done.
    line: Option<(TargetIndex, String)>,
}

impl PagePosition {
    pub fn place(&self) -> &ObjectKey {
        &self.place
    }
}

#[derive(Clone, Debug)]
pub struct Page<T> {
    pub rows: Vec<(PagePosition, T)>,
    /// Where it goes on; none at the end.
    pub next: Option<PagePosition>,
}

impl Engine {
    /// The objects of a space that are placed, or that some target has not removed yet, with the state of their copies.
    pub fn outline_page(
        &self,
        space: &SpaceName,
        within: Within<'_>,
        after: Option<&PagePosition>,
        bound: PageBound,
    ) -> Page<SourceOutline> {
        let unnamed = self.unnamed(space, None);
        let mut from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.place.clone()));
        let (mut rows, mut looks, mut last) = (Vec::new(), 0, None);
        while let Some(place) = self.next_place(space, within, &unnamed, from) {
            if last.is_some() && (rows.len() >= bound.rows || looks >= bound.looks) {
                return Page { rows, next: last };
            }
            let wholes = self.wholes_at(space, &place, &unnamed);
            let position = PagePosition { place: place.clone(), line: None };
            looks += 1;
            if let Some(whole) = wholes.last() {
                looks += self.looks(whole);
                rows.push((position.clone(), self.outline(whole)));
            }
            last = Some(position);
            from = Bound::Excluded(place);
        }
        Page { rows, next: None }
    }

    /// What every target says of these objects, or those that have this name.
    pub fn line_page(
        &self,
        space: &SpaceName,
        within: Within<'_>,
        target: Option<&str>,
        after: Option<&PagePosition>,
        bound: PageBound,
    ) -> Page<ReportLine> {
        let unnamed = self.unnamed(space, None);
        let mut from = match after {
            None => Bound::Unbounded,
            Some(PagePosition { place, line: None }) => Bound::Excluded(place.clone()),
            Some(PagePosition { place, line: Some(_) }) => Bound::Included(place.clone()),
        };
        let only: Option<RoaringBitmap> = target.map(|name| {
            let named = self.ledger.targets().filter(|(id, _)| self.is_called(*id, name));
            named.map(|(_, index)| index).collect()
        });
        let (mut rows, mut looks, mut last) = (Vec::new(), 0, None);
        while let Some(place) = self.next_place(space, within, &unnamed, from) {
            if last.is_some() && (rows.len() >= bound.rows || looks >= bound.looks) {
                return Page { rows, next: last };
            }
            let wholes = self.wholes_at(space, &place, &unnamed);
            let mut copies = Copies::of(&wholes);
            if let Some(only) = &only {
                copies.targets &= only;
            }
            let done = after.filter(|after| after.place == place).and_then(|after| after.line.as_ref());
            looks += 1;
            if let Some((done, _)) = done {
                copies.targets.remove_range(..done);
            }
            for index in &copies.targets {
                let lines = self.lines_at(&copies, index);
                let told = |name: &String| done.is_some_and(|(done, last)| index == *done && name <= last);
                for (name, line) in lines.into_iter().filter(|(name, _)| !told(name)) {
                    if last.is_some() && (rows.len() >= bound.rows || looks >= bound.looks) {
                        return Page { rows, next: last };
                    }
                    looks += 1;
                    let position = PagePosition { place: place.clone(), line: Some((index, name)) };
                    rows.push((position.clone(), line));
                    last = Some(position);
                }
            }
            last = Some(PagePosition { place: place.clone(), line: None });
            from = Bound::Excluded(place);
        }
        Page { rows, next: None }
    }

    /// The first place of a space from here on that may have something to show.
    fn next_place(
        &self,
        space: &SpaceName,
        within: Within<'_>,
        unnamed: &Unnamed<'_>,
        mut from: Bound<ObjectKey>,
    ) -> Option<ObjectKey> {
        loop {
            let known = self.ledger.next_place(space, from.clone());
            let unnamed = unnamed.range((from, Bound::Unbounded)).next().map(|(place, _)| place);
            let place = [known, unnamed].into_iter().flatten().min()?;
            match within.instead(place) {
                None => return Some(place.clone()),
                Some(instead) if instead < *place => return None,
                Some(instead) => from = Bound::Included(instead),
            }
        }
    }
}

impl Within<'_> {
    /// Where to look instead of a place that is not meant: each kind has its namespaces in order.
    fn instead(self, place: &ObjectKey) -> Option<ObjectKey> {
        let ObjectKey { kind, namespace, .. } = place;
        // Nothing sorts between a text and the same with a zero behind it.
        let behind = || ObjectKey::new(GroupKind::new(kind.group.clone(), format!("{}\0", kind.kind)), "", "");
        let at = |namespace: &str| ObjectKey::new(kind.clone(), namespace, "");
        match self {
            Self::Cluster => place.is_namespaced().then(behind),
            Self::Namespaces => (!place.is_namespaced()).then(|| at("\0")),
            Self::Namespace(wanted) if **namespace < *wanted => Some(at(wanted)),
            Self::Namespace(wanted) => (**namespace > *wanted).then(behind),
            Self::Place(wanted) => (place != wanted).then(|| wanted.clone()),
        }
    }
}
