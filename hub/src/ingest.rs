//! Tells the engine what spaces hold. Reads events, decodes what the hub itself understands, decides nothing.

mod unread;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use tideline_api::{
    DeletionApproval, HistoryAcceptance, Location, Placement, Poll, Selector, Space, SyncTarget, SyncTargetSpec,
    UnassignmentApproval, decode,
};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::Decommission;
use tideline_common::{GroupKind, Monotonic, ObjectKey, Revision, SpaceName, TargetId, Uid};
use tideline_runtime::exit;
use tideline_runtime::health::ReadinessGate;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::unread::Unread;
use crate::clean::{self, Labels, Refusal};
use crate::duplicates::ACCEPTED_ANNOTATION;
use crate::engine::{Deletion, Engine, SourceSeen, TargetRecord};
use crate::enrol::{ADOPTS_ANNOTATION, AGENT_KEY_ANNOTATION, CLUSTER_ANNOTATION, REVOKED_KEYS_ANNOTATION, read_adopts};
use crate::history;
use crate::placement::{Part, PlacementRule, SourceId, SpaceRule, Target};
use crate::removals::approve;
use crate::removals::release::RELEASED_ANNOTATION;
use crate::shared::Shared;
use crate::spaces::{SourceEvent, SpaceResource, SpaceSource};

/// The task that reads one source of spaces.
pub(crate) struct Ingest {
    shared: Shared,
    /// Dropped when everything was read once.
    ready: Option<ReadinessGate>,
    /// The UIDs, by name, of what the engine knows by those alone: where an object cannot be read, its name says which it is.
    uids: BTreeMap<(SpaceResource, String), Uid>,
    /// Of such objects those that cannot be read and of which this run does not know the UID.
    unknown: BTreeSet<(SpaceResource, String)>,
    unread: Unread,
}

/// What a resource is to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Targets,
    Locations,
    Spaces,
    Placements,
    Approvals,
    Releases,
    Acceptances,
    /// To be placed.
    Objects,
    /// Nothing that placement looks at.
    Other,
}

impl Role {
    fn is_known_by_uid(self) -> bool {
        matches!(self, Self::Targets | Self::Approvals | Self::Acceptances)
    }
}

impl Ingest {
    pub(crate) fn new(shared: Shared, ready: ReadinessGate) -> Self {
        Self { shared, ready: Some(ready), uids: BTreeMap::new(), unknown: BTreeSet::new(), unread: Unread::default() }
    }

    /// Reads until `shutdown`, or until the source ends.
    pub(crate) async fn run(
        mut self,
        mut source: impl SpaceSource,
        shutdown: CancellationToken,
    ) -> Result<(), Infallible> {
        while let Some(Some(event)) = shutdown.run_until_cancelled(source.next()).await {
            self.take(event);
        }
        Ok(())
    }

    fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Object { of, object } => self.object(&of, &object),
            SourceEvent::Unreadable { of, key, why } => self.unreadable(&of, &key, &why),
            SourceEvent::Deleted { of, key, uid } => self.deleted(&of, &key, uid),
            SourceEvent::Listed(of) | SourceEvent::Gone(of) => {
                self.unread.end(&of);
                // While one is there that may be any, none that was heeded is taken for gone.
                let any_is_unknown = || self.unknown.iter().any(|(resource, _)| *resource == of);
                if role(&of) != Role::Acceptances || !any_is_unknown() {
                    self.shared.ingest(|engine, now| listed(engine, now, &of));
                }
                if role(&of) == Role::Placements {
                    // The last of what placement waits for in the spaces that every hub has.
                    self.ready = None;
                }
            }
            SourceEvent::Unlisted(of) => {
                self.unread.end_with_nameless(&of);
                self.shared.ingest(|engine, now| unlisted(engine, now, &of));
                if role(&of) == Role::Placements {
                    self.ready = None;
                }
            }
            SourceEvent::Lost { of, why } => {
                tracing::debug!(space = %of.space, resource = %of.resource, why, "a resource is read anew");
                self.unknown.retain(|(resource, _)| *resource != of);
                self.unread.begin(&of);
                self.shared.ingest(|engine, _| reset(engine, &of));
            }
        }
        for (space, said) in self.unread.take_news() {
            self.shared.ingest(|engine, _| engine.unreadable_in(space, said));
        }
    }

    fn object(&mut self, of: &SpaceResource, object: &Value) {
        let uid = match uid(object) {
            Ok(uid) => uid,
            Err(why) => return self.without_identity(of, object, &why),
        };
        self.unread.readable(of, object);
        let name = || object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let was_unknown = self.names(of, name(), &uid);
        match role(of) {
            Role::Targets => match (decode::<SyncTarget>(object.clone()), uid.text().parse::<TargetId>()) {
                (Ok(target), Ok(id)) => self.target(id, &target),
                (Err(error), Ok(id)) => {
                    let (name, error) = (name(), exit::chain(&error));
                    warn!(sync_target = name, error, "a SyncTarget cannot be read; what is known of it stays");
                    self.unread.unreadable(of, ("", &name), &error);
                    self.shared.ingest(|engine, now| {
                        engine.call_target(now, id, &name);
                        engine.target_unreadable(now, id);
                    });
                }
                (_, Err(error)) => {
                    warn!(
                        sync_target = name(),
                        error = exit::chain(&error),
                        "a SyncTarget has a UID that none can have"
                    );
                }
            },
            Role::Locations => {
                let decoded = decode::<Location>(object.clone()).map_err(|error| error.to_string());
                let read = decoded.and_then(|location| {
                    let selector = Selector::try_from(&location.spec.instance_selector);
                    let selector = selector.map_err(|error| exit::chain(&error))?;
                    Ok((location.metadata.labels.unwrap_or_default(), selector))
                });
                self.shared.ingest(|engine, _| {
                    engine.index.apply_location(&name(), read);
                    engine.index.location_generation(&name(), generation(object));
                });
            }
            Role::Spaces => {
                if let Err(error) = self.space(object, &name()) {
                    self.unread.unreadable(of, ("", &name()), &error);
                }
            }
            Role::Placements => {
                let rule =
                    decode::<Placement>(object.clone()).map_err(|error| error.to_string()).and_then(|placement| {
                        PlacementRule::try_from(&placement.spec).map_err(|error| exit::chain(&error))
                    });
                self.shared.ingest(|engine, _| {
                    engine.index.apply_placement(&of.space, &name(), uid, rule);
                    engine.index.placement_generation(&of.space, &name(), generation(object));
                });
            }
            // What was accepted or assigned meanwhile could not be struck from it.
            Role::Approvals if was_unknown => self.approval_unreadable(&name(), &uid, "it could not be read before"),
            Role::Approvals => self.approval(uid, object),
            Role::Releases => match decode::<UnassignmentApproval>(object.clone()) {
                Ok(approval) => {
                    let revisions = approval.spec.revisions.into_iter().filter_map(|number| u64::try_from(number).ok());
                    self.shared.step(|engine, _| engine.release(&revisions.map(Revision).collect()));
                }
                Err(error) => warn!(error = exit::chain(&error), "an UnassignmentApproval cannot be read"),
            },
            Role::Acceptances => match decode::<HistoryAcceptance>(object.clone()) {
                Ok(acceptance) => {
                    self.shared.step(|engine, _| engine.history_accepted(uid, history::read(&acceptance.spec)));
                }
                Err(error) => {
                    warn!(error = exit::chain(&error), "a HistoryAcceptance cannot be read");
                    self.shared.step(|engine, _| engine.acceptance_unreadable(uid));
                }
            },
            Role::Objects => self.source(of, object),
            Role::Other => {}
        }
    }

    /// Remembers how an object is called that is known by its UID alone. Says whether it was there before and could not be
    /// told apart.
    fn names(&mut self, of: &SpaceResource, name: String, uid: &Uid) -> bool {
        if !role(of).is_known_by_uid() {
            return false;
        }
        let named = (of.clone(), name);
        let was_unknown = self.unknown.remove(&named);
        self.uids.insert(named, uid.clone());
        was_unknown
    }

    fn without_identity(&mut self, of: &SpaceResource, object: &Value, why: &str) {
        if let Some(key) = key_of(of, object) {
            self.unreadable(of, &key, why);
        } else {
            warn!(space = %of.space, resource = %of.resource, why, "an object has no identity, and not even a name");
        }
    }

    /// An object is there, and nothing of it can be read but where it is. What is known of it stands.
    fn unreadable(&mut self, of: &SpaceResource, key: &ObjectKey, why: &str) {
        let name = &*key.name;
        warn!(
            space = %of.space, resource = %of.resource, namespace = &*key.namespace, name, why,
            "an object in the store cannot be read: what is known of it stands until it is put right or deleted"
        );
        self.unread.unreadable(of, (&key.namespace, name), why);
        let named = (of.clone(), name.to_owned());
        let role = role(of);
        let uid = self.uids.get(&named).cloned();
        if uid.is_none() && role.is_known_by_uid() {
            self.unknown.insert(named);
        }
        match role {
            Role::Targets => {
                let id = uid.and_then(|uid| uid.text().parse::<TargetId>().ok());
                self.shared.ingest(|engine, now| match id.or_else(|| engine.target_named(name)) {
                    Some(id) => engine.target_unreadable(now, id),
                    None => engine.target_unknown(name),
                });
            }
            Role::Locations => self.shared.ingest(|engine, _| engine.index.apply_location(name, Err(why.to_owned()))),
            Role::Spaces => {
                if let Ok(space) = name.parse::<SpaceName>() {
                    self.shared.ingest(|engine, _| engine.index.space_unreadable(&space));
                }
            }
            Role::Placements => self.shared.ingest(|engine, _| {
                engine.index.placement_unreadable(&of.space, name, why.to_owned());
            }),
            Role::Approvals => match uid {
                Some(uid) => self.approval_unreadable(name, &uid, why),
                None => self.shared.step(|engine, _| engine.approval_unknown()),
            },
            Role::Acceptances => {
                if let Some(uid) = uid {
                    self.shared.step(|engine, _| engine.acceptance_unreadable(uid));
                }
            }
            Role::Objects => self.shared.ingest(|engine, _| {
                engine.index.unreadable(&of.space, &of.resource, key, Refusal::undecodable(why));
            }),
            Role::Releases | Role::Other => {}
        }
    }

    fn source(&mut self, of: &SpaceResource, object: &Value) {
        match clean::read(clean::SpaceServer::Embedded, object) {
            Ok(source) => {
                let id = SourceId { space: of.space.clone(), resource: of.resource.clone(), uid: source.uid.clone() };
                let (place, seen) = (source.key.clone(), SourceSeen::of(object));
                self.shared.ingest_news(|engine, _| {
                    let news = engine.index.apply(&of.space, &of.resource, source);
                    if let Some(mut seen) = seen {
                        let id = match engine.index.known_as(&id, &place) {
                            Some((id, place, version)) => {
                                seen.share(place, version);
                                id.clone()
                            }
                            None => id,
                        };
                        engine.source_seen(id, seen);
                    }
                    news
                });
            }
            Err(refusal) => self.without_identity(of, object, &refusal.message),
        }
    }

    fn target(&self, id: TargetId, target: &SyncTarget) {
        let name = target.metadata.name.clone().unwrap_or_default();
        let annotations = target.metadata.annotations.clone().unwrap_or_default();
        let key = annotations.get(AGENT_KEY_ANNOTATION).and_then(|text| read_key(text));
        let revoked = annotations.get(REVOKED_KEYS_ANNOTATION).map(String::as_str).unwrap_or_default();
        let revoked: Vec<_> = revoked.split_whitespace().filter_map(read_key).collect();
        let decommission = match target.spec.decommission {
            None => Decommission::No,
            Some(tideline_api::Decommission::Keep) => Decommission::Keep,
            Some(tideline_api::Decommission::Remove) => Decommission::Remove,
        };
        let record = key.map(|key| TargetRecord {
            name: name.clone(),
            key,
            cluster: annotations.get(CLUSTER_ANNOTATION).and_then(|uid| uid.parse::<Uid>().ok()),
            decommission,
            accepted: annotations.get(ACCEPTED_ANNOTATION).and_then(|word| {
                let id = word.split_whitespace().next()?.parse().ok()?;
                Some((id, word.clone()))
            }),
            released: annotations.get(RELEASED_ANNOTATION).cloned(),
            adopts: annotations.get(ADOPTS_ANNOTATION).and_then(|word| read_adopts(word, id)),
            without_effect: without_effect(&target.spec),
        });
        let labels: Labels = target.metadata.labels.clone().unwrap_or_default();
        let placed =
            Target { id, name: name.as_str().into(), labels, unschedulable: target.spec.unschedulable, decommission };
        self.shared.ingest(|engine, now| {
            engine.call_target(now, id, &name);
            engine.keys_revoked(id, &name, &revoked);
            engine.target_seen(now, placed, record);
        });
    }

    fn approval(&self, uid: Uid, object: &Value) {
        let read = decode::<DeletionApproval>(object.clone()).map_err(|error| exit::chain(&error));
        let read = read.and_then(|approval| approve::read(&approval, Timestamp::now()));
        match read {
            Ok(approved) => self.shared.step(|engine, now| engine.approval_seen(now, uid, approved.from(now))),
            Err(error) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                self.approval_unreadable(name, &uid, &error);
            }
        }
    }

    fn approval_unreadable(&self, name: &str, uid: &Uid, error: &str) {
        warn!(name, error, "a DeletionApproval cannot be read: it is void from now on; delete it, and approve anew");
        self.shared.step(|engine, now| engine.approval_unreadable(now, uid));
    }

    /// Says why it cannot be read, if that is so.
    fn space(&self, object: &Value, name: &str) -> Result<(), String> {
        let Ok(space) = name.parse::<SpaceName>() else {
            warn!(name, "a Space has a name that no space can have");
            return Ok(());
        };
        let rule = decode::<Space>(object.clone())
            .map_err(|error| error.to_string())
            .and_then(|space| SpaceRule::try_from(&space.spec.allow).map_err(|error| exit::chain(&error)));
        match rule {
            Ok(rule) => {
                self.shared.ingest(|engine, _| engine.index.apply_space(&space, rule));
                Ok(())
            }
            Err(error) => {
                warn!(%space, error, "a Space cannot be read; what it was allowed before stays so");
                self.shared.ingest(|engine, _| engine.index.space_unreadable(&space));
                Err(error)
            }
        }
    }

    fn deleted(&mut self, of: &SpaceResource, key: &ObjectKey, uid: Option<Uid>) {
        let named = (of.clone(), key.name.to_string());
        self.unknown.remove(&named);
        self.unread.gone(of, (&key.namespace, &key.name));
        let known = self.uids.remove(&named);
        let uid = uid.or(known);
        self.shared.ingest(|engine, now| match role(of) {
            Role::Targets => {
                let target = uid.and_then(|uid| uid.text().parse::<TargetId>().ok());
                if let Some(target) = target.or_else(|| engine.target_named(&key.name)) {
                    engine.target_gone(now, target, Deletion { at: Some(Timestamp::now()), ..Deletion::default() });
                }
                engine.target_not_unknown(now, &key.name);
            }
            Role::Locations => engine.index.delete_location(&key.name),
            Role::Spaces => {
                if let Ok(space) = key.name.parse::<SpaceName>() {
                    engine.index.delete_space(&space);
                }
            }
            Role::Placements => engine.index.delete_placement(&of.space, &key.name),
            Role::Approvals => {
                if let Some(uid) = uid {
                    engine.approval_gone(now, &uid);
                }
            }
            Role::Objects => {
                let known = engine.index.source_at(&of.space, &of.resource, key).cloned();
                let told = uid.map(|uid| SourceId { space: of.space.clone(), resource: of.resource.clone(), uid });
                engine.index.delete(&of.space, &of.resource, key);
                if let Some(id) = told.or(known) {
                    engine.source_gone(&id);
                }
            }
            Role::Acceptances => {
                if let Some(uid) = uid {
                    engine.acceptance_gone(uid);
                }
            }
            // It has done its work when it was seen.
            Role::Releases | Role::Other => {}
        });
    }
}

