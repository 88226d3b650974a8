//! Tells the engine what spaces hold. Reads events, decodes what the hub itself understands, decides nothing.

use std::convert::Infallible;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;
use tideline_api::{
    DeletionApproval, HistoryAcceptance, Location, Placement, Selector, Space, SyncTarget, UnassignmentApproval, decode,
};
use tideline_common::signature::VerifyingKey;
use tideline_common::wire::v1::Decommission;
use tideline_common::{Monotonic, ObjectKey, Revision, SpaceName, TargetId, Uid};
use tideline_runtime::exit;
use tideline_runtime::health::ReadinessGate;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::approve;
use crate::clean::{self, Labels};
use crate::duplicates::ACCEPTED_ANNOTATION;
use crate::engine::{Deletion, Engine, SourceSeen, TargetRecord};
use crate::enrol::{ADOPTS_ANNOTATION, AGENT_KEY_ANNOTATION, CLUSTER_ANNOTATION, REVOKED_KEYS_ANNOTATION, read_adopts};
use crate::history;
use crate::placement::{Part, PlacementRule, SourceId, SpaceRule, Target};
use crate::release::RELEASED_ANNOTATION;
use crate::shared::Shared;
use crate::spaces::{SourceEvent, SpaceResource, SpaceSource};

/// The task that reads one source of spaces.
pub(crate) struct Ingest {
    shared: Shared,
    /// Dropped when everything was read once.
    ready: Option<ReadinessGate>,
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

impl Ingest {
    pub(crate) fn new(shared: Shared, ready: ReadinessGate) -> Self {
        Self { shared, ready: Some(ready) }
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
            SourceEvent::Deleted { of, key, uid } => self.deleted(&of, &key, uid),
            SourceEvent::Listed(of) | SourceEvent::Gone(of) => {
                self.shared.ingest(|engine, now| listed(engine, now, &of));
                if role(&of) == Role::Placements {
                    // The last of what placement waits for in the spaces that every hub has.
                    self.ready = None;
                }
            }
            SourceEvent::Lost { of, why } => {
                tracing::debug!(space = %of.space, resource = %of.resource, why, "a resource is read anew");
                self.shared.ingest(|engine, _| reset(engine, &of));
            }
        }
    }

    fn object(&self, of: &SpaceResource, object: &Value) {
        let name = || object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match role(of) {
            Role::Targets => match decode::<SyncTarget>(object.clone()) {
                Ok(target) => self.target(&target),
                Err(error) => {
                    warn!(error = exit::chain(&error), "a SyncTarget cannot be read; what is known of it stays");
                    if let Some(id) = uid(object).and_then(|uid| uid.text().parse::<TargetId>().ok()) {
                        self.shared.ingest(|engine, _| {
                            engine.target_named(id, &name());
                            engine.target_unreadable(id);
                        });
                    }
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
            Role::Spaces => self.space(object, &name()),
            Role::Placements => {
                let Some(uid) = uid(object) else { return };
                let rule =
                    decode::<Placement>(object.clone()).map_err(|error| error.to_string()).and_then(|placement| {
                        PlacementRule::try_from(&placement.spec).map_err(|error| exit::chain(&error))
                    });
                self.shared.ingest(|engine, _| {
                    engine.index.apply_placement(&of.space, &name(), uid, rule);
                    engine.index.placement_generation(&of.space, &name(), generation(object));
                });
            }
            Role::Approvals => self.approval(object),
            Role::Releases => match decode::<UnassignmentApproval>(object.clone()) {
                Ok(approval) => {
                    let revisions = approval.spec.revisions.into_iter().filter_map(|number| u64::try_from(number).ok());
                    self.shared.step(|engine, _| engine.release(&revisions.map(Revision).collect()));
                }
                Err(error) => warn!(error = exit::chain(&error), "an UnassignmentApproval cannot be read"),
            },
            Role::Acceptances => match decode::<HistoryAcceptance>(object.clone()) {
                Ok(acceptance) => {
                    let Some(uid) = uid(object) else { return };
                    self.shared.step(|engine, _| engine.history_accepted(uid, history::read(&acceptance.spec)));
                }
                Err(error) => {
                    warn!(error = exit::chain(&error), "a HistoryAcceptance cannot be read");
                    let Some(uid) = uid(object) else { return };
                    self.shared.step(|engine, _| engine.acceptance_unreadable(uid));
                }
            },
            Role::Objects => self.source(of, object),
            Role::Other => {}
        }
    }

    fn source(&self, of: &SpaceResource, object: &Value) {
        match clean::read(object) {
            Ok(source) => {
                let id = SourceId { space: of.space.clone(), resource: of.resource.clone(), uid: source.uid.clone() };
                let seen = SourceSeen::of(object);
                self.shared.ingest_news(|engine, _| {
                    let news = engine.index.apply(&of.space, &of.resource, source);
                    if let Some(seen) = seen {
                        engine.source_seen(id, seen);
                    }
                    news
                });
            }
            Err(refusal) => {
                warn!(space = %of.space, resource = %of.resource, why = refusal.message, "an object has no identity");
            }
        }
    }

    fn target(&self, target: &SyncTarget) {
        let Some(id) = target.metadata.uid.as_deref().and_then(|uid| uid.parse::<TargetId>().ok()) else { return };
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
        });
        let labels: Labels = target.metadata.labels.clone().unwrap_or_default();
        let placed = Target { id, labels, unschedulable: target.spec.unschedulable, decommission };
        self.shared.ingest(|engine, now| {
            engine.target_named(id, &name);
            engine.keys_revoked(id, &name, &revoked);
            engine.target_seen(now, placed, record);
        });
    }

