//! Sets of targets say what looking at each target says.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tideline_common::rollup::{Counts, MadeOver, ObjectStatus};
use tideline_common::{GroupKind, TargetId};

use super::*;
use crate::bitmap::TargetIndex;
use crate::summary::WORST_MAX;

const TARGETS: TargetIndex = 40;
/// More than are kept without a set of their numbers.
const SOURCES: u8 = 12;
const INPUTS: [&str; 3] = ["v1", "v2", "v3"];

/// One target says something, or something happens to it.
#[derive(Clone, Debug)]
struct Step {
    target: TargetIndex,
    place: u8,
    source: u8,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// With a message that few have, from the tenth on.
    Says {
        progress: Progress,
        health: Health,
        input: usize,
        message: u8,
        status: bool,
    },
    Made(u64),
    Removed,
    Forgotten,
    Session(u64),
    Heard(Freshness),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let progress = [Progress::Applied, Progress::Failed, Progress::Withheld, Progress::DeletionHeld, Progress::Pending];
    let health = [Health::Ready, Health::Progressing, Health::Failed, Health::Unknown];
    let says =
        (prop::sample::select(progress.to_vec()), prop::sample::select(health.to_vec()), 0..3usize, 0..14u8, 0..8u8);
    let says = says.prop_map(|(progress, health, input, message, status)| What::Says {
        progress,
        health,
        input,
        message,
        status: status == 0,
    });
    let freshness = [Freshness::Fresh, Freshness::Stale, Freshness::Unheard];
    let what = prop_oneof![
        12 => says,
        2 => (0..3u64).prop_map(What::Made),
        2 => Just(What::Removed),
        1 => Just(What::Forgotten),
        1 => (1..3u64).prop_map(What::Session),
        4 => prop::sample::select(freshness.to_vec()).prop_map(What::Heard),
    ];
    let step = (0..TARGETS, 0..2u8, prop_oneof![0..2u8, 0..SOURCES], what);
    let step = step.prop_map(|(target, place, source, what)| Step { target, place, source, what });
    prop::collection::vec(step, 0..400)
}

fn place(n: u8) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("c{n}"))
}

fn source(n: u8) -> Uid {
    uid(&format!("source {n}"))
}

fn id(index: TargetIndex) -> TargetId {
    target(u8::try_from(index).expect("there are few"))
}

/// What each target says, one by one.
#[derive(Default)]
struct Naive {
    said: BTreeMap<(TargetIndex, u8), ObjectReport>,
    made: BTreeMap<(TargetIndex, u8), AssociatedReport>,
    sessions: BTreeMap<TargetIndex, u64>,
    heard: BTreeMap<TargetIndex, Freshness>,
}

impl Naive {
    fn says(&self, target: TargetIndex, at: u8, of: u8) -> Option<&ObjectReport> {
        self.said.get(&(target, at)).filter(|report| report.source_uid == source(of))
    }

    fn freshness(&self, target: TargetIndex) -> Freshness {
        self.heard.get(&target).copied().unwrap_or(Freshness::Unheard)
    }

    /// The counts, what was made, and the first targets where it failed.
    fn sum(&self, at: u8, of: u8, input: Digest, targets: &RoaringBitmap) -> (Counts, MadeOver, Vec<TargetIndex>) {
        let (mut counts, mut made, mut failed) = (Counts::default(), MadeOver::default(), Vec::new());
        for target in targets {
            let report = self.says(target, at, of);
            let standing = report.map(|report| ObjectStatus {
                progress: report.progress,
                health: report.health,
                current: report.input == Some(input),
                fresh: self.freshness(target),
            });
            let one = Counts::of(standing);
            counts += one;
            failed.extend((one.failed > 0).then_some(target));
            let here = self.made.get(&(target, at)).filter(|made| made.source_uid == source(of) && report.is_some());
            if let Some(here) = here {
                made.add(here.made.iter().map(|(kind, made)| (*kind, &made.tally)), self.freshness(target));
            }
        }
        failed.truncate(WORST_MAX);
        (counts, made, failed)
    }
}

