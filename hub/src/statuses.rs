//! Writes what came back into the spaces: the status of sources that are placed once, and of the hub's own kinds.
//!
//! Level-triggered: a dirty mark says only "look again". What is there already is not written, so a hub that restarts
//! writes nothing. What is written changes in the space, which the hub hears of as of all else there: so one object is written
//! once in five seconds at most, as it is then.

mod backlog;
mod describe;
mod pace;
mod retries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use serde::Serialize;
use serde_json::{Value, json};
use tideline_api::PlacementStatus;
use tideline_common::rollup::Freshness;
use tideline_common::wire::v1::Decommission;
use tideline_common::{Capability, Reason, SpaceName, TargetId, upgrade};
use tideline_runtime::exit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::backlog::Backlog;
pub(crate) use self::describe::Described;
use self::describe::{CONTACT_PERIOD, Outcome, describe};
use self::pace::Pace;
use self::retries::Retries;

use crate::duplicates;
use crate::engine::{Dirty, Engine, KeptCounts, SourceSeen, status_digest};
use crate::last_contact;
use crate::ledger::TargetView;
use crate::patch::{self, Form};
use crate::placement::{LocationSummary, PlacementProblem, PlacementSummary, SourceId};
use crate::shared::Shared;
use crate::summary::{TargetReports, Waiting};

/// From news to the writes that it makes. What is on its way to a target comes first; and of what changes again within that
/// time only the last is written. Nobody who looks at a status notices.
const SETTLES_IN: Duration = Duration::from_millis(100);
/// Statuses of sources that are on their way at once: what the API server of a space writes in one transaction.
const SOURCES_AT_ONCE: usize = 8;
/// Sources of which the statuses are written before SyncTargets are looked at again: a fraction of a second.
const SOURCES_IN_A_PASS: usize = 256;
/// Bytes of a condition's message, by the Kubernetes conventions.
const CONDITION_MESSAGE_MAX: usize = 32 * 1024;

/// Clients of the spaces that statuses are written into.
pub(crate) type Clients = BTreeMap<SpaceName, Client>;

/// Writes until `shutdown`.
pub(crate) async fn run(
    shared: Shared,
    clients: Clients,
    shutdown: CancellationToken,
) -> Result<(), std::convert::Infallible> {
    let mut writer = Writer {
        shared,
        clients,
        targets: BTreeMap::new(),
        contacts_at: Instant::now(),
        described: BTreeMap::new(),
        retries: ByKind::default(),
        paces: Paces::default(),
        backlog: Backlog::default(),
    };
    loop {
        writer.pass().await;
        if !writer.backlog.is_empty() {
            if shutdown.is_cancelled() {
                return Ok(());
            }
            continue;
        }
        let again = [writer.retries.next(), writer.paces.next(), Some(Instant::now() + CONTACT_PERIOD)];
        let again = again.into_iter().flatten().min();
        let news = async {
            tokio::select! {
                () = writer.shared.statuses() => tokio::time::sleep(SETTLES_IN).await,
                () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)) => {}
            }
        };
        if shutdown.run_until_cancelled(news).await.is_none() {
            return Ok(());
        }
    }
}

struct Writer {
    shared: Shared,
    clients: Clients,
    /// What was last written of each target, without the time of contact.
    targets: BTreeMap<TargetId, Value>,
    /// When the times of contact were last looked at.
    contacts_at: Instant,
    /// What was last written of each Placement, Location and Space.
    described: BTreeMap<Described, Value>,
    retries: ByKind,
    paces: Paces,
    backlog: Backlog,
}

/// What could not be written, and when that is tried again: who reports makes no write happen that fails.
#[derive(Debug, Default)]
struct ByKind {
    sources: Retries<SourceId>,
    targets: Retries<TargetId>,
    described: Retries<Described>,
}

impl ByKind {
    fn next(&self) -> Option<Instant> {
        [self.sources.next(), self.targets.next(), self.described.next()].into_iter().flatten().min()
    }
}

