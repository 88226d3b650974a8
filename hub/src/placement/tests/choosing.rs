//! `numberOfTargets`: what is chosen, and what moves a choice.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// A world with so many targets, and a Placement that takes one of them for the object `web`.
fn one_of(targets: u32) -> (World, u32) {
    let mut world = World::new(targets);
    world.object("web", "app=web");
    world.placement("p", &one());
    world.drain();
    let chosen = world.chosen();
    let [only] = chosen[..] else { panic!("{chosen:?}") };
    (world, only)
}

fn one() -> Value {
    some(1)
}

fn some(number: u32) -> Value {
    let mut spec = simple("app=web", "all=yes");
    spec["numberOfTargets"] = number.into();
    spec
}

/// A target that is chosen next, when this one leaves.
fn successor(targets: u32, of: u32) -> u32 {
    let (mut world, chosen) = one_of(targets);
    assert_eq!(chosen, of);
    world.index.delete_target(of);
    world.drain();
    world.chosen()[0]
}

fn web_at(nth: u32) -> Vec<String> {
    vec![format!("web@{nth}")]
}

impl World {
    /// What the ledger has of the choice of the Placement `p`.
    fn chosen(&self) -> Vec<u32> {
        let placement = PlacementId::Named { space: space(), name: "p".into() };
        self.choices.get(&placement).into_iter().flatten().collect()
    }

    fn placement_with_uid(&mut self, uid: &str, spec: &Value) {
        self.index.apply_placement(&space(), "p", uid.parse().unwrap(), Ok(rule(spec)));
    }

    /// After a restart, with everything but Placements, and nothing listed.
    fn again(self, targets: u32) -> Self {
        let mut world = Self::restarted(self.told);
        for (placement, chosen) in &self.choices {
            world.index.restore_choice(placement, chosen.clone());
        }
        world.choices = self.choices;
        world.now = self.now;
        for nth in 0..targets {
            world.target(nth, &format!("n={nth},all=yes"));
        }
        world.namespace("shop", "team=a");
        world.object("web", "app=web");
        world
    }
}

#[test]
fn a_placement_that_is_replaced_chooses_the_same() {
    for drains in [false, true] {
        let (mut world, chosen) = one_of(16);
        // Better ones may have joined since.
        (16..64).for_each(|nth| world.target(nth, "all=yes"));
        world.drain();
        for uid in ["another", "a-third", "p"] {
            world.index.delete_placement(&space(), "p");
            if drains {
                world.drain();
                world.wait(ALMOST_SETTLED);
                world.drain();
            }
            world.placement_with_uid(uid, &one());
            assert_eq!((world.placed(), world.chosen()), (web_at(chosen), vec![chosen]));
        }
        // Without its deletion having been heard of.
        world.placement_with_uid("a-fourth", &one());
        world.wait(SETTLED * 2);
        assert_eq!(world.placed(), web_at(chosen));
    }
}

#[test]
fn a_choice_outlives_its_placement_as_long_as_what_it_placed() {
    let (mut world, chosen) = one_of(4);
    world.index.delete_placement(&space(), "p");
    assert_eq!(world.drain(), 0);
    world.wait(ALMOST_SETTLED);
    assert_eq!(world.drain(), 0);
    assert_eq!(world.chosen(), [chosen]);
    world.wait(Duration::from_millis(1));
    assert_eq!(world.placed(), [""; 0]);
    assert_eq!(world.choices.len(), 0);
    world.wait(SETTLED);
    world.drain();
    assert_eq!(world.index.next_deadline(), None);
}

#[test]
fn a_label_that_is_wrong_for_a_moment_moves_nothing() {
    let (mut world, chosen) = one_of(16);
    for _ in 0..3 {
        world.target(chosen, "all=oops");
        world.drain();
        world.object("web", "app=web,changed=yes");
        world.wait(ALMOST_SETTLED);
        assert_eq!((world.placed(), world.chosen()), (web_at(chosen), vec![chosen]));
        world.target(chosen, "all=yes");
        world.drain();
        world.wait(SETTLED * 2);
        assert_eq!((world.placed(), world.chosen()), (web_at(chosen), vec![chosen]));
    }
    // Nor between two drains.
    world.target(chosen, "all=oops");
    world.target(chosen, "all=yes");
    assert_eq!(world.drain(), 0);
    assert_eq!(world.index.next_deadline(), None);
}

