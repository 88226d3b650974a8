use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_api::PlacementStatus;
use tideline_common::{ObjectKey, Reason, SpaceName};

use super::choice::Choice;
use super::index::Index;
use super::inventory::Inventory;
use super::listing::Listing;
use super::object::{Object, State};
use super::rule::{Clause, PlacementRule};
use super::space::{Placing, Space};
use super::{GroupResource, SourceId};
use crate::clean::refers_to_namespaces;

/// Problems kept for one Placement; they are counted beyond.
pub const PROBLEMS_MAX: usize = PlacementStatus::PROBLEMS_MAX;
/// Names that one message gives; a person needs an example or two.
const NAMES_MAX: usize = 3;

/// What one Placement selects, and what of it cannot be as it asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSummary {
    /// The generation that this describes.
    pub generation: i64,
    pub targets: u64,
    /// What it selects, whether that can be placed or not.
    pub objects: u64,
    /// The first [`PROBLEMS_MAX`]: those of the Placement itself, then those of its objects, then what single clauses lack.
    pub problems: Vec<PlacementProblem>,
    /// All problems, by reason.
    pub counts: BTreeMap<Reason, u64>,
    /// Fields that say something else than by default, and have no effect yet.
    pub without_effect: Vec<String>,
}

/// What one Location selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocationSummary {
    /// The generation that this describes.
    pub generation: i64,
    pub targets: u64,
    pub problem: Option<(Reason, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementProblem {
    pub reason: Reason,
    /// None for the Placement itself.
    pub object: Option<ObjectKey>,
    pub message: String,
}

impl PlacementSummary {
    fn add(&mut self, reason: Reason, message: String) {
        *self.counts.entry(reason).or_default() += 1;
        self.problems.push(PlacementProblem { reason, object: None, message });
    }
}

impl Index {
    /// Describes one Placement as of the last drain; none if it is not known, or not resolved yet. What other sources hold
    /// is the ledger's to say, see [`Index::selecting`].
    pub fn placement_status(&self, space: &SpaceName, name: &str) -> Option<PlacementSummary> {
        let space = self.spaces.get(space)?;
        let placing = space.placements.get(name)?;
        if placing.rule.is_some() && !placing.reach.is_fresh() {
            return None;
        }
        let mut summary = PlacementSummary {
            generation: placing.generation,
            targets: placing.targets.len(),
            objects: placing.objects.len(),
            without_effect: placing.rule.as_ref().map(|rule| rule.without_effect.clone()).unwrap_or_default(),
            ..Default::default()
        };
        if let Some(problem) = &placing.problem {
            let message = match placing.rule {
                Some(_) => format!("{problem}; its last good form stays in force"),
                None => format!("{problem}; until it can be read nothing is taken from any target of this space"),
            };
            summary.add(Reason::Undecodable, message);
        }
        if let Some(namespace) = space.unlabelled.first() {
            let message = format!(
                "the labels of the namespace {namespace} cannot be read; until they can nothing in it is taken from any \
                 target"
            );
            summary.add(Reason::Undecodable, message);
        }
        if let Some(other) = space.unknown_placements.first() {
            let message = format!(
                "the Placement {other} cannot be read; until it can nothing is taken from any target of this space"
            );
            summary.add(Reason::Undecodable, message);
        }
        if let Some(rule) = placing.rule.as_deref() {
            if placing.targets.is_empty() {
                summary.add(Reason::NoTargets, no_targets(space, (name, placing, rule), &self.inventory));
            }
            if placing.objects.is_empty() {
                for problem in no_objects(space, placing, rule) {
                    summary.add(Reason::NoObjects, problem);
                }
            }
        }
        for (reason, count) in &placing.problems.counts {
            *summary.counts.entry(*reason).or_default() += count;
        }
        let room = PROBLEMS_MAX - summary.problems.len();
        let of_objects = placing.problems.iter().filter_map(|(index, (reason, message))| {
            let object = Some(space.object(index)?.key.clone());
            Some(PlacementProblem { reason: *reason, object, message: message.clone() })
        });
        summary.problems.extend(of_objects.take(room));
        // What a clause lacks is less than what is wrong with what others select.
        if let Some(rule) = placing.rule.as_deref().filter(|_| !placing.objects.is_empty() && space.is_listed()) {
            for problem in no_objects(space, placing, rule) {
                summary.add(Reason::NoObjects, problem);
            }
            summary.problems.truncate(PROBLEMS_MAX);
        }
        Some(summary)
    }

    /// Describes one Location; none if it is not known, or the targets are not.
    pub fn location_status(&self, name: &str) -> Option<LocationSummary> {
        let location = self.inventory.locations.get(name).filter(|_| self.inventory.listed())?;
        let targets = location.targets.len();
        let problem = match &location.problem {
            Some(problem) if location.is_readable() => {
                Some((Reason::Undecodable, format!("{problem}; its last good form stays in force")))
            }
            Some(problem) => {
                Some((Reason::Undecodable, format!("{problem}; until it can be read nothing is taken from any target")))
            }
            None if targets == 0 => Some((
                Reason::NoTargets,
                "no SyncTarget has the labels that spec.instanceSelector asks for; compare them with `kubectl get \
                 synctargets --show-labels`"
                    .to_owned(),
            )),
            None => None,
        };
        Some(LocationSummary { generation: location.generation, targets, problem })
    }

    /// Notes which generation of a Placement was told last; what describes it says so.
    pub fn placement_generation(&mut self, space: &SpaceName, name: &str, generation: i64) {
        let placements = self.spaces.get_mut(space).map(|space| &mut space.placements);
        if let Some(placing) = placements.and_then(|placements| placements.get_mut(name)) {
            placing.generation = generation;
        }
    }

    /// The same for a Location.
    pub fn location_generation(&mut self, name: &str, generation: i64) {
        if let Some(location) = self.inventory.locations.get_mut(name) {
            location.generation = generation;
        }
    }

    /// The names of all Locations.
    pub fn locations(&self) -> impl Iterator<Item = &str> {
        self.inventory.locations.keys().map(|name| &**name)
    }

    /// The names of a space's Placements.
    pub fn placements<'a>(&'a self, space: &SpaceName) -> impl Iterator<Item = &'a str> + use<'a> {
        self.spaces.get(space).into_iter().flat_map(|space| space.placements.keys().map(|name| &**name))
    }

    /// The Placements that select a source that is, or was, at this place of its space.
    pub fn selecting(&self, source: &SourceId, place: &ObjectKey) -> impl Iterator<Item = &Arc<str>> {
        self.spaces.get(&source.space).into_iter().flat_map(|space| space.selecting(source, place))
    }
}

