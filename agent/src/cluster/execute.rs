//! Carries out operations.
//!
//! | operation | requests at best | |
//! |---|---|---|
//! | Create | POST | what is there already is read and told; a Job that an earlier POST may have made and that is collected, before |
//! | DryRunCreate | POST (dry run) | under a name that the server makes |
//! | Apply | PATCH (apply) | pinned to a UID, so that it never creates |
//! | Apply, posted before | GET, PATCH, PATCH (apply) | our Update entry becomes an Apply entry first |
//! | Apply, fields exempt, or left as somebody made them | GET, PATCH (apply) | one PATCH more where fields change between our two managers |
//! | Apply, with replicas | LIST, PATCH (apply) | shared by all of a namespace: which workloads an autoscaler holds |
//! | Apply, adopting | PATCH (apply), PATCH | former writers' entries lose what we apply |
//! | TransferOwnership | GET, PATCH | label and annotation alone, if the object is still of the version that was read |
//! | ReTarget | GET, PATCH | the same, if it is as it was seen |
//! | Delete | DELETE | with the UID as precondition |
//! | Compare | GET | of what drifted and is to be reported only |
//! | Orphan | GET, PATCH | mark and managedFields entries go, data stays |
//!
//! Nothing here decides whether an operation is right, and nothing is tried again: both are the core's.

mod target;

use std::sync::Arc;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use tideline_common::{
    ApplyPolicy, Digest, Entry, FIELD_MANAGER, FIELD_MANAGER_INITIAL, Impersonation, MARK_ANNOTATION, MARK_LABEL, Mark,
    ObjectKey, Reason, Uid,
};

use super::autoscaled::Autoscaled;
use super::definition::Definition;
use super::discovery::{Kinds, Unresolved};
use super::exempt::{Exempt, Scaled};
use super::failure::{Failure, Refused};
use super::request::{JSON, Want, unreadable};
use super::resource::Resource;
use super::{Bodies, BodyError, Scope, compare, exempt, fields, inspect, render};
use crate::core::{
    Applied, ApplyTakeover, Compared, Created, Deleted, Earlier, Fate, Inspected, LocalField, Marked, NotDone,
    Observed, Op, OpResult, Orphaned, OwnershipTransferred,
};
use target::{REWRITE_ROUNDS_MAX, Target, is_missing};

/// Characters of a name that a dry run keeps.
const DRY_RUN_NAME_MAX: usize = 40;

/// Does what the core asks for, at one cluster.
pub struct Executor {
    client: Client,
    kinds: Arc<Kinds>,
    bodies: Arc<dyn Bodies>,
    autoscaled: Arc<Autoscaled>,
}

/// Why an operation on a certain object did not come to its end.
#[derive(Debug)]
enum Stopped {
    Refused(Refused),
    /// Something else is there, or nothing.
    Stale,
    /// It was changed since it was read: right again at the next try.
    Outdated,
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure.into())
    }
}

impl From<Refused> for Stopped {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<Stopped> for NotDone {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Refused(refused) => refused.failure().into(),
            Stopped::Stale => Self::Stale,
            Stopped::Outdated => Failure::unavailable("it was changed by another meanwhile").into(),
        }
    }
}

impl Executor {
    pub fn new(client: Client, kinds: Arc<Kinds>, bodies: Arc<dyn Bodies>) -> Self {
        let autoscaled = Arc::new(Autoscaled::new(client.clone()));
        Self { client, kinds, bodies, autoscaled }
    }

    /// Executes one operation to its end.
    pub async fn execute(&self, scope: Scope, op: &Op) -> OpResult {
        match op {
            Op::Create { entry, policy, mark, ran, earlier } => {
                let mut fate = Fate::NotDone;
                let created = self.create(&scope, (entry, policy, mark), *ran, *earlier, &mut fate).await;
                OpResult::Create(created.map_err(|refused| Failure { fate, ..refused.failure() }))
            }
            Op::DryRunCreate { entry, policy, mark } => {
                OpResult::DryRunCreate(self.dry_run_create(entry, policy, mark).await.map_err(Failure::from))
            }
            Op::Apply { entry, policy, mark, uid, takeover, local } => {
                let applied = self.apply(&scope, entry, policy, mark, uid, *takeover, local).await;
                OpResult::Apply(applied.map_err(NotDone::from))
            }
            Op::TransferOwnership { entry, mark, uid } => OpResult::TransferOwnership(
                self.transfer_ownership(&scope, entry, mark, uid).await.map_err(NotDone::from),
            ),
            Op::ReTarget { key, version, seen, mark, impersonate } => {
                let re_targeted = self.re_target(&scope, (key, version, impersonate.as_deref()), seen, mark).await;
                OpResult::ReTarget(re_targeted.map_err(NotDone::from))
            }
            Op::Delete { key, version, uid, impersonate } => {
                let deleted = self.delete(key, version, uid, impersonate.as_deref()).await;
                OpResult::Delete(deleted.map_err(NotDone::from))
            }
            Op::Orphan { key, version, uid, impersonate } => {
                let orphaned = self.orphan(&scope, (key, version, impersonate.as_deref()), uid).await;
                OpResult::Orphan(orphaned.map_err(NotDone::from))
            }
            Op::Inspect { key, version } => {
                OpResult::Inspect(self.inspect(&scope, key, version).await.map_err(Failure::from))
            }
            Op::Get { key, version } => OpResult::Get(self.get(&scope, key, version).await.map_err(Failure::from)),
            Op::Compare { entry, policy, mark, uid } => {
                OpResult::Compare(self.compare(&scope, entry, policy, mark, uid).await.map_err(NotDone::from))
            }
        }
    }

