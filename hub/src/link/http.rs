//! The link over HTTP: reads requests, checks their signatures, signs every answer. Decides nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::any;
use serde::Serialize;
use tideline_common::limits::LINK_MESSAGE_BYTES_MAX;
use tideline_common::signature::{self, Claims, Parameters, RawHeaders, SigningKey, VerifyingKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    BODIES_PATH, DESIRED_PATH, ENROL_PATH, EnrolAnswer, EnrolRequest, REPORTED_PATH, Refusal, RefusalKind, SESSION_PATH,
};
use tideline_common::{HubId, TargetId};

use super::core;

/// Where a link's path begins, whatever prefix a proxy put before it.
const LOGICAL_ROOT: &str = "/link/v1/";

/// What stands behind the listener.
pub trait Service: Send + Sync + 'static {
    /// The key that a target signs with; or why there is none: the target is gone, or the inventory was not read yet.
    fn target_key(&self, target: TargetId) -> Result<VerifyingKey, Refusal>;

    /// The key of an enrolment token, by its name.
    fn token_key(&self, token: &str) -> impl Future<Output = Option<VerifyingKey>> + Send;

    /// A request signed by that token's key.
    fn enrol(&self, request: EnrolRequest) -> impl Future<Output = Result<EnrolAnswer, Refusal>> + Send;

    /// A request signed by that target's key. Dropping the future abandons it.
    fn handle(&self, target: TargetId, request: core::Request) -> impl Future<Output = Result<Reply, Refusal>> + Send;
}

/// An answer, ready to be written.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Reply {
    Core(core::Answer),
    Bodies(tideline_common::wire::v1::BodiesAnswer),
}

/// Who signs the answers.
#[derive(Debug)]
pub struct Signer {
    pub hub: HubId,
    pub key: SigningKey,
}

struct Link<S> {
    service: Arc<S>,
    signer: Arc<Signer>,
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service), signer: Arc::clone(&self.signer) }
    }
}

/// Serves [`LOGICAL_ROOT`].
pub fn router<S: Service>(service: Arc<S>, signer: Arc<Signer>) -> Router {
    Router::new().route("/link/v1/{*rest}", any(answer::<S>)).with_state(Link { service, signer })
}

/// One request as it came, read whole.
struct Received {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    content: Vec<u8>,
}

async fn answer<S: Service>(State(link): State<Link<S>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(content) = to_bytes(body, LINK_MESSAGE_BYTES_MAX).await else {
        let message = format!("a message may have {LINK_MESSAGE_BYTES_MAX} bytes");
        return link.refuse("", &refusal(RefusalKind::TooLarge, message));
    };
    let received = Received { method: parts.method, uri: parts.uri, headers: parts.headers, content: content.to_vec() };
    let claims = match signature::claims(received.raw()) {
        Ok(claims) => claims,
        Err(error) => return link.refuse("", &refusal(RefusalKind::Unauthenticated, error.to_string())),
    };
    let nonce = claims.nonce.clone();
    let done = if received.uri.path().ends_with(ENROL_PATH) {
        link.enrol(&received, &claims).await
    } else {
        link.target(&received, &claims).await
    };
    done.unwrap_or_else(|refused| link.refuse(&nonce, &refused))
}

impl<S: Service> Link<S> {
    async fn enrol(&self, received: &Received, claims: &Claims) -> Result<Response, Refusal> {
        let key = self.service.token_key(&claims.key_id).await.ok_or_else(unknown_key)?;
        received.verify(&key)?;
        let request: EnrolRequest = received.message()?;
        if request.token != claims.key_id {
            return Err(refusal(RefusalKind::TokenRefused, "the request names another token than it is signed by"));
        }
        let answer = self.service.enrol(request).await?;
        Ok(self.sign(StatusCode::OK, &claims.nonce, &answer))
    }

    async fn target(&self, received: &Received, claims: &Claims) -> Result<Response, Refusal> {
        let target: TargetId = claims.key_id.parse().map_err(|_| unknown_key())?;
        let key = self.service.target_key(target)?;
        received.verify(&key)?;
        let reply = self.service.handle(target, received.request()?).await?;
        Ok(self.sign(StatusCode::OK, &claims.nonce, &reply))
    }