/// Why a Placement selects no target, and what to do about it.
fn no_targets(space: &Space, (name, placing, rule): (&str, &Placing, &PlacementRule), inventory: &Inventory) -> String {
    let compare = "compare with `kubectl get synctargets,locations --show-labels` in the space root";
    let asked = (!rule.reach.targets.is_empty(), !rule.reach.locations.is_empty());
    if asked == (false, false) {
        return "spec.targets and spec.locations are empty, and so select no target; an empty selector, as in \
                `targets: [{}]`, selects all"
            .to_owned();
    }
    if rule.number_of_targets == Some(0) {
        return "spec.numberOfTargets is 0; raise it, or leave it out for all that are selected".to_owned();
    }
    let selected = placing.reach.targets(inventory);
    if selected.is_empty() {
        let locations = placing.reach.locations();
        if !locations.is_empty() {
            return format!("no SyncTarget is in what spec.locations selects, {}; {compare}", named(locations));
        }
        let nobody = match asked {
            (true, false) => "no SyncTarget has the labels that spec.targets asks for",
            (false, _) => "no Location has the labels that spec.locations asks for",
            (true, true) => "no SyncTarget and no Location has the labels that spec.targets and spec.locations ask for",
        };
        return format!("{nobody}; {compare}");
    }
    let (count, plural) = (selected.len(), if selected.len() == 1 { "" } else { "s" });
    if selected.is_disjoint(&space.allowed) {
        return format!(
            "it selects {count} target{plural}, and this space may place to none of them; see spec.allow of the Space {}",
            space.name
        );
    }
    if space.choices.get(name).is_some_and(Choice::is_waiting) {
        return format!(
            "it selects {count} target{plural}, but none that it chose before; others are chosen when that lasts"
        );
    }
    format!("it selects {count} target{plural}, and all are unschedulable; see spec.unschedulable of the SyncTargets")
}

/// What spec.objects asks for and the space does not have.
fn no_objects(space: &Space, placing: &Placing, rule: &PlacementRule) -> Vec<String> {
    if rule.objects.is_empty() {
        return vec!["spec.objects is empty, and so selects no object; say there which are meant".to_owned()];
    }
    let known: BTreeSet<&str> = space.resources(None).collect();
    let serves = |clause: &Clause, resource: &str| match clause.group.as_deref() {
        None => known.contains(resource),
        Some(group) => space.serves(&GroupResource::new(group, resource)),
    };
    let mut absent = Vec::new();
    let mut unmet = Vec::new();
    for (clause, selected) in rule.objects.iter().zip(&placing.by_clause) {
        let before = absent.len();
        let unknown = clause.resources.iter().filter(|resource| !serves(clause, resource));
        absent.extend(unknown.map(|resource| (clause, resource.as_str())));
        if absent.len() == before && selected.is_empty() {
            unmet.push(clause.called.as_str());
        }
    }
    let mut problems = Vec::new();
    if !absent.is_empty() {
        // The rest is only counted: finding out what is meant takes a look at every resource of the space.
        let shown = |(nth, (clause, resource)): (usize, &(&Clause, &str))| {
            if nth < NAMES_MAX { unknown_resource(space, clause, resource) } else { String::new() }
        };
        let shown: Vec<_> = absent.iter().enumerate().map(shown).collect();
        problems.push(format!(
            "this space has no resource {}; `kubectl api-resources` shows names and groups of those that it has",
            named(&shown)
        ));
    }
    if !unmet.is_empty() {
        problems.push(format!(
            "no object of this space is what {} asks for; compare its resources, names, namespaces and labels with \
             `kubectl get RESOURCE --all-namespaces --show-labels`",
            named(&unmet)
        ));
    }
    problems
}

