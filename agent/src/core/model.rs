//! What the agent knows of its cluster.
//!
//! An [`Object`](object::Object) is one place at the cluster: its [`WorkState`](work_state::WorkState) says where it is in the
//! work, its [`Presence`](presence::Presence) what is known to stand there. Most are at rest, and [compacted](compact) into rows
//! of a few bytes; [`objects`] has both kinds, and expands what is touched. [`observe`] takes in what the cluster says.

pub(super) mod change;
pub(super) mod compact;
pub(super) mod forbidden_kinds;
pub(super) mod inputs;
pub(super) mod key_ref;
pub(super) mod kinds;
pub(super) mod object;
pub(super) mod objects;
pub(super) mod observe;
pub(super) mod presence;
pub(super) mod removal;
pub(super) mod rows;
pub(super) mod seen;
pub(super) mod shared;
pub(super) mod work_state;
