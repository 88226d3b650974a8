//! What the core is told and what it asks for: all that its edges know of it.
//!
//! An [`Event`](event::Event) is what happened, an [`Effect`](effect::Effect) what is to happen next; what the cluster says of
//! objects is in [`observed`], how operations on it end in [`op_result`], and what the journal keeps in [`write`].

pub(super) mod effect;
pub(super) mod event;
pub(super) mod observed;
pub(super) mod op_result;
pub(super) mod write;
