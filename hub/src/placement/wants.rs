//! What is wanted of objects, and what is remembered of that.
//!
//! A tombstone says what was said last. What is said is told to the ledger when the index is drained, and several edits may
//! come between two drains: a Placement is set to let go of its objects, and deleted. So before an edit that may take
//! anything away, what was wanted until then is noted at the objects themselves ([`Wants::note`]). Of what happened while
//! the hub was down, or before everything was read once, nobody knows the order: then what destroys less stands.

use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Monotonic, ObjectKey};

use super::choice::{Candidates, Choice};
use super::form::{Form, Forms, PolicyOrder, labels_of, merged, restate};
use super::inventory::{Inventory, News, Reach};
use super::matches::Matches;
use super::object::Object;
use super::rule::{Candidate, PlacementRule};
use super::settling::Settle;
use super::space::{Placing, Space};
use super::{Assignment, Change, SourceId, Variant};
use crate::clean::{Destination, Input, NamespaceMapping, Outbound, rendered};

/// What Placements and annotations want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wants<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) direct_policy: &'a Arc<ApplyPolicy>,
}

/// What a Placement selects and its space may place to.
struct Eligible<'a> {
    targets: RoaringBitmap,
    /// Those of which something is otherwise than before.
    news: &'a RoaringBitmap,
    /// Whether something that decides about it was never readable.
    frozen: bool,
}