    async fn target<'a>(
        &'a self,
        key: &'a ObjectKey,
        version: &Arc<str>,
        impersonate: Option<&'a Impersonation>,
    ) -> Result<Target<'a>, Failure> {
        let resource = self.kinds.resolve(&key.kind, version).await.map_err(Unresolved::into_failure)?;
        self.target_of(key, resource, impersonate)
    }

    /// The object at any version at which it is served: not to be written in its own words.
    async fn target_at_any<'a>(
        &'a self,
        key: &'a ObjectKey,
        version: &Arc<str>,
        impersonate: Option<&'a Impersonation>,
    ) -> Result<Target<'a>, Failure> {
        let resource = self.kinds.find(&key.kind, version).await.map_err(Unresolved::into_failure)?;
        self.target_of(key, resource, impersonate)
    }

    /// The same, or none where the object is gone with its kind.
    async fn target_unless_gone<'a>(
        &'a self,
        key: &'a ObjectKey,
        version: &Arc<str>,
        impersonate: Option<&'a Impersonation>,
    ) -> Result<Option<Target<'a>>, Failure> {
        match self.target_at_any(key, version, impersonate).await {
            Err(failure) if failure.reason == Reason::KindMissing => {
                self.kinds.confirm_gone(&key.kind).await.map(|()| None)
            }
            target => target.map(Some),
        }
    }

    fn target_of<'a>(
        &'a self,
        key: &'a ObjectKey,
        resource: Arc<Resource>,
        impersonate: Option<&'a Impersonation>,
    ) -> Result<Target<'a>, Failure> {
        let path = resource.object(key)?;
        Ok(Target { executor: self, resource, key, path, impersonate })
    }

    fn rendered(&self, entry: &Entry, policy: &ApplyPolicy, mark: &Mark) -> Result<Value, Failure> {
        let text = self.bodies.body(entry.input).map_err(|error| match error {
            BodyError::Missing(why) => Failure::new(Reason::BodyMissing, why),
            BodyError::Unavailable(why) => Failure::unavailable(why),
        })?;
        render::render(&text, entry, &policy.additions, mark)
            .map_err(|error| Failure::new(Reason::Undecodable, error.to_string()))
    }

    /// `fate` is that of the POST, whatever else is asked.
    async fn create(
        &self,
        scope: &Scope,
        (entry, policy, mark): (&Entry, &ApplyPolicy, &Mark),
        ran: Option<Digest>,
        earlier: Earlier,
        fate: &mut Fate,
    ) -> Result<Created, Refused> {
        let target = self.target(&entry.key, &entry.version, entry.impersonate.as_deref()).await?;
        let object = self.rendered(entry, policy, mark)?;
        // As in an apply, whatever is left out of either.
        let template = pod_template(&entry.key, &object);
        let object = to_create(object, entry, policy, mark)?;
        if ran.is_some() && template == ran {
            return Err(Failure::new(Reason::Vanished, "it ran with this Pod template").into());
        }
        if earlier == Earlier::Unanswered && is_collected(&entry.key, &object) {
            return Ok(match target.read().await? {
                Some(object) => Created::Exists(target.decode(scope, object)?),
                None => Created::Vanished { template },
            });
        }
        let uri = format!("{}?fieldManager={FIELD_MANAGER}", target.resource.parent(&entry.key)?);
        match target.send(Method::POST, uri, JSON, &object).await {
            Ok(object) => {
                *fate = Fate::Unknown;
                self.after_write(&entry.key);
                Ok(Created::Made(target.observed(scope, object, template)?))
            }
            Err(refused) if refused.is_already_there() => match target.read().await? {
                Some(object) => Ok(Created::Exists(target.decode(scope, object)?)),
                // Deleted in between: creating is right again.
                None => Err(Failure::unavailable("it was there and is gone again").into()),
            },
            // An account that may not create namespaces need not: an administrator may create them for it.
            Err(refused) if entry.implied && refused.failure().is_refused() => {
                let own = Target { impersonate: None, ..target };
                match own.read().await? {
                    Some(object) => Ok(Created::Exists(own.decode(scope, object)?)),
                    None => Err(own.judge(refused)),
                }
            }
            Err(refused) => {
                *fate = refused.failure().fate;
                Err(target.judge(refused))
            }
        }
    }

    /// The existing object has its ports, addresses and quota, so a second one is refused: then it is not deleted.
    async fn dry_run_create(&self, entry: &Entry, policy: &ApplyPolicy, mark: &Mark) -> Result<(), Refused> {
        let target = self.target(&entry.key, &entry.version, entry.impersonate.as_deref()).await?;
        let mut object = to_create(self.rendered(entry, policy, mark)?, entry, policy, mark)?;
        // The server adds five characters; the shortest names of a kind, those of CronJobs, have 52.
        let name: String = entry.key.name.chars().take(DRY_RUN_NAME_MAX).collect();
        let name = name.trim_end_matches(|last: char| !last.is_alphanumeric());
        object["metadata"]["generateName"] = json!(format!("{name}-"));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("name");
        }
        let uri = format!("{}?fieldManager={FIELD_MANAGER}&dryRun=All", target.resource.parent(&entry.key)?);
        match target.send(Method::POST, uri, JSON, &object).await {
            Ok(_) => Ok(()),
            Err(refused) => Err(target.judge(refused)),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one operation and all it is of")]
    async fn apply(
        &self,
        scope: &Scope,
        entry: &Entry,
        policy: &ApplyPolicy,
        mark: &Mark,
        uid: &Uid,
        takeover: ApplyTakeover,
        local: &[LocalField],
    ) -> Result<Applied, Stopped> {
        let target = self.target(&entry.key, &entry.version, entry.impersonate.as_deref()).await?;
        let mut object = self.rendered(entry, policy, mark)?;
        let template = pod_template(&entry.key, &object);
        let scaled = self.scaled(&target, policy, &object).await?;
        let mut exempt = Exempt::new(policy, &object, scaled)?;
        exempt.leave(local, &object);
        if takeover == ApplyTakeover::Posted || !exempt.is_empty() {
            object = target.prepare(object, &exempt, uid).await?;
            complete(&mut object, entry, mark)?;
        }
        render::pin(&mut object, uid);
        let advised = |stopped| advised(stopped, policy);
        let (mut applied, mut conflicts) = target.apply(&object, policy.conflicts).await.map_err(advised)?;
        if exempt.is_empty() && fields::applies(applied.managed(), FIELD_MANAGER_INITIAL) {
            // Fields follow their source again; or it dropped them, and they stayed for the second manager's sake.
            target.divide(&applied, None).await?;
            (applied, conflicts) = target.apply(&object, policy.conflicts).await.map_err(advised)?;
        }
        if takeover == ApplyTakeover::Adopt {
            applied = target.claim_from_others(applied).await?;
        }
        self.after_write(&entry.key);
        Ok(Applied { observed: target.observed(scope, applied, template)?, conflicts })
    }

    /// Who decides about replicas, where the policy says nothing. Where autoscalers may not be listed, the object shows
    /// whether one did.
    async fn scaled(&self, target: &Target<'_>, policy: &ApplyPolicy, object: &Value) -> Result<Scaled, Refused> {
        let asked = target.key.is_namespaced() && exempt::is_left_to_presets(policy, object, exempt::REPLICAS);
        if !asked {
            return Ok(Scaled::BySource);
        }
        let by_autoscaler = if let Some(known) = self.autoscaled.holds(target.key).await? {
            known
        } else {
            let live = target.read_metadata().await?;
            live.is_some_and(|live| live.managed().iter().any(fields::is_autoscalers))
        };
        Ok(if by_autoscaler { Scaled::ByAutoscaler } else { Scaled::BySource })
    }

    async fn transfer_ownership(
        &self,
        scope: &Scope,
        entry: &Entry,
        mark: &Mark,
        uid: &Uid,
    ) -> Result<OwnershipTransferred, Stopped> {
        // No account needs a right to the namespaces that are only implied.
        let account = entry.impersonate.as_deref().filter(|_| !entry.implied);
        let target = self.target(&entry.key, &entry.version, account).await?;
        for _ in 0..REWRITE_ROUNDS_MAX {
            let live = target.read().await?.filter(|live| live.is(uid)).ok_or(Stopped::Stale)?;
            let there = target.decode(scope, live.clone())?;
            if there.deleting {
                return Ok(OwnershipTransferred::Finalizing);
            }
            if there.labelled && there.mark.as_deref() == Some(mark) {
                // Written before, by an agent that ended before it heard of that, or seen in an older list only.
                return Ok(OwnershipTransferred::Marked(there));
            }
            match target.rewrite(&live, live.managed(), &marked_with(mark)).await {
                Ok(marked) => return Ok(OwnershipTransferred::Marked(target.decode(scope, marked)?)),
                Err(Stopped::Outdated) => {}
                Err(Stopped::Refused(refused)) if entry.implied && refused.failure().is_refused() => {
                    // It stays there whatever its mark says.
                    return Ok(OwnershipTransferred::Marked(there));
                }
                Err(stopped) => return Err(stopped),
            }
        }
        Err(Stopped::Outdated)
    }

    async fn re_target(
        &self,
        scope: &Scope,
        (key, version, impersonate): (&ObjectKey, &Arc<str>, Option<&Impersonation>),
        seen: &Marked,
        mark: &Mark,
    ) -> Result<Box<Observed>, Stopped> {
        let target = self.target_at_any(key, version, impersonate).await?;
        for _ in 0..REWRITE_ROUNDS_MAX {
            let live = target.read().await?.filter(|live| live.is(&seen.uid)).ok_or(Stopped::Stale)?;
            let there = target.decode(scope, live.clone())?;
            let same = (there.generation, there.managed) == (seen.generation, seen.managed) && !there.deleting;
            if !same || there.mark.as_ref() != Some(&seen.mark) {
                return Err(Stopped::Stale);
            }
            match target.rewrite(&live, live.managed(), &marked_with(mark)).await {
                Ok(marked) => return Ok(target.decode(scope, marked)?),
                Err(Stopped::Outdated) => {}
                Err(stopped) => return Err(stopped),
            }
        }
        Err(Stopped::Outdated)
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        version: &Arc<str>,
        uid: &Uid,
        impersonate: Option<&Impersonation>,
    ) -> Result<Deleted, Stopped> {
        let Some(target) = self.target_unless_gone(key, version, impersonate).await? else { return Ok(Deleted::Gone) };
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": &*uid.text()},
            "propagationPolicy": "Background",
        });
        match target.send(Method::DELETE, target.path.clone(), JSON, &options).await {
            // Still there: the answer is the object as it waits. Otherwise it is a Status, or the object as it was.
            Ok(object) if object.metadata.deletion_timestamp.is_some() => Ok(Deleted::Finalizing),
            Ok(_) => Ok(Deleted::Gone),
            Err(refused) if refused.is_object_missing() => Ok(Deleted::Gone),
            Err(refused) if refused.failure().reason == Reason::NamespaceUnavailable && is_missing(&refused) => {
                Ok(Deleted::Gone)
            }
            // Perhaps it is served at another version by now.
            Err(refused) if refused.is_kind_missing() => Err(target.judge(refused).into()),
            Err(refused) if refused.is_stale() => Err(Stopped::Stale),
            Err(refused) => Err(refused.into()),
        }
    }

    async fn orphan(
        &self,
        scope: &Scope,
        (key, version, impersonate): (&ObjectKey, &Arc<str>, Option<&Impersonation>),
        uid: &Uid,
    ) -> Result<Orphaned, Stopped> {
        let Some(target) = self.target_unless_gone(key, version, impersonate).await? else { return Ok(Orphaned::Gone) };
        let Some(object) = target.read_metadata().await? else { return Ok(Orphaned::Gone) };
        // Under the same UID it may be another hub's since it was judged.
        if !object.is(uid) || target.decode(scope, object.clone())?.is_anothers(*scope) {
            return Err(Stopped::Stale);
        }
        let metadata = json!({
            "labels": {MARK_LABEL: null},
            "annotations": {MARK_ANNOTATION: null},
        });
        target.rewrite(&object, &fields::without_ours(object.managed()), &metadata).await?;
        Ok(Orphaned::Done)
    }

    async fn inspect(&self, scope: &Scope, key: &ObjectKey, version: &Arc<str>) -> Result<Inspected, Refused> {
        let target = self.target(key, version, None).await?;
        let Some(before) = target.read_as(Want::Whole).await? else { return Ok(Inspected::Gone) };
        let contents = if key.kind.is_namespace() {
            inspect::namespace(&self.client, scope, &key.name).await?
        } else if key.kind.is_definition() {
            let definition = Definition::of(&before).map_err(|error| unreadable(&error))?;
            inspect::definition(&self.client, scope, &definition).await?
        } else {
            // Nothing else holds objects.
            inspect::Contents::default()
        };
        let Some(after) = target.read().await? else { return Ok(Inspected::Gone) };
        if after.metadata.uid != before.metadata.uid {
            return Err(Failure::unavailable("it was replaced while its contents were listed").into());
        }
        let inspect::Contents { foreign, example, ours } = contents;
        Ok(Inspected::Holds { foreign, example, ours, itself: target.decode(scope, after)? })
    }

    async fn get(&self, scope: &Scope, key: &ObjectKey, version: &Arc<str>) -> Result<Option<Box<Observed>>, Refused> {
        let Some(target) = self.target_unless_gone(key, version, None).await? else { return Ok(None) };
        let object = target.read().await?;
        Ok(object.map(|object| target.decode(scope, object)).transpose()?)
    }

    /// Finds the fields in which an object differs from what was applied.
    async fn compare(
        &self,
        scope: &Scope,
        entry: &Entry,
        policy: &ApplyPolicy,
        mark: &Mark,
        uid: &Uid,
    ) -> Result<Compared, Stopped> {
        let target = self.target(&entry.key, &entry.version, entry.impersonate.as_deref()).await?;
        let mut assigned = self.rendered(entry, policy, mark)?;
        let template = pod_template(&entry.key, &assigned);
        let (live, found) = target.read_to_compare(Want::Whole, uid).await?;
        let scaled = self.scaled(&target, policy, &assigned).await?;
        let exempt = Exempt::new(policy, &assigned, scaled)?;
        if !exempt.is_empty() {
            exempt.take_out(&mut assigned, &found, live.managed())?;
            complete(&mut assigned, entry, mark)?;
        }
        let ours = fields::managed_by_us(live.managed())?;
        let compare::Differences { named, total, local } =
            compare::differences(&entry.key.kind, &assigned, &found, &ours);
        let now = jiff::Timestamp::now();
        let at = now.round(jiff::Unit::Second).unwrap_or(now).to_string().into();
        // What differs may be its Pod template.
        let template = template.filter(|_| total == 0);
        let observed = target.observed(scope, live, template)?;
        Ok(Compared { observed, differences: named, total, local: local.into(), at })
    }

    fn after_write(&self, key: &ObjectKey) {
        if key.kind.is_definition() {
            self.kinds.definitions_changed();
        }
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").finish_non_exhaustive()
    }
}

