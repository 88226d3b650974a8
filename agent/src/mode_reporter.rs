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
    namespace_set_back: Option<String>,
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
            "agent frozen: {why}. It changes nothing in its cluster, retries every 1 to 10 minutes, and resumes by \
             itself once the hub allows it. What to do: {remedy}"
        );
        metrics.frozen(true);
        metrics.unknown_to_hub(false);
        self.gate = Some(health.gate("frozen"));
    }

    pub(crate) fn unknown(&mut self, health: &Health, metrics: &Metrics) {
        warn!(
            "UnknownToHub: the hub does not know this agent's target; the agent keeps the accepted set, removes \
             nothing, and retries every 1 to 10 minutes. Was the hub restored from an old backup, or started without \
             its store? Start it with the right store, or give this agent a new token from this hub"
        );
        metrics.frozen(false);
        metrics.unknown_to_hub(true);
        self.gate = Some(health.gate("unknown-to-hub"));
    }

    /// Whether the journal is older than the objects of the cluster.
    pub(crate) fn set_back(&mut self, set_back: bool, health: &Health) {
        match (&self.set_back, set_back) {
            (None, true) => {
                error!(
                    "the data directory is older than what was applied to this cluster; the agent changes nothing until the \
                     hub sends the desired set. Was this machine restored from a backup, or the agent started on an old copy \
                     of the data directory? No action is needed if the hub is reachable; if another agent runs with this \
                     identity, the hub reports it"
                );
                self.set_back = Some(health.gate("set-back"));
            }
            (Some(_), false) => {
                info!("desired set received from the hub; the agent resumes");
                self.set_back = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// In which namespace alone objects are later than the journal.
    pub(crate) fn namespace_set_back(&mut self, namespace: Option<&str>) {
        if self.namespace_set_back.as_deref() == namespace {
            return;
        }
        self.namespace_set_back = namespace.map(str::to_owned);
        if let Some(namespace) = namespace {
            warn!(
                namespace,
                "objects of this namespace are of later generations than the data directory knows; the agent changes \
                 nothing there until the hub sends the desired set. Was this machine restored from a backup, or did \
                 somebody edit the annotation tideline.dev/source?"
            );
        }
    }

    pub(crate) fn thaw(&mut self, metrics: &Metrics) {
        info!("the hub accepts this agent again; the agent resumes");
        metrics.frozen(false);
        metrics.unknown_to_hub(false);
        self.gate = None;
    }
}
