//! Fields of stored objects of which the embedder knows a later value than the store.

use serde_json::Value;

use crate::identity::Identity;

/// A field that changes too often to be stored each time: it is filled in when an object is read, in single objects, lists,
/// tables and watches.
///
/// Nothing of that is stored or fed, it is no event of a watch, and the resource version stays. Whoever is shown it cannot write
/// it, for what was read comes back with what was changed: such a write keeps what is stored.
pub trait FilledField: Send + Sync + 'static {
    /// Group and plural of the objects; one such field for each.
    fn resource(&self) -> (&'static str, &'static str);

    /// Where it is in an object, such as `["status", "lastContact"]`.
    fn path(&self) -> &'static [&'static str];

    /// Whether this reader is shown it. Who is not reads what is stored, and is the one who writes it.
    fn is_shown_to(&self, reader: &Identity) -> bool;

    /// What each of these objects is shown with, in their order; none for what is stored. Asked once for one object, event or
    /// page of a list, so it must not block.
    fn values(&self, objects: &[Value]) -> Vec<Option<Value>>;
}
