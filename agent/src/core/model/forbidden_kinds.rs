//! Kinds that the agent is refused, for lack of permission or by admission. Told once for each kind; and as soon as one object
//! is let through, the others are tried, each success having a few more tried. So a right that is granted is found out about
//! fast, and one place that becomes free in a quota does not have thousands of others refused again.
//!
//! Meanwhile they take turns, those of each namespace by themselves: a right may be granted in one namespace alone, and so may
//! a quota or a policy admit. Of a kind with many, a namespace has one tried within the longest wait, and all of it together
//! some tens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tideline_common::{GroupKind, Monotonic, ObjectKey};

/// Retries of a kind within one wait, divided among its namespaces by their objects. What lets one through lets the others be
/// tried at once, so that more tries would only find out the same.
const RETRIES: usize = 64;
/// Namespaces that have one retry each within one wait, though that comes to more: within 5 min, the longest, three or four
/// requests a second. More namespaces share as many.
const NAMESPACES_MAX: usize = 1_000;
/// And yet each has one within this: of 10,000 namespaces, eleven requests a second.
const TURN_MAX: Duration = Duration::from_mins(15);
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
    /// Where any of both are.
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Of the first that was refused.
    message: String,
}

#[derive(Debug)]
struct Namespace {
    objects: usize,
    /// The last turn that was given to any of them.
    last: Monotonic,
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
            namespaces: BTreeMap::new(),
            message: message.to_owned(),
        });
        let known = kind.tried.remove(key) | !kind.refused.insert(key.clone());
        if !known {
            let namespace = kind.namespaces.entry(Arc::clone(&key.namespace));
            namespace.or_insert(Namespace { objects: 0, last: Monotonic::START }).objects += 1;
        }
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
        if was && let Some(namespace) = kind.namespaces.get_mut(&key.namespace) {
            namespace.objects -= 1;
            if namespace.objects == 0 {
                kind.namespaces.remove(&key.namespace);
            }
        }
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

    /// When an object that would be tried again after this wait has its turn, if it is refused.
    pub(in crate::core) fn next_turn(&mut self, now: Monotonic, key: &ObjectKey, wait: Duration) -> Option<Monotonic> {
        let kind = self.kinds.get_mut(&key.kind)?;
        if !kind.refused.contains(key) && !kind.tried.contains(key) {
            return None;
        }
        let (objects, namespaces) = (kind.len(), kind.namespaces.len());
        let namespace = kind.namespaces.get_mut(&key.namespace)?;
        let longer = wait.saturating_mul(saturated(namespaces)) / saturated(NAMESPACES_MAX);
        let wait = wait.max(longer.min(TURN_MAX));
        let between = wait / saturated((namespace.objects * RETRIES / objects).max(1));
        // Those that had the turns before may be gone.
        let latest = now + wait + between.saturating_mul(saturated(namespace.objects));
        namespace.last = (namespace.last + between).max(now + wait).min(latest);
        Some(namespace.last)
    }

    /// Each such kind, with what was said.
    pub(in crate::core) fn kinds(&self) -> impl Iterator<Item = (&GroupKind, &str)> {
        self.kinds.iter().map(|(name, kind)| (name, kind.message.as_str()))
    }
}

fn saturated(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
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
    fn a_kind_is_told_until_nothing_of_it_is_refused() {
        let mut forbidden = ForbiddenKinds::default();
        let keys: Vec<_> = (0..200).map(|i| key("", "Secret", &format!("s{i}"))).collect();
        for key in &keys {
            forbidden.refused(key, "no");
        }
        assert_eq!(forbidden.kinds().collect::<Vec<_>>(), [(&GroupKind::new("", "Secret"), "no")]);
        assert!(keys.iter().all(|key| forbidden.clear(key)));
        assert!(!forbidden.clear(&keys[0]));
        assert_eq!(forbidden.kinds().count(), 0);
        assert_eq!(forbidden.next_turn(Monotonic::START, &keys[0], WAIT), None);
    }

    const WAIT: Duration = Duration::from_mins(5);

    /// Has all of these refused in each so many namespaces, and returns when each is tried again, by namespace.
    fn turns(forbidden: &mut ForbiddenKinds, sizes: &[(usize, usize)]) -> BTreeMap<String, Vec<Duration>> {
        let mut keys = Vec::new();
        for (namespaces, objects) in sizes {
            for namespace in 0..*namespaces {
                let name = format!("{objects}-{namespace}");
                keys.extend((0..*objects).map(|object| in_namespace(&name, &object.to_string())));
            }
        }
        for key in &keys {
            forbidden.refused(key, "no");
        }
        let mut turns = BTreeMap::<_, Vec<_>>::new();
        for key in &keys {
            let at = forbidden.next_turn(Monotonic::START, key, WAIT).expect("it is refused");
            turns.entry(key.namespace.to_string()).or_default().push(at.since(Monotonic::START));
        }
        turns
    }

    #[test]
    fn each_namespace_has_one_tried_soon_whatever_there_is_elsewhere() {
        for (namespaces, longest) in [(10, WAIT), (999, WAIT), (1_999, WAIT * 2), (10_000, TURN_MAX)] {
            let turns = turns(&mut ForbiddenKinds::default(), &[(namespaces, 1), (1, 5_000)]);
            let first = turns.values().filter_map(|turns| turns.iter().min()).max();
            assert!(first.is_some_and(|first| *first <= longest), "{namespaces}: {first:?}");
        }
    }

    #[test]
    fn a_kind_with_many_objects_is_tried_some_tens_of_times_in_each_wait() {
        for sizes in [&[(1, 5_000)][..], &[(5, 1_000)], &[(4, 1_000), (20, 50)]] {
            let turns = turns(&mut ForbiddenKinds::default(), sizes);
            for wait in 1..10 {
                let within = |at: &&Duration| **at >= WAIT * wait && **at < WAIT * (wait + 1);
                let tries = turns.values().flatten().filter(within).count();
                assert!((RETRIES / 2..=2 * RETRIES).contains(&tries), "{sizes:?}: {tries}");
            }
        }
    }

    #[test]
    fn a_turn_does_not_come_after_those_of_what_is_gone() {
        let mut forbidden = ForbiddenKinds::default();
        turns(&mut forbidden, &[(1, 5_000)]);
        for object in 1..5_000 {
            assert!(forbidden.clear(&in_namespace("5000-0", &object.to_string())));
        }
        let at = forbidden.next_turn(Monotonic::START, &in_namespace("5000-0", "0"), WAIT);
        assert!(at.is_some_and(|at| at.since(Monotonic::START) <= 2 * WAIT), "{at:?}");
    }
}
