//! All objects, by key. Of tens of thousands, some tens are in work; the others are [`Compact`], in a tenth of the memory.
//!
//! Whoever asks for a place gets it whole, and what was changed is compacted when the step ends, or before that if it is
//! much. What cannot be compacted, because something is under way or there is more to know of it, stays whole.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use tideline_common::{DesiredSet, Entry, ObjectKey};

use super::compact::Compact;
use super::key_ref::KeyRef;
use super::object::{Me, Object, ReportDigest};
use super::rows::{Row, Rows};
use super::shared::Shared;
use super::turn::Turn;
use super::work_state::{AtRest, WorkState};
use crate::core::interface::effect::ListId;
use crate::core::interface::observed::ListedItem;

/// Places that are whole for having been asked for, at one to two kilobytes each. Few in tests, which have few objects.
const OPEN_MAX: usize = if cfg!(test) { 16 } else { 256 };

#[derive(Debug, Default)]
pub(in crate::core) struct Objects {
    slots: BTreeMap<KeyRef, Slot>,
    compact: Rows<Compact>,
    /// What is said of many alike.
    messages: Shared,
    /// What was asked for since things were compacted last.
    open: Vec<ObjectKey>,
    me: Option<Arc<Me>>,
}

#[derive(Debug)]
enum Slot {
    /// Nothing is known of it yet. The hub may have been told so, of all of a large set while most of it waits.
    Blank {
        queued: Option<i32>,
        told: Option<Box<ReportDigest>>,
    },
    Compact(Row),
    /// It could not be compacted.
    Whole(Box<Object>),
    /// It was asked for since things were compacted last.
    Open(Box<Object>),
}

/// There are tens of thousands.
const _: () = assert!(size_of::<Slot>() <= 16);

/// A place as it was asked for, to be read.
#[derive(Debug)]
pub(in crate::core) enum ObjectView<'a> {
    There(&'a Object),
    Expanded(Box<Object>),
}

