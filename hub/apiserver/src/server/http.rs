//! From an HTTP request to the operation it asks for, and back.

use std::io::Write as _;
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, RETRY_AFTER, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use crate::body;
use crate::call::{Call, Content, Place, Reply};
use crate::catalog::{Served, Source};
use crate::identity::{Attributes, Identity, Target};
use crate::long_work::Work;
use crate::negotiate::JSON;
use crate::path::{Path, ResourcePath};
use crate::query::{ListOptions, Query};
use crate::schema::builtin;
use crate::state::Inner;
use crate::status::{ApiError, qualified};
use crate::{discovery, read, review, scale, watch, write};

impl Inner {
    pub(crate) async fn answer(
        self: &Arc<Self>,
        space: &str,
        identity: Identity,
        request: Request<Body>,
    ) -> Response<Body> {
        let gzip = accepts_gzip(request.headers());
        let work = Arc::new(Work::new(&self.long_work));
        let answer = async {
            match self.handle(space, identity, request, Arc::clone(&work)).await {
                Ok(reply) => respond(reply, gzip),
                Err(error) => failure(&error),
            }
        };
        work.run(answer).await
    }

    async fn handle(
        self: &Arc<Self>,
        space: &str,
        identity: Identity,
        request: Request<Body>,
        work: Arc<Work>,
    ) -> Result<Reply, ApiError> {
        let (parts, body) = request.into_parts();
        if parts.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            let why = format!("User {:?} cannot impersonate: impersonation is not served", identity.user);
            return Err(ApiError::forbidden("", "", "", &why));
        }
        let space = self.open(space)?;
        let path = Path::parse(parts.uri.path())?;
        let query = Query::parse(parts.uri.query())?;
        let call = Call { inner: Arc::clone(self), space, identity, headers: parts.headers, query, work };
        let Path::Resource(resource) = path else {
            call.authorize(&Attributes { verb: "get", target: Target::Path(parts.uri.path()) })?;
            if parts.method != Method::GET {
                return Err(ApiError::method_not_allowed(
                    "the server does not allow this method on the requested resource",
                ));
            }
            if path.is_openapi() {
                call.work.set_apart().await;
            }
            return discovery::answer(&call, &path);
        };
        call.resource(&parts.method, &resource, body).await
    }
}

impl Call {
    async fn resource(&self, method: &Method, path: &ResourcePath, body: Body) -> Result<Reply, ApiError> {
        let watching = self.query.flag("watch").unwrap_or(false);
        let verb = match (method, &path.name) {
            (&Method::GET, Some(_)) => "get",
            (&Method::GET, None) if watching => "watch",
            (&Method::GET, None) => "list",
            (&Method::POST, _) => "create",
            (&Method::PUT, Some(_)) => "update",
            (&Method::PATCH, Some(_)) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            (&Method::DELETE, None) => "deletecollection",
            _ => return Err(not_allowed()),
        };
        // As in a real server a namespace is in the scope of itself.
        let within = match (path.plural.as_str(), &path.name) {
            ("namespaces", Some(name)) if path.group.is_empty() => Some(name.as_str()),
            _ => path.namespace.as_deref(),
        };
        // Everybody may ask about themselves, as `system:basic-user` grants it.
        let about_self = path.group.starts_with("auth") && path.plural.starts_with("selfsubject");
        let attributes = Attributes {
            verb,
            target: Target::Resource {
                group: &path.group,
                resource: &path.plural,
                subresource: path.subresource.as_deref(),
                namespace: within,
                name: path.name.as_deref(),
            },
        };
        if !about_self {
            self.authorize(&attributes)?;
        }
        let served = self
            .space
            .catalog()
            .find(&path.group, &path.version, &path.plural)
            .ok_or_else(|| unknown_resource(path))?;
        if served.resource.namespaced != path.namespace.is_some() && (path.name.is_some() || path.namespace.is_some()) {
            return Err(ApiError::no_such_path());
        }
        let place = Place { served, namespace: path.namespace.clone() };
        let reply = self.dispatch(method, &place, path, body).await?;
        Ok(match &place.served.source {
            Source::Custom(custom) => reply.with_warnings(custom.deprecation.iter().cloned().collect()),
            Source::BuiltIn(_) | Source::Virtual(_) | Source::Review => reply,
        })
    }

