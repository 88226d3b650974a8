//! Segments and ids.

use std::cell::Cell;
use std::time::Duration;

use tideline_common::{RevisionPoint, Shown};

use super::super::history::{History, Occasion};
use super::super::{Lineage, REVISION_IDS_MAX, Segment};
use super::*;

impl Kept {
    /// The hub ends, and starts on what is on its disk.
    pub(super) fn start(&mut self) {
        self.restart();
        self.begin_run();
    }

    pub(super) fn begin_run(&mut self) {
        let batch = self.ledger.begin_run(fresh());
        self.write(batch);
    }

    pub(super) fn write(&mut self, batch: super::super::Batch) {
        for chunk in batch.chunks() {
            self.records.write(chunk);
        }
        self.ledger.commit(batch).unwrap();
    }

    fn change_at(&mut self, hours: u64, changes: Vec<Change>) {
        let now = Monotonic::from_millis(0) + Duration::from_hours(hours);
        let batch = self.ledger.plan(Fresh { now, ..fresh() }, changes);
        self.write(batch);
    }

    /// What the agent of a target shows that was given the present set.
    fn shown(&self, nth: u32) -> Shown {
        let view = self.ledger.target(target(nth)).unwrap();
        Shown { version: view.version(), point: view.point() }
    }

    fn segments(&self) -> Vec<(u64, u64)> {
        self.ledger.segments().map(|segment| (segment.first.0, segment.last.0)).collect()
    }

    /// A copy of the hub with its directory, taken while it runs.
    fn copy(&self) -> Self {
        Self { ledger: self.ledger.clone(), records: self.records.clone() }
    }
}

fn started() -> Kept {
    let mut kept = Kept::default();
    kept.begin_run();
    kept.change(vec![Change::Register(target(0)), assign("a", "x", &[0])]);
    kept
}

fn body(text: &str) -> Change {
    Change::Assign(Box::new(assigned("a", "x", "a-x", text, &[0])))
}

#[test]
fn a_start_begins_a_segment_and_an_empty_one_gives_its_place_to_the_next() {
    let mut kept = started();
    assert_eq!(kept.segments(), [(0, 1)]);
    kept.start();
    assert_eq!(kept.segments(), [(0, 1), (2, 1)]);
    kept.start();
    assert_eq!(kept.segments(), [(0, 1), (2, 1)], "nothing was committed in the second");
    kept.change(vec![body("2")]);
    kept.start();
    kept.change(vec![body("3")]);
    assert_eq!(kept.segments(), [(0, 1), (2, 2), (3, 3)]);
    kept.restart();
    assert_eq!(kept.segments(), [(0, 1), (2, 2), (3, 3)], "they are on disk");
}

#[test]
fn the_first_commit_after_an_hour_begins_a_segment() {
    let mut kept = started();
    kept.change_at(0, vec![body("2")]);
    kept.change_at(1, vec![body("3")]);
    kept.change_at(1, vec![body("4")]);
    kept.change_at(9, vec![body("5")]);
    assert_eq!(kept.segments(), [(0, 2), (3, 4), (5, 5)]);
}

#[test]
fn what_was_given_stays_part_of_the_history() {
    let mut kept = started();
    let first = kept.shown(0);
    kept.start();
    // A set names where its revision was made, and not where the hub is by now.
    assert_eq!(kept.shown(0), first);
    kept.change(vec![body("2")]);
    let second = kept.shown(0);
    kept.start();
    assert_eq!([first, second].map(|shown| kept.ledger.lineage(shown)), [Lineage::Same; 2]);
}

#[test]
fn an_older_copy_that_counts_on_is_another_history() {
    let mut hub = started();
    hub.start();
    let mut copy = hub.copy();
    hub.change(vec![body("2")]);
    let lost = hub.shown(0);
    copy.start();
    assert_eq!(copy.ledger.lineage(lost), Lineage::Other { reaches: None });
    copy.change(vec![body("other 2")]);
    assert_eq!(copy.shown(0).version, lost.version, "the numbers are the same");
    assert_eq!(copy.ledger.lineage(lost), Lineage::Other { reaches: None });
}

