//! The namespace in which the agent keeps its own objects.

use clap::Args;
use clap::builder::BoolishValueParser;
use kube::Client;

use crate::identity::SecretRef;
use crate::lease;

/// The Secret of the identity, unless another is named.
const IDENTITY_SECRET: &str = "tideline-agent-identity";
/// The Lease of replicas, unless another is named.
const LEASE: &str = "tideline-agent";

/// What the agent has in the cluster for itself.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct OwnNamespace {
    /// The namespace in which the agent keeps its identity, in a Secret; without it, that of its own Pod. Outside a cluster
    /// and without a namespace the data directory alone keeps it
    #[arg(long, env = "TIDELINE_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The Secret there that holds the identity; each agent of a namespace needs its own
    #[arg(long, env = "TIDELINE_IDENTITY_SECRET", value_name = "NAME", default_value = IDENTITY_SECRET)]
    pub identity_secret: String,
    /// Work only while holding a Lease in the namespace of the identity: of several replicas, each with its own data
    /// directory, one keeps the cluster and the others stand by
    #[arg(long, env = "TIDELINE_LEADER_ELECT", value_parser = BoolishValueParser::new())]
    pub leader_elect: bool,
    /// The Lease there; replicas of one agent share it
    #[arg(long, env = "TIDELINE_LEASE", value_name = "NAME", default_value = LEASE)]
    pub lease: String,
}

/// Replicas have nothing in common.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("--leader-elect needs a namespace for the Lease and the identity, which replicas share; give --namespace")]
pub struct NoNamespace;

impl Default for OwnNamespace {
    fn default() -> Self {
        Self {
            namespace: None,
            identity_secret: IDENTITY_SECRET.to_owned(),
            leader_elect: false,
            lease: LEASE.to_owned(),
        }
    }
}

impl OwnNamespace {
    /// Where the identity is kept, if there is a namespace for it.
    pub(crate) fn secret(&self, client: &Client, in_cluster: bool) -> Option<SecretRef> {
        let namespace = self.namespace(client, in_cluster)?;
        Some(SecretRef { client: client.clone(), namespace, name: self.identity_secret.clone() })
    }

    /// The Lease to acquire, if one is wanted. There must be a namespace then.
    pub(crate) fn lease(&self, client: &Client, in_cluster: bool) -> Result<Option<lease::LeaseRef>, NoNamespace> {
        if !self.leader_elect {
            return Ok(None);
        }
        let namespace = self.namespace(client, in_cluster).ok_or(NoNamespace)?;
        Ok(Some(lease::LeaseRef { client: client.clone(), namespace, name: self.lease.clone() }))
    }

    /// Which of the flags mean nothing beside the others, and why.
    pub(crate) fn ignored(&self, in_cluster: bool) -> Vec<&'static str> {
        let Self { namespace, identity_secret, leader_elect, lease } = self;
        let mut ignored = Vec::new();
        if namespace.is_none() && !in_cluster && identity_secret != IDENTITY_SECRET {
            ignored.push("--identity-secret is ignored: there is no namespace for the Secret; give --namespace");
        }
        if !leader_elect && lease != LEASE {
            ignored.push("--lease is ignored: no Lease is held without --leader-elect");
        }
        ignored
    }

    fn namespace(&self, client: &Client, in_cluster: bool) -> Option<String> {
        self.namespace.clone().or_else(|| in_cluster.then(|| client.default_namespace().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_that_means_nothing_without_another_is_ignored() {
        let given =
            || OwnNamespace { identity_secret: "mine".to_owned(), lease: "ours".to_owned(), ..OwnNamespace::default() };
        let ignored = |own: OwnNamespace, in_cluster| {
            own.ignored(in_cluster).iter().map(|said| said.split(' ').next().unwrap_or_default()).collect::<Vec<_>>()
        };
        assert_eq!(ignored(given(), false), ["--identity-secret", "--lease"]);
        assert_eq!(ignored(given(), true), ["--lease"]);
        assert!(ignored(OwnNamespace::default(), false).is_empty());
        let namespace = Some("site".to_owned());
        assert!(ignored(OwnNamespace { namespace, leader_elect: true, ..given() }, false).is_empty());
    }
}
