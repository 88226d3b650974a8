//! What targets say of objects, kept by object.
//!
//! Of an object that ten thousand targets have, nearly all say the same: that it is applied and ready, or one of a few things
//! else. So the words are kept once, with the set of those who say them, and by target only what deviates: words that few
//! say, and those with a status, which differ at all targets.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::wire::v1::{AssociatedReport, ObjectReport};
use tideline_common::{ObjectKey, Uid};

use crate::bitmap::{TargetIndex, grow, shrink};

/// Words about one object that are kept once. Those of several versions come together where many targets are away.
const ALIKE_MAX: usize = 8;

/// More sources than so many have their numbers in a set besides: thousands of spaces may have an object of one name.
const FEW_SOURCES: usize = 8;

/// The number of an object while anything is said of it.
pub(super) type ObjectNumber = u32;

#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    /// By the place at targets.
    places: HashMap<ObjectKey, Sources>,
    objects: Vec<Object>,
    free: Vec<ObjectNumber>,
}

/// The sources of which something is said at one place, as a rule each by other targets.
#[derive(Clone, Debug, Default)]
struct Sources {
    /// In order.
    by_uid: Vec<(Uid, ObjectNumber)>,
    /// The same numbers, where there are many.
    numbers: Option<Box<RoaringBitmap>>,
}

/// What is said of one source at one place.
#[derive(Clone, Debug, Default)]
pub(super) struct Object {
    /// In the same words, by whom.
    alike: Vec<(Arc<ObjectReport>, RoaringBitmap)>,
    apart: BTreeMap<TargetIndex, Arc<ObjectReport>>,
    /// What was made of it.
    made: BTreeMap<TargetIndex, Arc<AssociatedReport>>,
}

impl Objects {
    /// What is said of this source at this place.
    pub(super) fn of(&self, key: &ObjectKey, source: &Uid) -> Option<&Object> {
        self.places.get(key)?.of(source).map(|number| self.get(number))
    }

    /// Which of the objects that a target speaks of is at a place, of whatever source: it speaks of one there.
    pub(super) fn at(&self, key: &ObjectKey, spoken_of: &RoaringBitmap) -> Option<ObjectNumber> {
        self.places.get(key)?.first_of(spoken_of)
    }

    pub(super) fn get(&self, number: ObjectNumber) -> &Object {
        &self.objects[number as usize]
    }

    /// A target that says nothing of the place says this.
    pub(super) fn insert(&mut self, target: TargetIndex, report: ObjectReport) -> ObjectNumber {
        let number = self.number(&report.key, &report.source_uid);
        self.objects[number as usize].insert(target, report);
        number
    }

    /// It says no more what it says of an object.
    pub(super) fn remove(&mut self, target: TargetIndex, number: ObjectNumber) -> Option<Arc<ObjectReport>> {
        let report = self.objects[number as usize].remove(target)?;
        self.drop_silent(number, &report.key, &report.source_uid);
        Some(report)
    }

    /// A target that says nothing of what was made at the place says this.
    pub(super) fn insert_made(&mut self, target: TargetIndex, made: AssociatedReport) -> ObjectNumber {
        let number = self.number(&made.key, &made.source_uid);
        self.objects[number as usize].made.insert(target, Arc::new(made));
        number
    }

    /// It says no more what was made of an object.
    pub(super) fn remove_made(&mut self, target: TargetIndex, number: ObjectNumber) -> Option<Arc<AssociatedReport>> {
        let made = self.objects[number as usize].made.remove(&target)?;
        self.drop_silent(number, &made.key, &made.source_uid);
        Some(made)
    }

    fn number(&mut self, key: &ObjectKey, source: &Uid) -> ObjectNumber {
        if let Some(number) = self.places.get(key).and_then(|sources| sources.of(source)) {
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.objects.push(Object::default());
            ObjectNumber::try_from(self.objects.len() - 1).expect("memory ends before four billion objects")
        });
        self.places.entry(key.clone()).or_default().insert(source, number);
        number
    }

    fn drop_silent(&mut self, number: ObjectNumber, key: &ObjectKey, source: &Uid) {
        if !self.get(number).is_silent() {
            return;
        }
        self.objects[number as usize] = Object::default();
        if let Some(sources) = self.places.get_mut(key) {
            sources.remove(source);
            if sources.by_uid.is_empty() {
                self.places.remove(key);
            }
        }
        self.free.push(number);
    }
}

