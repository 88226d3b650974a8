//! What bitmaps take in memory.

use roaring::RoaringBitmap;

/// Has a bitmap that stays take no more than its bits need: one that was put together has room for more, which for a single bit
/// is three quarters of it.
pub(crate) fn fit(bits: &mut RoaringBitmap) {
    let copy = bits.clone();
    *bits = copy;
}
