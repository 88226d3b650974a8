//! Which objects go where, and how: what × where, resolved.
//!
//! [`Index`] is told how everything is and says how assignments change ([`Change`]); the ledger keeps them. Objects come
//! as [`crate::clean::read`] gives them, rules as [`PlacementRule`] and [`SpaceRule`] check them.
//!
//! ```text
//!  objects ──clauses──▶ matches ─┐
//!                                ├─▶ resolve (merge, sticky, settle) ──▶ Change
//!  targets ──Locations─▶ where ──┘
//! ```

mod again;
mod assignment;
mod choice;
mod counted;
mod form;
mod index;
mod inventory;
mod listing;
mod matches;
mod object;
mod problems;
mod rule;
mod settling;
mod space;
mod summary;
mod types;
mod wants;

pub use assignment::{Assignment, Change, GroupResource, PlacementId, SourceId, Variant};
pub use index::{DELETION_GRACE, Index, Part, SETTLE};
pub use inventory::Target;
pub use rule::{CLAUSE_POLICY_BYTES_MAX, Clause, PlacementRule, ReachRule, RuleError, SpaceRule, TargetRule};
pub use summary::{LocationSummary, PROBLEMS_MAX, PlacementProblem, PlacementSummary};

#[cfg(test)]
mod tests;
