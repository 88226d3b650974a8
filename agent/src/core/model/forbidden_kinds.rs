//! Kinds that the agent is refused, for lack of permission or by admission. Told once for each kind; and as soon as one object
//! is let through, the others are tried.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::{GroupKind, ObjectKey};

/// Objects of a kind that may each have a retry of their own within the longest wait; more share as many. What lets one
/// through lets the others be tried at once, so that more tries would only find out the same.
const PROBES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(in crate::core) struct ForbiddenKinds {
    kinds: BTreeMap<GroupKind, Kind>,
}

#[derive(Debug)]
struct Kind {
    objects: BTreeSet<ObjectKey>,
    /// Of the first that was refused.
    message: String,
}

impl ForbiddenKinds {
    fn refused(&mut self, key: &ObjectKey, message: &str) {
        let kind = self.kinds.entry(key.kind.clone());
        let kind = kind.or_insert_with(|| Kind { objects: BTreeSet::new(), message: message.to_owned() });
        kind.objects.insert(key.clone());
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
        let was = kind.objects.remove(key);
        if kind.objects.is_empty() {
            self.kinds.remove(&key.kind);
        }
        was
    }

    /// What may be let through, too, now that this one was: all beside it, and one in each other namespace to find out
    /// about the rest.
    pub(in crate::core) fn beside(&self, granted: &ObjectKey) -> Vec<ObjectKey> {
        let Some(kind) = self.kinds.get(&granted.kind) else { return Vec::new() };
        let mut last = None;
        let first = |key: &&ObjectKey| last.replace(key.namespace.clone()).as_ref() != Some(&key.namespace);
        let others = kind.objects.iter().filter(|key| key.namespace != granted.namespace).filter(first);
        let beside = kind.objects.iter().filter(|key| key.namespace == granted.namespace);
        beside.chain(others).cloned().collect()
    }

    /// By how much the waits of each object of a kind are longer, so that the kind as a whole is not asked for too often.
    pub(in crate::core) fn wait_factor(&self, kind: &GroupKind) -> u32 {
        let objects = self.kinds.get(kind).map_or(0, |kind| kind.objects.len());
        u32::try_from(objects.div_ceil(PROBES_MAX)).unwrap_or(u32::MAX).max(1)
    }

    /// Each such kind, with what was said.
    pub(in crate::core) fn kinds(&self) -> impl Iterator<Item = (&GroupKind, &str)> {
        self.kinds.iter().map(|(name, kind)| (name, kind.message.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::tests::key;

    fn in_namespace(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), ..key("", "Secret", name) }
    }

    #[test]
    fn one_admitted_object_has_those_of_its_namespace_retried_and_one_of_each_other_namespace() {
        let mut forbidden = ForbiddenKinds::default();
        for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("c", "1"), ("c", "2")] {
            forbidden.refused(&in_namespace(namespace, name), "no");
        }
        let granted = in_namespace("b", "1");
        assert!(forbidden.clear(&granted));
        let beside: Vec<_> = forbidden.beside(&granted).iter().map(ToString::to_string).collect();
        assert_eq!(beside, ["Secret b/2", "Secret a/1", "Secret c/1"]);
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