fn take(
    summary: &mut Summary,
    naive: &mut Naive,
    heard: &mut Heard,
    Step { target, place: at, source: of, what }: Step,
) {
    let session = |naive: &Naive| SessionName::new(naive.sessions.get(&target).copied().unwrap_or(1), 1);
    match what {
        What::Says { progress, health, input, message, status } => {
            let message = if message < 10 { String::new() } else { format!("{message} of {target}") };
            let status = status.then(|| RawValue::from_string("{}".to_owned()).expect("JSON").into());
            let said = report(progress, health, INPUTS[input]);
            let said = ObjectReport { key: place(at), source_uid: source(of), message, status, ..said };
            naive.said.insert((target, at), said.clone());
            let report = ReportedRequest { session: session(naive), ..request(vec![said], Vec::new()) };
            summary.take(id(target), target, report);
        }
        What::Made(total) => {
            let made = if total == 0 { BTreeMap::new() } else { pods("source", total, "Why").made };
            let made = AssociatedReport { key: place(at), source_uid: source(of), made };
            naive.made.remove(&(target, at));
            if total > 0 {
                naive.made.insert((target, at), made.clone());
            }
            let report = request(Vec::new(), Vec::new());
            summary.take(
                id(target),
                target,
                ReportedRequest { associated: vec![made], session: session(naive), ..report },
            );
        }
        What::Removed => {
            naive.said.retain(|who, report| *who != (target, at) || report.source_uid != source(of));
            naive.made.retain(|who, made| *who != (target, at) || made.source_uid != source(of));
            let removed = vec![Tombstone { key: place(at), source: source(of) }];
            summary.take(
                id(target),
                target,
                ReportedRequest { session: session(naive), ..request(Vec::new(), removed) },
            );
        }
        What::Forgotten => {
            naive.said.retain(|(who, _), _| *who != target);
            naive.made.retain(|(who, _), _| *who != target);
            if at == 0 { summary.forget(id(target)) } else { summary.forget_words(id(target)) }
        }
        What::Session(number) => {
            if naive.sessions.insert(target, number).unwrap_or(1) != number {
                naive.made.retain(|(who, _), _| *who != target);
            }
            summary.take(
                id(target),
                target,
                ReportedRequest { session: session(naive), ..request(Vec::new(), Vec::new()) },
            );
        }
        What::Heard(freshness) => {
            naive.heard.insert(target, freshness);
            heard.set(target, freshness);
        }
    }
}

proptest! {
    #[test]
    fn a_rollup_of_sets_is_the_sum_over_targets(
        steps in steps(),
        targets in prop::collection::btree_set(0..TARGETS, 0..40),
    ) {
        let (mut summary, mut naive, mut heard) = (Summary::default(), Naive::default(), Heard::default());
        for step in steps {
            take(&mut summary, &mut naive, &mut heard, step);
        }
        let targets: RoaringBitmap = targets.into_iter().collect();
        for (at, of) in (0..2).flat_map(|at| (0..SOURCES).map(move |of| (at, of))) {
            let (key, source, input) = (place(at), source(of), Digest::of(INPUTS[0].as_bytes()));
            for target in 0..TARGETS {
                let said = summary.report(id(target), &key, &source).map(|report| &**report);
                prop_assert_eq!(said, naive.says(target, at, of));
            }
            let expected = Expectation { key: &key, due: Due::Input(input), targets: targets.clone() };
            let found = overview(&summary, &heard, &source, std::iter::once(expected), std::iter::empty());
            let (counts, made, failed) = naive.sum(at, of, input, &targets);
            prop_assert_eq!((found.counts, found.made), (counts, made));
            let worst: Vec<_> = found.worst.iter().map(|worst| worst.target).take(failed.len()).collect();
            prop_assert_eq!(worst, failed);
        }
    }
}
