//! What there is of a kind under the label, whichever target it names, read page by page as metadata. Nothing is kept from
//! one page to the next.

use std::sync::Arc;

use kube::Client;
use serde_json::value::RawValue;
use tideline_common::{GroupKind, MARK_LABEL};
use tokio::sync::mpsc;
use tracing::debug;

use super::Scope;
use super::decode::decode_listed;
use super::discovery::{Kinds, Unresolved};
use super::failure::{Failure, Refused};
use super::pages::{Item, Page, form_escaped};
use super::request::{Call, Want, answer, read, unreadable};
use super::resource::Resource;
use crate::core::{Event, ListFailure, ListId, ListedItem};
use crate::namespaces::Namespaces;

/// Objects on one page: some 2 KiB each, so that one page is about two megabytes. A patrol of 5,000 objects is six requests.
const PAGE: u32 = 1_000;

/// One list: its kind, and its receiver.
#[derive(Clone, Debug)]
pub struct MetadataList {
    pub id: ListId,
    pub kind: GroupKind,
    pub version: Arc<str>,
    pub scope: Scope,
}

impl MetadataList {
    /// Tells every page, and the end.
    pub async fn run(self, client: &Client, kinds: &Kinds, namespaces: &Namespaces, events: &mpsc::Sender<Event>) {
        let mut result = Ok(());
        for namespace in namespaces.each() {
            result = self.list(client, kinds, namespace, events).await;
            if result.is_err() {
                break;
            }
        }
        let result = result.map_err(|Failure { reason, message, .. }| {
            debug!(kind = %self.kind, %reason, "cannot be listed: {message}");
            ListFailure { reason, message }
        });
        // Closed only when nobody patrols any more.
        let _ = events.send(Event::ListEnded { list: self.id, result }).await;
    }

    /// The items of a page, and where the next one is. Metadata stays text until it is needed: decoded, its many small parts
    /// would make a page five times as large, to be freed at once.
    async fn page(
        &self,
        client: &Client,
        resource: &Resource,
        uri: String,
        first: &str,
    ) -> Result<(Vec<ListedItem>, Option<String>), Refused> {
        let answer = answer(client, Call::get(uri, Want::MetadataList)).await?;
        let (items, following) = read::<Page<Item<&RawValue>>>(&answer)?.turn(first);
        let mut objects = Vec::new();
        for Item { metadata } in items {
            let text = answer.slice_ref(metadata.get().as_bytes());
            let listed = decode_listed(&self.scope, resource, text).map_err(|error| unreadable(&error))?;
            objects.extend(listed.filter(|seen| super::is_of_interest(&self.scope, seen)));
        }
        Ok((objects, following))
    }

    /// A consistent list. Where the API server has forgotten its revision meanwhile, the list as a whole has failed.
    async fn list(
        &self,
        client: &Client,
        kinds: &Kinds,
        namespace: Option<&str>,
        events: &mpsc::Sender<Event>,
    ) -> Result<(), Failure> {
        let resource = kinds.find(&self.kind, &self.version).await.map_err(Unresolved::into_failure)?;
        let selector = form_escaped(MARK_LABEL);
        let first = format!("{}?labelSelector={selector}&limit={PAGE}", resource.collection(namespace));
        let mut next = Some(first.clone());
        while let Some(uri) = next {
            let (objects, following) =
                self.page(client, &resource, uri, &first).await.map_err(|refused| refused.failure())?;
            if !objects.is_empty() && events.send(Event::ListPage { list: self.id, objects }).await.is_err() {
                return Err(Failure::unavailable("the agent stops"));
            }
            next = following;
        }
        Ok(())
    }
}
