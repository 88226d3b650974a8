//! Several sources that want one destination, in named cases and at random.

use super::*;

fn waiting(kept: &Kept, space: &str, name: &str) -> Vec<u32> {
    let source = kept.ledger.source(&id(space, &format!("{space}-{name}"))).next().unwrap();
    source.waiting().iter().collect()
}

#[test]
fn the_first_admitted_keeps_the_destination_and_the_other_takes_over_in_one_revision() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("b", "x", &[0])]);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    assert_eq!(
        (kept.keys(0), kept.keys(1)),
        (vec!["ConfigMap shop/x from b".into()], vec!["ConfigMap shop/x from a".into()])
    );
    assert_eq!(waiting(&kept, "a", "x"), [0]);
    kept.restart();
    assert_eq!(waiting(&kept, "a", "x"), [0], "who holds what is persisted");
    let before = kept.ledger.revision();
    let committed = kept.change(vec![remove("b", "x")]);
    assert_eq!((committed.revision, committed.affected), (before.next(), bits(&[0])));
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from a"]);
    assert_eq!(waiting(&kept, "a", "x"), [0_u32; 0]);
    assert_eq!(kept.tombstones(0), [""; 0], "a handover removes nothing");
}

#[test]
fn a_holder_keeps_the_destination_whoever_was_admitted_before_it() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[1])]);
    kept.change(vec![assign("b", "x", &[0])]);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from b"]);
}

#[test]
fn a_source_recreated_in_its_place_inherits_the_destination() {
    let mut kept = Kept::with_targets(1);
    kept.change(vec![assign("a", "x", &[0])]);
    kept.change(vec![assign("b", "x", &[0])]);
    let recreated = assigned("a", "x", "a-x-2", "x", &[0]);
    kept.change(vec![remove("a", "x"), Change::Assign(Box::new(recreated))]);
    assert_eq!(kept.keys(0), ["ConfigMap shop/x from a"]);
    let view = kept.ledger.target(target(0)).unwrap();
    assert_eq!(view.entry(&config_map("x")).unwrap().source.uid, "a-x-2".parse().unwrap());
    assert_eq!(kept.tombstones(0), [""; 0]);
}

#[test]
fn a_source_recreated_after_its_removal_takes_the_tombstone_back() {
    let mut kept = Kept::with_targets(2);
    kept.change(vec![assign("a", "x", &[0, 1])]);
    kept.change(vec![remove("a", "x")]);
    assert_eq!(kept.tombstones(0).len(), 1);
    kept.change(vec![Change::Assign(Box::new(assigned("a", "x", "a-x-2", "x", &[0])))]);
    kept.restart();
    assert_eq!((kept.tombstones(0).len(), kept.tombstones(1).len()), (0, 1));
}

#[test]
fn an_implied_namespace_gives_way_to_an_explicit_one_and_comes_back() {
    let mut kept = Kept::with_targets(1);
    let with = |space: &str, implied| {
        let mut assignment = assigned(space, "shop", &format!("{space}-shop"), "shop", &[]);
        assignment.variants = vec![variant("shop", implied, &[0])];
        Change::Assign(Box::new(assignment))
    };
    let implied = |kept: &Kept| kept.ledger.target(target(0)).unwrap().entry(&config_map("shop")).unwrap().implied;
    kept.change(vec![with("a", true)]);
    assert!(implied(&kept));
    kept.change(vec![with("b", false)]);
    assert!(!implied(&kept));
    assert_eq!(waiting(&kept, "a", "shop"), [0_u32; 0], "what is implied is satisfied by any namespace");
    kept.change(vec![Change::Remove(id("b", "b-shop"))]);
    assert!(implied(&kept));
    assert_eq!(kept.tombstones(0), [""; 0]);
}

/// Who holds each destination of one target, decided one at a time.
#[derive(Default)]
struct Oracle {
    /// In the order of admission: source, its explicit and its implied targets, by name.
    admitted: Vec<(SourceId, usize, RoaringBitmap, RoaringBitmap)>,
    holders: BTreeMap<(u32, usize), SourceId>,
}

impl Oracle {
    fn tell(&mut self, ops: &[Op]) {
        let mut last: BTreeMap<SourceId, Option<(usize, RoaringBitmap, RoaringBitmap)>> = BTreeMap::new();
        let mut order = Vec::new();
        for op in ops {
            let (source, claim) = match op {
                Op::Assign { space, name, body: _, targets, implied } => {
                    let set = |mask: u8| (0..TARGETS).filter(|nth| mask >> nth & 1 == 1).collect::<RoaringBitmap>();
                    let claim = (*name, set(*targets), set(*implied & !*targets));
                    let none = claim.1.is_empty() && claim.2.is_empty();
                    (id(SPACES[*space], &format!("{}-{}", SPACES[*space], NAMES[*name])), (!none).then_some(claim))
                }
                Op::Remove { space, name } => {
                    (id(SPACES[*space], &format!("{}-{}", SPACES[*space], NAMES[*name])), None)
                }
                Op::Confirm { .. } | Op::Happen { .. } | Op::Understands { .. } | Op::Restart => continue,
            };
            if claim.is_none() {
                order.retain(|known| *known != source);
            } else if !order.contains(&source) {
                order.push(source.clone());
            }
            last.insert(source, claim);
        }
        self.admitted.retain(|(source, ..)| last.get(source).is_none_or(Option::is_some));
        for source in order {
            let Some(Some((name, explicit, implied))) = last.remove(&source) else { continue };
            match self.admitted.iter_mut().find(|(known, ..)| *known == source) {
                Some(known) => (known.2, known.3) = (explicit, implied),
                None => self.admitted.push((source, name, explicit, implied)),
            }
        }
        for target in 0..TARGETS {
            for name in 0..NAMES.len() {
                self.decide(target, name);
            }
        }
    }

    fn decide(&mut self, target: u32, name: usize) {
        let former = self.holders.remove(&(target, name));
        let claims = |explicit: bool| {
            let by = self.admitted.iter().filter(move |(_, of, wants, implied)| {
                *of == name && if explicit { wants.contains(target) } else { implied.contains(target) }
            });
            by.map(|(source, ..)| source.clone()).collect::<Vec<_>>()
        };
        let claimants = [claims(true), claims(false)].into_iter().find(|claimants| !claimants.is_empty());
        let Some(claimants) = claimants else { return };
        let holder = former.filter(|former| claimants.contains(former)).unwrap_or_else(|| claimants[0].clone());
        self.holders.insert((target, name), holder);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn destinations_are_held_as_if_each_were_decided_alone(steps in ops()) {
        let mut kept = Kept::with_targets(TARGETS);
        let mut oracle = Oracle::default();
        for ops in &steps {
            let changes = ops.iter().flat_map(|op| op.changes(&kept.ledger)).collect();
            kept.change(changes);
            oracle.tell(ops);
            if ops.iter().any(|op| matches!(op, Op::Restart)) {
                kept.restart();
            }
            for target in 0..TARGETS {
                for (name, text) in NAMES.iter().enumerate() {
                    let holder = kept.ledger.holder(target, &config_map(text)).map(|source| source.id().clone());
                    prop_assert_eq!(holder.as_ref(), oracle.holders.get(&(target, name)));
                }
            }
        }
    }
}