/// What was written lately, and may not be again yet.
#[derive(Debug, Default)]
struct Paces {
    sources: Pace<SourceId>,
    targets: Pace<TargetId>,
    described: Pace<Described>,
}

impl Paces {
    fn next(&self) -> Option<Instant> {
        [self.sources.next(), self.targets.next(), self.described.next()].into_iter().flatten().min()
    }
}

/// A status that is to be written.
struct SourceWrite {
    seen: SourceSeen,
    status: Option<Value>,
}

impl Writer {
    /// Looks once at everything that is dirty, and at what failed before and is due.
    async fn pass(&mut self) {
        let Dirty { sources, mut targets, described } = self.shared.read_mut(Engine::take_dirty);
        if self.contacts_at.elapsed() >= CONTACT_PERIOD {
            self.contacts_at = Instant::now();
            targets.extend(std::mem::take(&mut self.targets).into_keys());
        }
        let now = Instant::now();
        targets.extend(self.paces.targets.take_due(now));
        let waited = self.paces.sources.take_due(now);
        self.backlog.add(self.retries.sources.due(now, sources.into_iter().chain(waited)));
        for target in self.retries.targets.due(now, targets) {
            match self.write_target(target).await {
                Ok(()) => {}
                Err(error) if is_gone(&error) => {}
                Err(error) if is_final(&error) => {
                    warn!(sync_target = %target, error = exit::chain(&error), "the status of a SyncTarget is refused, and stays as it was");
                }
                Err(error) => {
                    warn!(sync_target = %target, error = exit::chain(&error), "cannot write the status of a SyncTarget; trying again");
                    self.retries.targets.failed(Instant::now(), target);
                    continue;
                }
            }
            self.retries.targets.ended(&target);
        }
        let waited = !self.paces.described.take_due(now).is_empty();
        if described || waited || self.retries.described.next().is_some_and(|at| at <= now) {
            self.write_described().await;
        }
        self.write_sources().await;
    }

    /// Writes some of the statuses that wait, several at once.
    async fn write_sources(&mut self) {
        let mut writes = Vec::new();
        for id in self.backlog.take(SOURCES_IN_A_PASS) {
            let now = Instant::now();
            if !self.retries.sources.is_due(now, &id) {
                continue;
            }
            match self.shared.read(|engine| plan(engine, &id)) {
                // What is not so any more is taken back at once.
                Some(write) if write.status.is_none() || self.paces.sources.may(now, &id) => writes.push((id, write)),
                Some(_) | None => self.retries.sources.ended(&id),
            }
        }
        let this = &*self;
        let writing = writes.into_iter().map(|(id, write)| async move {
            let written = this.write_source(&id, &write).await;
            (id, written)
        });
        let written: Vec<_> = stream::iter(writing).buffer_unordered(SOURCES_AT_ONCE).collect().await;
        for (id, written) in written {
            let now = Instant::now();
            match written {
                Ok(()) => {}
                Err(error) if is_final(&error) => {
                    debug!(source = %id.uid, error = exit::chain(&error), "a status cannot be written into its source");
                }
                Err(error) => {
                    warn!(space = %id.space, error = exit::chain(&error), "cannot write a status; trying again");
                    self.retries.sources.failed(now, id);
                    continue;
                }
            }
            self.retries.sources.ended(&id);
            // One that is refused was a request, too.
            self.paces.sources.wrote(now, id);
        }
    }

    async fn write_source(&self, id: &SourceId, write: &SourceWrite) -> Result<(), kube::Error> {
        let Some(client) = self.clients.get(&id.space) else { return Ok(()) };
        let SourceWrite { seen, status } = write;
        let empty = json!({});
        let steps = json!([
            patch::test(&["metadata", "uid"], &json!(id.uid)),
            patch::add(&["status"], status.as_ref().unwrap_or(&empty)),
        ]);
        let root = if id.resource.group.is_empty() {
            format!("/api/{}", seen.version)
        } else {
            format!("/apis/{}/{}", id.resource.group, seen.version)
        };
        let namespace =
            if seen.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", seen.namespace) };
        let path = format!("{root}{namespace}/{}/{}/status", id.resource.resource, seen.name);
        patch::send(client, &path, Form::Json, &steps).await.map(|_: Value| ())
    }