    fn approval(&self, object: &Value) {
        let Some(uid) = uid(object) else { return };
        let read = decode::<DeletionApproval>(object.clone()).map_err(|error| exit::chain(&error));
        let read = read.and_then(|approval| approve::read(&approval, Timestamp::now()));
        self.shared.step(|engine, now| match read {
            Ok(approved) => engine.approval_seen(now, uid, approved.from(now)),
            Err(error) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                warn!(
                    name,
                    error, "a DeletionApproval cannot be read: it is void from now on; delete it, and approve anew"
                );
                engine.approval_unreadable(now, &uid);
            }
        });
    }

    fn space(&self, object: &Value, name: &str) {
        let Ok(space) = name.parse::<SpaceName>() else {
            warn!(name, "a Space has a name that no space can have");
            return;
        };
        let rule = decode::<Space>(object.clone())
            .map_err(|error| error.to_string())
            .and_then(|space| SpaceRule::try_from(&space.spec.allow).map_err(|error| exit::chain(&error)));
        match rule {
            Ok(rule) => self.shared.ingest(|engine, _| engine.index.apply_space(&space, rule)),
            Err(error) => warn!(%space, error, "a Space cannot be read; what it was allowed before stays so"),
        }
    }

    fn deleted(&self, of: &SpaceResource, key: &ObjectKey, uid: Uid) {
        self.shared.ingest(|engine, now| match role(of) {
            Role::Targets => {
                if let Ok(target) = uid.text().parse::<TargetId>() {
                    engine.target_gone(now, target, Deletion { at: Some(Timestamp::now()), ..Deletion::default() });
                }
            }
            Role::Locations => engine.index.delete_location(&key.name),
            Role::Spaces => {
                if let Ok(space) = key.name.parse::<SpaceName>() {
                    engine.index.delete_space(&space);
                }
            }
            Role::Placements => engine.index.delete_placement(&of.space, &key.name),
            Role::Approvals => engine.approval_gone(now, &uid),
            Role::Objects => {
                let id = SourceId { space: of.space.clone(), resource: of.resource.clone(), uid };
                engine.index.delete(&of.space, &of.resource, key);
                engine.source_gone(&id);
            }
            Role::Acceptances => engine.acceptance_gone(uid),
            // It has done its work when it was seen.
            Role::Releases | Role::Other => {}
        });
    }
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

fn uid(object: &Value) -> Option<Uid> {
    object["metadata"]["uid"].as_str()?.parse().ok()
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

#[cfg(test)]
mod tests;
