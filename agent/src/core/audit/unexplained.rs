//! Objects with this agent's mark that nothing explains, beyond those of which an account is kept. Whoever may create objects can
//! give any number of them such a mark, and each that is known takes a place in memory, a row of the journal and a report. So
//! there is a bound ([`unexplained_max`]). What is beyond it is counted, reported in one condition, and left alone.

use tideline_common::Reason;
use tideline_common::wire::v1::TargetCondition;

use super::left_alone::LeftAlone;
use crate::core::model::Model;
use crate::core::model::restored::unexplained_max;

pub(in crate::core) fn condition(model: &Model, beyond: &LeftAlone) -> Option<TargetCondition> {
    let (count, named) = beyond.count()?;
    let most = unexplained_max(model.desired.len());
    Some(TargetCondition {
        reason: Reason::Conflict,
        count,
        message: format!(
            "{named}: carries the mark of this target, and nothing assigns it. The agent records {most} such objects, and \
             leaves the others alone. Approve or release those that are held (tideline-hub approve-deletions, release), \
             or remove the label tideline.dev/agent and the annotation tideline.dev/source of these"
        ),
    })
}
