//! What a person reads in the log of hub and cluster: once when it turns bad, once when it turns good, and not for every
//! try or object in between.

use std::collections::{BTreeMap, BTreeSet};

use tideline_common::wire::v1::{Decommission, DecommissionReport};
use tideline_common::{AssociatedKind, GroupKind, Reason};
use tracing::{debug, info, warn};

use crate::core::{Answer, AssociatedNews, Event, Failure, LinkFailure, ListFailure, PatrolTally};

/// Whether hub and cluster were well when last heard of.
#[derive(Debug, Default)]
pub(crate) struct StatusLogger {
    hub: Side,
    /// The kinds whose watches are lost, with the message of each.
    lost: BTreeMap<GroupKind, String>,
    /// The kinds that may be listed and not watched.
    unwatched: BTreeSet<GroupKind>,
    /// The kinds of associated objects that cannot be followed, and why.
    unfollowed: BTreeMap<AssociatedKind, Reason>,
    /// What the last patrol found.
    patrol: PatrolTally,
}

#[derive(Debug, Default)]
enum Side {
    #[default]
    Unknown,
    Well,
    /// With its message.
    Unwell(String),
}

impl StatusLogger {
    /// Takes every event on its way to the core.
    pub(crate) fn log(&mut self, event: &Event) {
        match event {
            Event::Answered { result: Ok(answer), .. } => {
                if let Answer::Enrolled(enrolled) = answer {
                    info!(sync_target = %enrolled.target, name = enrolled.name, "enrolled");
                }
                if self.hub.recovers() {
                    info!("the hub answers");
                }
            }
            Event::Answered { result: Err(LinkFailure::Unreachable { message, .. }), .. } => {
                if self.hub.fails(message) {
                    warn!("the hub does not answer; keeping the accepted set and retrying: {message}");
                }
            }
            Event::Answered { result: Err(LinkFailure::NotTheHub { message, .. }), .. } => {
                if self.hub.fails(message) {
                    warn!("the answer is not from the pinned hub; keeping the accepted set and retrying: {message}");
                }
            }
            Event::Answered { result: Err(LinkFailure::Refused(refusal)), .. } => {
                if self.hub.fails(&refusal.message) {
                    warn!(refusal = ?refusal.refusal, "the hub refused the request; it is tried again: {}", refusal.message);
                }
            }
            Event::Listed { kind, objects } => {
                debug!(%kind, objects = objects.len(), "listed");
                if self.lost.remove(kind).is_some() && self.lost.is_empty() {
                    info!("all kinds are listed again");
                }
            }
            Event::WatchLost { kind, reason, message } => {
                if self.loses(kind, message) {
                    warn!(%kind, %reason, "list or watch failed; the agent concludes nothing from absence and retries: {message}");
                }
            }
            Event::Unwatched { kind, message } => {
                if self.unwatched.insert(kind.clone()) {
                    warn!(%kind, "watch forbidden; polling by list: {message}");
                }
            }
            Event::Watched { kind } => {
                if self.unwatched.remove(kind) {
                    info!(%kind, "watch established");
                }
            }
            Event::Followed { kind, run: _, news } => match news {
                AssociatedNews::Listed => {
                    debug!(%kind, "listed");
                    if self.unfollowed.remove(kind).is_some() {
                        info!(%kind, "counting associated objects again");
                    }
                }
                AssociatedNews::Unwatched { message } => {
                    if self.unfollowed.insert(*kind, Reason::Forbidden) != Some(Reason::Forbidden) {
                        warn!(%kind, "watch of associated objects forbidden; polling by list: {message}");
                    }
                }
                AssociatedNews::Lost { reason, message } => {
                    if self.unfollowed.insert(*kind, *reason) != Some(*reason) {
                        warn!(
                            %kind, %reason,
                            "cannot count associated objects; retrying: {message}"
                        );
                    }
                }
                AssociatedNews::Listing | AssociatedNews::Seen(_) | AssociatedNews::Gone(_) => {}
            },
            // One object's failure is in the report.
            Event::Executed { result, .. } => {
                if let Some(Failure { reason, message, .. }) = result.failure() {
                    debug!(%reason, "an operation failed: {message}");
                }
            }
            Event::ListEnded { result: Err(ListFailure { reason, message }), .. } => {
                debug!(%reason, "a kind could not be listed: {message}");
            }
            Event::Stop => info!("finishing operations in flight"),
            Event::Started
            | Event::Cluster(_)
            | Event::ApiServerProbe { .. }
            | Event::Superseded(_)
            | Event::SessionKept { .. }
            | Event::StoredSessionRead { .. }
            | Event::Persisted { .. }
            | Event::Timer(_)
            | Event::Kind { .. }
            | Event::Observed(_)
            | Event::Gone { .. }
            | Event::ListPage { .. }
            | Event::ListEnded { .. } => {}
        }
    }

