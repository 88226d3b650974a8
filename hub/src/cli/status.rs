//! What `status` shows: the clusters, and the rollups of one space.

use std::fmt::Write as _;

use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::{Value, json};
use tideline_api::{AgentInstance, SyncTarget, SyncTargetPhase, decode};
use tideline_common::associated::{Sum, Tally};
use tideline_common::rollup::{Counts, MadeOver};
use tideline_common::{AssociatedKind, SpaceName};
use tideline_hub::VIRTUAL_RESOURCES_GROUP;
use tideline_hub::duplicates;
use tideline_hub::history;
use tideline_hub::history_break::{self, HistoryBreak};
use tideline_hub::kubeconfig::{self, Access, RequestError};
use tideline_hub::printable;
use tideline_hub::removals::held_unassignments::{self, HeldUnassignment};

use super::table::Table;

/// Objects asked for at once, as kubectl does.
const PAGE: usize = 500;
/// Targets and troubles that are spelled out below the tables; a person reads no more, and `--output json` has all.
const HINTS_MAX: usize = 10;
/// Namespaces that one line names.
const NAMESPACES_MAX: usize = 2;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error("cannot list the SyncTargets")]
    Targets(#[source] RequestError),
    #[error("there is no space {0:?} at this hub")]
    NoSpace(String),
    #[error(transparent)]
    Held(#[from] held_unassignments::Error),
    #[error(transparent)]
    History(#[from] history::Error),
    #[error("cannot list the rollups of the space {space:?}")]
    Rollups { space: String, source: RequestError },
    #[error("the hub sends a rollup that this version cannot read; use the tideline-hub of the hub's own version")]
    Unreadable(#[source] serde_json::Error),
}

/// What is known of a hub's clusters and of one space.
#[derive(Debug)]
pub(crate) struct Status {
    space: String,
    targets: Vec<TargetLine>,
    rollups: Vec<(Rollup, Value)>,
    /// What the hub holds, of all spaces.
    held: Vec<HeldUnassignment>,
    /// Why targets keep still.
    breaks: Vec<HistoryBreak>,
}

/// One cluster.
#[derive(Debug)]
struct TargetLine {
    name: String,
    phase: SyncTargetPhase,
    agent_version: Option<String>,
    kubernetes_version: Option<String>,
    last_contact: Option<Timestamp>,
    held_deletions: u32,
    /// The agents that live with its identity, where there are several.
    instances: Vec<AgentInstance>,
    /// What the hub says of whether it is ready.
    ready: String,
}

/// One placed object over all of its targets.
#[derive(Debug, Deserialize)]
struct Rollup {
    source: Source,
    /// What its namespace is called at the targets, where that is not as in the space.
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default)]
    counts: Counts,
    #[serde(default)]
    worst: Vec<Worst>,
    /// What was made of it.
    #[serde(default)]
    associated: MadeOver,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(default)]
    namespace: String,
    kind: String,
    #[serde(default)]
    api_group: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Worst {
    #[serde(default)]
    target: Option<String>,
    /// What its namespace is called there, where that is not as in the space.
    #[serde(default)]
    namespace: Option<String>,
    reason: String,
    #[serde(default)]
    message: String,
}

/// Asks the hub.
pub(crate) async fn read(access: &Access, space: &SpaceName) -> Result<Status, Error> {
    let root = access.client(&SpaceName::root()).await?;
    let targets = list(&root, "/apis/tideline.dev/v1alpha1/synctargets").await;
    let targets = targets.map_err(|error| Error::Targets(access.locate(error)))?;
    let mut rollups = Vec::new();
    // The root space places nothing.
    if *space != SpaceName::root() {
        let client = access.client(space).await?;
        for resource in ["clusterrollups", "rollups"] {
            let path = format!("/apis/{VIRTUAL_RESOURCES_GROUP}/v1alpha1/{resource}");
            rollups.extend(list(&client, &path).await.map_err(|source| match source {
                RequestError::Refused { code: 404, .. } => Error::NoSpace(space.to_string()),
                source => Error::Rollups { space: space.to_string(), source: access.locate(source) },
            })?);
        }
    }
    let held = held_unassignments::held(&root).await?;
    let breaks = history::breaks(&root).await?;
    Ok(Status { held, breaks, ..Status::of(space.as_str(), targets, rollups)? })
}

/// All objects of a list, page by page.
async fn list(client: &Client, path: &str) -> Result<Vec<Value>, RequestError> {
    let (mut items, mut resume) = (Vec::new(), String::new());
    loop {
        let request =
            Request::get(format!("{path}?limit={PAGE}{resume}")).body(Vec::new()).map_err(kube::Error::HttpError)?;
        let mut page: Value = client.request(request).await?;
        if let Value::Array(more) = page["items"].take() {
            items.extend(more);
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => resume = format!("&continue={}", percent_encoded(token)),
            Some(_) | None => return Ok(items),
        }
    }
}

/// As RFC 3986 has it for a value in a query: everything but the unreserved characters.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _infallible = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

impl Status {
    fn of(space: &str, targets: Vec<Value>, rollups: Vec<Value>) -> Result<Self, Error> {
        let mut targets: Vec<_> = targets.into_iter().map(TargetLine::of).collect();
        targets.sort_by(|one, other| one.name.cmp(&other.name));
        let mut rollups = rollups
            .into_iter()
            .map(|raw| Ok((Rollup::deserialize(&raw).map_err(Error::Unreadable)?, raw)))
            .collect::<Result<Vec<_>, Error>>()?;
        rollups.sort_by(|(one, _), (other, _)| one.source.cmp(&other.source));
        Ok(Self { space: space.to_owned(), targets, rollups, held: Vec::new(), breaks: Vec::new() })
    }

    /// For programs: the rollups as the hub sends them.
    pub(crate) fn json(&self) -> Value {
        let targets: Vec<_> = self
            .targets
            .iter()
            .map(|target| {
                let TargetLine {
                    name,
                    phase,
                    agent_version,
                    kubernetes_version,
                    last_contact,
                    held_deletions,
                    instances,
                    ready: _,
                } = target;
                json!({
                    "name": name, "phase": phase, "agentVersion": agent_version,
                    "kubernetesVersion": kubernetes_version, "lastContact": last_contact,
                    "heldDeletions": held_deletions, "instances": instances,
                })
            })
            .collect();
        let rollups: Vec<_> = self.rollups.iter().map(|(_, raw)| raw).collect();
        json!({"space": self.space, "targets": targets, "rollups": rollups, "heldUnassignments": self.held,
            "historyBreaks": self.breaks})
    }

    /// For people, at the moment `now`.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let broken = history_break::sentence(&self.breaks).map(|sentence| format!("HISTORY IS BROKEN. {sentence}\n\n"));
        let mut text = broken.unwrap_or_default();
        text += &if self.targets.is_empty() {
            "No cluster has joined yet. Let one join with the output of: tideline-hub token create NAME\n".to_owned()
        } else {
            self.target_table(now).to_string()
        };
        text.push('\n');
        if self.rollups.is_empty() {
            let _infallible = writeln!(text, "Nothing of the space {} is placed on a cluster.", self.space);
        } else {
            text.push_str(&self.rollup_table().to_string());
        }
        if self.rollups.iter().any(|(rollup, _)| !rollup.associated.is_empty()) {
            let _infallible = write!(text, "\n{}", self.associated_table());
        }
        let hints = self.hints();
        if !hints.is_empty() {
            text.push('\n');
        }
        for hint in hints.iter().take(HINTS_MAX) {
            let _infallible = writeln!(text, "{}", printable(hint));
        }
        if let Some(more) = hints.len().checked_sub(HINTS_MAX).filter(|more| *more > 0) {
            let _infallible = writeln!(text, "… and {more} more; --output json shows all.");
        }
        text
    }

    fn target_table(&self, now: Timestamp) -> Table {
        let mut table = Table::new(&["TARGET", "PHASE", "AGENT", "KUBERNETES", "LAST CONTACT"]);
        for target in &self.targets {
            let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            table.row([
                target.name.clone(),
                format!("{:?}", target.phase),
                known(&target.agent_version),
                known(&target.kubernetes_version),
                target.last_contact.map_or_else(|| "-".to_owned(), |then| ago(then, now)),
            ]);
        }
        table
    }

    fn rollup_table(&self) -> Table {
        let mut table = Table::new(&[
            "KIND",
            "NAMESPACE",
            "NAME",
            "EXPECTED",
            "APPLIED",
            "READY",
            "PROGRESSING",
            "FAILED",
            "WITHHELD",
            "DELETING",
            "STALE",
            "UNKNOWN",
        ]);
        for (Rollup { source, namespaces, counts, .. }, _) in &self.rollups {
            let Counts {
                expected,
                reported: _,
                applied,
                ready,
                progressing,
                failed,
                withheld,
                deleting,
                stale,
                unknown,
            } = *counts;
            let at = if namespaces.is_empty() { String::new() } else { format!(" → {}", named(namespaces)) };
            let (mut namespace, mut name) = (source.namespace.clone(), source.name.clone());
            if namespace.is_empty() {
                (namespace, name) = ("-".to_owned(), name + &at);
            } else {
                namespace += &at;
            }
            let counted = [expected, applied, ready, progressing, failed, withheld, deleting, stale, unknown];
            let names = [source.kind(), namespace, name];
            table.row(names.into_iter().chain(counted.map(|count| count.to_string())));
        }
        table
    }

    /// What was made of placed objects, where a Placement asks for that.
    fn associated_table(&self) -> Table {
        let mut table = Table::new(&[
            "KIND",
            "NAMESPACE",
            "NAME",
            "MADE",
            "TARGETS",
            "TOTAL",
            "READY",
            "PHASES",
            "RESTARTS",
            "WAITING",
        ]);
        for (Rollup { source, associated, .. }, _) in &self.rollups {
            for (kind, sum) in &associated.0 {
                let namespace = if source.namespace.is_empty() { "-" } else { &source.namespace };
                let names = [source.kind(), namespace.to_owned(), source.name.clone()];
                table.row(names.into_iter().chain(made_cells(*kind, sum)));
            }
        }
        table
    }

    /// What a person should look at, one line each.
    fn hints(&self) -> Vec<String> {
        let claims = history_break::claims(&self.breaks).map(|(target, claim)| format!("{target}: {claim}"));
        let mut hints: Vec<_> = claims.collect();
        if !self.held.is_empty() {
            let places: u64 = self.held.iter().map(|held| held.targets.count).sum();
            hints.push(format!(
                "{} objects are wanted at {places} places no more, and stay there, for that is much at once; look at them \
                 with: tideline-hub approve-unassignments --list",
                self.held.len()
            ));
        }
        for target in &self.targets {
            match target.phase {
                SyncTargetPhase::Stale => hints.push(format!(
                    "{}: not heard of in time; what it last reported is counted as stale. Is its agent running, and can \
                     it reach the hub?",
                    target.name
                )),
                SyncTargetPhase::Pending => {
                    hints.push(format!("{}: it enrolled, and its agent has not opened a session yet.", target.name));
                }
                // Whether its key was revoked, or is merely not there: what helps the one ends the other for good.
                SyncTargetPhase::Revoked => {
                    hints.push(format!("{}: its agent is shut out: {}", target.name, target.ready));
                }
                // Said below of every one that has several.
                SyncTargetPhase::DuplicateAgent | SyncTargetPhase::Ready | SyncTargetPhase::Unknown => {}
            }
            if !target.instances.is_empty() {
                hints.push(format!("{}: {}", target.name, duplicates::describe(&target.name, &target.instances)));
            }
            if target.held_deletions > 0 {
                hints.push(format!(
                    "{0}: deletions that wait for an approval: {1}; look at them with: tideline-hub approve-deletions {0} --list",
                    target.name, target.held_deletions
                ));
            }
        }
        for (Rollup { source, counts, worst, .. }, _) in &self.rollups {
            if counts.failed + counts.withheld == 0 {
                continue;
            }
            for Worst { target, namespace, reason, message } in worst {
                // Silence was said above, once for each target.
                if reason == "Stale" {
                    continue;
                }
                let target = target.as_deref().unwrap_or("a target that is gone");
                let colon = if message.is_empty() { "" } else { ": " };
                let at = namespace.as_ref().map_or_else(String::new, |namespace| format!(" as {namespace}"));
                hints.push(format!("{source} on {target}{at}: {reason}{colon}{message}"));
            }
        }
        hints
    }
}

