//! The agents' link.

pub mod core;
