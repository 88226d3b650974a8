//! What is written, read back.

use super::*;

/// Everything that a ledger shows, less the revisions of single targets: a load raises those to the ledger's.
fn shown(ledger: &Ledger) -> Vec<String> {
    let mut lines = Vec::new();
    for (id, index) in ledger.targets() {
        let view = ledger.target(id).unwrap();
        lines.push(format!("{id} {index} {:?} {}", view.epoch(), view.digest()));
        let PageData { entries, tombstones, policies, .. } = view.page(None, None, 1_000).unwrap();
        lines.push(format!("{entries:?} {tombstones:?} {policies:?}"));
    }
    for source in ledger.sources() {
        lines.push(format!("{:?} {:?} {:?}", source.assignment(), (source.held(), source.kept()), source.waiting()));
    }
    lines.extend(ledger.removals().map(|removal| format!("{removal:?}")));
    lines.push(format!("{:?}", ledger.happened));
    lines.extend(ledger.choices().map(|choice| format!("{choice:?}")));
    lines.push(format!("{:?} {} {}", ledger.revision, ledger.admissions, ledger.next_target));
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_ledger_read_back_shows_the_same(steps in ops()) {
        let mut kept = Kept::with_targets(TARGETS);
        for ops in &steps {
            let changes = ops.iter().flat_map(|op| op.changes(&kept.ledger)).collect();
            kept.change(changes);
            let loaded = kept.records.load();
            check_sound(&loaded);
            prop_assert_eq!(shown(&loaded), shown(&kept.ledger));
            prop_assert_eq!(&loaded.garbage, &Vec::<Vec<u8>>::new());
            for (id, _) in loaded.targets() {
                let (before, after) = (kept.ledger.target(id).unwrap().version(), loaded.target(id).unwrap().version());
                prop_assert!(after >= before, "no target goes back");
            }
        }
    }

    /// Removing everything leaves nothing but targets, the history, what ran, and the head.
    #[test]
    fn records_do_not_pile_up(steps in ops()) {
        let mut kept = Kept::with_targets(TARGETS);
        for ops in &steps {
            kept.change(ops.iter().flat_map(|op| op.changes(&kept.ledger)).collect());
        }
        kept.change(SPACES.iter().flat_map(|space| NAMES.map(|name| remove(space, name))).collect());
        let all: Vec<_> =
            (0..TARGETS).flat_map(|target| Op::Confirm { target }.changes(&kept.ledger)).collect();
        kept.change(all);
        let of_history = |key: &[u8]| [&b"ledger/segment/"[..], b"ledger/revision/"].iter().any(|kind| key.starts_with(kind));
        let expected = TARGETS as usize + 1 + kept.ledger.departed.len();
        prop_assert_eq!(kept.records.0.keys().filter(|key| !of_history(key)).count(), expected);
    }
}

/// 150 objects are written over: a batch of several chunks, with removals and takeovers in it.
fn large_batch() -> (Kept, Vec<Change>) {
    let mut kept = Kept::with_targets(2);
    let name = |nth: u32| format!("n{nth:03}");
    kept.change((0..150).map(|nth| assign("a", &name(nth), &[0, 1])).collect());
    kept.change((0..50).map(|nth| assign("b", &name(nth), &[0])).collect());
    let mut changes: Vec<_> = (0..75).map(|nth| remove("a", &name(nth))).collect();
    changes.extend((75..150).map(|nth| {
        let (name, body) = (name(nth), format!("changed {nth}"));
        Change::Assign(Box::new(assigned("a", &name, &format!("a-{name}"), &body, &[1])))
    }));
    (kept, changes)
}

#[test]
fn a_crash_between_chunks_is_harmless_wherever_it_falls() {
    let (kept, changes) = large_batch();
    let batch = kept.ledger.plan(fresh(), changes.clone());
    let chunks = batch.chunks().len();
    assert!(chunks > 3, "{chunks} chunks");
    let announced = batch.revision();
    for written in 0..=chunks {
        let mut crashed = Kept { ledger: Ledger::default(), records: kept.records.clone() };
        for chunk in &batch.chunks()[..written] {
            crashed.records.write(chunk);
        }
        crashed.restart();
        check_sound(&crashed.ledger);
        let expected = if written == 0 { kept.ledger.revision() } else { announced };
        assert_eq!(crashed.version(0).revision, expected, "no agent sees a known revision with another set");
        // Placement brings all of it again, whatever was written.
        crashed.change(changes.clone());
        crashed.change(vec![assign("c", "next", &[0])]);
        crashed.restart();
        check_sound(&crashed.ledger);
        assert_eq!(crashed.ledger.garbage, Vec::<Vec<u8>>::new());
        let mut whole = Kept { ledger: kept.ledger.clone(), records: kept.records.clone() };
        whole.change(changes.clone());
        whole.change(vec![assign("c", "next", &[0])]);
        for nth in 0..2 {
            assert_eq!(crashed.keys(nth), whole.keys(nth), "after {written} of {chunks} chunks");
            assert_eq!(crashed.tombstones(nth), whole.tombstones(nth), "after {written} of {chunks} chunks");
        }
    }
}

