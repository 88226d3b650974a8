use serde::{Deserialize, Serialize};

use crate::ids::Uid;
use crate::object::keyed;

keyed! {
    /// Something that happened once and must not happen again.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TerminalFact {
        pub key: ObjectKey,
        pub source_uid: Uid,
        pub fact: Terminal,
    }
}

/// What is known to have happened once, of one source at one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Terminal {
    /// A Job finished, well or not.
    Finished,
    /// A create-only object was created.
    CreatedOnce,
    /// Of what runs once and was assigned before a person accepted that history was lost: it may have run. Said by the hub
    /// alone. An agent that knows of it goes on as it did; any other does not make it before it was released.
    MayHaveRun,
    /// A person lets it run, though it may have run before. Said by the hub alone.
    Released,
    #[serde(other)]
    Unknown,
}

impl Terminal {
    /// Whether it is an agent's to say: it saw it happen.
    pub fn happened(self) -> bool {
        match self {
            Self::Finished | Self::CreatedOnce => true,
            Self::MayHaveRun | Self::Released | Self::Unknown => false,
        }
    }
}