#[test]
fn a_machine_that_is_set_back_without_a_start_is_told_by_the_ids_of_revisions() {
    let mut hub = started();
    let mut rolled_back = hub.copy();
    hub.change(vec![body("2")]);
    let lost = hub.shown(0);
    assert_eq!(rolled_back.ledger.lineage(lost), Lineage::Other { reaches: Some(Revision(1)) });
    rolled_back.change(vec![body("other 2")]);
    rolled_back.change(vec![body("other 3")]);
    assert_eq!(rolled_back.shown(0).point.segment, lost.point.segment);
    assert_eq!(rolled_back.ledger.lineage(lost), Lineage::Other { reaches: Some(Revision(1)) });
}

#[test]
fn a_batch_of_several_commits_that_is_cut_has_its_id() {
    let mut kept = started();
    let many: Vec<_> = (0..300).map(|nth| assign("a", &format!("m{nth}"), &[0])).collect();
    let batch = kept.ledger.plan(fresh(), many);
    assert!(batch.chunks().len() > 1);
    kept.records.write(&batch.chunks()[0]);
    kept.start();
    assert_eq!(kept.ledger.revision(), batch.revision());
    assert_eq!(kept.ledger.lineage(kept.shown(0)), Lineage::Same);
    assert_ne!(kept.shown(0).point.id, RevisionPoint::NOWHERE.id);
}

#[test]
fn where_an_id_is_not_kept_the_segment_decides() {
    let mut kept = started();
    let (mut shown, mut handed) = (Vec::new(), None);
    for nth in 2..=6 {
        kept.change(vec![body(&nth.to_string())]);
        shown.push(kept.shown(0));
        if nth == 4 {
            kept.ledger.handed(target(0), kept.version(0).revision);
            handed = Some(kept.shown(0));
        }
    }
    // As if so many had been made since.
    kept.ledger.revision = Revision(REVISION_IDS_MAX + 6);
    kept.begin_run();
    kept.change(vec![body("much later")]);
    kept.change(vec![body("and later")]);
    kept.restart();
    let lineage: Vec<_> = shown.iter().map(|shown| kept.ledger.lineage(*shown)).collect();
    let dropped = Lineage::SameSegment;
    // The last one was that of a set when the hub started.
    assert_eq!(lineage, [dropped, dropped, Lineage::Same, dropped, Lineage::Same]);
    assert_eq!(kept.ledger.lineage(handed.unwrap()), Lineage::Same, "what was handed last is kept, across a start");
    let other = Shown { point: RevisionPoint { segment: fresh().segment, ..shown[0].point }, ..shown[0] };
    assert_eq!(kept.ledger.lineage(other), Lineage::Other { reaches: None });
}

#[test]
fn the_last_revision_of_each_segment_keeps_its_id() {
    let mut kept = started();
    kept.change(vec![body("2")]);
    let last = kept.shown(0);
    kept.start();
    kept.ledger.revision = Revision(REVISION_IDS_MAX + 6);
    for text in ["a", "b"] {
        kept.change_at(2, vec![body(text)]);
    }
    assert_eq!(kept.ledger.lineage(last), Lineage::Same);
}

#[test]
fn what_happened_once_is_a_revision() {
    let mut kept = started();
    let key = config_map("x");
    let before = kept.version(0);
    let fact = happened(0, &key, &"a-x".parse().unwrap(), Terminal::Finished);
    let committed = kept.change(vec![fact.clone()]);
    assert!(kept.version(0) > before);
    assert_eq!(committed.affected, bits(&[0]), "its poll is answered");
    let page = kept.ledger.target(target(0)).unwrap().page(Some(before), None, 10).unwrap();
    assert_eq!(page.entries.len(), 1, "the entry comes again, with what happened to it");
    let told = kept.version(0);
    kept.change(vec![fact]);
    assert_eq!(kept.version(0), told, "told again it is no news");
}