impl Sources {
    fn find(&self, source: &Uid) -> Result<usize, usize> {
        self.by_uid.binary_search_by(|(known, _)| known.cmp(source))
    }

    fn of(&self, source: &Uid) -> Option<ObjectNumber> {
        self.find(source).ok().map(|at| self.by_uid[at].1)
    }

    fn first_of(&self, some: &RoaringBitmap) -> Option<ObjectNumber> {
        match &self.numbers {
            Some(numbers) => (&**numbers & some).min(),
            None => self.by_uid.iter().map(|(_, number)| *number).find(|number| some.contains(*number)),
        }
    }

    /// One that is not here.
    fn insert(&mut self, source: &Uid, number: ObjectNumber) {
        if self.by_uid.is_empty() {
            self.by_uid.reserve_exact(1);
        }
        let at = self.find(source).unwrap_or_else(|at| at);
        self.by_uid.insert(at, (source.clone(), number));
        if let Some(numbers) = &mut self.numbers {
            grow(numbers, number);
        } else if self.by_uid.len() > FEW_SOURCES {
            self.numbers = Some(Box::new(self.by_uid.iter().map(|(_, number)| *number).collect()));
        }
    }

    fn remove(&mut self, source: &Uid) {
        let Ok(at) = self.find(source) else { return };
        let (_, number) = self.by_uid.remove(at);
        if let Some(numbers) = &mut self.numbers {
            shrink(numbers, number);
        }
    }
}

impl Object {
    pub(super) fn report(&self, target: TargetIndex) -> Option<&Arc<ObjectReport>> {
        let alike = || self.alike.iter().find(|(_, targets)| targets.contains(target)).map(|(report, _)| report);
        self.apart.get(&target).or_else(alike)
    }

    pub(super) fn made(&self, target: TargetIndex) -> Option<&Arc<AssociatedReport>> {
        self.made.get(&target)
    }

    /// How many words are kept by target.
    pub(super) fn kept_apart(&self) -> usize {
        self.apart.len() + self.made.len()
    }

    /// What is said of it, with those of some targets who say so: each of these once.
    pub(super) fn said_by<'a>(
        &'a self,
        targets: &'a RoaringBitmap,
    ) -> impl Iterator<Item = (&'a ObjectReport, RoaringBitmap)> {
        let alike = self.alike.iter().map(move |(report, by)| (&**report, by & targets));
        let apart = self.apart.iter().filter(|(target, _)| targets.contains(**target));
        alike.chain(apart.map(|(target, report)| (&**report, RoaringBitmap::from([*target]))))
    }

    /// What was made of it at some targets.
    pub(super) fn made_at<'a>(
        &'a self,
        targets: &'a RoaringBitmap,
    ) -> impl Iterator<Item = (TargetIndex, &'a AssociatedReport)> {
        let made = self.made.iter().filter(|(target, _)| targets.contains(**target));
        made.map(|(target, made)| (*target, &**made))
    }

    fn is_silent(&self) -> bool {
        self.alike.is_empty() && self.apart.is_empty() && self.made.is_empty()
    }

    fn insert(&mut self, target: TargetIndex, report: ObjectReport) {
        if report.status.is_some() {
            self.apart.insert(target, Arc::new(report));
        } else if let Some((_, targets)) = self.alike.iter_mut().find(|(known, _)| **known == report) {
            grow(targets, target);
        } else {
            self.make_room();
            self.alike.push((Arc::new(report), RoaringBitmap::from([target])));
        }
    }

    /// What the fewest say gives way.
    fn make_room(&mut self) {
        if self.alike.len() < ALIKE_MAX {
            return;
        }
        let fewest = self.alike.iter().enumerate().min_by_key(|(_, (_, targets))| targets.len());
        if let Some((at, _)) = fewest {
            let (report, targets) = self.alike.swap_remove(at);
            self.apart.extend(targets.iter().map(|target| (target, Arc::clone(&report))));
        }
    }

    fn remove(&mut self, target: TargetIndex) -> Option<Arc<ObjectReport>> {
        if let Some(report) = self.apart.remove(&target) {
            return Some(report);
        }
        let at = self.alike.iter().position(|(_, targets)| targets.contains(target))?;
        let (report, targets) = &mut self.alike[at];
        shrink(targets, target);
        let report = Arc::clone(report);
        if targets.is_empty() {
            self.alike.swap_remove(at);
        }
        Some(report)
    }
}