/// The fields of a SyncTarget that say something else than by default, and have no effect yet.
fn without_effect(spec: &SyncTargetSpec) -> Vec<&'static str> {
    let SyncTargetSpec { properties, unschedulable: _, poll, decommission: _ } = spec;
    let fields = [(!properties.is_empty(), "spec.properties"), (*poll != Poll::default(), "spec.poll.profile")];
    fields.into_iter().filter_map(|(is_set, field)| is_set.then_some(field)).collect()
}

/// An Ed25519 public key in standard base64.
fn read_key(text: &str) -> Option<VerifyingKey> {
    VerifyingKey::from_bytes(&STANDARD.decode(text).ok()?).ok()
}

fn role(of: &SpaceResource) -> Role {
    let root = of.space == SpaceName::root();
    match (root, &*of.resource.group, &*of.resource.resource) {
        (true, tideline_api::GROUP, "synctargets") => Role::Targets,
        (true, tideline_api::GROUP, "locations") => Role::Locations,
        (true, tideline_api::GROUP, "spaces") => Role::Spaces,
        (true, tideline_api::GROUP, "deletionapprovals") => Role::Approvals,
        (true, tideline_api::GROUP, "unassignmentapprovals") => Role::Releases,
        (true, tideline_api::GROUP, "historyacceptances") => Role::Acceptances,
        (false, tideline_api::GROUP, "placements") => Role::Placements,
        (true, ..) => Role::Other,
        (false, ..) => Role::Objects,
    }
}