fn made_cells(kind: AssociatedKind, Sum { targets, tally }: &Sum) -> [String; 7] {
    let Tally { total, ready, phases, reasons: _, restarts, endpoints, endpoints_ready } = tally;
    let counted = phases.iter().map(|(phase, count)| format!("{count} {}", phase.as_str()));
    let mut phases = counted.collect::<Vec<_>>().join(", ");
    if *endpoints > 0 {
        phases = format!("{endpoints_ready} of {endpoints} endpoints ready");
    }
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        kind.to_string(),
        targets.to_string(),
        total.to_string(),
        ready.to_string(),
        or_dash(phases),
        restarts.to_string(),
        or_dash(tally.why()),
    ]
}

impl TargetLine {
    /// A record that cannot be read as a whole is shown by its name.
    fn of(raw: Value) -> Self {
        let name = raw["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let status = decode::<SyncTarget>(raw).ok().and_then(|target| target.status).unwrap_or_default();
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready");
        Self {
            name,
            phase: status.phase,
            agent_version: status.agent_version,
            kubernetes_version: status.kubernetes_version,
            last_contact: status.last_contact.map(|time| time.0),
            held_deletions: status.held_deletions.unwrap_or_default(),
            instances: status.instances,
            ready: ready.map(|ready| ready.message).unwrap_or_default(),
        }
    }
}

impl Source {
    fn kind(&self) -> String {
        if self.api_group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.api_group) }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.kind(), self.namespace, self.name)
    }
}

/// The first of these names, and how many there are besides.
fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMESPACES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMESPACES_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// How long ago, in the one unit that says most.
fn ago(then: Timestamp, now: Timestamp) -> String {
    // A clock that was set back is no reason for a negative age.
    let seconds = now.duration_since(then).as_secs().max(0);
    let (number, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7_200 => (seconds / 60, "m"),
        7_200..172_800 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{number}{unit} ago")
}

#[cfg(test)]
mod tests;
