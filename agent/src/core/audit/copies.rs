//! Objects with a mark that was written for another key: somebody copied them. They are counted and reported, and never
//! touched.
//!
//! Watches see copies that carry this target's label. One that was restored here from a backup of another cluster carries that
//! cluster's label, and only the patrol, which lists whatever has the label key, sees it.

use tideline_common::Reason;
use tideline_common::wire::v1::TargetCondition;

use super::left_alone::LeftAlone;

pub(in crate::core) fn condition(copies: &LeftAlone) -> Option<TargetCondition> {
    let (count, named) = copies.count()?;
    Some(TargetCondition {
        reason: Reason::Copy,
        count,
        message: format!(
            "{named}: carries the mark of another object (a copy), and is left alone. Remove its label \
             tideline.dev/agent and annotation tideline.dev/source"
        ),
    })
}
