//! What a person reads of an agent that may not act: in the log, at `/readyz` and in metrics.

use tideline_runtime::health::{Health, ReadinessGate};
use tracing::{error, info, warn};

use crate::core::FreezeReason;
use crate::metrics::Metrics;

/// Keeps the agent from being ready while it is not active.
#[derive(Default)]
pub(crate) struct ModeReporter {
    gate: Option<ReadinessGate>,
    set_back: Option<ReadinessGate>,
}

impl ModeReporter {
    pub(crate) fn freeze(&mut self, reason: &FreezeReason, health: &Health, metrics: &Metrics) {
        let (why, remedy) = match reason {
            FreezeReason::Fenced(why) => (
                why,
                "another agent runs with this identity: stop the one that is not meant to be. Was the data directory copied? \
                 Then give the copy an empty one, no identity Secret, and a token of its own. If this is the right one, say so \
                 at the hub: `tideline-hub targets accept`",
            ),
            FreezeReason::Quarantined(why) => (
                why,
                "this identity is used in another cluster than it was enrolled from: look at the SyncTarget at the hub. If \
                 that is right, correct its annotation tideline.dev/cluster; if not, enrol this cluster with a token of its \
                 own, an empty data directory and no identity Secret",
            ),
            FreezeReason::TargetGone(why) => (
                why,
                "if that was a mistake, make the SyncTarget again and run `tideline-hub targets adopt`; to enrol this cluster \
                 anew, give this agent a new token. It keeps its data directory either way",
            ),
            FreezeReason::Revoked(why) => (
                why,
                "do as the hub says. Only if the key was revoked, give this agent a new token to let this cluster in again: it \
                 makes a new key, and keeps what it placed",
            ),
        };
        error!(
            "the agent is frozen: it changes nothing in its cluster, asks the hub again after one minute to ten, and \
             goes on by itself when it may: {why}. What to do: {remedy}"
        );
        metrics.frozen(true);
        metrics.unknown_to_hub(false);
        self.gate = Some(health.gate("frozen"));
    }

    pub(crate) fn unknown(&mut self, health: &Health, metrics: &Metrics) {
        warn!(
            "UnknownToHub: this hub does not know this agent's target. What was accepted is kept, nothing is removed, and it is \
             asked again after one minute to ten. Was the hub restored from an old backup, or started without its store? \
             Start it with the right one, or give this agent a new token of this hub"
        );
        metrics.frozen(false);
        metrics.unknown_to_hub(true);
        self.gate = Some(health.gate("unknown-to-hub"));
    }

    /// Whether the journal is older than what stands at the cluster.
    pub(crate) fn set_back(&mut self, set_back: bool, health: &Health) {
        match (&self.set_back, set_back) {
            (None, true) => {
                error!(
                    "the data directory was set back: what stands in this cluster was applied by a later one. Nothing is changed until the hub has said what is to stand here. Was this machine restored from a backup, or an old copy \
                     of the data directory started? There is nothing to do once the hub is reached; if another agent runs \
                     with this identity, the hub says so then"
                );
                self.set_back = Some(health.gate("set-back"));
            }
            (Some(_), false) => {
                info!("the hub has said what is to stand in this cluster: the agent goes on");
                self.set_back = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    pub(crate) fn thaw(&mut self, metrics: &Metrics) {
        info!("the hub takes what this agent says: it goes on");
        metrics.frozen(false);
        metrics.unknown_to_hub(false);
        self.gate = None;
    }
}
