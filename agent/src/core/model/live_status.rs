//! What is known of the status of a live object, from when it is seen until it was reported.
//!
//! | from | by | to |
//! |---|---|---|
//! | any | `show` | `None`, `Known`, `TooLarge`; `Dropped` where nobody asks for it |
//! | `Known`, `Unreadable` | `reported` | `Dropped` |
//! | `Dropped` | `read_again`, `list_again` | `Awaited` |
//! | `Awaited` | `was_read` | `None` |
//! | `Awaited` | `unread` | `Dropped` |
//! | `Awaited` | `read_failed` | `Dropped`, or `Unreadable` if the object is to be reported without it |
//! | any but `None` | `drop` | `Dropped` |
//!
//! A status is kept until it was reported, and no longer: tens of thousands of them would be most of what the agent needs. If
//! the hub is to have it again, it is read again.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::core::interface::observed::ObservedStatus;

/// After so many failed reads of a status in a row, its object is reported without it.
const READS_MAX: u8 = 2;

#[derive(Debug, Default)]
pub(in crate::core) struct LiveStatus(Status);

/// With its text, or without where that is kept elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::core) enum Status<T = Arc<RawValue>> {
    #[default]
    None,
    Known(T),
    /// The hub would refuse it. That costs nothing to keep.
    TooLarge,
    /// Reported and dropped, or not asked for, or not to be read so often in a row. It is read again if a report is due for
    /// another reason, or if the hub knows nothing of the object; and not as long as nobody asks for it.
    Dropped {
        failed: u8,
    },
    /// Being read again.
    Awaited {
        failed: u8,
    },
    /// Reading the status failed; the object is reported without it, then the read is retried.
    Unreadable {
        failed: u8,
    },
}

/// What a failed read of a status leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) struct Unread {
    /// So many reads have failed in a row.
    pub(in crate::core) times: u8,
    /// The object is to be reported without its status.
    pub(in crate::core) is_told: bool,
}

impl<T> Status<T> {
    pub(super) const fn text(&self) -> Option<&T> {
        match self {
            Self::Known(text) => Some(text),
            Self::None | Self::TooLarge | Self::Dropped { .. } | Self::Awaited { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// The same with another text; without one there is none.
    pub(super) fn and_then<U>(&self, text: impl FnOnce(&T) -> Option<U>) -> Status<U> {
        match self {
            Self::None => Status::None,
            Self::Known(status) => text(status).map_or(Status::None, Status::Known),
            Self::TooLarge => Status::TooLarge,
            Self::Dropped { failed } => Status::Dropped { failed: *failed },
            Self::Awaited { failed } => Status::Awaited { failed: *failed },
            Self::Unreadable { failed } => Status::Unreadable { failed: *failed },
        }
    }
}

impl LiveStatus {
    pub(super) const fn new(status: Status) -> Self {
        Self(status)
    }

    pub(in crate::core) const fn get(&self) -> &Status {
        &self.0
    }

    pub(in crate::core) const fn is_awaited(&self) -> bool {
        matches!(self.0, Status::Awaited { .. })
    }

    /// A watch, a list or a read shows it. What is not `asked` for is not kept.
    pub(super) fn show(&mut self, observed: ObservedStatus, asked: bool) {
        self.0 = match observed {
            ObservedStatus::None => Status::None,
            ObservedStatus::Text(status) if asked => Status::Known(status),
            ObservedStatus::TooLarge if asked => Status::TooLarge,
            ObservedStatus::Text(_) | ObservedStatus::TooLarge | ObservedStatus::Left => Status::Dropped { failed: 0 },
        };
    }

    /// A report is due that is to have it.
    pub(in crate::core) fn read_again(&mut self) {
        if let Status::Dropped { failed } = self.0 {
            self.0 = Status::Awaited { failed };
        }
    }

    /// Its kind is listed anew, which brings it whatever reads came to. Returns whether it was dropped, and is awaited now.
    pub(in crate::core) fn list_again(&mut self) -> bool {
        let dropped = matches!(self.0, Status::Dropped { .. });
        if dropped {
            self.0 = Status::Awaited { failed: 0 };
        }
        dropped
    }

    /// The read that was to bring it is not made. Returns whether one was awaited.
    pub(in crate::core) fn unread(&mut self) -> bool {
        let Status::Awaited { failed } = self.0 else { return false };
        self.0 = Status::Dropped { failed };
        true
    }

    /// The object was read, and whatever status it has was shown: if nothing was, it has none.
    pub(in crate::core) fn was_read(&mut self) {
        if self.is_awaited() {
            self.0 = Status::None;
        }
    }

    /// Reading it failed; none if it was not awaited. There is something to report of an object of which the hub was not
    /// `told`: that is not kept back for a status that stays unread.
    pub(in crate::core) fn read_failed(&mut self, told: bool) -> Option<Unread> {
        let Status::Awaited { failed } = self.0 else { return None };
        let failed = failed.saturating_add(1);
        // A report without it would make the hub forget the status that it has.
        let is_told = !told || failed >= READS_MAX;
        self.0 = if is_told { Status::Unreadable { failed } } else { Status::Dropped { failed } };
        Some(Unread { times: failed, is_told })
    }

    /// The hub has what is known of it, or that it could not be read.
    pub(in crate::core) fn reported(&mut self) {
        match self.0 {
            Status::Known(_) => self.0 = Status::Dropped { failed: 0 },
            Status::Unreadable { failed } => self.0 = Status::Dropped { failed },
            Status::None | Status::TooLarge | Status::Dropped { .. } | Status::Awaited { .. } => {}
        }
    }

    /// Nobody asks for it, so that none is waited for. Once it is asked for, it is read.
    pub(in crate::core) fn drop(&mut self) {
        match self.0 {
            Status::None | Status::Dropped { .. } => {}
            Status::Known(_) | Status::TooLarge | Status::Awaited { .. } | Status::Unreadable { .. } => {
                self.0 = Status::Dropped { failed: 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests;
