use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::Scratch;

/// Megabytes after which the API server would begin another file. By itself it does so after a hundred, which 50,000
/// objects and their controllers take several times.
const MEGABYTES_MAX: u32 = 100_000;

/// A request that has at least begun to be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub verb: String,
    /// Empty for what is no resource, such as `/version`.
    pub resource: String,
    /// The HTTP status, once it is known.
    pub code: Option<u64>,
}

/// The audit log of one API server: its requests, exact and by user, which its metrics are not.
pub struct Audit {
    log: PathBuf,
    policy: PathBuf,
}

impl Audit {
    /// Prepares a log in `directory`.
    ///
    /// # Errors
    ///
    /// When the policy cannot be written there.
    pub fn new(directory: &Scratch) -> Result<Self> {
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

    /// The arguments that make kube-apiserver write it.
    pub fn arguments(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.policy.display()),
            format!("--audit-log-path={}", self.log.display()),
            format!("--audit-log-maxsize={MEGABYTES_MAX}"),
        ]
    }

    /// The requests that `user` made so far, or that were made in its name, by their ids.
    ///
    /// # Errors
    ///
    /// When there is no log, or it cannot be read.
    pub fn requests(&self, user: &str) -> Result<BTreeMap<String, Request>> {
        let reading = || format!("reading {}", self.log.display());
        let log = BufReader::new(fs::File::open(&self.log).with_context(reading)?);
        let mut requests = BTreeMap::new();
        for line in log.split(b'\n') {
            let line = line.with_context(reading)?;
            // Most lines are of others, and not worth parsing. The last one may be half written.
            let text = str::from_utf8(&line).ok().filter(|text| text.contains(user));
            let Some(event) = text.and_then(|text| serde_json::from_str::<Value>(text).ok()) else { continue };
            let text = |path: &str| event.pointer(path).and_then(Value::as_str);
            if text("/impersonatedUser/username").or(text("/user/username")) == Some(user) {
                let owned = |path: &str| text(path).unwrap_or_default().to_owned();
                let code = event.pointer("/responseStatus/code").and_then(Value::as_u64);
                let request = Request { verb: owned("/verb"), resource: owned("/objectRef/resource"), code };
                requests.insert(owned("/auditID"), request);
            }
        }
        Ok(requests)
    }
}

/// Copies a kubeconfig of the harness to `to`, with a user that acts as `user`, with all rights: to tell apart in the
/// log what else the administrator does.
///
/// # Errors
///
/// When either file cannot be read or written.
pub fn acting_as(user: &str, kubeconfig: &Path, to: &Path) -> Result<()> {
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(kubeconfig)?)?;
    let entry = kubeconfig.pointer_mut("/users/0/user").context("a kubeconfig of the harness has one user")?;
    entry["as"] = user.into();
    entry["as-groups"] = json!(["system:masters"]);
    Ok(fs::write(to, kubeconfig.to_string())?)
}
