//! However late the ledger hears of edits, what leaves a target leaves by the policy that was in force last.

use std::time::Duration;

use serde_json::json;
use tideline_api::{Allow, Placement};
use tideline_common::wire::v1::Decommission;

use super::*;
use crate::clean::{self, Content, Labels, Refusal};
use crate::placement::{Index, Part, PlacementRule, SpaceRule, Target};

/// More than anything settles in.
const SETTLED: Duration = Duration::from_secs(20);

/// All ConfigMaps of one label, or of any, to all targets of one label.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    objects: Option<u8>,
    targets: u8,
    orphan: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Thing {
    label: u8,
    text: Text,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Text {
    Readable,
    Unreadable,
    NeverPlaced,
}

#[derive(Clone, Copy, Debug)]
enum Edit {
    Placement(u8, Option<Plan>),
    Object(u8, Option<Thing>),
    Target(u8, u8),
}

#[derive(Clone, Debug)]
enum Op {
    Edit(Edit),
    /// The hub gets round to what was edited.
    Drain,
    /// Everything settles, and all removals are confirmed.
    Settle,
    /// It ends when it knows of all, and begins again when this was edited, and is told of it in another order.
    Restart(Vec<Edit>, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let plan = (prop::option::of(0..2_u8), 0..2_u8, any::<bool>());
    let plan = plan.prop_map(|(objects, targets, orphan)| Plan { objects, targets, orphan });
    let text = prop_oneof![4 => Just(Text::Readable), 1 => Just(Text::Unreadable), 1 => Just(Text::NeverPlaced)];
    let thing = (0..2_u8, text).prop_map(|(label, text)| Thing { label, text });
    prop_oneof![
        5 => (0..2_u8, prop::option::weighted(0.7, plan)).prop_map(|(nth, plan)| Edit::Placement(nth, plan)),
        3 => (0..2_u8, prop::option::weighted(0.7, thing)).prop_map(|(nth, thing)| Edit::Object(nth, thing)),
        1 => (0..2_u8, 0..2_u8).prop_map(|(nth, label)| Edit::Target(nth, label)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => edit().prop_map(Op::Edit),
        2 => Just(Op::Drain),
        2 => Just(Op::Settle),
        1 => (prop::collection::vec(edit(), 0..3), 0..8_usize).prop_map(|(edits, turn)| Op::Restart(edits, turn)),
    ]
}

/// What there is to list.
#[derive(Clone, Debug, Default)]
struct Plain {
    placements: BTreeMap<u8, Plan>,
    objects: BTreeMap<u8, Thing>,
    targets: BTreeMap<u8, u8>,
}

impl Plain {
    fn take(&mut self, edit: Edit) {
        fn put<T>(map: &mut BTreeMap<u8, T>, nth: u8, value: Option<T>) {
            match value {
                Some(value) => map.insert(nth, value),
                None => map.remove(&nth),
            };
        }
        match edit {
            Edit::Placement(nth, plan) => put(&mut self.placements, nth, plan),
            Edit::Object(nth, thing) => put(&mut self.objects, nth, thing),
            Edit::Target(nth, label) => put(&mut self.targets, nth, Some(label)),
        }
    }

    fn edits(&self) -> Vec<Edit> {
        let placements = self.placements.iter().map(|(nth, plan)| Edit::Placement(*nth, Some(*plan)));
        let objects = self.objects.iter().map(|(nth, thing)| Edit::Object(*nth, Some(*thing)));
        let targets = self.targets.iter().map(|(nth, label)| Edit::Target(*nth, *label));
        placements.chain(objects).chain(targets).collect()
    }
}

type Told = BTreeMap<(u32, String), (String, PrunePolicy)>;

/// An index and the ledger that it tells.
struct Hub {
    index: Index,
    kept: Kept,
    now: Monotonic,
    /// Every tombstone that there was, the last one of each place.
    told: Told,
}

impl Hub {
    fn new() -> Self {
        let mut hub =
            Self { index: Index::default(), kept: Kept::with_targets(2), now: Monotonic::START, told: Told::new() };
        hub.begin();
        hub
    }

    fn begin(&mut self) {
        self.index = Index::default();
        self.index.restore(self.kept.ledger.assignments());
        self.index.apply_space(&space(), SpaceRule::try_from(&Allow::everything()).unwrap());
        let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "uid": "ns"}});
        self.index.apply(
            &space(),
            &GroupResource::new("", "namespaces"),
            clean::read(clean::SpaceServer::Embedded, &shop).unwrap(),
        );
    }

    fn list(&mut self) {
        let (space, namespaces, config_maps) = (space(), GroupResource::new("", "namespaces"), config_maps());
        for part in [
            Part::Targets,
            Part::Locations,
            Part::Spaces,
            Part::Objects(&space, &namespaces),
            Part::Objects(&space, &config_maps),
            Part::Placements(&space),
        ] {
            self.index.listed(part);
        }
    }

    fn tell(&mut self, edit: Edit) {
        match edit {
            Edit::Placement(nth, None) => self.index.delete_placement(&space(), &nth.to_string()),
            Edit::Placement(nth, Some(plan)) => {
                let (name, rule) = (nth.to_string(), plan.rule());
                self.index.apply_placement(&space(), &name, name.parse().unwrap(), Ok(rule));
            }
            Edit::Object(nth, None) => self.index.delete(&space(), &config_maps(), &config_map(&nth.to_string())),
            Edit::Object(nth, Some(thing)) => {
                self.index.apply(&space(), &config_maps(), thing.source(nth));
            }
            Edit::Target(nth, label) => {
                let labels = Labels::from([("l".to_owned(), label.to_string())]);
                let target = Target {
                    id: target(nth.into()),
                    name: "target".into(),
                    labels,
                    unschedulable: false,
                    decommission: Decommission::No,
                };
                self.index.apply_target(nth.into(), target);
            }
        }
    }

    fn drain(&mut self) {
        let changes = self.index.drain(self.now);
        self.kept.change(changes);
        for nth in 0..2 {
            let told = self.kept.ledger.target(target(nth)).unwrap();
            for gone in told.tombstones().filter(|gone| gone.tombstone.key.kind.is("", "ConfigMap")) {
                let place = (nth, gone.tombstone.key.to_string());
                self.told.insert(place, (gone.tombstone.source.to_string(), gone.policy));
            }
        }
    }

    fn settle(&mut self) {
        for _ in 0..3 {
            self.drain();
            self.now = self.now + SETTLED;
        }
        self.drain();
        for nth in 0..2 {
            let view = self.kept.ledger.target(target(nth)).unwrap();
            let gone: Vec<_> = view.tombstones().map(|gone| gone.tombstone.clone()).collect();
            let at = self.kept.version(nth);
            self.kept.change(gone.into_iter().map(|gone| Change::Confirm(target(nth), at, gone)).collect());
        }
    }

    fn restart(&mut self, plain: &Plain, turn: usize) {
        self.drain();
        self.kept.restart();
        self.begin();
        let mut edits = plain.edits();
        let len = edits.len().max(1);
        edits.rotate_left(turn % len);
        for edit in edits {
            self.tell(edit);
            self.drain();
        }
        self.list();
    }
}