#[test]
fn a_label_that_stays_wrong_moves_everything_once_it_has_settled() {
    let (mut world, chosen) = one_of(16);
    let next = successor(16, chosen);
    world.target(chosen, "all=oops");
    assert_eq!(world.drain(), 0);
    assert_eq!(world.index.next_deadline(), Some(world.now + SETTLED));
    world.wait(SETTLED);
    assert_eq!((world.placed(), world.chosen()), (web_at(next), vec![next]), "both waits end at once");
    world.target(chosen, "all=yes");
    world.drain();
    world.wait(SETTLED * 2);
    assert_eq!(world.placed(), web_at(next), "that is the choice now");
    assert_eq!(world.index.next_deadline(), None);
}

#[test]
fn what_is_new_is_not_placed_where_nothing_selects_it() {
    let (mut world, chosen) = one_of(2);
    world.target(chosen, "all=oops");
    world.object("new", "app=web");
    assert_eq!(world.placed(), web_at(chosen));
    let status = world.index.placement_status(&space(), "p").unwrap();
    expect_test::expect!["it selects 1 target, but none that it chose before; others are chosen when that lasts"]
        .assert_eq(&status.problems[0].message);
    world.wait(SETTLED);
    let next = 1 - chosen;
    assert_eq!(world.placed(), [format!("new@{next}"), format!("web@{next}")]);
}

#[test]
fn a_target_that_is_gone_or_leaves_service_is_replaced_at_once() {
    let (mut world, chosen) = one_of(16);
    let next = successor(16, chosen);
    world.index.delete_target(chosen);
    assert_eq!((world.placed(), world.chosen()), (web_at(next), vec![next]));

    let (mut world, chosen) = one_of(16);
    let decommission = Decommission::Remove;
    let leaving = Target {
        id: target_id(chosen),
        name: target_name(chosen),
        labels: labels("all=yes"),
        unschedulable: false,
        decommission,
    };
    world.index.apply_target(chosen, leaving);
    world.drain();
    assert_eq!(world.chosen(), [next]);
    world.wait(SETTLED);
    assert_eq!(world.placed(), web_at(next));
}

#[test]
fn an_unschedulable_target_stays_chosen_and_is_not_chosen_anew() {
    let (mut world, chosen) = one_of(2);
    world.unschedulable(chosen, "all=yes");
    world.unschedulable(1 - chosen, "all=yes");
    assert_eq!(world.placed(), web_at(chosen));
    world.placement("p", &some(2));
    assert_eq!((world.placed(), world.chosen()), (web_at(chosen), vec![chosen]));
}

#[test]
fn another_number_of_targets_is_chosen_at_once() {
    let (mut world, chosen) = one_of(16);
    world.placement("p", &some(3));
    world.drain();
    let three = world.chosen();
    assert!(three.len() == 3 && three.contains(&chosen), "{three:?} {chosen}");
    let absent = three[1];
    world.target(absent, "all=oops");
    world.placement("p", &some(2));
    world.drain();
    let two: Vec<_> = three.iter().copied().filter(|nth| *nth != absent).collect();
    assert_eq!(world.chosen(), two, "what is selected comes before what is waited for");
    let mut spec = one();
    spec.as_object_mut().unwrap().remove("numberOfTargets");
    world.placement("p", &spec);
    world.drain();
    world.wait(ALMOST_SETTLED);
    world.placement("p", &some(2));
    world.drain();
    assert_eq!(world.chosen(), two, "a number that is left out for a moment moves nothing");
    world.placement("p", &spec);
    world.drain();
    world.wait(SETTLED);
    world.drain();
    assert_eq!(world.choices.len(), 0);
}

