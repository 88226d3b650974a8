//! Which kinds are watched, and whether what is known of each is complete and current.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::wire::v1::TargetCondition;
use tideline_common::{GroupKind, ObjectKey, Reason};

use super::forbidden_kinds::ForbiddenKinds;
use crate::core::interface::observed::Served;
use crate::namespaces::Namespaces;

/// Kinds named in a condition, beside the first: names are some tens of characters, and messages bounded.
const KINDS_NAMED_MAX: usize = 8;

/// What may be concluded about a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum View {
    /// Nothing was heard yet.
    Unlisted,
    /// Discovery failed.
    Unknown,
    /// The cluster does not serve the kind, so nothing can be done about objects of it. They may show again when it does.
    Missing,
    /// What is not seen is not there.
    Current,
    /// What is not seen may be there.
    Lost,
    /// It is in no namespace that this agent keeps: never looked at.
    NamespaceExcluded,
}

#[derive(Debug, Default)]
pub(in crate::core) struct Kinds {
    namespaces: Namespaces,
    kinds: BTreeMap<GroupKind, Kind>,
    watched: BTreeMap<GroupKind, Arc<str>>,
    changed: bool,
}

#[derive(Debug, Default)]
struct Kind {
    /// Entries, records and removals of this kind, and what the hub was told of that nothing explains.
    references: usize,
    version: Arc<str>,
    served: Option<Served>,
    watch: Watch,
    /// It may be listed and not watched, with what was said: what is known of it is from a list now and then.
    unwatched: Option<String>,
}

#[derive(Debug, Default)]
enum Watch {
    #[default]
    Unlisted,
    Current,
    Lost(Reason, String),
}

impl Kinds {
    pub(in crate::core) fn new(namespaces: Namespaces) -> Self {
        Self { namespaces, ..Self::default() }
    }

    /// Something is to be known of the object, and so of its kind; `version` counts if no entry says another.
    pub(in crate::core) fn refer(&mut self, key: &ObjectKey, version: &Arc<str>) {
        if !self.namespaces.keep(key) {
            return;
        }
        let entry = self.kinds.entry(key.kind.clone()).or_default();
        entry.references += 1;
        self.changed |= entry.references == 1;
        if entry.version.is_empty() && !version.is_empty() {
            entry.version = Arc::clone(version);
            self.changed = true;
        }
    }

    pub(in crate::core) fn unrefer(&mut self, key: &ObjectKey) {
        if self.namespaces.keep(key)
            && let Some(entry) = self.kinds.get_mut(&key.kind)
        {
            entry.references = entry.references.saturating_sub(1);
            self.changed |= entry.references == 0;
        }
    }

    /// Entries decide which version is spoken.
    pub(in crate::core) fn speak(&mut self, kind: &GroupKind, version: &Arc<str>) {
        if let Some(entry) = self.kinds.get_mut(kind)
            && entry.version != *version
        {
            entry.version = Arc::clone(version);
            self.changed = true;
        }
    }

    pub(in crate::core) fn version(&self, kind: &GroupKind) -> Arc<str> {
        self.kinds.get(kind).map(|kind| Arc::clone(&kind.version)).unwrap_or_default()
    }

    pub(in crate::core) fn is_needed(&self, kind: &GroupKind) -> bool {
        self.kinds.get(kind).is_some_and(|kind| kind.references > 0)
    }