    async fn dispatch(
        &self,
        method: &Method,
        place: &Place,
        path: &ResourcePath,
        body: Body,
    ) -> Result<Reply, ApiError> {
        let served = &place.served;
        if let Some(subresource) = path.subresource.as_deref() {
            let known = served.subresources.iter().any(|sub| sub.name == subresource);
            return match (&path.name, known) {
                (Some(name), true) => self.subresource(method, place, name, subresource, body).await,
                (None, _) | (_, false) => Err(unknown_subresource(path, subresource)),
            };
        }
        if matches!(served.source, Source::Review) {
            let bytes = self.body(served, body).await?;
            return if method == Method::POST { review::create(self, place, &bytes) } else { Err(not_allowed()) };
        }
        match (method, path.name.as_deref()) {
            (&Method::GET, Some(name)) => read::get(self, place, name).await,
            (&Method::GET, None) => {
                let options = ListOptions::parse(&self.query)?;
                if options.watch { watch::watch(self, place, options) } else { read::list(self, place, options).await }
            }
            _ if matches!(served.source, Source::Virtual(_)) => Err(ApiError::method_not_allowed(format!(
                "{} is computed by the server and read-only",
                qualified(&served.resource.group, &served.resource.plural)
            ))),
            (&Method::POST, None) if served.resource.namespaced == place.namespace.is_some() => {
                write::create(self, place, self.body(served, body).await?).await
            }
            (&Method::PUT, Some(name)) => write::replace(self, place, name, "", self.body(served, body).await?).await,
            (&Method::PATCH, Some(name)) => write::patch(self, place, name, "", self.body(served, body).await?).await,
            (&Method::DELETE, Some(name)) => write::delete(self, place, name, self.body(served, body).await?).await,
            // Namespaces alone are deleted one by one: each takes all that is in it along.
            (&Method::DELETE, None)
                if served.resource.namespaced == place.namespace.is_some() && served.has_verb("deletecollection") =>
            {
                write::delete_collection(self, place, self.body(served, body).await?).await
            }
            _ => Err(not_allowed()),
        }
    }

    /// Reads a body, and takes it up.
    async fn body(&self, served: &Served, body: Body) -> Result<Bytes, ApiError> {
        let bytes = body::collect(body).await?;
        if !bytes.is_empty() {
            self.take_up(served, bytes.len()).await;
        }
        Ok(bytes)
    }

    async fn subresource(
        &self,
        method: &Method,
        place: &Place,
        name: &str,
        subresource: &str,
        body: Body,
    ) -> Result<Reply, ApiError> {
        let served = &place.served;
        match (subresource, method) {
            ("scale", &Method::GET) => scale::get(self, place, name).await,
            ("scale", &Method::PUT) => scale::replace(self, place, name, self.body(served, body).await?).await,
            ("scale", &Method::PATCH) => scale::patch(self, place, name, self.body(served, body).await?).await,
            (_, &Method::GET) => read::get(self, place, name).await,
            (_, &Method::PUT) => write::replace(self, place, name, subresource, self.body(served, body).await?).await,
            (_, &Method::PATCH) => write::patch(self, place, name, subresource, self.body(served, body).await?).await,
            _ => Err(not_allowed()),
        }
    }
}

fn not_allowed() -> ApiError {
    ApiError::method_not_allowed("the server does not allow this method on the requested resource")
}

fn unknown_resource(path: &ResourcePath) -> ApiError {
    match builtin().resource(&path.group, &path.version, &path.plural) {
        Some(_) => ApiError::not_served(&format!("{} {}", path.version, qualified(&path.group, &path.plural))),
        None => ApiError::no_such_path(),
    }
}

fn unknown_subresource(path: &ResourcePath, subresource: &str) -> ApiError {
    let real = builtin()
        .resource(&path.group, &path.version, &path.plural)
        .is_some_and(|resource| resource.subresource(subresource.split('/').next().unwrap_or_default()).is_some());
    if real {
        ApiError::not_served(&format!("{}/{subresource}", qualified(&path.group, &path.plural)))
    } else {
        ApiError::no_such_path()
    }
}

/// Answers smaller than this are not worth compressing; the same as in kube-apiserver.
const GZIP_BYTES_MIN: usize = 128 << 10;

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|encoding| encoding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
}

fn respond(reply: Reply, gzip: bool) -> Response<Body> {
    let Reply { code, content, warnings } = reply;
    let (media, bytes) = match content {
        Content::Json(value) => (JSON, Bytes::from(value.to_string())),
        Content::Document(media, bytes) => (media, bytes),
        Content::Stream(body) => return finish(code, JSON, body, &warnings),
    };
    if gzip && bytes.len() >= GZIP_BYTES_MIN {
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
        if encoder.write_all(&bytes).is_ok()
            && let Ok(compressed) = encoder.finish()
        {
            let mut response = finish(code, media, Body::from(compressed), &warnings);
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            return response;
        }
    }
    finish(code, media, Body::from(bytes), &warnings)
}

/// Warnings sent with one answer, and their bytes in all; header space is bounded at both ends.
const WARNINGS_MAX: usize = 20;
const WARNING_BYTES_MAX: usize = 4 << 10;

fn finish(code: StatusCode, media: &'static str, body: Body, warnings: &[String]) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert("cache-control", HeaderValue::from_static("no-cache, private"));
    let mut room = WARNING_BYTES_MAX;
    for warning in warnings.iter().take(WARNINGS_MAX) {
        let plain: String = warning.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect();
        let text = format!("299 - \"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""));
        let Some(left) = room.checked_sub(text.len()) else { break };
        room = left;
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.append(HeaderName::from_static("warning"), value);
        }
    }
    response
}

pub(crate) fn failure(error: &ApiError) -> Response<Body> {
    if error.code == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::warn!(error = error.message, "request failed");
    }
    let mut response = finish(error.code, JSON, Body::from(error.to_value().to_string()), &[]);
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
