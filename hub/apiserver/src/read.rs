//! GET of one object and of lists.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tideline_store::{KeyRange, Page, Revision};

use crate::call::{Call, Place, Reply};
use crate::catalog::Source;
use crate::negotiate::{self, Shape};
use crate::paging::{LIMIT_MAX, decode_token, encode_token, expired_token, foreign_token};
use crate::query::{ListOptions, VersionMatch, parse_resource_version};
use crate::render::{Renderer, join, list_tail};
use crate::status::ApiError;
use crate::virtual_read::complete;
use crate::{fields, keys, long_work, object, virtual_list};

/// Objects read from the store at once while a list is written; with objects of 1.5 MiB that is 192 MiB at the very
/// worst, and with those of 3 KiB one read is half a MiB.
const PAGE: usize = 128;
pub(crate) async fn get(call: &Call, place: &Place, name: &str) -> Result<Reply, ApiError> {
    let shape = negotiate::shape(&call.headers)?;
    let served = &place.served;
    let object = if let Source::Virtual(source) = &served.source {
        let version = call.inner.run.current(source.as_ref(), &call.space.name);
        if let Some(asked) = call.query.get("resourceVersion") {
            virtual_list::not_in_the_future(parse_resource_version(asked)?, version)?;
        }
        let found = source.get(&call.space.name, place.namespace.as_deref(), name);
        complete(served, found.ok_or_else(|| served.not_found(name))?, version)
    } else {
        if let Some(version) = call.query.get("resourceVersion") {
            not_in_the_future(call, parse_resource_version(version)?)?;
        }
        let item = call.inner.store.get(place.key(&call.space.name, name)).await?;
        let item = item.ok_or_else(|| served.not_found(name))?;
        call.take_up(served, item.value.len()).await;
        object::present(served, place.read(&call.space.name, name, &item)?)
    };
    Ok(Reply::ok(Renderer::new(call, served, shape).single(object)))
}

fn not_in_the_future(call: &Call, asked: u64) -> Result<(), ApiError> {
    virtual_list::not_in_the_future(asked, call.inner.store.revision().0)
}

/// Where the next page starts, and the revision that all pages are read at. Opaque to clients.
#[derive(Serialize, Deserialize)]
struct Token {
    v: String,
    rv: u64,
    /// The rest of the key after the range's start.
    start: String,
}

const TOKEN_VERSION: &str = "meta.k8s.io/v1";

impl Token {
    fn decode(text: &str) -> Result<Self, ApiError> {
        decode_token(text).filter(|token: &Self| token.v == TOKEN_VERSION).ok_or_else(foreign_token)
    }
}

/// The keys that a list or watch is about: one key where the selector names the object.
pub(crate) fn range(call: &Call, place: &Place, options: &ListOptions) -> KeyRange {
    let resource = &place.served.resource;
    let space = &call.space.name;
    let one = options.fields.exact("metadata.name").filter(|name| !name.is_empty() && !name.contains('/'));
    let namespace = place.namespace.as_deref().or_else(|| options.fields.exact("metadata.namespace"));
    let namespace = namespace.filter(|namespace| !namespace.is_empty() && !namespace.contains('/'));
    match one {
        Some(name) if namespace.is_some() == resource.namespaced => {
            let start = keys::object(space, &resource.group, &resource.plural, namespace, name);
            KeyRange { end: keys::successor(&start), start }
        }
        Some(_) | None => keys::resource(space, &resource.group, &resource.plural, place.namespace.as_deref()),
    }
}

pub(crate) async fn list(call: &Call, place: &Place, options: ListOptions) -> Result<Reply, ApiError> {
    let shape = negotiate::shape(&call.headers)?;
    fields::check(&place.served, &options)?;
    if let Source::Virtual(source) = &place.served.source {
        return virtual_list::list(call, place, source, options, shape).await;
    }
    let mut range = range(call, place, &options);
    let base = range.start.clone();
    let mut at = None;
    if let Some(token) = &options.continue_token {
        let token = Token::decode(token)?;
        range.start = Bytes::from([&base[..], token.start.as_bytes()].concat());
        at = Some(Revision(token.rv));
    } else if let Some(version) = options.resource_version.filter(|version| *version != 0) {
        not_in_the_future(call, version)?;
        let exact = options.version_match == Some(VersionMatch::Exact)
            || (options.version_match.is_none() && options.limit > 0);
        at = exact.then_some(Revision(version));
    }
    let first = call.inner.store.range(range.clone(), at, page_size(options.limit)).await.map_err(|error| {
        match (error, &options.continue_token) {
            (tideline_store::Error::Compacted { .. }, Some(_)) => expired_token(),
            (error, _) => error.into(),
        }
    })?;
    let writer = Writer { options, shape, base, range, revision: first.revision, written: 0, head: true };
    if writer.options.limit > 0 || !first.more {
        return writer.whole(call, place, first).await.map(|text| Reply::stream(Body::from(text)));
    }
    Ok(Reply::stream(writer.streamed(call, place, &first)))
}