/// The metadata that says so.
fn marked_with(mark: &Mark) -> Value {
    json!({
        "labels": {MARK_LABEL: mark.target.to_string()},
        "annotations": {MARK_ANNOTATION: mark.encode()},
    })
}

/// The body of the POST that creates an object that is rendered so.
fn to_create(mut object: Value, entry: &Entry, policy: &ApplyPolicy, mark: &Mark) -> Result<Value, Failure> {
    // Whoever scales it later, it begins as its source says.
    let exempt = Exempt::new(policy, &object, Scaled::BySource)?;
    if !exempt.is_empty() {
        exempt.take_ignored(&mut object);
        complete(&mut object, entry, mark)?;
    }
    Ok(object)
}

/// Distinguishes two runs of a Job: a new label makes no new run.
fn pod_template(key: &ObjectKey, object: &Value) -> Option<Digest> {
    let template = object["spec"].get("template").filter(|_| key.kind.is_job())?;
    // Its fields are in the order of their names, whatever order they were written in.
    Some(Digest::of(template.to_string().as_bytes()))
}

/// Whether it is a Job that is deleted some time after it ended.
fn is_collected(key: &ObjectKey, object: &Value) -> bool {
    key.kind.is_job() && object["spec"]["ttlSecondsAfterFinished"].is_number()
}

fn complete(object: &mut Value, entry: &Entry, mark: &Mark) -> Result<(), Failure> {
    render::complete(object, entry, mark).map_err(|error| Failure::new(Reason::Undecodable, error.to_string()))
}

fn advised(stopped: Stopped, policy: &ApplyPolicy) -> Stopped {
    match stopped {
        Stopped::Refused(refused) if refused.failure().reason == Reason::Immutable => {
            refused.failure().with_advice(policy.recreate).into()
        }
        Stopped::Refused(_) | Stopped::Stale | Stopped::Outdated => stopped,
    }
}

#[cfg(test)]
mod tests;