    /// Brings the statuses of all Placements, Locations and Spaces up to date. There are few, and each is cheap to describe.
    async fn write_described(&mut self) {
        let described: BTreeMap<_, _> = self.shared.read(|engine| {
            let kept = engine.kept_counts();
            let placements = self.clients.keys().flat_map(|space| placement_statuses(engine, space, &kept));
            placements.chain(location_statuses(engine)).chain(space_statuses(engine, &self.clients, &kept)).collect()
        });
        self.described.retain(|what, _| described.contains_key(what));
        self.retries.described.retain(|what| described.contains_key(what));
        for (what, status) in described {
            let Some(client) = self.clients.get(&what.space) else { continue };
            if self.described.get(&what) == Some(&status) {
                self.retries.described.ended(&what);
                continue;
            }
            if !self.retries.described.is_due(Instant::now(), &what) {
                continue;
            }
            if !self.paces.described.may(Instant::now(), &what) {
                self.retries.described.ended(&what);
                continue;
            }
            let (resource, name) = (what.resource, &what.name);
            match describe(client, &what, &status, None).await {
                Ok(Outcome::Written) => self.paces.described.wrote(Instant::now(), what.clone()),
                Ok(Outcome::Same) => {}
                Err(error) if is_gone(&error) => {
                    self.retries.described.ended(&what);
                    continue;
                }
                Err(error) if is_final(&error) => {
                    warn!(resource, name, error = exit::chain(&error), "a status is refused, and stays as it was");
                }
                Err(error) => {
                    warn!(resource, name, error = exit::chain(&error), "cannot write a status; trying again");
                    self.retries.described.failed(Instant::now(), what);
                    continue;
                }
            }
            self.retries.described.ended(&what);
            self.described.insert(what, status);
        }
    }

    /// Writes one, unless it was written lately: then it waits for its time.
    async fn write_target(&mut self, target: TargetId) -> Result<(), kube::Error> {
        let Some(client) = self.clients.get(&SpaceName::root()) else { return Ok(()) };
        let (now, clock) = (self.shared.now(), Timestamp::now());
        let (described, contact) =
            self.shared.read(|engine| (target_status(engine, target), last_contact::heard(engine, target, now, clock)));
        let Some((what, status)) = described else {
            self.targets.remove(&target);
            return Ok(());
        };
        if self.targets.get(&target) == Some(&status) || !self.paces.targets.may(Instant::now(), &target) {
            return Ok(());
        }
        let written = describe(client, &what, &status, contact).await;
        if matches!(written, Ok(Outcome::Written)) {
            self.paces.targets.wrote(Instant::now(), target);
        }
        if written.as_ref().err().is_none_or(is_final) {
            // One that is refused is said once, and tried again when it is another.
            self.targets.insert(target, status);
        }
        written.map(|_outcome| ())
    }
}

/// What is to be written for a source, if anything.
fn plan(engine: &Engine, id: &SourceId) -> Option<SourceWrite> {
    let seen = engine.sources.get(id)?;
    let status = engine.status_of(id)?;
    let wanted = status.as_ref().and_then(status_digest);
    // What is not ours and not to be there was written by somebody in the space: it stays.
    let differs = wanted != seen.status && (wanted.is_some() || seen.ours);
    differs.then(|| SourceWrite { seen: seen.clone(), status })
}

fn placement_statuses(engine: &Engine, space: &SpaceName, kept: &KeptCounts) -> Vec<(Described, Value)> {
    let described = engine.index.placements(space).filter_map(|name| {
        let status = placement_status(&engine.index.placement_status(space, name)?, kept.of_placement(space, name));
        Some((Described { space: space.clone(), resource: "placements", name: name.to_owned() }, status))
    });
    described.collect()
}