fn part(of: &SpaceResource) -> Option<Part<'_>> {
    match role(of) {
        Role::Targets => Some(Part::Targets),
        Role::Locations => Some(Part::Locations),
        Role::Spaces => Some(Part::Spaces),
        Role::Placements => Some(Part::Placements(&of.space)),
        Role::Objects => Some(Part::Objects(&of.space, &of.resource)),
        Role::Approvals | Role::Releases | Role::Acceptances | Role::Other => None,
    }
}

fn listed(engine: &mut Engine, now: Monotonic, of: &SpaceResource) {
    match part(of) {
        Some(Part::Targets) => engine.targets_listed(now),
        Some(part) => engine.index.listed(part),
        None if role(of) == Role::Approvals => engine.approvals_listed(now),
        None if role(of) == Role::Acceptances => engine.acceptances_listed(),
        None => {}
    }
}

/// What was approved is not known before it was all read: nothing is made of those parts.
fn unlisted(engine: &mut Engine, now: Monotonic, of: &SpaceResource) {
    match part(of) {
        Some(Part::Targets) => engine.targets_unlisted(now),
        Some(part) => engine.index.unlisted(part),
        None => {}
    }
}

fn reset(engine: &mut Engine, of: &SpaceResource) {
    if let Some(part) = part(of) {
        if part == Part::Targets {
            engine.targets_reset();
        }
        engine.index.reset(part);
    } else if role(of) == Role::Approvals {
        engine.approvals_reset();
    } else if role(of) == Role::Acceptances {
        engine.acceptances_reset();
    }
}

/// Why it has none is said to a person.
fn uid(object: &Value) -> Result<Uid, String> {
    let uid = object["metadata"]["uid"].as_str().ok_or("metadata.uid is no text")?;
    uid.parse().map_err(|error| format!("metadata.uid: {error}"))
}

fn key_of(of: &SpaceResource, object: &Value) -> Option<ObjectKey> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let metadata = &object["metadata"];
    let kind = GroupKind::new(of.resource.group.clone(), text(&object["kind"])?);
    Some(ObjectKey::new(kind, text(&metadata["namespace"]).unwrap_or_default(), text(&metadata["name"])?))
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

#[cfg(test)]
mod tests;