    /// The kinds to watch from now on, if they are not those of the last time.
    pub(in crate::core) fn take_change(&mut self) -> Option<BTreeMap<GroupKind, Arc<str>>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        self.kinds.retain(|_, kind| kind.references > 0);
        let watch: BTreeMap<_, _> =
            self.kinds.iter().map(|(name, kind)| (name.clone(), Arc::clone(&kind.version))).collect();
        if watch == self.watched {
            return None;
        }
        self.watched.clone_from(&watch);
        Some(watch)
    }

    /// Returns whether that is new.
    pub(in crate::core) fn served(&mut self, kind: &GroupKind, served: Served) -> bool {
        let Some(entry) = self.kinds.get_mut(kind) else { return false };
        let news = entry.served != Some(served);
        entry.served = Some(served);
        if served == Served::No {
            entry.watch = Watch::Unlisted;
        }
        news
    }

    pub(in crate::core) fn listed(&mut self, kind: &GroupKind) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.watch = Watch::Current;
        }
    }

    pub(in crate::core) fn lost(&mut self, kind: &GroupKind, reason: Reason, message: String) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.watch = Watch::Lost(reason, message);
        }
    }

    pub(in crate::core) fn unwatched(&mut self, kind: &GroupKind, message: Option<String>) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.unwatched = message;
        }
    }

    /// Whether it is in a namespace that this agent keeps.
    pub(in crate::core) fn keeps(&self, key: &ObjectKey) -> bool {
        self.namespaces.keep(key)
    }

    /// What may be concluded about an object.
    pub(in crate::core) fn view(&self, key: &ObjectKey) -> View {
        if self.namespaces.keep(key) { self.view_of(&key.kind) } else { View::NamespaceExcluded }
    }

    /// What may be concluded about those objects of a kind that are kept.
    pub(in crate::core) fn view_of(&self, kind: &GroupKind) -> View {
        self.kinds.get(kind).map_or(View::Unlisted, Kind::view)
    }

    /// Whether it was heard of all that is needed what there is, or that it may not be looked at. A list that failed tells
    /// nothing: the next one may.
    pub(in crate::core) fn are_heard_of(&self) -> bool {
        let known = |kind: &Kind| matches!(kind.view(), View::Current | View::Missing) || kind.is_forbidden();
        self.kinds.values().all(|kind| kind.references == 0 || known(kind))
    }

    /// Whether all that is needed is known and current. That a kind is not served is knowledge too; and one that may not be
    /// looked at speaks for itself, unless nothing may.
    pub(in crate::core) fn in_sync(&self) -> bool {
        let known = |kind: &Kind| matches!(kind.view(), View::Current | View::Missing);
        let blind = self.kinds.values().any(Kind::is_forbidden);
        self.kinds.values().all(|kind| known(kind) || kind.is_forbidden())
            && (!blind || self.kinds.values().any(|kind| kind.view() == View::Current))
    }

    /// Whether the kind may not be looked at: how its objects do is not known.
    pub(in crate::core) fn is_forbidden(&self, kind: &GroupKind) -> bool {
        self.kinds.get(kind).is_some_and(Kind::is_forbidden)
    }

    /// The kinds that may not be looked at, or not be written, with what was said.
    pub(in crate::core) fn forbidden<'a>(&'a self, forbidden: &'a ForbiddenKinds) -> BTreeMap<&'a GroupKind, &'a str> {
        let unseen = self.kinds.iter().filter_map(|(name, kind)| match &kind.watch {
            Watch::Lost(Reason::Forbidden, message) => Some((name, message.as_str())),
            Watch::Lost(..) | Watch::Current | Watch::Unlisted => Some((name, kind.unwatched.as_deref()?)),
        });
        forbidden.kinds().chain(unseen).collect()
    }

    pub(in crate::core) fn has_status(&self, kind: &GroupKind) -> bool {
        self.kinds.get(kind).is_some_and(Kind::has_status)
    }

    /// Every kind of which something is to be known, and the version it is spoken of in.
    pub(in crate::core) fn needed(&self) -> Vec<(GroupKind, Arc<str>)> {
        let needed = self.kinds.iter().filter(|(_, kind)| kind.references > 0);
        needed.map(|(name, kind)| (name.clone(), Arc::clone(&kind.version))).collect()
    }

    /// The watches that are not current, counted by reason, with one of them named; and what is forbidden, by kind.
    pub(in crate::core) fn conditions(&self, forbidden: &ForbiddenKinds) -> Vec<TargetCondition> {
        let mut conditions: BTreeMap<Reason, TargetCondition> = BTreeMap::new();
        let forbidden = self.forbidden(forbidden);
        if let Some((first, said)) = forbidden.first_key_value() {
            let others = forbidden.keys().skip(1).take(KINDS_NAMED_MAX).map(|kind| format!(", {kind}"));
            let message = format!("no permission for {first}{}: {said}", others.collect::<String>());
            let count = forbidden.len() as u64;
            conditions.insert(Reason::Forbidden, TargetCondition { reason: Reason::Forbidden, count, message });
        }
        for (name, kind) in &self.kinds {
            if let Watch::Lost(reason, message) = &kind.watch
                && *reason != Reason::Forbidden
            {
                let condition = conditions.entry(*reason).or_insert_with(|| TargetCondition {
                    reason: *reason,
                    count: 0,
                    message: format!("cannot watch {name}: {message}"),
                });
                condition.count += 1;
            }
        }
        conditions.into_values().collect()
    }
}

impl Kind {
    fn is_forbidden(&self) -> bool {
        matches!(self.watch, Watch::Lost(Reason::Forbidden, _))
    }

    fn has_status(&self) -> bool {
        matches!(self.served, Some(Served::Yes { status: true, .. }))
    }

    fn view(&self) -> View {
        match (self.served, &self.watch) {
            (Some(Served::No), _) => View::Missing,
            (_, Watch::Current) => View::Current,
            (_, Watch::Lost(..)) => View::Lost,
            (Some(Served::Unknown), Watch::Unlisted) => View::Unknown,
            (Some(Served::Yes { .. }) | None, Watch::Unlisted) => View::Unlisted,
        }
    }
}