/// The targets of a Location, and nothing is known of what it selects.
#[test]
fn a_location_that_cannot_be_read_after_a_restart_moves_nothing() {
    let mut spec = one();
    spec["targets"] = json!([]);
    spec["locations"] = json!([{"matchLabels": {"tier": "edge"}}]);
    let mut world = World::new(2);
    world.object("web", "app=web");
    world.location("first", "tier=edge", "n=0");
    world.placement("p", &spec);
    assert_eq!((world.placed(), world.chosen()), (web_at(0), vec![0]));
    world.location("second", "tier=edge", "n=1");
    world.drain();

    let mut world = world.again(2);
    world.index.apply_location("first", Err("metadata.labels.tier: a number".to_owned()));
    world.location("second", "tier=edge", "n=1");
    world.placement("p", &spec);
    world.list();
    for _ in 0..3 {
        assert_eq!((world.drain(), world.chosen()), (0, vec![0]));
        world.wait(SETTLED * 2);
    }
    // Whoever has chosen nothing chooses from what is known.
    world.index.apply_placement(&space(), "q", "q".parse().unwrap(), Ok(rule(&spec)));
    assert_eq!(world.placed(), ["web@0,1"]);
    world.index.delete_placement(&space(), "q");
    // Once it can be read, it may have selected something else for long.
    world.location("first", "tier=edge", "n=7");
    world.drain();
    world.wait(ALMOST_SETTLED);
    world.drain();
    assert_eq!(world.chosen(), [0]);
    world.location("first", "tier=edge", "n=0");
    world.wait(SETTLED * 2);
    assert_eq!((world.placed(), world.chosen()), (web_at(0), vec![0]));
    assert_eq!(world.choices.len(), 1, "that of the Placement that is gone is forgotten");
}

#[test]
fn a_label_that_is_wrong_over_a_restart_is_waited_for_anew() {
    let (mut world, chosen) = one_of(16);
    world.target(chosen, "all=oops");
    world.drain();
    world.wait(ALMOST_SETTLED);
    let mut world = world.again(16);
    world.target(chosen, "all=oops");
    world.placement_with_uid("another", &one());
    world.list();
    world.drain();
    world.wait(ALMOST_SETTLED);
    assert_eq!((world.placed(), world.chosen()), (web_at(chosen), vec![chosen]));
    world.target(chosen, "all=yes");
    world.drain();
    world.wait(SETTLED);
    assert_eq!(world.placed(), web_at(chosen));
}

#[test]
fn what_an_older_hub_chose_by_uid_is_taken_over_by_name() {
    let (mut world, chosen) = one_of(16);
    let others = (chosen + 1) % 16;
    let former = |uid: &str| PlacementId::Former { space: space(), uid: uid.parse().unwrap() };
    world.choices = ["p", "gone"].map(|uid| (former(uid), RoaringBitmap::from([others]))).into();
    // It stood there by the older hub's choice.
    let told = world.told.values_mut().flat_map(|told| &mut told.variants);
    told.for_each(|variant| variant.targets = RoaringBitmap::from([others]));

    let mut world = world.again(16);
    world.placement("p", &one());
    world.drain();
    assert_eq!(world.chosen(), [others]);
    assert!(!world.choices.contains_key(&former("p")) && world.choices.contains_key(&former("gone")));
    world.list();
    world.drain();
    assert_eq!(world.choices.len(), 1, "{:?}", world.choices);
    world.wait(SETTLED);
    assert_eq!((world.placed(), world.chosen()), (web_at(others), vec![others]));
}

/// Two Placements of one name in two spaces, and two names in one, do not all take the same targets.
#[test]
fn choices_are_spread_by_space_and_name() {
    let mut world = World::new(32);
    let mut taken = RoaringBitmap::new();
    for nth in 0..16 {
        world.placement(&format!("p{nth}"), &one());
    }
    world.drain();
    for chosen in world.choices.values() {
        taken |= chosen;
    }
    assert!(taken.len() > 8, "{taken:?}");
}

#[derive(Clone, Debug)]
enum Op {
    /// Whether it has the label; none where it is not there.
    Target(u32, Option<bool>),
    /// With a UID, and a number of targets.
    Placement(Option<(u8, u32)>),
    /// Whether there is a Location that never could be read.
    Unreadable(bool),
    Wait(Duration),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..6_u32, prop::option::weighted(0.8, any::<bool>())).prop_map(|(nth, label)| Op::Target(nth, label)),
        4 => prop::option::weighted(0.7, (0..3_u8, 1..4_u32)).prop_map(Op::Placement),
        1 => any::<bool>().prop_map(Op::Unreadable),
        4 => prop_oneof![Just(SETTLED / 2), Just(ALMOST_SETTLED), Just(SETTLED)].prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

/// What there is, and since when what was chosen is waited for.
#[derive(Default)]
struct Plain {
    targets: BTreeMap<u32, bool>,
    placement: Option<(u8, u32)>,
    unreadable: bool,
    absent: BTreeMap<u32, Monotonic>,
    orphaned: Option<Monotonic>,
}

