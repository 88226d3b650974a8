//! Carries out what was decided.
//!
//! ```text
//!  queue ── what is next, if the limiter allows ─▶ begin ══ operation ══▶ result ─▶ conclude: it stands, or is retried
//!                                                                           ├────▶ removal_steps: its next step
//!                                                                           └────▶ read: what stands there
//! ```
//!
//! Two sorts of things have their turn here: the entry of an object, which is tried until the object stands as it says, and the
//! removal of a source, which is judged until no object of that source is left. Of one key there may be both, and several
//! removals; but there is one operation per object at a time, and whatever else is due waits for its end.
//!
//! To read it, begin with [`queue`], which has the state; then [`begin`], [`in_flight`], [`result`] and [`conclude`], which are
//! the way of an entry. [`removal_lifetime`] says where a removal comes from and where it goes, [`removal_steps`] what is between,
//! and [`removal_waves`] which of them wait for others. [`limiter`] and [`aimd`] bound how much is in flight. [`read`] says what a
//! read of an object means, and [`rebuild`] what replaces a journal that was lost.

pub(super) mod aimd;
pub(super) mod begin;
pub(super) mod conclude;
pub(super) mod in_flight;
pub(super) mod limiter;
pub(super) mod queue;
pub(super) mod read;
pub(super) mod rebuild;
pub(super) mod removal_lifetime;
pub(super) mod removal_steps;
pub(super) mod removal_waves;
pub(super) mod result;
