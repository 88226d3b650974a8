//! What the engine writes in one transaction, and how changes are cut into such groups.
//!
//! sled takes several kilobytes of memory for each change of a transaction, and all of its bytes: so no group has many, however
//! much is written. Nothing else is given to the engine.

use super::Error;
use super::change::Change;

/// Changes of one group. Of the five kilobytes that each takes, as measured with sled 0.34.7, one or two megabytes.
pub(super) const GROUP_CHANGES_MAX: usize = 256;
/// Bytes of one group, for bodies are large. A larger change that cannot be split is a group of its own.
pub(super) const GROUP_BYTES_MAX: u64 = 1 << 20;
/// Bytes of groups that reach the disk together, at least where there are more: the part of a large set that is in memory at
/// once.
pub(super) const COMMIT_BYTES_MAX: u64 = 4 << 20;
/// Changes of groups that reach the disk together, at least where there are more: of a few hundred bytes each, in memory.
const COMMIT_CHANGES_MAX: usize = 4_096;

/// Changes that are written whole or not at all, within the bounds above.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    changes: Vec<Change>,
    bytes: u64,
}

impl Group {
    /// Adds changes that cannot be parted, or gives them back where there is no room for them beside the others.
    pub(super) fn add<const N: usize>(&mut self, changes: [Change; N]) -> Result<(), [Change; N]> {
        let bytes = self.bytes + bytes_of(&changes);
        let fits = self.changes.len() + N <= GROUP_CHANGES_MAX && bytes <= GROUP_BYTES_MAX;
        if !fits && !self.changes.is_empty() {
            return Err(changes);
        }
        self.bytes = bytes;
        self.changes.extend(changes);
        Ok(())
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

impl<const N: usize> From<[Change; N]> for Group {
    fn from(changes: [Change; N]) -> Self {
        Self { bytes: bytes_of(&changes), changes: changes.into() }
    }
}

fn bytes_of(changes: &[Change]) -> u64 {
    changes.iter().map(Change::bytes).sum()
}

/// Cuts changes that need not be written together into groups, in their order. One group is in memory.
pub(super) struct Cutter<W> {
    group: Group,
    write: W,
}

impl<W: FnMut(Group) -> Result<(), Error>> Cutter<W> {
    pub(super) fn new(write: W) -> Self {
        Self { group: Group::default(), write }
    }

    /// Adds changes that cannot be parted.
    pub(super) fn push<const N: usize>(&mut self, changes: [Change; N]) -> Result<(), Error> {
        match self.group.add(changes) {
            Ok(()) => Ok(()),
            Err(changes) => (self.write)(std::mem::replace(&mut self.group, Group::from(changes))),
        }
    }

    /// Hands on the rest.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        if self.group.is_empty() { Ok(()) } else { (self.write)(self.group) }
    }
}

/// Cuts changes that are in memory, and need not be written together.
pub(super) fn cut(changes: impl IntoIterator<Item = Change>) -> Vec<Group> {
    let mut groups = vec![Group::default()];
    for change in changes {
        if let Some(Err(change)) = groups.last_mut().map(|group| group.add([change])) {
            groups.push(Group::from(change));
        }
    }
    groups
}

/// Gathers groups that reach the disk together, which costs it much the same however many they are.
pub(super) struct Gathered<W> {
    groups: Vec<Group>,
    bytes: u64,
    changes: usize,
    write: W,
}

/// Whether all that was gathered is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Disk,
    Memory,
}

impl<W: FnMut(&[Group]) -> Result<(), Error>> Gathered<W> {
    pub(super) fn new(write: W) -> Self {
        Self { groups: Vec::new(), bytes: 0, changes: 0, write }
    }

    pub(super) fn push(&mut self, group: Group) -> Result<Reached, Error> {
        self.bytes += group.bytes();
        self.changes += group.changes().len();
        self.groups.push(group);
        if self.bytes < COMMIT_BYTES_MAX && self.changes < COMMIT_CHANGES_MAX {
            return Ok(Reached::Memory);
        }
        self.commit()?;
        Ok(Reached::Disk)
    }

    pub(super) fn commit(&mut self) -> Result<(), Error> {
        (self.bytes, self.changes) = (0, 0);
        (self.write)(&std::mem::take(&mut self.groups))
    }
}
