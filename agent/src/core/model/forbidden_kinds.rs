//! Kinds that the agent is refused, for lack of permission or by admission. Told once for each kind; and as soon as one object
//! is let through, the others are tried, each success having a few more tried. So a right that is granted is found out about
//! fast, and one place that becomes free in a quota does not have thousands of others refused again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tideline_common::{GroupKind, ObjectKey};

/// Objects of a kind that may each have a retry of their own within the longest wait; more share as many. What lets one
/// through lets the others be tried at once, so that more tries would only find out the same.
const PROBES_MAX: usize = 64;
/// Objects that one that is let through has tried in its namespace. Two, so that their number doubles.
const NEXT_MAX: usize = 2;

#[derive(Debug, Default)]
pub(in crate::core) struct ForbiddenKinds {
    kinds: BTreeMap<GroupKind, Kind>,
}

#[derive(Debug)]
struct Kind {
    refused: BTreeSet<ObjectKey>,
    /// Those of which the same was said, and which are tried since another was let through.
    tried: BTreeSet<ObjectKey>,
    /// Of the first that was refused.
    message: String,
}

impl Kind {
    fn len(&self) -> usize {
        self.refused.len() + self.tried.len()
    }
}

impl ForbiddenKinds {
    fn refused(&mut self, key: &ObjectKey, message: &str) {
        let kind = self.kinds.entry(key.kind.clone());
        let kind = kind.or_insert_with(|| Kind {
            refused: BTreeSet::new(),
            tried: BTreeSet::new(),
            message: message.to_owned(),
        });
        kind.tried.remove(key);
        kind.refused.insert(key.clone());
    }

    /// What became of an object: it is refused with these words, or not any more. Returns whether it was refused and is not.
    pub(in crate::core) fn heard(&mut self, key: &ObjectKey, refusal: Option<&str>) -> bool {
        match refusal {
            Some(message) => {
                self.refused(key, message);
                false
            }
            None => self.clear(key),
        }
    }

    /// It is refused no longer, or of no interest. Returns whether it was.
    pub(in crate::core) fn clear(&mut self, key: &ObjectKey) -> bool {
        let Some(kind) = self.kinds.get_mut(&key.kind) else { return false };
        let was = kind.refused.remove(key) | kind.tried.remove(key);
        if kind.len() == 0 {
            self.kinds.remove(&key.kind);
        }
        was
    }

    /// What is to be tried now that this one was let through: some in its namespace, and if nothing is being tried, one in
    /// each other namespace to find out about the rest.
    pub(in crate::core) fn take_next(&mut self, granted: &ObjectKey) -> Vec<ObjectKey> {
        let Some(kind) = self.kinds.get_mut(&granted.kind) else { return Vec::new() };
        let beside = kind.refused.range(first_in(granted, Arc::clone(&granted.namespace))..);
        let beside = beside.take_while(|key| key.namespace == granted.namespace).take(NEXT_MAX);
        let mut next: Vec<ObjectKey> = beside.cloned().collect();
        if kind.tried.is_empty() {
            let mut first = kind.refused.first();
            while let Some(key) = first {
                if key.namespace != granted.namespace {
                    next.push(key.clone());
                }
                // No name is between a namespace and that.
                let after = format!("{}\0", key.namespace);
                first = kind.refused.range(first_in(granted, after.into())..).next();
            }
        }
        for key in &next {
            kind.refused.remove(key);
            kind.tried.insert(key.clone());
        }
        next
    }

    /// By how much the waits of each object of a kind are longer, so that the kind as a whole is not asked for too often.
    pub(in crate::core) fn wait_factor(&self, kind: &GroupKind) -> u32 {
        let objects = self.kinds.get(kind).map_or(0, Kind::len);
        u32::try_from(objects.div_ceil(PROBES_MAX)).unwrap_or(u32::MAX).max(1)
    }

    /// Each such kind, with what was said.
    pub(in crate::core) fn kinds(&self) -> impl Iterator<Item = (&GroupKind, &str)> {
        self.kinds.iter().map(|(name, kind)| (name, kind.message.as_str()))
    }
}

/// What comes before all objects of a kind in a namespace.
fn first_in(ObjectKey { kind, .. }: &ObjectKey, namespace: Arc<str>) -> ObjectKey {
    ObjectKey { kind: kind.clone(), namespace, name: Arc::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::key;

    fn in_namespace(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), ..key("", "Secret", name) }
    }

    fn next(forbidden: &mut ForbiddenKinds, granted: &ObjectKey) -> Vec<String> {
        assert!(forbidden.clear(granted));
        forbidden.take_next(granted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_first_let_through_has_two_of_its_namespace_tried_and_one_of_each_other() {
        let mut forbidden = ForbiddenKinds::default();
        for namespace in ["a", "b", "b-2", "c"] {
            for name in ["1", "2", "3", "4"] {
                forbidden.refused(&in_namespace(namespace, name), "no");
            }
        }
        let tried = next(&mut forbidden, &in_namespace("b", "1"));
        assert_eq!(tried, ["Secret b/2", "Secret b/3", "Secret a/1", "Secret b-2/1", "Secret c/1"]);
        assert_eq!(next(&mut forbidden, &in_namespace("b", "2")), ["Secret b/4"]);
        assert_eq!(next(&mut forbidden, &in_namespace("c", "1")), ["Secret c/2", "Secret c/3"]);
    }

    #[test]
    fn what_is_let_through_one_after_the_other_has_each_other_object_tried_once() {
        let mut forbidden = ForbiddenKinds::default();
        for i in 0..1_000 {
            forbidden.refused(&in_namespace("a", &i.to_string()), "no");
        }
        let mut granted = vec![in_namespace("a", "0")];
        let (mut rounds, mut tried) = (0, 0);
        while !granted.is_empty() {
            rounds += 1;
            let mut then = Vec::new();
            for key in granted {
                assert!(forbidden.clear(&key));
                then.extend(forbidden.take_next(&key));
            }
            tried += then.len();
            granted = then;
        }
        assert_eq!((tried, forbidden.kinds().count()), (999, 0));
        assert!(rounds <= 10, "their number doubles: {rounds}");
    }

    #[test]
    fn one_place_in_a_quota_has_no_more_than_two_tried_in_vain() {
        let mut forbidden = ForbiddenKinds::default();
        for i in 0..1_000 {
            forbidden.refused(&in_namespace("a", &format!("{i:03}")), "quota");
        }
        let tried = next(&mut forbidden, &in_namespace("a", "500"));
        assert_eq!(tried, ["Secret a/000", "Secret a/001"]);
        for name in ["000", "001"] {
            forbidden.refused(&in_namespace("a", name), "quota");
        }
        assert_eq!(next(&mut forbidden, &in_namespace("a", "501")), ["Secret a/000", "Secret a/001"]);
    }

    #[test]
    fn a_kind_is_told_until_nothing_of_it_is_refused_and_many_objects_are_patient() {
        let mut forbidden = ForbiddenKinds::default();
        let keys: Vec<_> = (0..200).map(|i| key("", "Secret", &format!("s{i}"))).collect();
        for key in &keys {
            forbidden.refused(key, "no");
        }
        assert_eq!(forbidden.kinds().collect::<Vec<_>>(), [(&GroupKind::new("", "Secret"), "no")]);
        assert_eq!(forbidden.wait_factor(&keys[0].kind), 4);
        assert!(keys.iter().all(|key| forbidden.clear(key)));
        assert!(!forbidden.clear(&keys[0]));
        assert_eq!((forbidden.kinds().count(), forbidden.wait_factor(&keys[0].kind)), (0, 1));
    }
}
