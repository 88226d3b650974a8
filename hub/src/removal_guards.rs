//! What stands between a removal and the targets: how much one change may unassign before a person is asked (`fuse`), and
//! which deletions people have approved (`approvals`).
//!
//! Data that the engine asks at each step. What is held by that, and what a person says about it, is in `removals`.

mod approvals;
mod fuse;

pub use approvals::{Approval, Approvals};
pub use fuse::Fuse;
pub(crate) use fuse::UNASSIGN_LIMIT;
