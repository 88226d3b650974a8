//! The agents' link: a core that decides and an HTTP edge that reads, verifies, writes and signs.

pub mod core;
pub mod http;
mod sets;

pub use sets::Desk;
