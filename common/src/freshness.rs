//! How far the state known of a target may be believed.

/// Whether the state known of a target may be believed to still hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Freshness {
    Fresh,
    Stale,
    /// Not heard from since the hub started, and its deadline has not passed yet.
    Unheard,
}
