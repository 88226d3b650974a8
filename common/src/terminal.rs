//! What happens once, and is remembered.

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

/// A fact about one source at one target that is known for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Terminal {
    /// A Job finished, well or not.
    Finished,
    /// A create-only object was created.
    CreatedOnce,
    /// A Job that is deleted some time after it ended (`spec.ttlSecondsAfterFinished`) was created: should it be gone, nobody may
    /// have seen it end.
    Started,
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
            Self::Finished | Self::CreatedOnce | Self::Started => true,
            Self::MayHaveRun | Self::Released | Self::Unknown => false,
        }
    }

    /// Whether it adds to what is `known` of a source. What ended has ended, whatever is heard late; and a Job that was
    /// started was created.
    pub fn is_news_after(self, known: Option<Self>) -> bool {
        match (known, self) {
            (_, Self::Unknown) | (Some(Self::Finished), _) | (Some(Self::Started), Self::CreatedOnce) => false,
            (Some(known), _) => known != self,
            (None, _) => true,
        }
    }
}
