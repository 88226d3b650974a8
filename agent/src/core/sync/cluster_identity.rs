//! Which cluster this is: the one that this identity is of, or another into which its data directory came. And whether it
//! answers.

use tideline_common::Uid;
use tideline_common::wire::v1::ClusterFacts;

use super::HubSync;
use crate::core::Core;
use crate::core::interface::effect::Effects;

#[derive(Debug)]
pub(in crate::core) struct ClusterIdentity {
    /// The cluster that this identity is of.
    cluster: Option<Uid>,
    facts: ClusterFacts,
    answered: bool,
    silent: bool,
}

impl ClusterIdentity {
    pub(in crate::core) const fn new(cluster: Option<Uid>, facts: ClusterFacts, answered: bool) -> Self {
        Self { cluster, facts, answered, silent: false }
    }

    pub(in crate::core) const fn facts(&self) -> &ClusterFacts {
        &self.facts
    }

    /// The cluster that this identity is of, as far as is known.
    pub(in crate::core) fn cluster(&self) -> Option<Uid> {
        self.cluster.clone().or_else(|| self.facts.cluster.clone())
    }

    /// The hub says which cluster its target is of, and that is stored by now.
    pub(in crate::core) fn is_of(&mut self, cluster: Uid) {
        self.cluster = Some(cluster);
    }

    /// Whether the cluster ever identified itself, and still answers.
    pub(in crate::core) const fn answers(&self) -> bool {
        self.answered && !self.silent
    }

    /// Whether the cluster itself says that it is the right one, where that can be known. One that may not be asked does not.
    fn is_proven(&self) -> bool {
        self.cluster.is_none() || (self.facts.cluster.is_some() && self.is_right())
    }

    /// Whether anything may be changed in this cluster: not before it is known to be the right one, where that can be known.
    fn is_right(&self) -> bool {
        self.cluster.is_none() || (self.answered && !is_another(self.cluster.as_ref(), &self.facts))
    }
}

/// Whether these are the facts of another cluster than this. An agent that may not ask which cluster it is in is believed to
/// be in its own.
pub(crate) fn is_another(cluster: Option<&Uid>, facts: &ClusterFacts) -> bool {
    cluster.zip(facts.cluster.as_ref()).is_some_and(|(cluster, found)| cluster != found)
}

impl Core {
    /// The cluster reported its facts.
    pub(in crate::core) fn on_facts(&mut self, mut facts: ClusterFacts, out: &mut Effects) {
        self.sync.cluster_identity.answered = true;
        // One that may not be asked any more is the one that it was.
        facts.cluster = facts.cluster.or_else(|| self.sync.cluster_identity.facts.cluster.clone());
        if self.sync.cluster_identity.facts != facts {
            self.sync.cluster_identity.facts = facts;
            // The hub hears it with a session, and judges by it, too, whether this is the right cluster.
            self.renew_session(out);
        }
    }
}

impl HubSync {
    /// Without the hub, the agent alone judges that.
    pub(in crate::core) fn is_own_cluster(&self) -> bool {
        self.cluster_identity.is_right()
    }

    /// Whether the cluster itself says so.
    pub(in crate::core) fn is_proven_own_cluster(&self) -> bool {
        self.cluster_identity.is_proven()
    }

    pub(in crate::core) const fn on_probe(&mut self, answers: bool) {
        self.cluster_identity.silent = !answers;
    }
}

#[cfg(test)]
mod tests;
