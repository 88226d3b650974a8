//! The server behind a listener, and behind an in-memory client.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response, Uri};

use crate::identity::{Authenticator, Credentials, Identity, OnAuthenticated, PeerCertificate};
use crate::path::SPACES;
use crate::server::{ApiServer, failure};
use crate::state::Inner;
use crate::status::ApiError;

/// When a client that has too much in use is to try again.
const RETRY_SECONDS: u64 = 1;

impl ApiServer {
    /// Serves every space below `/spaces/<space>/`, over whatever listener the embedder has.
    ///
    /// Authentication comes before anything else: without it a request learns nothing and costs no read.
    pub fn router(&self, authenticator: Arc<dyn Authenticator>) -> Router {
        let door = Door { inner: Arc::clone(self.inner()), authenticator };
        Router::new().fallback(move |request: Request<Body>| {
            let door = door.clone();
            async move {
                let Some(rest) = request.uri().path().strip_prefix(SPACES) else {
                    return failure(&ApiError::no_such_path());
                };
                let (space, path) = rest.split_once('/').unwrap_or((rest, ""));
                let (space, path) = (space.to_owned(), format!("/{path}"));
                door.enter(&space, &path, request).await
            }
        })
    }

    /// Serves one space at the root path, as a cluster of its own.
    pub fn router_at_root(&self, space: &str, authenticator: Arc<dyn Authenticator>) -> Router {
        let door = Door { inner: Arc::clone(self.inner()), authenticator };
        let space: Arc<str> = space.into();
        Router::new().fallback(move |request: Request<Body>| {
            let (door, space) = (door.clone(), Arc::clone(&space));
            async move {
                let path = request.uri().path().to_owned();
                door.enter(&space, &path, request).await
            }
        })
    }

    /// A client's view of one space without sockets: a `tower::Service` that in-process Kubernetes clients take.
    pub fn service(&self, space: &str, identity: Identity) -> SpaceService {
        SpaceService { inner: Arc::clone(self.inner()), space: space.into(), identity }
    }
}

#[derive(Clone)]
struct Door {
    inner: Arc<Inner>,
    authenticator: Arc<dyn Authenticator>,
}

impl Door {
    async fn enter(&self, space: &str, path: &str, mut request: Request<Body>) -> Response<Body> {
        let bearer = request
            .headers()
            .get(AUTHORIZATION)
            .and_then(|value| value.to_str().ok())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim());
        let certificate = request.extensions().get::<PeerCertificate>();
        let Ok(identity) = self.authenticator.authenticate(Credentials { space, bearer, certificate }) else {
            return failure(&ApiError::unauthorized());
        };
        if let Some(on_authenticated) = request.extensions().get::<OnAuthenticated>()
            && let Err(crowded) = on_authenticated.tell(&identity)
        {
            return failure(&ApiError::too_many_requests(crowded.message).retry_after(RETRY_SECONDS));
        }
        let target = match request.uri().query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let Ok(uri) = target.parse::<Uri>() else { return failure(&ApiError::no_such_path()) };
        *request.uri_mut() = uri;
        self.inner.answer(space, identity, request).await
    }
}

/// See [`ApiServer::service`].
#[derive(Clone)]
pub struct SpaceService {
    inner: Arc<Inner>,
    space: Arc<str>,
    identity: Identity,
}

impl<B> tower::Service<Request<B>> for SpaceService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { inner, space, identity } = self.clone();
        Box::pin(async move { Ok(inner.answer(&space, identity, request.map(Body::new)).await) })
    }
}