impl Plan {
    fn rule(self) -> PlacementRule {
        let Self { objects, targets, orphan } = self;
        let labelled = |label: u8| json!([{"matchLabels": {"l": label.to_string()}}]);
        let mut clause =
            json!({"resources": ["configmaps"], "apply": {"prune": if orphan { "Orphan" } else { "Delete" }}});
        if let Some(label) = objects {
            clause["objectSelectors"] = labelled(label);
        }
        let spec = json!({"targets": labelled(targets), "objects": [clause]});
        let placement = json!({
            "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"}, "spec": spec
        });
        let placement: Placement = tideline_api::decode(placement).unwrap();
        PlacementRule::try_from(&placement.spec).unwrap()
    }
}

impl Thing {
    fn source(self, nth: u8) -> clean::Source {
        let metadata = json!({
            "name": nth.to_string(), "namespace": "shop", "uid": nth.to_string(), "labels": {"l": self.label.to_string()}
        });
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let source = clean::read(clean::SpaceServer::Embedded, &object).unwrap();
        match self.text {
            Text::Readable => source,
            Text::Unreadable => {
                let refusal = Refusal { reason: tideline_common::Reason::TooLarge, message: String::new() };
                clean::Source { content: Content::Unreadable(refusal), ..source }
            }
            Text::NeverPlaced => clean::Source { content: Content::NeverPlaced("it is not"), ..source },
        }
    }
}