    /// The cluster goes out of service, or is.
    #[expect(clippy::unused_self, reason = "what a person reads is said in one place")]
    pub(crate) fn decommissioned(&self, report: &DecommissionReport) {
        match (report.how, report.left) {
            (Decommission::No, _) => info!("the cluster is in service again"),
            (Decommission::Remove, 0) => {
                info!(
                    "decommissioned: what was placed here is removed, or orphaned where its policy says so; the agent is idle"
                );
            }
            (Decommission::Keep | Decommission::Unknown, 0) => {
                info!("decommissioned: all that was placed here is orphaned and stays; the agent is idle");
            }
            (how, left) => info!(?how, left, "the cluster goes out of service"),
        }
    }

    /// A patrol with findings is logged, unless the last one found the same.
    pub(crate) fn patrolled(&mut self, tally: &PatrolTally) {
        let former = std::mem::replace(&mut self.patrol, *tally);
        let PatrolTally {
            checked,
            unknown,
            withheld,
            failing,
            missing,
            drifted,
            unassigned,
            foreign,
            unseen,
            held,
            repaired,
        } = *tally;
        if !tally.is_clean() && !tally.found_like(&former) {
            warn!(
                checked,
                missing,
                unassigned,
                drifted,
                foreign,
                unknown,
                unseen,
                withheld,
                failing,
                held,
                repaired,
                "patrol found differences from the accepted set; repaired= counts those corrected"
            );
        } else if tally.is_clean() && !former.is_clean() {
            info!(checked, withheld, failing, held, "the patrol found everything as it should be");
        } else {
            debug!(checked, withheld, failing, held, "patrolled");
        }
    }
}

impl StatusLogger {
    /// An API server that is away is one piece of news, not one for each kind.
    fn loses(&mut self, kind: &GroupKind, message: &str) -> bool {
        let news = !self.lost.values().any(|said| said == message);
        self.lost.insert(kind.clone(), message.to_owned());
        news
    }
}

impl Side {
    fn recovers(&mut self) -> bool {
        !matches!(std::mem::replace(self, Self::Well), Self::Well)
    }

    /// Another problem than before is news too.
    fn fails(&mut self, message: &str) -> bool {
        let news = !matches!(self, Self::Unwell(said) if said == message);
        if news {
            *self = Self::Unwell(message.to_owned());
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use tideline_common::GroupKind;

    use super::{Side, StatusLogger};

    #[test]
    fn a_fault_of_all_kinds_is_logged_once() {
        let mut status_logger = StatusLogger::default();
        let (a, b) = (GroupKind::new("", "A"), GroupKind::new("", "B"));
        let said = [
            status_logger.loses(&a, "refused"),
            status_logger.loses(&b, "refused"),
            status_logger.loses(&a, "refused"),
            status_logger.loses(&b, "forbidden"),
            status_logger.loses(&a, "refused"),
            status_logger.loses(&b, "forbidden"),
        ];
        assert_eq!(said, [true, false, false, true, false, false]);
    }

    #[test]
    fn only_changes_are_logged() {
        let mut side = Side::default();
        let said = [
            side.fails("no route"),
            side.fails("no route"),
            side.fails("refused"),
            side.recovers(),
            side.recovers(),
            side.fails("refused"),
        ];
        assert_eq!(said, [true, false, true, true, false, true]);
    }
}
