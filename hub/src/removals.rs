//! Removals that wait for a person, and what a person says about them.
//!
//! | | what waits | by what |
//! |---|---|---|
//! | [`held_deletions`] | copies that a cluster does not delete for now | its agent, which says why |
//! | [`held_unassignments`] | what targets keep though nothing wants it there any more | the fuse, for one change unassigned too much |
//!
//! Both are read as Kubernetes objects of the root space. [`approve`] has deletions go on, or lets go of what they are about;
//! [`held_unassignments`] approves its own. [`release`] says that what may have run at a target before history was lost is to
//! run there. What is said reaches the engine through `ingest`; those deletions that are approved are told to agents by
//! `removal_guards`.

pub mod approve;
pub mod held_deletions;
pub mod held_unassignments;
pub mod release;
