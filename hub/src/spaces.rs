//! Where the hub reads spaces from, whatever provides them.

mod cluster;
mod embedded;

use std::sync::Arc;

use serde_json::Value;
use tideline_common::{ObjectKey, SpaceName, Uid};

use crate::placement::GroupResource;

pub use cluster::ClusterSource;
pub use embedded::EmbeddedSource;

/// A resource of a space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpaceResource {
    pub space: SpaceName,
    pub resource: GroupResource,
}

/// What a provider tells of its spaces.
///
/// Of each resource there comes, in this order and again whenever it has to be read anew: `Lost`, its objects, readable or not,
/// `Listed` or `Unlisted`.
/// Until `Listed`, absence says nothing. `Object`, `Unreadable` and `Deleted` come at any time.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    Object {
        of: SpaceResource,
        object: Arc<Value>,
    },
    /// An object is there, and what is stored of it cannot be read.
    Unreadable {
        of: SpaceResource,
        key: ObjectKey,
        why: String,
    },
    Deleted {
        of: SpaceResource,
        key: ObjectKey,
        /// None where the object could not be read any more when it went.
        uid: Option<Uid>,
    },
    /// Everything that is there has come since `Lost`; what has not come is gone.
    Listed(SpaceResource),
    /// In place of `Listed`: there is also what has a key that cannot be read. What has not come may be that.
    Unlisted(SpaceResource),
    /// The resource cannot be read, or is about to be read anew. What was known stays.
    Lost {
        of: SpaceResource,
        why: String,
    },
    /// The resource is gone with its definition, and all its objects before it.
    Gone(SpaceResource),
}

/// A stream of what is in spaces.
pub trait SpaceSource: Send {
    /// The next event; none when there will be no more. Cancel-safe.
    fn next(&mut self) -> impl Future<Output = Option<SourceEvent>> + Send;
}
