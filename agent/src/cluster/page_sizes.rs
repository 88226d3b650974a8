//! Pages of lists that are no larger than there is memory for.
//!
//! A page is bounded by its objects, which anybody may make large: what comes by under our label, or in a namespace, need not be
//! ours. A page that grows too large is given up, and asked for again with half as many objects. The API server names where the
//! next page begins, so that whoever turns the pages need not know.
//!
//! Few pages are read at once: after a start, and after each outage, every kind is listed at the same moment.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use kube::client::Body;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tower::BoxError;
use tracing::debug;

use super::deadlines::TooLong;
use super::request::{ANSWER_BYTES_MAX, LIMIT, page_limit};

/// Bytes of a page with more than one object: twice a page of 1,000 objects' metadata at 2 KiB, the largest that is usual. kube
/// holds a page three times over while it decodes it.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// A page is doubled again after one of no more bytes than this, and then still fits.
const PAGE_BYTES_LOW: usize = PAGE_BYTES_MAX / 4;
/// Pages that are read at once: 16 MiB of bodies where all are as large as they may be, and 48 MiB while kube decodes them. A page
/// takes tens of milliseconds, so that more would keep an API server no busier.
const PAGES_AT_ONCE: usize = 4;
/// A page whose answer has not begun after this keeps no other waiting: lists that hang, one for each kind that a silent
/// webhook converts, would use up all the places. Until its answer begins it takes no memory.
const BEGINS_SOON: Duration = Duration::from_secs(2);
/// Lists whose pages are known to be large. All are forgotten where there are more: each costs a few requests to find out.
const LISTS_MAX: usize = 1_000;

const _: () = assert!(PAGE_BYTES_MAX < ANSWER_BYTES_MAX, "a page of one object may hold the largest object");

#[derive(Debug)]
pub(super) struct PageSizes {
    /// In objects, of lists that were too large: by path.
    sizes: Mutex<BTreeMap<String, u32>>,
    places: Semaphore,
}

impl Default for PageSizes {
    fn default() -> Self {
        Self { sizes: Mutex::default(), places: Semaphore::new(PAGES_AT_ONCE) }
    }
}

type Fitted<B> = Response<Either<Full<Bytes>, B>>;

impl PageSizes {
    /// Sends a request; one for a page of a list with so many objects as fit, when it has its turn. A page of one object is
    /// bounded as any answer.
    pub(super) async fn fit<B, A>(
        &self,
        request: Request<Body>,
        send: impl Fn(Request<Body>) -> A,
    ) -> Result<Fitted<B>, BoxError>
    where
        A: Future<Output = Result<Response<B>, BoxError>>,
        B: http_body::Body<Data = Bytes, Error = BoxError>,
    {
        let Some(wanted) = page_limit(&request) else {
            return Ok(send(request).await?.map(Either::Right));
        };
        let (parts, _empty) = request.into_parts();
        let path = parts.uri.path().to_owned();
        loop {
            let size = self.of(&path).map_or(wanted, |size| size.min(wanted));
            let mut parts = parts.clone();
            parts.uri = with_limit(&parts.uri, size)?;
            let (answer, place) = self.place(send(Request::from_parts(parts, Body::empty()))).await;
            let (head, body) = answer?.into_parts();
            let bytes_max = if size > 1 { PAGE_BYTES_MAX } else { ANSWER_BYTES_MAX };
            let collected = Limited::new(body, bytes_max).collect().await;
            drop(place);
            match collected {
                Ok(body) => {
                    let body = body.to_bytes();
                    if size < wanted && head.status.is_success() && body.len() <= PAGE_BYTES_LOW {
                        self.set(&path, (size * 2 < wanted).then_some(size * 2));
                    }
                    return Ok(Response::from_parts(head, Either::Left(Full::new(body))));
                }
                Err(error) if size > 1 && (error.is::<LengthLimitError>() || error.is::<TooLong>()) => {
                    debug!(
                        path,
                        objects = size,
                        "a page of a list is too large, and is read anew with half the objects"
                    );
                    self.set(&path, Some(size / 2));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Awaits the beginning of an answer that is read next, and the place in which that is done.
    async fn place<T>(&self, answer: impl Future<Output = T>) -> (T, Option<SemaphorePermit<'_>>) {
        // It is never closed.
        let place = self.places.acquire().await.ok();
        let mut answer = pin!(answer);
        if let Ok(answer) = timeout(BEGINS_SOON, &mut answer).await {
            return (answer, place);
        }
        drop(place);
        let answer = answer.await;
        (answer, self.places.acquire().await.ok())
    }

    fn of(&self, path: &str) -> Option<u32> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }

    fn set(&self, path: &str, size: Option<u32>) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.remove(path);
        if let Some(size) = size {
            if sizes.len() >= LISTS_MAX {
                sizes.clear();
            }
            sizes.insert(path.to_owned(), size);
        }
    }
}

fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, BoxError> {
    let query =
        uri.query().unwrap_or_default().split('&').map(|parameter| {
            if parameter.starts_with(LIMIT) { format!("{LIMIT}{limit}") } else { parameter.to_owned() }
        });
    let path = format!("{}?{}", uri.path(), query.collect::<Vec<_>>().join("&"));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(path)?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests;