fn page_size(limit: usize) -> usize {
    if limit == 0 { PAGE } else { limit.min(PAGE) }
}

/// Writes a list piece by piece, so that its size does not matter to memory.
struct Writer {
    options: ListOptions,
    shape: Shape,
    /// Where the keys of the whole list start.
    base: Bytes,
    /// What is left of the list.
    range: KeyRange,
    revision: Revision,
    written: usize,
    head: bool,
}

impl Writer {
    /// Appends what matches of a page; true once the list or the client's page is full, with where to go on.
    fn page(&mut self, renderer: &Renderer<'_>, page: &Page, out: &mut String) -> Option<Value> {
        let bytes = page.items.iter().map(|item| item.value.len()).sum();
        long_work::for_bytes(bytes, || self.write_page(renderer, page, out))
    }

    fn write_page(&mut self, renderer: &Renderer<'_>, page: &Page, out: &mut String) -> Option<Value> {
        let limit = if self.options.limit == 0 { usize::MAX } else { self.options.limit.min(LIMIT_MAX) };
        if std::mem::take(&mut self.head) {
            out.push_str(&renderer.list_head());
        }
        let mut objects = Vec::new();
        let mut left = page.items.len();
        for item in &page.items {
            if self.written + objects.len() == limit {
                break;
            }
            left -= 1;
            self.range.start = keys::successor(&item.key);
            let object = object::present_any(renderer.served, item, item.modified);
            if self.options.labels.matches(&object) && self.options.fields.matches(&object) {
                objects.push(object);
            }
        }
        renderer.fill(&mut objects);
        let items: Vec<_> = objects.into_iter().map(|object| renderer.item(object)).collect();
        join(out, &items, self.written == 0);
        self.written += items.len();
        let mut metadata = json!({"resourceVersion": self.revision.0.to_string()});
        let more = left > 0 || page.more;
        if more && self.written < limit {
            return None;
        }
        if more {
            let start = String::from_utf8_lossy(&self.range.start[self.base.len()..]).into_owned();
            let token = Token { v: TOKEN_VERSION.into(), rv: self.revision.0, start };
            metadata["continue"] = encode_token(&token).into();
        }
        Some(metadata)
    }

    async fn next(&self, call: &Call) -> Result<Page, ApiError> {
        let size = page_size(self.options.limit);
        Ok(call.inner.store.range(self.range.clone(), Some(self.revision), size).await?)
    }

    /// A page that the client bounded, or a short list.
    async fn whole(mut self, call: &Call, place: &Place, mut page: Page) -> Result<String, ApiError> {
        let renderer = Renderer::new(call, &place.served, self.shape);
        let mut out = String::new();
        loop {
            if let Some(mut metadata) = self.page(&renderer, &page, &mut out) {
                let everything = self.options.labels.is_everything() && self.options.fields.is_everything();
                if everything && metadata.get("continue").is_some() {
                    let left = call.inner.store.count(self.range.clone(), self.revision).await?;
                    metadata["remainingItemCount"] = left.into();
                }
                out.push_str(&list_tail(&metadata));
                return Ok(out);
            }
            page = self.next(call).await?;
        }
    }

    /// A list of any length. A failure on the way cuts the body off: the client sees that it is incomplete.
    fn streamed(mut self, call: &Call, place: &Place, first: &Page) -> Body {
        let served = std::sync::Arc::clone(&place.served);
        let store = std::sync::Arc::clone(&call.inner.store);
        let mut text = String::new();
        let renderer = Renderer::new(call, &served, self.shape);
        let (include, filled) = (renderer.include, renderer.filled.cloned());
        let done = self.page(&renderer, first, &mut text);
        if let Some(metadata) = done {
            text.push_str(&list_tail(&metadata));
            return Body::from(text);
        }
        let pieces = stream::try_unfold((Some(self), Some(text)), move |(writer, ready)| {
            let (served, store) = (std::sync::Arc::clone(&served), std::sync::Arc::clone(&store));
            let filled = filled.clone();
            async move {
                if let Some(text) = ready {
                    return Ok::<_, ApiError>(Some((Bytes::from(text), (writer, None))));
                }
                let Some(mut writer) = writer else { return Ok(None) };
                let page = store.range(writer.range.clone(), Some(writer.revision), PAGE).await?;
                let filled = filled.as_ref();
                let renderer = Renderer { served: &served, shape: writer.shape, include, filled };
                let mut text = String::new();
                let done = writer.page(&renderer, &page, &mut text);
                if let Some(metadata) = done {
                    text.push_str(&list_tail(&metadata));
                    return Ok(Some((Bytes::from(text), (None, None))));
                }
                Ok(Some((Bytes::from(text), (Some(writer), None))))
            }
        });
        Body::from_stream(pieces)
    }
}
