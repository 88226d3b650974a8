//! Whose requests an API server served, from its audit log: exact, and by user, which its metrics are not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tideline_tests::Scratch;

/// The user that the agent is made to be, told apart from the administrator by impersonation.
pub(crate) const USER: &str = "bench-agent";

/// A request that has at least begun to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) resource: String,
}

/// The audit log of one API server.
pub(crate) struct Audit {
    log: PathBuf,
    policy: PathBuf,
}

impl Audit {
    /// Prepares a log in `directory`.
    pub(crate) fn new(directory: &Scratch) -> Result<Self> {
        let audit = Self { log: directory.join("audit.log"), policy: directory.join("audit-policy.json") };
        // At RequestReceived the impersonated user is not known yet.
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        });
        fs::write(&audit.policy, policy.to_string())?;
        Ok(audit)
    }

    /// Returns the arguments that make kube-apiserver write it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
        ]
    }

    /// Returns the agent's requests so far, by their ids.
    pub(crate) fn requests(&self) -> Result<BTreeMap<String, Request>> {
        let log = fs::read_to_string(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        let mut requests = BTreeMap::new();
        // The last line may be half written.
        for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            if text("/impersonatedUser/username") == USER {
                let request = Request { verb: text("/verb"), resource: text("/objectRef/resource") };
                requests.insert(text("/auditID"), request);
            }
        }
        Ok(requests)
    }
}

/// Copies a kubeconfig to `to`, with a user that acts as [`USER`].
pub(crate) fn impersonating(kubeconfig: &Path, to: &Path) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    let user = kubeconfig.pointer_mut("/users/0/user").context("a kubeconfig of the harness has one user")?;
    user["as"] = USER.into();
    user["as-groups"] = json!(["system:masters"]);
    Ok(fs::write(to, kubeconfig.to_string())?)
}

/// The kinds that these requests watch.
pub(crate) fn watched<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeSet<&'a str> {
    requests.into_iter().filter(|request| request.verb == "watch").map(|request| request.resource.as_str()).collect()
}

/// How many of these requests write.
pub(crate) fn writes<'a>(requests: impl IntoIterator<Item = &'a Request>) -> usize {
    requests.into_iter().filter(|request| !matches!(request.verb.as_str(), "get" | "list" | "watch")).count()
}