#[test]
fn whatever_is_shown_is_looked_for_in_all_segments() {
    let mut kept = started();
    for nth in 1..=20 {
        kept.change_at(nth, vec![body(&nth.to_string())]);
        if nth % 3 == 0 {
            kept.change_at(nth, vec![body(&format!("{nth} again"))]);
        }
    }
    let segments: Vec<_> = kept.ledger.segments().collect();
    assert_eq!(segments.len(), 21);
    let other = fresh().segment;
    for id in segments.iter().map(|segment| segment.id).chain([other]) {
        for revision in 0..=kept.ledger.revision().0 + 2 {
            let version = Version { epoch: Epoch(1), revision: Revision(revision) };
            let shown = Shown { version, point: RevisionPoint { segment: id, id: RevisionPoint::NOWHERE.id } };
            let listed = segments.iter().find(|segment| segment.id == id);
            // Within its segment the id is wrong: it is that of no revision.
            let before = Revision(revision.saturating_sub(1));
            let within = |listed: &Segment| (listed.first..=listed.last).contains(&version.revision);
            let reaches = listed.map(|listed| if within(listed) { before } else { listed.last });
            assert_eq!(kept.ledger.lineage(shown), Lineage::Other { reaches }, "{id} {revision}");
        }
    }
}

#[test]
fn what_need_not_be_kept_is_looked_for_once_in_a_thousand_revisions() {
    let mut history = History::default();
    let first = history.advance(fresh(), Revision(0), Occasion::Start, Retention::default(), BTreeSet::new);
    history.take(first);
    for revision in 1..=3_000 {
        history.restore_id(Revision(revision), fresh().revision);
    }
    let (gathered, mut dropped) = (Cell::new(0), Vec::new());
    let used = || {
        gathered.set(gathered.get() + 1);
        BTreeSet::from([Revision(700)])
    };
    for revision in REVISION_IDS_MAX + 1..=REVISION_IDS_MAX + 2_500 {
        let occasion = Occasion::Commit(Revision(revision));
        let advance = history.advance(fresh(), Revision(revision - 1), occasion, Retention::default(), used);
        dropped.extend(advance.dropped.iter().copied());
        history.take(advance);
    }
    assert_eq!(gathered.get(), 2);
    dropped.sort();
    assert_eq!(dropped, (1..=2_000).filter(|revision| *revision != 700).map(Revision).collect::<Vec<_>>());
}

/// What an agent shows is looked for among all segments, which are as many as the hub has had starts and hours.
fn found_by_looking_at_all(history: &History, present: Revision, shown: Shown) -> Option<Segment> {
    history.segments(present).find(|segment| segment.id == shown.point.segment)
}

proptest! {
    #[test]
    fn a_segment_is_where_a_look_at_all_of_them_finds_it(steps in prop::collection::vec(0..4_u8, 0..40)) {
        let (mut history, mut present) = (History::default(), Revision(0));
        let mut ever = vec![fresh().segment];
        for step in steps {
            let fresh = fresh();
            ever.push(fresh.segment);
            let (occasion, at) = match step {
                0 => (Occasion::Start, present),
                1 => (Occasion::Other, present),
                _ => (Occasion::Commit(present.next()), present.next()),
            };
            let advance = history.advance(fresh, present, occasion, Retention::default(), BTreeSet::new);
            history.take(advance);
            present = at;
            if step == 3 {
                // It ends, and starts on what is on its disk, in whatever order that is read.
                let segments: Vec<_> = history.segments(present).collect();
                history = History::default();
                segments.iter().rev().for_each(|segment| history.restore_segment(segment.first, segment.id));
                history.restored();
            }
            for (segment, revision) in ever.iter().flat_map(|segment| (0..=present.0).map(move |at| (*segment, at))) {
                let version = Version { epoch: Epoch(1), revision: Revision(revision) };
                let point = RevisionPoint { segment, ..RevisionPoint::NOWHERE };
                let shown = Shown { version, point };
                let lineage = history.lineage(present, shown);
                match found_by_looking_at_all(&history, present, shown) {
                    None => prop_assert_eq!(lineage, Lineage::Other { reaches: None }),
                    Some(Segment { first, last, .. }) if !(first..=last).contains(&version.revision) => {
                        prop_assert_eq!(lineage, Lineage::Other { reaches: Some(last) });
                    }
                    Some(_) => prop_assert!(!matches!(lineage, Lineage::Other { reaches: None }), "{lineage:?}"),
                }
            }
        }
    }
}