fn placement_status(summary: &PlacementSummary, kept: u64) -> Value {
    let shown = |problem: &PlacementProblem| {
        let message = cut(&problem.message, PlacementStatus::PROBLEM_MESSAGE_MAX);
        let mut shown = json!({"reason": problem.reason, "message": message});
        if let Some(object) = &problem.object {
            shown["object"] = json!(object.to_string());
        }
        shown
    };
    let problems: Vec<_> = summary.problems.iter().map(shown).collect();
    // One line for all that is wrong with the Placement itself; else for the first of its objects.
    let own = summary.problems.iter().filter(|problem| problem.object.is_none());
    let own: Vec<_> = own.map(|problem| problem.message.as_str()).collect();
    let problem = summary.problems.first().map(|first| {
        let message = if first.object.is_some() { first.message.clone() } else { own.join("; and ") };
        (first.reason, message)
    });
    json!({
        "observedGeneration": summary.generation,
        "targets": summary.targets,
        "objects": summary.objects,
        "problems": problems,
        "conditions": std::iter::once(ready(summary.generation, problem))
            .chain(waiting(kept))
            .chain(not_served(&summary.without_effect))
            .collect::<Vec<_>>(),
    })
}

/// Every space says what waits in it: the Placement that placed it may be gone.
fn space_statuses(engine: &Engine, served: &Clients, kept: &KeptCounts) -> Vec<(Described, Value)> {
    let described = engine.index.spaces().map(|space| {
        let conditions: Vec<_> =
            [Some(is_served(space, served)), waiting(kept.of_space(space)), unreadable(engine, space)]
                .into_iter()
                .flatten()
                .collect();
        let status = json!({"placements": engine.index.placements(space).count(), "conditions": conditions});
        (Described { space: SpaceName::root(), resource: "spaces", name: space.to_string() }, status)
    });
    described.collect()
}

/// That fields say something which this hub does not do.
fn not_served(fields: &[impl AsRef<str>]) -> Option<Value> {
    const NAMED_MAX: usize = 5;
    let named: Vec<_> = fields.iter().take(NAMED_MAX).map(AsRef::as_ref).collect();
    let more = match fields.len() {
        0 => return None,
        count if count > NAMED_MAX => format!(" and {} more", count - NAMED_MAX),
        _ => String::new(),
    };
    let message = format!("without effect in this version of the hub: {}{more}", named.join(", "));
    Some(condition("NotServed", ("True", "NotServed"), &message))
}

/// That something is there which cannot be read.
fn unreadable(engine: &Engine, space: &SpaceName) -> Option<Value> {
    Some(condition("Unreadable", ("True", Reason::Undecodable), &engine.unreadable(space)?))
}

/// Whether the hub reads a space at all: an object alone makes none.
fn is_served(space: &SpaceName, served: &Clients) -> Value {
    if served.contains_key(space) {
        return condition("Ready", ("True", "Served"), "");
    }
    let known: Vec<_> = served.keys().map(SpaceName::as_str).collect();
    let message = format!("this hub serves the spaces {} alone; nothing is read from this one", known.join(" and "));
    condition("Ready", ("False", "NotServed"), &message)
}

/// That assignments which nothing wants any more wait for a person.
fn waiting(kept: u64) -> Option<Value> {
    (kept > 0).then(|| {
        let message = format!(
            "{kept} assignments that nothing wants any more are kept, for they are many at once: tideline-hub \
             approve-unassignments"
        );
        condition("UnassignmentsHeld", ("True", Reason::FuseHeld), &message)
    })
}

fn location_statuses(engine: &Engine) -> Vec<(Described, Value)> {
    let described = engine.index.locations().filter_map(|name| {
        let LocationSummary { generation, targets, problem } = engine.index.location_status(name)?;
        let status = json!({
            "observedGeneration": generation, "targets": targets, "conditions": [ready(generation, problem)],
        });
        Some((Described { space: SpaceName::root(), resource: "locations", name: name.to_owned() }, status))
    });
    described.collect()
}