impl Objects {
    pub(in crate::core) fn get(&self, key: &ObjectKey) -> Option<ObjectView<'_>> {
        self.slots.get(key).map(|slot| slot.view(&self.compact))
    }

    pub(in crate::core) fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Object> {
        let slot = self.slots.get_mut(key)?;
        Some(slot.open(key, &mut self.compact, &mut self.open))
    }

    /// The place of a key, made if there is none.
    pub(in crate::core) fn at(&mut self, key: &ObjectKey) -> &mut Object {
        // Looked up twice, so that a key is only made where it is needed.
        if !self.slots.contains_key(key) {
            self.slots.insert(KeyRef::from(key), Slot::BLANK);
        }
        self.get_mut(key).expect("it is there, or was put there just now")
    }

    /// The place of an entry, made if there is none. It shares the entry's key from now on.
    pub(in crate::core) fn assign(&mut self, entry: &Arc<Entry>) -> &mut Object {
        let slot = self.slots.remove(&entry.key).unwrap_or(Slot::BLANK);
        let slot = self.slots.entry(KeyRef::Of(Arc::clone(entry))).or_insert(slot);
        slot.open(&entry.key, &mut self.compact, &mut self.open)
    }

    /// Takes a listed item from which nothing follows, as of nearly all that stand. False if it is to be looked into.
    pub(in crate::core) fn listed_again(&mut self, list: ListId, item: &ListedItem, entry: &Arc<Entry>) -> bool {
        match self.slots.get(&item.key) {
            Some(Slot::Compact(row)) => self.compact.get_mut(*row).listed_again(list, item, entry),
            Some(Slot::Blank { .. } | Slot::Whole(_) | Slot::Open(_)) | None => false,
        }
    }

    /// The metadata list that had it last.
    pub(in crate::core) fn last_listed_in(&self, key: &ObjectKey) -> Option<ListId> {
        Some(match self.slots.get(key)? {
            Slot::Blank { .. } => ListId::default(),
            Slot::Compact(row) => self.compact.get(*row).listed_in(),
            Slot::Whole(object) | Slot::Open(object) => object.listed_in,
        })
    }

    /// Whether its status is being read again.
    pub(in crate::core) fn awaits_status(&self, key: &ObjectKey) -> bool {
        match self.slots.get(key) {
            None | Some(Slot::Blank { .. }) => false,
            Some(Slot::Compact(row)) => self.compact.get(*row).awaits_status(),
            Some(Slot::Whole(object) | Slot::Open(object)) => object.live.status.is_awaited(),
        }
    }

    pub(in crate::core) fn remove(&mut self, key: &ObjectKey) {
        if let Some(Slot::Compact(row)) = self.slots.remove(key) {
            self.compact.take(row);
        }
    }

    pub(in crate::core) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(in crate::core) fn contains_key(&self, key: &ObjectKey) -> bool {
        self.slots.contains_key(key)
    }

    /// In their order.
    pub(in crate::core) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.slots.keys().map(KeyRef::key)
    }

    /// As [`Objects::keys`].
    pub(in crate::core) fn names(&self) -> impl Iterator<Item = &KeyRef> {
        self.slots.keys()
    }

    /// A key to be kept, shared with its place if there is one.
    pub(in crate::core) fn name(&self, key: &ObjectKey) -> KeyRef {
        self.slots.get_key_value(key).map_or_else(|| key.into(), |(name, _)| name.clone())
    }

    /// In their order, `from` and what follows it.
    pub(in crate::core) fn keys_from(&self, from: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.slots.range::<ObjectKey, _>(from..).map(|(name, _)| name.key())
    }

    /// In their order, all but what waits for its next try, and what was compacted when there was nothing to do about it.
    pub(in crate::core) fn not_at_rest(&self) -> impl Iterator<Item = &ObjectKey> {
        let needs_work = |slot: &Slot| match slot {
            Slot::Blank { .. } => true,
            Slot::Compact(row) => {
                let compact = self.compact.get(*row);
                !compact.is_at_rest() && !compact.is_waiting()
            }
            Slot::Whole(object) | Slot::Open(object) => !object.work.is_waiting(),
        };
        self.slots.iter().filter(move |(_, slot)| needs_work(slot)).map(|(name, _)| name.key())
    }

    /// Has the tree take no more room than it needs, which it does when it is made of all at once.
    pub(in crate::core) fn pack(&mut self) {
        self.slots = std::mem::take(&mut self.slots).into_iter().collect();
    }

    /// Whether so much is whole that it should be compacted before more is asked for.
    pub(in crate::core) fn is_wide_open(&self) -> bool {
        self.open.len() >= OPEN_MAX
    }

    /// Compacts what was asked for, and can be.
    pub(in crate::core) fn compact(&mut self, desired: &DesiredSet, me: Option<Me>) {
        if self.me.as_deref() != me.as_ref() {
            self.me = me.map(Arc::new);
        }
        for key in self.open.drain(..) {
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            *slot = match std::mem::replace(slot, Slot::BLANK) {
                Slot::Open(object) => {
                    if let Some((queued, told)) = object.blank() {
                        Slot::Blank { queued, told: told.map(Box::new) }
                    } else if let Some(compact) = desired
                        .get(&key)
                        .and_then(|entry| Compact::of(&object, entry, self.me.as_ref(), &mut self.messages))
                        .or_else(|| Compact::as_it_stood(&object, self.me.as_ref(), &mut self.messages))
                    {
                        Slot::Compact(self.compact.put(compact))
                    } else {
                        Slot::Whole(object)
                    }
                }
                other => other,
            };
        }
        // A step that asked for very many was one of few.
        self.open.shrink_to(2 * OPEN_MAX);
    }
}

impl Slot {
    const BLANK: Self = Self::Blank { queued: None, told: None };

    fn view(&self, compact: &Rows<Compact>) -> ObjectView<'_> {
        match self {
            Self::Blank { queued, told } => ObjectView::Expanded(Box::new(blank(*queued, told.as_deref()))),
            Self::Compact(row) => ObjectView::Expanded(Box::new(compact.get(*row).expand())),
            Self::Whole(object) | Self::Open(object) => ObjectView::There(object),
        }
    }

    fn open(&mut self, key: &ObjectKey, compact: &mut Rows<Compact>, open: &mut Vec<ObjectKey>) -> &mut Object {
        if !matches!(self, Self::Open(_)) {
            debug_assert!(open.len() < 2 * OPEN_MAX, "a step that asks for many has them compacted in between");
            open.push(key.clone());
            *self = Self::Open(match std::mem::replace(self, Self::BLANK) {
                Self::Blank { queued, told } => Box::new(blank(queued, told.as_deref())),
                Self::Compact(row) => Box::new(compact.take(row).expand()),
                Self::Whole(object) | Self::Open(object) => object,
            });
        }
        let Self::Open(object) = self else { unreachable!("it was opened just now") };
        object
    }
}

fn blank(queued: Option<i32>, told: Option<&ReportDigest>) -> Object {
    let turn = queued.map_or(Turn::Idle, |wave| Turn::Queued { wave });
    let work = WorkState::from(AtRest { turn, ..AtRest::default() });
    Object { work, told: told.copied(), ..Object::default() }
}

impl Deref for ObjectView<'_> {
    type Target = Object;

    fn deref(&self) -> &Object {
        match self {
            Self::There(object) => object,
            Self::Expanded(object) => object,
        }
    }
}

#[cfg(test)]
mod tests;
