//! What is known to stand in the place of an object.
//!
//! ```text
//!                show, list
//!  ┌─────────┐ ─────────────▶ ┌─────────────┐
//!  │ Nothing │                │ There(seen) │ ──┐ show, list
//!  └─────────┘ ◀───────────── └─────────────┘ ◀─┘
//!     ▲    │    hide, vanish     │       ▲
//!     │    │                     │ doubt │ show, list
//!     │    │       doubt         ▼       │
//!     │    └─────────────────▶ ┌───────────┐
//!     │                        │  Doubted  │
//!     └─────────────────────── └───────────┘
//!         found_by_creation
//! ```
//!
//! Two things are known beside this, in each of these states:
//!
//! | | comes with | goes with |
//! |---|---|---|
//! | a probe: what a request found there, for one decision | `probe`, `found_by_creation` | `take_probe`, `begin_write`; `show` of something newer; `list`, `doubt`, `vanish` |
//! | unshown: something may stand there that no watch has told of | `may_be_unshown` | `show`, `list`, `clear_unshown` |

use tideline_common::Uid;

use super::seen::Seen;

#[derive(Debug, Default)]
pub(in crate::core) struct Presence {
    shown: Shown,
    probe: Option<Seen>,
    /// A create found an object, or ended without a result, and no list or watch has shown it since. Absence proves
    /// nothing.
    unshown: bool,
}

#[derive(Debug, Default)]
enum Shown {
    #[default]
    Nothing,
    /// By a watch, a list, or a write after them.
    There(Seen),
    /// A write or a list found something else than was seen there; the next creation finds out what.
    Doubted,
}

impl Presence {
    /// What is seen there.
    pub(in crate::core) const fn seen(&self) -> Option<&Seen> {
        match &self.shown {
            Shown::There(seen) => Some(seen),
            Shown::Nothing | Shown::Doubted => None,
        }
    }

    /// Whether what was seen there is not believed, and nothing was seen since.
    pub(in crate::core) const fn is_doubted(&self) -> bool {
        match self.shown {
            Shown::Doubted => true,
            Shown::Nothing | Shown::There(_) => false,
        }
    }

    /// Whether something may stand there that no list or watch has shown.
    pub(in crate::core) const fn is_unshown(&self) -> bool {
        self.unshown
    }

    /// Whether there is nothing to know but what is seen, or that nothing is, and whether something may be unshown.
    pub(super) const fn is_plain(&self) -> bool {
        let Self { shown, probe: None, unshown: _ } = self else { return false };
        match shown {
            Shown::Nothing | Shown::There(_) => true,
            Shown::Doubted => false,
        }
    }

    /// A watch, a read or the answer to a write shows what stands there now.
    pub(super) fn show(&mut self, seen: Seen) {
        if self.probe.as_ref().is_some_and(|probe| probe.is_older_than(&seen)) {
            self.probe = None;
        }
        self.shown = Shown::There(seen);
        self.unshown = false;
    }

    /// Two lists of the patrol show what the watch did not, and nothing was under way meanwhile: whatever was found out before,
    /// this is what stands there.
    pub(in crate::core) fn list(&mut self, seen: Seen) {
        *self = Self::from(Some(seen));
    }

    /// What was seen is not there any more. What is doubted stays so: nothing was found out.
    pub(super) fn hide(&mut self) {
        self.shown = match self.shown {
            Shown::Nothing | Shown::There(_) => Shown::Nothing,
            Shown::Doubted => Shown::Doubted,
        };
    }

    pub(super) fn doubt(&mut self) {
        self.shown = Shown::Doubted;
        self.probe = None;
    }

    /// The object of this UID is gone. Returns whether it was seen there.
    pub(super) fn vanish(&mut self, uid: &Uid) -> bool {
        if self.probe.as_ref().is_some_and(|probe| probe.uid == *uid) {
            self.probe = None;
        }
        let was_seen = self.seen().is_some_and(|seen| seen.uid == *uid);
        if was_seen {
            self.hide();
        }
        was_seen
    }

    /// A read found this. It is good for one decision, and until anything else is heard of the object or done to it.
    pub(in crate::core) fn probe(&mut self, found: Seen) {
        self.probe = Some(found);
    }

    /// A creation found this in its way, which answers every doubt.
    pub(in crate::core) fn found_by_creation(&mut self, found: Seen) {
        if self.is_doubted() {
            self.shown = Shown::Nothing;
        }
        self.probe = Some(found);
        self.unshown = true;
    }

    /// For the one decision that it is good for.
    #[must_use]
    pub(in crate::core) fn take_probe(&mut self) -> Option<Seen> {
        self.probe.take()
    }

    /// What was read is not so any more.
    pub(in crate::core) fn begin_write(&mut self) {
        self.probe = None;
    }

    /// A creation ended without a result.
    pub(in crate::core) fn may_be_unshown(&mut self) {
        self.unshown = true;
    }

    /// What a creation may have left there is known to be gone, or is nobody's to remove.
    pub(in crate::core) fn clear_unshown(&mut self) {
        self.unshown = false;
    }
}

impl From<Option<Seen>> for Presence {
    fn from(seen: Option<Seen>) -> Self {
        Self { shown: seen.map_or(Shown::Nothing, Shown::There), probe: None, unshown: false }
    }
}

#[cfg(test)]
mod tests;