/// The condition of a Placement or a Location: it selects something, or what to do so that it does.
fn ready(generation: i64, problem: Option<(Reason, String)>) -> Value {
    let mut ready = match problem {
        None => condition("Ready", ("True", "Resolved"), ""),
        Some((reason, message)) => condition("Ready", ("False", reason), &message),
    };
    ready["observedGeneration"] = json!(generation);
    ready
}

/// Every condition is made here: a status with a message that its field does not take is refused as a whole.
fn condition(kind: impl Serialize, (status, reason): (&str, impl Serialize), message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": cut(message, CONDITION_MESSAGE_MAX)})
}

/// The beginning of a text, in as many bytes as its field takes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

pub(crate) fn target_status(engine: &Engine, target: TargetId) -> Option<(Described, Value)> {
    let Some(outline) = engine.targets.get(target) else { return shut_out(engine, target) };
    let freshness = engine.freshness(target);
    let instances = engine.link.holder(target).map(duplicates::instances).unwrap_or_default();
    let phase = match freshness {
        Freshness::Fresh if !instances.is_empty() => "DuplicateAgent",
        Freshness::Fresh => "Ready",
        Freshness::Stale => "Stale",
        Freshness::Unheard if outline.facts.agent_version.is_empty() => "Pending",
        Freshness::Unheard => "Unknown",
    };
    let desired = engine.ledger.target(target).map(|view| view.version());
    let applied = engine.summary.target(target).and_then(TargetReports::applied);
    let mut status = json!({"phase": phase});
    if !outline.facts.agent_version.is_empty() {
        status["agentVersion"] = json!(outline.facts.agent_version);
        status["kubernetesVersion"] = json!(outline.facts.kubernetes_version);
    }
    for (field, version) in [("desired", desired), ("applied", applied)] {
        if let Some(version) = version {
            status[field] = json!({"epoch": version.epoch, "revision": version.revision});
        }
    }
    let ready = match freshness {
        Freshness::Fresh if !instances.is_empty() => {
            let message = "another agent lives with the identity of this target";
            condition("Ready", ("False", Reason::DuplicateAgent), message)
        }
        Freshness::Fresh => condition("Ready", ("True", "InSync"), ""),
        Freshness::Stale => {
            let message = "no contact in time that says its view of its cluster is in sync";
            condition("Ready", ("False", Reason::Stale), message)
        }
        Freshness::Unheard => condition("Ready", ("Unknown", "Unheard"), ""),
    };
    let mut problems: BTreeMap<Reason, &str> = BTreeMap::new();
    for told in engine.summary.target(target).into_iter().flat_map(TargetReports::conditions) {
        problems.entry(told.reason).or_insert(&told.message);
    }
    let seen = outline.problems.iter().filter(|problem| **problem != Reason::AgentTooOld);
    problems.extend(seen.map(|problem| (*problem, what_to_do(*problem))));
    let waiting = engine.waiting_for_approval(target);
    let too_old = too_old(engine, target, outline.record.decommission, waiting);
    if let Some(too_old) = &too_old {
        problems.insert(Reason::AgentTooOld, too_old);
    }
    let cannot_come = engine
        .upgrade_before_it_comes(target)
        .map(|what| format!("the adopted agent stays frozen until it is upgraded: {what}"));
    if let Some(cannot_come) = &cannot_come {
        problems.insert(Reason::AgentTooOld, cannot_come);
    }
    let broken = engine.history_sentence(target);
    if let Some(broken) = &broken {
        problems.insert(Reason::HistoryLost, broken);
    } else if waiting.is_some_and(|waiting| waiting.unexplained > 0) {
        // Until nothing is held for it any more, also where a person has accepted it.
        problems.entry(Reason::HistoryLost).or_insert(what_to_do(Reason::HistoryLost));
    }
    if waiting.is_some_and(|waiting| waiting.restored > 0) {
        problems.insert(Reason::Restored, what_to_do(Reason::Restored));
    }
    let problems = problems.into_iter().map(|(problem, message)| condition(problem, ("True", problem), message));
    let name = outline.record.name.clone();
    let held = waiting.filter(|waiting| waiting.total() > 0).map(|waiting| {
        let reason = match waiting {
            Waiting { unexplained: 1.., .. } => Reason::HistoryLost,
            Waiting { restored: 1.., .. } => Reason::Restored,
            Waiting { .. } => Reason::FuseHeld,
        };
        let message = format!(
            "deletions that wait for an approval: {}. See: tideline-hub approve-deletions {name}",
            waiting.total()
        );
        condition("DeletionsHeld", ("True", reason), &message)
    });
    let may_have_run = waiting.filter(|waiting| waiting.may_have_run > 0).map(|waiting| {
        let message = format!(
            "{} objects run once and were assigned before history was lost; nobody knows whether they have run. To let them \
             run: tideline-hub release {name} --reason MayHaveRun",
            waiting.may_have_run
        );
        condition(Reason::MayHaveRun, ("True", Reason::MayHaveRun), &message)
    });
    if let Some(waiting) = waiting {
        status["heldDeletions"] = json!(waiting.total());
    }
    // Said also where there is one alone: what a merge patch leaves out stays as it was.
    status["instances"] = if instances.is_empty() { Value::Null } else { json!(instances) };
    let duplicate = (!instances.is_empty()).then(|| {
        let several = Reason::DuplicateAgent;
        condition(several, ("True", several), &duplicates::describe(&name, &instances))
    });
    let decommissioned = if engine.ledger.leaving_is_unexplained(target) {
        Some(leaving_waits())
    } else {
        decommissioned(engine, target, outline.record.decommission, freshness)
    };
    // What the hub says itself is first.
    let not_served = not_served(&outline.record.without_effect);
    let own = [Some(ready), decommissioned, duplicate, held, may_have_run, not_served].into_iter().flatten();
    status["conditions"] = by_type(own.chain(problems)).into();
    Some((Described { space: SpaceName::root(), resource: "synctargets", name }, status))
}