    fn refuse(&self, nonce: &str, refusal: &Refusal) -> Response {
        let status = StatusCode::from_u16(refusal.refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = self.sign(status, nonce, refusal);
        if let Some(seconds) = refusal.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    fn sign<T: Serialize>(&self, status: StatusCode, nonce: &str, message: &T) -> Response {
        let Ok((media_type, content)) = codec::encode(message) else {
            return bare(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let hub = self.signer.hub.to_string();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let headers = signature::sign_response(
            &self.signer.key,
            signature::Response { status: status.as_u16(), content: &content },
            Parameters { key_id: &hub, created, nonce },
        );
        let mut response = Response::new(Body::from(content));
        *response.status_mut() = status;
        let to = response.headers_mut();
        to.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        to.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
        for (name, value) in [
            (signature::CONTENT_DIGEST, headers.content_digest),
            (signature::SIGNATURE_INPUT, headers.signature_input),
            (signature::SIGNATURE, headers.signature),
        ] {
            // A nonce with characters that no header may hold was refused by whoever parsed it.
            if let Ok(value) = HeaderValue::try_from(value) {
                to.insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}

impl Received {
    fn raw(&self) -> RawHeaders<'_> {
        let get = |name: &str| self.headers.get(name).and_then(|value| value.to_str().ok());
        RawHeaders {
            content_digest: get(signature::CONTENT_DIGEST),
            signature_input: get(signature::SIGNATURE_INPUT),
            signature: get(signature::SIGNATURE),
        }
    }

    /// The path that is signed: without what a proxy may have put before it.
    fn logical_path(&self) -> &str {
        let path = self.uri.path();
        path.find(LOGICAL_ROOT).map_or(path, |at| &path[at..])
    }

    fn verify(&self, key: &VerifyingKey) -> Result<(), Refusal> {
        let request = signature::Request {
            method: self.method.as_str(),
            path: self.logical_path(),
            query: self.uri.query().unwrap_or(""),
            content: &self.content,
        };
        signature::verify_request(key, request, self.raw())
            .map(drop)
            .map_err(|error| refusal(RefusalKind::Unauthenticated, error.to_string()))
    }

    fn message<T: serde::de::DeserializeOwned>(&self) -> Result<T, Refusal> {
        let media_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        codec::decode(media_type, &self.content).map_err(|error| refusal(RefusalKind::Malformed, error.to_string()))
    }

    fn request(&self) -> Result<core::Request, Refusal> {
        match (self.method.as_str(), self.logical_path()) {
            ("POST", SESSION_PATH) => self.message().map(core::Request::Session),
            ("GET", DESIRED_PATH) => codec::parse_desired_query(self.uri.query().unwrap_or(""))
                .map(core::Request::Desired)
                .map_err(|error| refusal(RefusalKind::Malformed, error.to_string())),
            ("POST", BODIES_PATH) => self.message().map(core::Request::Bodies),
            ("PUT", REPORTED_PATH) => self.message().map(|report| core::Request::Reported(Box::new(report))),
            (method, path) => Err(refusal(RefusalKind::Malformed, format!("there is no {method} {path}"))),
        }
    }
}

fn refusal(refusal: RefusalKind, message: impl Into<String>) -> Refusal {
    Refusal { refusal, message: message.into(), retry_after_seconds: None }
}

/// One answer for every identity that is not known, so that nothing is learnt from it.
fn unknown_key() -> Refusal {
    refusal(RefusalKind::Unauthenticated, "this hub knows no such key")
}

fn bare(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The address that agents and clients use when no public one is given.
pub fn default_url(listen: SocketAddr) -> String {
    let host = if listen.ip().is_unspecified() { "127.0.0.1".to_owned() } else { listen.ip().to_string() };
    if listen.is_ipv6() && !listen.ip().is_unspecified() {
        format!("https://[{host}]:{}", listen.port())
    } else {
        format!("https://{host}:{}", listen.port())
    }
}
