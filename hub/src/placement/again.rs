//! What comes back as it is known, as whatever the hub writes a status of does: it changes nothing, and costs nobody anything.

use tideline_common::Uid;

use super::GroupResource;
use super::rule::PlacementRule;
use super::space::Space;
use crate::clean::Source;

impl Space {
    /// An object is told that is known, and as it is known. Returns whether it is so.
    pub(super) fn saw_again(&mut self, resource: &GroupResource, source: &Source) -> bool {
        let Some(&index) = self.by_key.get(&(resource.clone(), source.key.clone())) else { return false };
        let same = self.object(index).is_some_and(|object| object.is(source));
        if same {
            self.listings.entry(resource.clone()).or_default().saw(index);
        }
        same
    }

    /// A Placement is told that is known, and as it is known. Returns whether it is so.
    pub(super) fn saw_placement_again(&mut self, name: &str, uid: &Uid, rule: &Result<PlacementRule, String>) -> bool {
        let same = self.placements.get_key_value(name).filter(|(name, placing)| {
            let is_readable = placing.problem.is_none() && !self.unknown_placements.contains(*name);
            let says_the_same = rule.as_ref().is_ok_and(|rule| placing.rule.as_deref() == Some(rule));
            is_readable && placing.uid == *uid && says_the_same
        });
        let Some(name) = same.map(|(name, _)| name.clone()) else { return false };
        self.placement_list.saw(name);
        true
    }
}