/// The first condition of each type: the list is a map by type, and with one that comes twice it would be refused.
fn by_type(conditions: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    conditions.into_iter().filter(|condition| seen.insert(condition["type"].to_string())).collect()
}

/// Of a target whose agent may not speak for it any more. What it last reported is not known to be so, and stays.
fn shut_out(engine: &Engine, target: TargetId) -> Option<(Described, Value)> {
    let remembered = engine.remembered(target).filter(|remembered| remembered.deleted.is_none())?;
    let why = remembered.refusal()?.message;
    let name = remembered.name.clone();
    // A token would revoke the key of an agent whose SyncTarget merely lacks it.
    let (reason, token) = if remembered.is_revoked() {
        ("Revoked", format!(". To let it in again: tideline-hub token create {name}"))
    } else {
        ("Withdrawn", String::new())
    };
    let message = format!("{why}; what was placed there stays as it is{token}");
    let ready = condition("Ready", ("False", reason), &message);
    let status = json!({"phase": "Revoked", "instances": null, "conditions": [ready]});
    Some((Described { space: SpaceName::root(), resource: "synctargets", name }, status))
}

/// What the agent of a target does not understand, of what it would have to, and what is withheld from it therefore.
fn too_old(engine: &Engine, target: TargetId, decommission: Decommission, waiting: Option<Waiting>) -> Option<String> {
    let view = engine.ledger.target(target)?;
    let (withheld, mut missing) = view.too_old_for();
    let others = [
        (Capability::Decommission, decommission != Decommission::No),
        (Capability::Approvals, waiting.is_some_and(|waiting| waiting.total() > 0)),
        (Capability::Releases, engine.releases_at(target)),
    ];
    missing.extend(others.into_iter().filter(|(it, wanted)| *wanted && !view.understands(*it)).map(|(it, _)| it));
    let what = upgrade(&missing);
    (!missing.is_empty()).then(|| format!("objects withheld, and left as they are: {withheld}; {what}"))
}

