//! Lists of computed objects, page by page.
//!
//! No page is kept: each one shows the state at the moment at which it is read. An object that is there all the time is in
//! the list once; one that comes, goes or changes meanwhile is in it, or not, as its page found it. A continue token
//! names the key behind which the list goes on, so what comes or goes before it moves nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tideline_store::Revision;

use crate::call::{Call, Place, Reply};
use crate::catalog::Served;
use crate::fields;
use crate::negotiate::Shape;
use crate::paging::{LIMIT_MAX, decode_token, encode_token, expired_token, foreign_token};
use crate::query::{ListOptions, VersionMatch};
use crate::render::{Renderer, join, list_tail};
use crate::status::ApiError;
use crate::table::Include;
use crate::virtual_read::{Next, Reader, complete};
use crate::virtual_resource::{Listed, VirtualResource};

/// How long a client may take from one page to the next, as with a real server by its usual compaction.
const TOKEN_LIFETIME: Duration = Duration::from_mins(5);

/// Parts of which a client's page is filled at most. Where a selector matches little it may end before its limit, even without an
/// object: a client that waits for long is cut off by whatever is in between, and would begin anew.
const PARTS_MAX: usize = 20;

const TOKEN_VERSION: &str = "tideline.dev/computed/v1";

/// Refuses what asks for a state that is not reached yet.
pub(crate) fn not_in_the_future(asked: u64, current: u64) -> Result<(), ApiError> {
    let (asked, current) = (Revision(asked), Revision(current));
    if asked > current { Err(tideline_store::Error::Future { asked, current }.into()) } else { Ok(()) }
}

/// Where the next page starts. Opaque to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Token {
    v: String,
    /// The run that made it.
    run: String,
    /// When that was: milliseconds since the run began.
    at: u64,
    /// The list that it goes on with: the path of its collection.
    list: String,
    /// The version of the first page, which is that of all.
    rv: u64,
    after: String,
}

impl Token {
    /// Reads the token of a client that goes on with `list` at the moment `now` of `run`.
    fn read(text: &str, list: &str, run: &str, now: Duration) -> Result<Self, ApiError> {
        let token: Option<Self> = decode_token(text);
        let token = token.filter(|token| token.v == TOKEN_VERSION && token.list == list).ok_or_else(foreign_token)?;
        let age = now.checked_sub(Duration::from_millis(token.at));
        let fresh = token.run == run && age.is_some_and(|age| age <= TOKEN_LIFETIME);
        if fresh { Ok(token) } else { Err(expired_token()) }
    }
}

pub(crate) fn too_old(asked: u64, oldest: u64) -> ApiError {
    tideline_store::Error::Compacted { asked: Revision(asked), oldest: Revision(oldest) }.into()
}

pub(crate) async fn list(
    call: &Call,
    place: &Place,
    source: &Arc<dyn VirtualResource>,
    options: ListOptions,
    shape: Shape,
) -> Result<Reply, ApiError> {
    let options = fields::located(source.as_ref(), options);
    let mut reader = Reader::new(source, &call.space.name, place.namespace.as_deref(), &options);
    let (run, now) = (&call.inner.run.id, call.inner.run.began.elapsed());
    let list = format!(
        "{}/{}/{}/{}",
        call.space.name,
        place.served.resource.group,
        place.namespace.as_deref().unwrap_or_default(),
        place.served.resource.plural
    );
    let mut version = call.inner.run.current(source.as_ref(), &call.space.name);
    let asked = options.resource_version.unwrap_or(0);
    not_in_the_future(asked, version)?;
    if options.version_match == Some(VersionMatch::Exact) && asked != version {
        return Err(too_old(asked, version));
    }
    if let Some(token) = &options.continue_token {
        let token = Token::read(token, &list, run, now)?;
        version = token.rv;
        reader.begin_after(token.after);
    }
    let limit = if options.limit == 0 { usize::MAX } else { options.limit.min(LIMIT_MAX) };
    let at = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    let token = Token { v: TOKEN_VERSION.into(), run: run.clone(), at, list, rv: version, after: String::new() };
    let include = Renderer::new(call, &place.served, shape).include;
    let served = Arc::clone(&place.served);
    let mut writer = Writer { served, shape, include, options, reader, token, limit, written: 0, parts: 0 };
    let mut text = writer.renderer().list_head();
    let mut done = writer.part(&mut text)?;
    if limit != usize::MAX {
        while done == Done::No {
            tokio::task::yield_now().await;
            done = writer.part(&mut text)?;
        }
    }
    Ok(Reply::stream(match done {
        Done::Yes => Body::from(text),
        Done::No => writer.streamed(text),
    }))
}