/// A resource of a clause that the space does not serve, with the one that may be meant.
fn unknown_resource(space: &Space, clause: &Clause, resource: &str) -> String {
    let group = clause.group.as_deref();
    let of = match group {
        None => String::new(),
        Some("") => " in the core group".to_owned(),
        Some(group) => format!(" in {group}"),
    };
    let meant = nearest(resource, space.resources(group)).or_else(|| nearest(resource, space.resources(None)));
    let meant = meant.map(|meant| format!(", did you mean {meant}?")).unwrap_or_default();
    format!("{resource:?}{of} ({}{meant})", clause.called)
}

/// What somebody meant who wrote this: a kind for its resource, a singular, or a slip of the hand.
fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_lowercase();
    let distance = |name: &str| strsim::damerau_levenshtein(&written, name);
    // A third of a word may be wrong; more is another word.
    known.map(|name| (distance(name), name)).filter(|(far, name)| far * 3 <= name.len()).min().map(|(_, name)| name)
}

/// The first of these, and how many there are besides.
fn named(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<_> = names.iter().take(NAMES_MAX).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl Space {
    /// Whether every object of it is known.
    fn is_listed(&self) -> bool {
        self.listings.values().all(Listing::complete)
    }

    /// Whether the space was seen to have a resource.
    fn serves(&self, resource: &GroupResource) -> bool {
        self.listings.contains_key(resource)
    }

    /// The resources that the space was seen to have, in this group or in any.
    fn resources<'a>(&'a self, group: Option<&'a str>) -> impl Iterator<Item = &'a str> {
        let known = self.listings.keys().filter(move |known| group.is_none_or(|group| group == &*known.group));
        known.map(|known| &*known.resource)
    }

    /// Works out anew what of an object cannot be as the Placements ask that select it.
    pub(super) fn refresh_problems(&mut self, index: u32) {
        let Some(object) = self.object(index) else { return };
        let found: Vec<(Arc<str>, _)> =
            object.matches.names().map(|name| (Arc::clone(name), object_problems(self, object, name))).collect();
        for (name, problems) in found {
            if let Some(placing) = self.placements.get_mut(&name) {
                placing.problems.put(index, problems);
            }
        }
    }
}

fn object_problems(space: &Space, object: &Object, name: &str) -> Vec<(Reason, String)> {
    let mut problems = Vec::new();
    match &object.state {
        State::Readable { problem: Some(refusal), .. } => {
            problems.push((refusal.reason, format!("{}; its last good form stays in force", refusal.message)));
        }
        State::Unreadable(refusal) => problems.push((refusal.reason, refusal.message.clone())),
        State::Restored | State::NeverPlaced | State::Readable { problem: None, .. } => {}
    }
    if space.rule.as_ref().is_some_and(|rule| !rule.allows(&object.key.kind)) {
        let message = format!("the space may not place {}; see spec.allow.kinds of its Space", object.key.kind);
        problems.push((Reason::NotAllowed, message));
    }
    let placing = space.placements.get(name);
    let (Some(policy), Some((placing, rule))) =
        (object.matches.get(name), placing.and_then(|placing| Some((placing, placing.rule.as_ref()?))))
    else {
        return problems;
    };
    let destination = match rule.mapping.destination(&object.key) {
        Ok(destination) => destination,
        Err(refusal) => {
            let message = format!("{}; until then what the targets have of it stays", refusal.message);
            problems.push((refusal.reason, message));
            return problems;
        }
    };
    for (other, its_policy) in object.matches.iter().filter(|(other, _)| ***other != *name) {
        let Some((its, its_rule)) = space.placements.get(other).and_then(|its| Some((its, its.rule.as_ref()?))) else {
            continue;
        };
        let together = its_rule.mapping.destination(&object.key).as_ref() == Ok(&destination);
        if !together || its.targets.is_disjoint(&placing.targets) {
            continue;
        }
        if policy.disagrees_with(its_policy) {
            let message = format!(
                "Placement {other:?} asks for it otherwise; where both assign it the least destructive holds, and its status \
                 returns if either says so"
            );
            problems.push((Reason::Conflict, message));
        }
        if its_rule.mapping != rule.mapping && refers_to_namespaces(&object.key.kind) {
            let message = format!(
                "Placement {other:?} maps namespaces otherwise, and it may refer to one; where both assign it the first \
                 by name says what it refers to"
            );
            problems.push((Reason::Conflict, message));
        }
    }
    problems
}
