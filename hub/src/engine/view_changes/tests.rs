use proptest::prelude::*;
use tideline_common::GroupKind;

use super::*;

fn space(nth: u8) -> SpaceName {
    format!("s{nth}").parse().unwrap()
}

fn place(nth: u8, name: u8) -> Place {
    (space(nth), ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("c{name}")))
}

#[derive(Clone, Debug)]
enum Step {
    Elsewhere,
    Anywhere(PlaceChange),
    At(u8, u8, PlaceChange),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = || prop_oneof![Just(PlaceChange::Reads), Just(PlaceChange::Diminished)];
    let at = (0_u8..2, 0_u8..6, change()).prop_map(|(space, name, change)| Step::At(space, name, change));
    proptest::collection::vec(
        prop_oneof![1 => Just(Step::Elsewhere), 1 => change().prop_map(Step::Anywhere), 20 => at],
        0..60,
    )
}

proptest! {
    /// Held against a book of everything.
    #[test]
    fn what_changed_since_any_number_is_known_or_said_to_be_unknown(steps in steps()) {
        let mut changes = ViewChanges::default();
        let mut all: Vec<(u64, Option<Place>, PlaceChange)> = Vec::new();
        for step in steps {
            match step {
                Step::Elsewhere => changes.elsewhere(),
                Step::Anywhere(change) => {
                    changes.anywhere(change);
                    all.push((changes.number(), None, change));
                }
                Step::At(of, name, change) => {
                    changes.at(place(of, name), change);
                    all.push((changes.number(), Some(place(of, name)), change));
                }
            }
        }
        for since in 0..=changes.number() {
            let later = || all.iter().filter(|(at, ..)| *at > since);
            let expected = if let Some((until, ..)) = later().rfind(|(_, place, _)| place.is_none()) {
                let change = later().map(|(.., change)| *change).max().unwrap_or(PlaceChange::Reads);
                ChangedPlaces::Any { until: *until, change }
            } else {
                let mut places: BTreeMap<ObjectKey, (u64, PlaceChange)> = BTreeMap::new();
                for (at, of, change) in later() {
                    let (of, key) = of.clone().unwrap();
                    if of == space(0) {
                        let known = places.entry(key).or_insert((*at, *change));
                        known.0 = *at;
                        if *change == PlaceChange::Diminished {
                            known.1 = *change;
                        }
                    }
                }
                let mut places: Vec<_> =
                    places.into_iter().map(|(place, (at, change))| ChangedPlace { at, place, change }).collect();
                places.sort_by_key(|changed| changed.at);
                ChangedPlaces::These(places)
            };
            prop_assert_eq!(changes.since(&space(0), since), expected);
        }
    }
}

#[test]
fn what_changed_longest_ago_is_forgotten_first() {
    let mut changes = ViewChanges::default();
    let name = |nth: usize| (space(0), ObjectKey::new(GroupKind::new("", "ConfigMap"), "shop", format!("c{nth}")));
    for nth in 0..VIEW_CHANGES_MAX {
        changes.at(name(nth), PlaceChange::Reads);
    }
    changes.at(name(0), PlaceChange::Reads);
    assert!(matches!(changes.since(&space(0), 0), ChangedPlaces::These(places) if places.len() == VIEW_CHANGES_MAX));
    changes.at(name(VIEW_CHANGES_MAX), PlaceChange::Reads);
    assert_eq!(
        changes.since(&space(0), 0),
        ChangedPlaces::Any { until: 4, change: PlaceChange::Reads },
        "that of the second one"
    );
    let ChangedPlaces::These(places) = changes.since(&space(0), 4) else { panic!("all of it is known") };
    assert_eq!((places.len(), places[0].place.clone()), (VIEW_CHANGES_MAX, name(2).1));
}