/// Whether a list has its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    No,
    Yes,
}

/// Writes a list part by part, so that its size matters neither to memory nor to whoever else needs what it is computed from.
struct Writer {
    served: Arc<Served>,
    shape: Shape,
    include: Include,
    options: ListOptions,
    reader: Reader,
    /// What the continue token says, less the key.
    token: Token,
    limit: usize,
    written: usize,
    parts: usize,
}

impl Writer {
    fn renderer(&self) -> Renderer<'_> {
        Renderer { served: &self.served, shape: self.shape, include: self.include, filled: None }
    }

    /// Reads one part and appends what matches of it, and the list's end when there is no more or the client's page is full.
    fn part(&mut self, out: &mut String) -> Result<Done, ApiError> {
        let ListOptions { labels, fields, .. } = &self.options;
        let all = labels.is_everything() && fields.is_everything();
        let wanted = self.limit - self.written;
        let mut objects =
            self.reader.read(if all { wanted } else { usize::MAX }).map_err(|_| foreign_token())?.into_iter();
        let (mut items, mut last) = (Vec::new(), None);
        let renderer = Renderer { served: &self.served, shape: self.shape, include: self.include, filled: None };
        while items.len() < wanted
            && let Some(Listed { key, group: _, object }) = objects.next()
        {
            let object = complete(&self.served, object, self.token.rv);
            last = Some(key);
            if labels.matches(&object) && fields.matches(&object) {
                items.push(renderer.item(object));
            }
        }
        join(out, &items, self.written == 0);
        self.written += items.len();
        let after = match (objects.next(), self.reader.next()) {
            (Some(_), _) => last,
            (None, Next::After(key)) => Some(key.clone()),
            (None, Next::First | Next::End) => None,
        };
        self.parts += 1;
        let is_full = self.written == self.limit || self.limit != usize::MAX && self.parts == PARTS_MAX;
        if after.is_some() && !is_full {
            return Ok(Done::No);
        }
        let mut metadata: Value = json!({"resourceVersion": self.token.rv.to_string()});
        if let Some(after) = after {
            metadata["continue"] = encode_token(&Token { after, ..self.token.clone() }).into();
        }
        out.push_str(&list_tail(&metadata));
        Ok(Done::Yes)
    }

    /// A list of any length, of which this is the beginning.
    fn streamed(self, beginning: String) -> Body {
        let parts = stream::try_unfold((Some(self), Some(beginning)), |(writer, ready)| async move {
            if let Some(text) = ready {
                return Ok::<_, ApiError>(Some((Bytes::from(text), (writer, None))));
            }
            let Some(mut writer) = writer else { return Ok(None) };
            tokio::task::yield_now().await;
            let mut text = String::new();
            let writer = match writer.part(&mut text)? {
                Done::Yes => None,
                Done::No => Some(writer),
            };
            Ok(Some((Bytes::from(text), (writer, None))))
        });
        Body::from_stream(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_its_list_and_run_and_for_five_minutes() {
        let made = Token {
            v: TOKEN_VERSION.into(),
            run: "one".into(),
            at: 60_000,
            list: "test/g/ns/tallies".into(),
            rv: 7,
            after: "k".into(),
        };
        let text = encode_token(&made);
        let read = |list: &str, run: &str, seconds: u64| {
            Token::read(&text, list, run, Duration::from_secs(seconds))
                .map_err(|error| (error.code.as_u16(), error.reason))
        };
        let expired = || Err((410, "Expired"));
        assert_eq!(read("test/g/ns/tallies", "one", 360), Ok(made.clone()));
        assert_eq!(read("test/g/ns/tallies", "one", 361), expired());
        assert_eq!(read("test/g/ns/tallies", "one", 59), expired(), "it is not made yet");
        assert_eq!(read("test/g/ns/tallies", "other", 61), expired());
        assert_eq!(read("test/g/other/tallies", "one", 61), Err((400, "BadRequest")));
    }
}