impl Wants<'_> {
    /// Brings the targets of the space's Placements up to date, and marks the objects of those that changed.
    pub(super) fn refresh_where(&self, space: &mut Space) {
        let news = std::mem::take(&mut space.news);
        space.reaches_otherwise = false;
        let Some(rule) = space.rule.clone() else { return };
        let rule_changed = !space.reach.is_fresh();
        if rule_changed || !news.is_empty() {
            space.allowed = space.reach.refresh(&rule.reach, self.inventory, &news);
            space.dirty |= &space.direct;
            space.unsaid |= &space.direct;
        }
        let frozen = self.inventory.unreadable() || space.is_unreadable();
        let names: Vec<_> = space.placements.keys().cloned().collect();
        for name in names {
            let Some(placing) = space.placements.get_mut(&name) else { continue };
            let Some(placement) = placing.rule.clone() else { continue };
            if placing.reach.is_fresh() && news.is_empty() && !rule_changed {
                continue;
            }
            let eligible = placing.reach.refresh(&placement.reach, self.inventory, &news) & &space.allowed;
            self.select(space, &name, Eligible { targets: eligible, news: &news.targets, frozen });
        }
    }

    /// Has what was chosen give way to others where it was waited for long enough, and forgets choices whose Placement is
    /// gone, or takes no pick any more. Says when else that is to be looked at.
    pub(super) fn settle_choices(
        &self,
        space: &mut Space,
        settle: Settle,
        now: Monotonic,
        mut deadline: impl FnMut(Monotonic),
    ) {
        let mut over = Vec::new();
        for (name, choice) in &mut space.choices {
            let is_over = match space.placements.get(name).and_then(Placing::number_of_targets) {
                Some(number) => {
                    // More than the number may be chosen since something was unreadable.
                    let is_too_much = choice.targets().len() > u64::from(number);
                    choice.settle(settle, now, &mut deadline) || is_too_much && !settle.is_frozen()
                }
                None => choice.outlive(settle, now, &mut deadline),
            };
            over.extend(is_over.then(|| name.clone()));
        }
        for name in over {
            let placing = space.placements.get(&name).filter(|placing| placing.number_of_targets().is_some());
            if let Some(placing) = placing {
                let targets = placing.reach.targets(self.inventory) & &space.allowed;
                self.select(space, &name, Eligible { targets, news: &RoaringBitmap::new(), frozen: false });
            } else if let Some(choice) = space.choices.remove(&name) {
                space.put_choice(&name, choice.targets(), Choice::default());
            }
        }
    }

    /// Brings the targets of one Placement up to date, and marks its objects where that is news for them.
    fn select(&self, space: &mut Space, name: &Arc<str>, eligible: Eligible<'_>) {
        let Some(placing) = space.placements.get_mut(name) else { return };
        let mut choice = space.choices.remove(name).unwrap_or_default();
        let before = choice.targets().clone();
        let targets = match placing.number_of_targets() {
            Some(number) => choice.choose(&Candidates {
                space: &space.name,
                placement: name,
                number,
                eligible: &eligible.targets,
                inventory: self.inventory,
                frozen: eligible.frozen,
            }),
            None => eligible.targets,
        };
        if targets != placing.targets || !targets.is_disjoint(eligible.news) {
            placing.targets = targets;
            space.dirty |= &placing.objects;
            space.unsaid |= &placing.objects;
        }
        space.put_choice(name, &before, choice);
    }

    /// What is wanted of an object, over targets that are disjoint at each destination; and the targets of Placements that
    /// cannot say where it is to be.
    pub(super) fn explicit(&self, space: &Space, object: &Object, outbound: &Outbound) -> (Forms, RoaringBitmap) {
        self.of(space, &object.key, &object.matches, Some(outbound), |destination, mapping| {
            rendered(&outbound.input, &object.key, destination, mapping)
        })
    }

    /// By which policies it is wanted, whatever its text is.
    pub(super) fn policies(&self, space: &Space, object: &Object) -> Forms {
        let none = Input::new("");
        self.of(space, &object.key, &object.matches, object.outbound(), |_, _| none.clone()).0
    }

    fn of(
        &self,
        space: &Space,
        key: &ObjectKey,
        matches: &Matches,
        outbound: Option<&Outbound>,
        input: impl Fn(&Destination, &NamespaceMapping) -> Input,
    ) -> (Forms, RoaringBitmap) {
        let (mut wants, mut held) = (Forms::new(), RoaringBitmap::new());
        let Some(rule) = space.rule.as_ref().filter(|rule| rule.allows(&key.kind)) else { return (wants, held) };
        for (name, policy) in matches.iter() {
            let placing = space.placements.get(name);
            let Some((placing, placement)) = placing.and_then(|placing| Some((placing, placing.rule.as_ref()?))) else {
                continue;
            };
            match placement.mapping.destination(key) {
                Ok(destination) => {
                    let input = input(&destination, &placement.mapping);
                    let form = Form { policy: policy.clone(), input, targets: placing.targets.clone() };
                    wants.entry(destination).or_default().push(form);
                }
                Err(_) => held |= &placing.targets,
            }
        }
        let asked = outbound.into_iter().flat_map(|outbound| &outbound.assigned_locations);
        let asked = asked.filter(|_| rule.annotation_assignment).map(String::as_str);
        let direct = self.inventory.targets_of(asked) & &space.allowed;
        if !direct.is_empty() {
            let input = input(&None, &NamespaceMapping::default());
            let form = Form { policy: self.direct_policy.clone(), input, targets: direct };
            wants.entry(None).or_default().push(form);
        }
        (wants.into_iter().map(|(destination, wants)| (destination, merged(wants))).collect(), held)
    }

    /// Notes by which policies the objects of a space are kept, where that may have changed since it was noted last.
    pub(super) fn note(&self, space: &mut Space) {
        if space.reaches_otherwise || !space.news.is_empty() {
            self.refresh_where(space);
        }
        for index in std::mem::take(&mut space.unsaid) {
            let Some(object) = space.object(index).filter(|object| object.emitted.is_some()) else { continue };
            let wants = self.policies(space, object);
            self.hear(space, index, &wants);
            if let Some(object) = space.object_mut(index) {
                object.restate(&wants, PolicyOrder::Last);
            }
        }
        if !space.is_resolved {
            self.hear_of_leaving(space);
            space.resolved();
        }
    }

    /// An object that an earlier run assigned is resolved for the first time, and may be wanted no more: it may have been
    /// taken away under the policies that are there now.
    pub(super) fn hear(&self, space: &mut Space, index: u32, explicit: &Forms) {
        let Some(object) = space.object(index).filter(|object| !object.heard && object.is_readable()) else { return };
        let Some(emitted) = &object.emitted else { return };
        let wanted = |variant: &Variant| {
            let forms = explicit.get(&variant.destination).into_iter().flatten();
            variant.targets.is_subset(&forms.fold(RoaringBitmap::new(), |all, form| all | &form.targets))
        };
        let leaves = emitted.variants.iter().any(|variant| !variant.implied && !wanted(variant));
        let wants = if leaves { self.as_it_was(space, emitted) } else { Forms::new() };
        if let Some(object) = space.object_mut(index) {
            object.restate(&wants, PolicyOrder::Unknown);
            object.heard = true;
        }
    }

    /// The same of those that were gone when their space was read.
    pub(super) fn hear_of_leaving(&self, space: &mut Space) {
        let unheard: Vec<SourceId> =
            space.leaving.iter().filter(|(_, leaving)| !leaving.heard).map(|(id, _)| id.clone()).collect();
        for id in unheard {
            let wants = space.leaving.get(&id).map(|leaving| self.as_it_was(space, &leaving.assignment));
            let Some((leaving, wants)) = space.leaving.get_mut(&id).zip(wants) else { continue };
            leaving.heard = true;
            if restate(&mut leaving.assignment.variants, &wants, PolicyOrder::Unknown) {
                space.ready_changes.push(Change::Assign(Box::new(leaving.assignment.clone())));
            }
        }
    }

    /// By which policies the present Placements want what was assigned, with the labels that it had then, on targets with the
    /// labels that they have now: what those were nobody knows any more.
    fn as_it_was(&self, space: &Space, assignment: &Assignment) -> Forms {
        let labels = labels_of(assignment);
        let namespace = space.namespaces.get(&assignment.key.namespace);
        let candidate = Candidate {
            resource: &assignment.id.resource,
            key: &assignment.key,
            labels: &labels,
            namespace_labels: namespace.and_then(|namespace| namespace.labels.as_deref()),
        };
        let policy = |rule: &PlacementRule, name: &str| rule.policy(candidate, || format!("{}/{name}", space.name));
        let matches = space
            .placements
            .iter()
            .filter_map(|(name, placing)| Some((name.clone(), Arc::new(policy(placing.rule.as_ref()?, name)?))));
        let none = Input::new("");
        let mut wants = self.of(space, &assignment.key, &matches.collect(), None, |_, _| none.clone()).0;
        for rule in &space.unread {
            let wanted = policy(rule, "").zip(rule.mapping.destination(&assignment.key).ok());
            if let Some((policy, destination)) = wanted {
                let mut reach = Reach::default();
                let targets = reach.refresh(&rule.reach, self.inventory, &News::default()) & &space.allowed;
                let form = Form { policy: Arc::new(policy), input: none.clone(), targets };
                wants.entry(destination).or_default().push(form);
            }
        }
        wants.into_iter().map(|(destination, wants)| (destination, merged(wants))).collect()
    }
}
