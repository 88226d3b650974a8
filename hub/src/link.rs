//! The agents' link: a core that decides, exchanges verified and signed as data, and an HTTP edge that reads and writes.

pub mod core;
pub mod exchange;
pub mod http;
pub mod refusals;
mod sets;

pub use sets::LedgerView;