fn space() -> tideline_common::SpaceName {
    "default".parse().unwrap()
}

fn config_maps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

/// Of a hub that drains after each edit, and one that drains now and then: what either tells of a place.
struct Both {
    often: Hub,
    seldom: Hub,
    plain: Plain,
    /// Something was edited while the second was down, or settled still, or could not be read: what came first then it
    /// cannot know, and says what destroys less.
    doubtful: bool,
    /// A target was labelled anew since the second was drained.
    relabelled: bool,
}

impl Both {
    fn new() -> Self {
        let (often, seldom) = (Hub::new(), Hub::new());
        let mut both = Self { often, seldom, plain: Plain::default(), doubtful: false, relabelled: false };
        both.edit(Edit::Target(0, 0));
        both.edit(Edit::Target(1, 1));
        both.often.list();
        both.seldom.list();
        both
    }

    fn edit(&mut self, edit: Edit) {
        self.plain.take(edit);
        self.often.tell(edit);
        self.often.drain();
        // Labels that a target had between two drains say nothing of how it was to keep anything.
        let relabels = matches!(edit, Edit::Target(..));
        if relabels && self.relabelled {
            self.seldom.drain();
        }
        self.relabelled = relabels;
        self.seldom.tell(edit);
    }

    fn take(&mut self, op: &Op) {
        match op {
            Op::Edit(edit) => self.edit(*edit),
            Op::Drain => self.seldom.drain(),
            Op::Settle => {
                self.often.settle();
                self.seldom.settle();
            }
            Op::Restart(edits, turn) => {
                self.seldom.drain();
                let unreadable = self.plain.objects.values().any(|thing| thing.text == Text::Unreadable);
                let settling = self.seldom.index.next_deadline().is_some();
                self.doubtful |= !edits.is_empty() || unreadable || settling;
                let (mut edited, mut changed) = (BTreeSet::new(), false);
                for edit in edits {
                    // Of what is edited twice nobody knows what it was in between, and what labels targets had neither.
                    let thing = match edit {
                        Edit::Object(nth, thing) => {
                            changed |= thing.is_some();
                            Some((1, *nth))
                        }
                        // Nor what a Placement that is gone wanted of an object that came to it only then.
                        Edit::Placement(nth, _) => (!changed).then_some((0, *nth)),
                        Edit::Target(..) => None,
                    };
                    if thing.is_some_and(|thing| edited.insert(thing)) {
                        self.plain.take(*edit);
                        self.often.tell(*edit);
                        self.often.drain();
                    }
                }
                self.seldom.restart(&self.plain, *turn);
            }
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        for (place, (source, policy)) in &self.seldom.told {
            let (other, last) = self.often.told.get(place).cloned().unwrap_or_else(|| panic!("{place:?} never left"));
            prop_assert_eq!(source, &other);
            if self.doubtful {
                prop_assert_eq!(*policy, policy.least(last), "{:?}: {:?} was said last", place, last);
            } else {
                prop_assert_eq!(*policy, last, "{:?}", place);
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_was_said_last_is_told_whenever_the_index_is_drained(ops in prop::collection::vec(op(), 1..24)) {
        let mut both = Both::new();
        for op in &ops {
            both.take(op);
            if matches!(op, Op::Settle) {
                both.check()?;
                // It was confirmed, and what the other alone assigns and takes away since then never was there.
                both.seldom.told.clear();
            }
        }
        both.take(&Op::Settle);
        both.check()?;
    }
}

fn kept(orphan: bool) -> Op {
    Op::Edit(Edit::Placement(0, Some(Plan { objects: None, targets: 0, orphan })))
}

fn object(text: Text) -> Op {
    Op::Edit(Edit::Object(0, Some(Thing { label: 0, text })))
}

fn check(ops: impl IntoIterator<Item = Op>, expected: Prune) {
    let mut both = Both::new();
    for op in [object(Text::Readable), kept(false), Op::Settle].into_iter().chain(ops).chain([Op::Settle]) {
        both.take(&op);
    }
    both.check().unwrap();
    let told: Vec<_> = both.seldom.told.values().map(|(_, policy)| policy.prune).collect();
    assert_eq!(told, [expected]);
}

const NO_PLACEMENT: Op = Op::Edit(Edit::Placement(0, None));
const NO_OBJECT: Op = Op::Edit(Edit::Object(0, None));

#[test]
fn a_placement_that_lets_go_and_is_deleted_at_once_lets_go() {
    check([kept(true), NO_PLACEMENT], Prune::Orphan);
    check([kept(true), kept(false), NO_PLACEMENT], Prune::Delete);
    check([kept(true), NO_OBJECT], Prune::Orphan);
    check([kept(true), object(Text::NeverPlaced)], Prune::Orphan);
    let elsewhere = Plan { objects: Some(1), targets: 0, orphan: false };
    check([kept(true), Op::Edit(Edit::Placement(0, Some(elsewhere)))], Prune::Orphan);
    check([kept(true), Op::Edit(Edit::Target(0, 1))], Prune::Orphan);
}

#[test]
fn what_is_said_while_an_object_is_unreadable_counts() {
    check([object(Text::Unreadable), kept(true), NO_PLACEMENT, object(Text::Readable)], Prune::Orphan);
    // To the second hub it never was readable in this run.
    let unread = Edit::Object(0, Some(Thing { label: 0, text: Text::Unreadable }));
    check(
        [Op::Restart(vec![unread], 0), kept(true), Op::Drain, NO_PLACEMENT, Op::Settle, object(Text::Readable)],
        Prune::Orphan,
    );
}

#[test]
fn what_is_said_while_the_hub_is_down_counts() {
    let lets_go = Edit::Placement(0, Some(Plan { objects: None, targets: 0, orphan: true }));
    let relabelled = Edit::Object(0, Some(Thing { label: 1, text: Text::Readable }));
    let selecting = Op::Edit(Edit::Placement(0, Some(Plan { objects: Some(0), targets: 0, orphan: false })));
    let lets_go_too = Edit::Placement(0, Some(Plan { objects: Some(0), targets: 0, orphan: true }));
    for turn in 0..4 {
        check([Op::Restart(vec![lets_go, Edit::Object(0, None)], turn)], Prune::Orphan);
        check([Op::Restart(vec![lets_go], turn), NO_PLACEMENT], Prune::Orphan);
        check([selecting.clone(), Op::Settle, Op::Restart(vec![lets_go_too, relabelled], turn)], Prune::Orphan);
    }
}

#[test]
fn what_is_said_before_everything_is_read_counts() {
    let mut both = Both::new();
    for op in [object(Text::Readable), kept(false), Op::Settle] {
        both.take(&op);
    }
    let mut hub = both.seldom;
    hub.begin();
    let lets_go = Edit::Placement(0, Some(Plan { objects: None, targets: 0, orphan: true }));
    let mut edits = both.plain.edits();
    edits.retain(|edit| !matches!(edit, Edit::Placement(..)));
    for edit in edits.into_iter().chain([lets_go, Edit::Placement(0, None)]) {
        hub.tell(edit);
        hub.drain();
    }
    hub.list();
    hub.settle();
    let told: Vec<_> = hub.told.values().map(|(_, policy)| policy.prune).collect();
    assert_eq!(told, [Prune::Orphan]);
}

/// Its space is read, all but the kind that matters, which cannot be listed for an hour.
#[test]
fn what_is_said_while_a_kind_is_not_read_counts() {
    let mut both = Both::new();
    for op in [object(Text::Readable), kept(false), Op::Settle] {
        both.take(&op);
    }
    let (mut hub, edits) = (both.seldom, both.plain.edits());
    hub.kept.restart();
    hub.begin();
    let (objects, others): (Vec<_>, Vec<_>) = edits.into_iter().partition(|edit| matches!(edit, Edit::Object(..)));
    for edit in others {
        hub.tell(edit);
    }
    let (space, namespaces) = (space(), GroupResource::new("", "namespaces"));
    let read =
        [Part::Targets, Part::Locations, Part::Spaces, Part::Objects(&space, &namespaces), Part::Placements(&space)];
    for part in read {
        hub.index.listed(part);
    }
    hub.drain();
    let lets_go = Edit::Placement(0, Some(Plan { objects: None, targets: 0, orphan: true }));
    for edit in [lets_go, Edit::Placement(0, None)] {
        hub.tell(edit);
        hub.drain();
    }
    for edit in objects {
        hub.tell(edit);
    }
    hub.list();
    hub.settle();
    let told: Vec<_> = hub.told.values().map(|(_, policy)| policy.prune).collect();
    assert_eq!(told, [Prune::Orphan]);
}
