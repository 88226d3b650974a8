use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};
use kube::api::{ApiResource, DynamicObject};
use kube::discovery::{ApiCapabilities, ApiGroup, Discovery, Scope, verbs};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tideline_common::{GroupKind, ObjectKey, SpaceName, Uid};
use tracing::debug;

use super::{SourceEvent, SpaceResource, SpaceSource};
use crate::placement::GroupResource;

type Watched = (SpaceResource, Result<Event<DynamicObject>, watcher::Error>);

/// One space that is a Kubernetes API server elsewhere: a watcher for every resource that can be listed and watched.
pub struct ClusterSource {
    watches: SelectAll<BoxStream<'static, Watched>>,
    types: BTreeMap<SpaceResource, ApiResource>,
}

impl ClusterSource {
    /// Discovers what the server serves and begins with everything that is there.
    ///
    /// # Errors
    ///
    /// The server does not say what it serves.
    pub async fn new(space: SpaceName, client: Client) -> Result<Self, kube::Error> {
        let discovery = Discovery::new(client.clone()).run().await?;
        let mut source = Self { watches: SelectAll::new(), types: BTreeMap::new() };
        for resource in discovery.groups().flat_map(watchable) {
            source.watch(&space, &client, resource);
        }
        Ok(source)
    }

    fn watch(&mut self, space: &SpaceName, client: &Client, resource: ApiResource) {
        let of = SpaceResource {
            space: space.clone(),
            resource: GroupResource::new(resource.group.as_str(), resource.plural.as_str()),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let key = of.clone();
        let events = watcher(api, watcher::Config::default()).default_backoff().map(move |event| (key.clone(), event));
        self.watches.push(events.boxed());
        self.types.insert(of, resource);
    }

    fn object(&self, of: SpaceResource, object: &DynamicObject) -> Option<SourceEvent> {
        // Lists leave the type of their items out.
        let resource = self.types.get(&of)?;
        let mut value = serde_json::to_value(object).ok()?;
        value["apiVersion"] = Value::from(resource.api_version.as_str());
        value["kind"] = Value::from(resource.kind.as_str());
        Some(SourceEvent::Object { of, object: Arc::new(value) })
    }

    fn deleted(&self, of: SpaceResource, object: &DynamicObject) -> Option<SourceEvent> {
        let resource = self.types.get(&of)?;
        let kind = GroupKind::new(resource.group.as_str(), resource.kind.as_str());
        let key = ObjectKey::new(kind, object.namespace().unwrap_or_default(), object.name_any());
        let uid = object.uid().and_then(|uid| Uid::try_from(uid).ok());
        Some(SourceEvent::Deleted { of, key, uid })
    }
}

impl SpaceSource for ClusterSource {
    async fn next(&mut self) -> Option<SourceEvent> {
        loop {
            let (of, event) = self.watches.next().await?;
            let event = match event {
                Ok(Event::Init) => Some(SourceEvent::Lost { of, why: "it is read anew".to_owned() }),
                Ok(Event::InitApply(object) | Event::Apply(object)) => self.object(of, &object),
                Ok(Event::InitDone) => Some(SourceEvent::Listed(of)),
                Ok(Event::Delete(object)) => self.deleted(of, &object),
                Err(error) => {
                    debug!(resource = %of.resource, %error, "a resource of a space cannot be read");
                    Some(SourceEvent::Lost { of, why: error.to_string() })
                }
            };
            if event.is_some() {
                return event;
            }
        }
    }
}

/// What of a group can be watched, each resource once: at the version that the group prefers, or else at the most stable one
/// that serves it. A group may serve beta resources beside stable ones.
fn watchable(group: &ApiGroup) -> Vec<ApiResource> {
    let preferred = group.preferred_version_or_latest();
    let others = group.versions().filter(|version| *version != preferred);
    let mut found = BTreeMap::new();
    for (resource, capabilities) in
        iter::once(preferred).chain(others).flat_map(|version| group.versioned_resources(version))
    {
        if is_watchable(&capabilities) {
            found.entry(resource.plural.clone()).or_insert(resource);
        }
    }
    found.into_values().collect()
}

fn is_watchable(capabilities: &ApiCapabilities) -> bool {
    let scoped = matches!(capabilities.scope, Scope::Cluster | Scope::Namespaced);
    scoped && capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::WATCH)
}

#[cfg(test)]
mod tests;