/// As when chunks are written at once, and the disk refuses one of them.
#[test]
fn of_the_chunks_of_a_stage_any_may_be_missing_after_a_crash() {
    let (kept, changes) = large_batch();
    let batch = kept.ledger.plan(fresh(), changes.clone());
    let stages: Vec<_> = batch.stages().collect();
    assert_eq!(stages.concat(), batch.chunks());
    assert!(stages.iter().any(|stage| stage.len() > 2), "several chunks are written at once");
    for (nth, stage) in stages.iter().enumerate() {
        for missing in 0..stage.len() {
            let mut crashed = Kept { ledger: Ledger::default(), records: kept.records.clone() };
            stages[..nth].iter().copied().flatten().for_each(|chunk| crashed.records.write(chunk));
            let written = stage.iter().enumerate().filter(|(chunk, _)| *chunk != missing);
            written.for_each(|(_, chunk)| crashed.records.write(chunk));
            crashed.restart();
            check_sound(&crashed.ledger);
            crashed.change(changes.clone());
            crashed.restart();
            check_sound(&crashed.ledger);
            let mut whole = Kept { ledger: kept.ledger.clone(), records: kept.records.clone() };
            whole.change(changes.clone());
            for target in 0..2 {
                assert_eq!(crashed.keys(target), whole.keys(target), "without chunk {missing} of stage {nth}");
                assert_eq!(
                    crashed.tombstones(target),
                    whole.tombstones(target),
                    "without chunk {missing} of stage {nth}"
                );
            }
        }
    }
}

#[test]
fn a_batch_written_twice_is_written_once() {
    let (mut kept, changes) = large_batch();
    let batch = kept.ledger.plan(fresh(), changes);
    for chunk in batch.chunks().iter().chain(batch.chunks()) {
        kept.records.write(chunk);
    }
    kept.ledger.commit(batch).unwrap();
    assert_eq!(shown(&kept.records.load()), shown(&kept.ledger));
}

#[test]
fn a_body_of_the_largest_size_is_stored_in_parts() {
    let mut kept = Kept::with_targets(1);
    let body = "é".repeat(tideline_common::limits::BODY_BYTES_MAX / 2);
    kept.change(vec![Change::Assign(Box::new(assigned("a", "x", "a-x", &body, &[0])))]);
    kept.restart();
    let view = kept.ledger.target(target(0)).unwrap();
    assert_eq!(&*view.body(&config_map("x"), Input::new(body.as_str()).digest).unwrap().text, body);
    kept.change(vec![remove("a", "x")]);
    assert!(kept.records.0.keys().all(|key| !key.starts_with(b"ledger/body/")));
}

#[test]
fn nothing_is_an_empty_ledger_but_records_without_a_head_are_none() {
    assert_eq!(Ledger::load(Vec::<(Vec<u8>, Vec<u8>)>::new(), Retention::default()).unwrap().revision(), Revision(0));
    let mut kept = Kept::with_targets(1);
    kept.records.0.remove(&b"ledger/head"[..]);
    assert!(matches!(Ledger::load(&kept.records.0, Retention::default()), Err(Error::Headless)));
}

#[test]
fn a_schema_that_is_not_known_is_refused() {
    let mut kept = Kept::with_targets(1);
    let head = kept.records.0.get_mut(&b"ledger/head"[..]).unwrap();
    *head = String::from_utf8(head.clone()).unwrap().replace("\"schema\":6", "\"schema\":7").into_bytes();
    // It comes first, and this build cannot read it.
    kept.records.0.insert(b"ledger/a-kind-to-come/1".to_vec(), b"anything".to_vec());
    let error = Ledger::load(&kept.records.0, Retention::default()).unwrap_err();
    expect_test::expect![
        "the ledger has schema version 7, this build knows 6; run the version that wrote it, or a newer one"
    ]
    .assert_eq(&error.to_string());
}

#[test]
fn damaged_records_are_named_and_never_panic() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1]), assign("a", "y", &[0])]);
    kept.change(vec![remove("a", "y")]);
    for (key, value) in kept.records.0.clone() {
        for cut in [0, 1, 5, value.len() / 2, value.len() - 1].into_iter().filter(|cut| *cut < value.len()) {
            let mut records = kept.records.clone();
            records.0.insert(key.clone(), value[..cut].to_vec());
            assert!(
                Ledger::load(&records.0, Retention::default()).is_err(),
                "{:?} cut to {cut}",
                String::from_utf8_lossy(&key)
            );
        }
    }
}