/// What is to be known of a problem that the link found.
fn what_to_do(problem: Reason) -> &'static str {
    match problem {
        Reason::Quarantined => {
            "its identity was used from another cluster than the one that enrolled, and refused there; the log of the hub \
             names that one. If the cluster was built anew: kubectl --context root annotate synctarget NAME --overwrite \
             tideline.dev/cluster=UID"
        }
        Reason::TooMuchReported => {
            "its agent says more than is assigned to it, or more at once than an agent does; what is too much is dropped, and \
             others are not affected. If that agent is as it should be, somebody else may have its key"
        }
        Reason::ClockImplausible => {
            "the clock of its agent's machine is more than a day from this hub's; set the one that is wrong, as by NTP. Where \
             only the system's authorities certify the hub or the API server, the agent does not reach it by such a clock"
        }
        Reason::HistoryLost => {
            "its cluster holds what this hub does not know of; that stays until its deletion is approved: tideline-hub \
             approve-deletions NAME --reason HistoryLost; or until it is let go of: tideline-hub release NAME --reason HistoryLost"
        }
        Reason::Restored => {
            "objects came back that nothing assigns: from a backup, or because the API server was set back. They stay until their \
             deletion is approved: tideline-hub approve-deletions NAME --reason Restored; or until they are let go of: \
             tideline-hub release NAME --reason Restored"
        }
        _ => "see the log of the hub",
    }
}

/// A target that was to leave service before a person accepted that history was lost.
fn leaving_waits() -> Value {
    let message = "this was said before history was accepted, and may have been taken back by what was lost: its agent is not \
                   told. Set spec.decommission to null, and then again to what is meant";
    condition("Decommissioned", ("False", Reason::HistoryLost), message)
}

/// The condition of a target that goes out of service: how far it is, and whether it has.
fn decommissioned(engine: &Engine, target: TargetId, how: Decommission, freshness: Freshness) -> Option<Value> {
    let (doing, done, end) = match how {
        Decommission::No => return None,
        Decommission::Remove => {
            ("Removing", "Removed", "what was placed there is removed, or orphaned where its policy says so")
        }
        Decommission::Keep | Decommission::Unknown => {
            ("LettingGo", "Kept", "all that was placed there stays, and is not managed any more")
        }
    };
    let view = engine.ledger.target(target);
    let assigned = view.as_ref().map_or(0, TargetView::len);
    let removing = view.map_or(0, |view| view.tombstones().count());
    let reports = engine.summary.target(target);
    let told = reports.and_then(TargetReports::decommission).filter(|report| report.how == how);
    if engine.is_decommissioned(target, how) {
        let message = format!("{end}; the SyncTarget may be deleted");
        return Some(condition("Decommissioned", ("True", done), &message));
    }
    let left =
        told.map_or(assigned + removing, |report| usize::try_from(report.left).unwrap_or(usize::MAX).max(removing));
    let held = reports.map_or(0, TargetReports::held_count);
    let mut message = format!("{left} objects are left");
    if let Some(one) = reports.and_then(|reports| reports.held().next()) {
        let reason = one.reason.unwrap_or(Reason::Unknown);
        message = format!("{message}, {held} of them held, such as {}: {reason} {}", one.key, one.message);
    }
    if freshness != Freshness::Fresh {
        message = format!("{message}; its agent has not been heard, and goes on when it can");
    }
    Some(condition("Decommissioned", ("False", doing), message.trim_end()))
}

/// Whether trying again is of no use: the object or its status subresource is not there or cannot be read, or the space
/// refuses the status as such, for what it says, how deep it is or how large.
fn is_final(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    [400, 404, 405, 409, 413, 422].contains(&status.code) || status.reason == "StorageReadError"
}

/// Whether there is nothing that has a status.
fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests;
