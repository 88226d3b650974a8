//! The tables of the journal, and what changes in them.

/// Declares the tables with their names on disk.
macro_rules! tables {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Table { $($(#[$doc])* $variant),+ }

        impl Table {
            pub(super) const ALL: &[Self] = &[$(Self::$variant),+];

            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

tables!(
    /// The schema's version, the enrolment, the accepted version.
    Meta = "meta",
    Entries = "entries",
    Policies = "policies",
    Applied = "applied",
    Removing = "removing",
    /// What the fuse let through within the hour.
    Passed = "passed",
    /// What the fuse holds.
    Held = "held",
    Unsent = "unsent",
    /// What ran, of sources that are not assigned any more, by number.
    Ran = "ran",
    /// Jobs whose creation was begun. A build that does not know this leaves it as it is.
    Creating = "creating",
    /// The kinds of which there ever was anything.
    Kinds = "kinds",
    /// What came back, though nothing assigns it.
    RestoredObject = "came-back",
    /// The parts of a set that is being switched to.
    Staged = "staged",
    /// Which bodies there are, so that nothing needs to scan them.
    Inputs = "inputs",
    /// Compressed bodies. Read one by one, never scanned.
    Bodies = "bodies",
);

/// Sets a value, or removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) table: Table,
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
}

impl Change {
    pub(super) fn bytes(&self) -> u64 {
        (self.key.len() + self.value.as_ref().map_or(0, Vec::len)) as u64
    }
}
