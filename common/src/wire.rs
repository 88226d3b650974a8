//! The messages between agent and hub. Old versions stay readable for ever.
//!
//! Unknown fields are ignored and unknown enum tags read as `Unknown`, so that either side may be newer.

pub mod codec;
pub mod v1;

#[cfg(test)]
mod tests;