impl Plain {
    fn take(&mut self, op: &Op) {
        match *op {
            Op::Target(nth, Some(label)) => {
                self.targets.insert(nth, label);
            }
            Op::Target(nth, None) => {
                self.targets.remove(&nth);
            }
            Op::Placement(placement) => self.placement = placement,
            Op::Unreadable(unreadable) => self.unreadable = unreadable,
            Op::Wait(_) => {}
            Op::Restart => (self.absent, self.orphaned) = (BTreeMap::new(), None),
        }
    }

    fn eligible(&self) -> BTreeSet<u32> {
        self.targets.iter().filter(|(_, label)| **label).map(|(nth, _)| *nth).collect()
    }

    /// Checks what a drain made of a choice.
    fn check(&mut self, now: Monotonic, before: &[u32], after: &[u32]) {
        let is_over = |since: Monotonic| now.since(since) >= SETTLED;
        let there: BTreeSet<u32> = before.iter().copied().filter(|nth| self.targets.contains_key(nth)).collect();
        let after: BTreeSet<u32> = after.iter().copied().collect();
        let Some((_, number)) = self.placement else {
            self.absent.clear();
            if self.unreadable {
                self.orphaned = None;
            } else if !before.is_empty() {
                let since = *self.orphaned.get_or_insert(now);
                if is_over(since) {
                    assert!(after.is_empty(), "it is forgotten");
                    return;
                }
            }
            assert_eq!(after, before.iter().copied().collect());
            return;
        };
        self.orphaned = None;
        let eligible = self.eligible();
        let mut kept = BTreeSet::new();
        for nth in there {
            if self.unreadable || eligible.contains(&nth) {
                self.absent.remove(&nth);
                kept.insert(nth);
            } else if !is_over(*self.absent.entry(nth).or_insert(now)) {
                kept.insert(nth);
            }
        }
        self.absent.retain(|nth, _| after.contains(nth));
        let number = number as usize;
        if kept.len() <= number || self.unreadable {
            assert!(after.is_superset(&kept), "{kept:?} keep their places");
        } else {
            assert!(after.len() == number && after.is_subset(&kept), "{after:?} are of {kept:?}");
            assert!(after.is_subset(&eligible) || after.is_superset(&(&kept & &eligible)), "the absent go first");
        }
        let all = kept.union(&eligible).count();
        assert_eq!(after.len(), number.min(all).max(if self.unreadable { kept.len() } else { 0 }), "no place is free");
    }
}

impl World {
    fn hears(&mut self, op: &Op) {
        match *op {
            Op::Target(nth, Some(label)) => self.target(nth, if label { "all=yes" } else { "all=oops" }),
            Op::Target(nth, None) => self.index.delete_target(nth),
            Op::Placement(Some((uid, number))) => self.placement_with_uid(&uid.to_string(), &some(number)),
            Op::Placement(None) => self.index.delete_placement(&space(), "p"),
            Op::Unreadable(true) => self.index.apply_location("odd", Err("it is odd".to_owned())),
            Op::Unreadable(false) => self.index.delete_location("odd"),
            Op::Wait(time) => self.wait(time),
            Op::Restart => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_loses_its_place_before_its_time(ops in prop::collection::vec(op(), 1..40)) {
        let mut plain = Plain::default();
        let mut world = World::new(0);
        world.object("web", "app=web");
        for op in &ops {
            let before = world.chosen();
            plain.take(op);
            world.hears(op);
            if matches!(op, Op::Restart) {
                world = world.again(0);
                let targets = plain.targets.iter().map(|(nth, label)| Op::Target(*nth, Some(*label)));
                let rest = [Op::Placement(plain.placement), Op::Unreadable(plain.unreadable)];
                for op in targets.chain(rest) {
                    world.hears(&op);
                }
                world.list();
            }
            world.drain();
            plain.check(world.now, &before, &world.chosen());
        }
        world.hears(&Op::Unreadable(false));
        for _ in 0..3 {
            world.drain();
            world.wait(SETTLED);
        }
        world.drain();
        assert_eq!(world.index.next_deadline(), None);
        let (chosen, eligible) = (world.chosen(), plain.eligible());
        let number = plain.placement.map_or(0, |(_, number)| number as usize).min(eligible.len());
        assert!(chosen.len() == number && chosen.iter().all(|nth| eligible.contains(nth)), "{chosen:?}");
        let placed: Vec<_> = chosen.iter().map(ToString::to_string).collect();
        let placed = if placed.is_empty() { Vec::new() } else { vec![format!("web@{}", placed.join(","))] };
        assert_eq!(world.placed(), placed, "it stands where it is to");
    }
}
