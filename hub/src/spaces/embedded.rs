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
    /// What there is: what was listed, or would have been if all its keys could be read.
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
            FeedEvent::Unreadable { space, resource, namespace, name, why } => {
                if let Some(of) = resource_of(&space, &resource) {
                    let key = key_of(&resource, namespace, name);
                    self.ready.push_back(SourceEvent::Unreadable { of, key, why });
                }
            }
            FeedEvent::Deleted { space, resource, namespace, name, uid, .. } => {
                if let Some(of) = resource_of(&space, &resource) {
                    let (key, uid) = (key_of(&resource, namespace, name), Uid::try_from(uid).ok());
                    self.ready.push_back(SourceEvent::Deleted { of, key, uid });
                }
            }
            FeedEvent::Listed { space, resource } => {
                if let Some(of) = resource_of(&space, &resource) {
                    self.is_there(of.clone());
                    self.ready.push_back(SourceEvent::Listed(of));
                }
            }
            FeedEvent::Unlisted { space, resource } => {
                if let Some(of) = resource_of(&space, &resource) {
                    self.is_there(of.clone());
                    self.ready.push_back(SourceEvent::Unlisted(of));
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

    fn is_there(&mut self, of: SpaceResource) {
        if let Some(missing) = &mut self.missing {
            missing.remove(&of);
        }
        self.known.insert(of);
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
    let resource = GroupResource::new(resource.group.as_str(), resource.plural.as_str());
    Some(SpaceResource { space: space.parse().ok()?, resource })
}

fn key_of(resource: &ResourceKind, namespace: Option<String>, name: String) -> ObjectKey {
    let kind = GroupKind::new(resource.group.as_str(), resource.kind.as_str());
    ObjectKey::new(kind, namespace.unwrap_or_default(), name)
}

#[cfg(test)]
mod tests;
