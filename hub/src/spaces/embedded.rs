use std::collections::{BTreeSet, VecDeque};

use futures::StreamExt;
use futures::stream::BoxStream;
use tideline_apiserver::{ApiServer, FeedEvent, ResourceKind};
use tideline_common::{GroupKind, ObjectKey, Uid};

use super::{SourceEvent, SpaceResource, SpaceSource};
use crate::placement::GroupResource;

/// All embedded spaces of this process, from one feed.
pub struct EmbeddedSource {
    feed: BoxStream<'static, FeedEvent>,
    /// What was listed, and is not gone.
    known: BTreeSet<SpaceResource>,
    /// During a round: what of it has not been listed in it.
    missing: Option<BTreeSet<SpaceResource>>,
    ready: VecDeque<SourceEvent>,
}

impl EmbeddedSource {
    /// Begins with everything that is there.
    pub fn new(server: &ApiServer) -> Self {
        Self { feed: server.feed(None), known: BTreeSet::new(), missing: None, ready: VecDeque::new() }
    }

    fn take(&mut self, event: FeedEvent) {
        match event {
            FeedEvent::Round => {
                let lost = |of: &SpaceResource| SourceEvent::Lost { of: of.clone(), why: "it is read anew".to_owned() };
                self.ready.extend(self.known.iter().map(lost));
                self.missing = Some(self.known.clone());
            }
            FeedEvent::SpaceAdded { .. } => {}
            FeedEvent::SpaceRemoved { space } => {
                let gone: Vec<_> = self.known.iter().filter(|of| of.space.as_str() == &*space).cloned().collect();
                for of in gone {
                    self.known.remove(&of);
                    self.ready.push_back(SourceEvent::Gone(of));
                }
            }
            FeedEvent::Object { space, resource, value, .. } => {
                if let Some(of) = resource_of(&space, &resource) {
                    self.ready.push_back(SourceEvent::Object { of, object: value });
                }
            }
            FeedEvent::Unreadable { space, resource, name } => {
                let defined = defined_by(&resource, &name).and_then(|resource| in_space(&space, resource));
                for of in resource_of(&space, &resource).into_iter().chain(defined) {
                    if let Some(missing) = &mut self.missing {
                        missing.remove(&of);
                    }
                    self.known.insert(of);
                }
            }
            FeedEvent::Deleted { space, resource, namespace, name, uid, .. } => {
                if let (Some(of), Ok(uid)) = (resource_of(&space, &resource), Uid::try_from(uid)) {
                    let kind = GroupKind::new(resource.group.as_str(), resource.kind.as_str());
                    let key = ObjectKey::new(kind, namespace.unwrap_or_default(), name);
                    self.ready.push_back(SourceEvent::Deleted { of, key, uid });
                }
            }
            FeedEvent::Listed { space, resource } => {
                if let Some(of) = resource_of(&space, &resource) {
                    self.known.insert(of.clone());
                    if let Some(missing) = &mut self.missing {
                        missing.remove(&of);
                    }
                    self.ready.push_back(SourceEvent::Listed(of));
                }
            }
            FeedEvent::ResourceRemoved { space, resource } => {
                if let Some(of) = resource_of(&space, &resource) {
                    self.known.remove(&of);
                    self.ready.push_back(SourceEvent::Gone(of));
                }
            }
            FeedEvent::Progress(_) => {
                for of in self.missing.take().unwrap_or_default() {
                    self.known.remove(&of);
                    self.ready.push_back(SourceEvent::Gone(of));
                }
            }
        }
    }
}

impl SpaceSource for EmbeddedSource {
    async fn next(&mut self) -> Option<SourceEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let event = self.feed.next().await?;
            self.take(event);
        }
    }
}

/// None for a space that the hub could not name; the server makes no such spaces.
fn resource_of(space: &str, resource: &ResourceKind) -> Option<SpaceResource> {
    in_space(space, GroupResource::new(resource.group.as_str(), resource.plural.as_str()))
}

fn in_space(space: &str, resource: GroupResource) -> Option<SpaceResource> {
    Some(SpaceResource { space: space.parse().ok()?, resource })
}

/// What an object of this name defines, if it is of a kind that defines any.
fn defined_by(resource: &ResourceKind, name: &str) -> Option<GroupResource> {
    let (plural, group) = name.split_once('.')?;
    let is_definition = resource.group == "apiextensions.k8s.io" && resource.kind == "CustomResourceDefinition";
    is_definition.then(|| GroupResource::new(group, plural))
}

#[cfg(test)]
mod tests;
