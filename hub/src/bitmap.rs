//! Bitmaps that stay: what they hold, and what they take in memory.

use roaring::RoaringBitmap;

/// A target's dense number, as bitmaps hold it. Never given to another.
pub type TargetIndex = u32;

/// After so many bits more or less it is looked at how a bitmap takes the least.
const CHANGED: u64 = 64;

/// Has a bitmap that stays take no more than its bits need: one that was put together has room for more, which for a single bit
/// is three quarters of it.
pub(crate) fn fit(bits: &mut RoaringBitmap) {
    let copy = bits.clone();
    *bits = copy;
}

/// Adds a bit to a bitmap that stays and is changed bit by bit: what comes in a row takes no more memory than one of it.
pub(crate) fn grow(bits: &mut RoaringBitmap, bit: u32) {
    bits.insert(bit);
    fit_now_and_then(bits);
}

/// Takes a bit from such a bitmap: what was a row and has gaps takes no more memory than its bits need.
pub(crate) fn shrink(bits: &mut RoaringBitmap, bit: u32) {
    bits.remove(bit);
    fit_now_and_then(bits);
}

fn fit_now_and_then(bits: &mut RoaringBitmap) {
    if bits.len().is_multiple_of(CHANGED) {
        bits.optimize();
    }
}
