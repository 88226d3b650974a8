use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tideline_apiserver::{ApiServer, Config, Identity, SpaceConfig};
use tideline_store::{Commit, KeyRange, Op, SqliteStore, Store};

/// The longest that a test waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server with one space, `test`.
pub(crate) struct Api {
    pub(crate) server: Arc<ApiServer>,
    pub(crate) store: Arc<SqliteStore>,
    pub(crate) space: String,
    pub(crate) identity: Identity,
}

/// An answer: its status and its document.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.code), "{} {}", self.code, self.body);
        self.body
    }

    /// The failure in short: code, reason, message.
    #[track_caller]
    pub(crate) fn failure(&self) -> (u16, &str, &str) {
        assert_eq!(self.body["kind"], "Status", "{}", self.body);
        assert_eq!(self.body["code"], self.code);
        (self.code, self.body["reason"].as_str().expect("reason"), self.body["message"].as_str().expect("message"))
    }
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::with(SpaceConfig::default()).await
    }

    pub(crate) async fn with(config: SpaceConfig) -> Self {
        let store = SqliteStore::in_memory().expect("a store");
        let settings = Config { bookmark_interval: Duration::from_millis(50), ..Config::default() };
        let server = ApiServer::new(Arc::clone(&store) as _, settings).await.expect("a server");
        server.create_space("test", config).await.expect("a space");
        Self { server, store, space: "test".to_owned(), identity: Identity::system() }
    }

    /// Another server or space on the same store.
    pub(crate) fn at(&self, server: &Arc<ApiServer>, space: &str) -> Self {
        let (server, store) = (Arc::clone(server), Arc::clone(&self.store));
        Self { server, store, space: space.to_owned(), identity: self.identity.clone() }
    }

    /// The same, as somebody else.
    pub(crate) fn as_user(&self, user: &str) -> Self {
        Self { identity: Identity::new(user, []), ..self.at(&self.server, &self.space) }
    }

    pub(crate) async fn raw(&self, request: Request<Body>) -> Response<Body> {
        self.server.call(&self.space, self.identity.clone(), request).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, media: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .header("user-agent", "tester/1.0")
            .body(body.into())
            .expect("a request");
        answer(self.raw(request).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "", Body::empty()).await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        let request = Request::builder().uri(path).header("accept", accept).body(Body::empty()).expect("a request");
        answer(self.raw(request).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/merge-patch+json", body.to_string()).await
    }

    pub(crate) async fn apply(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PATCH, path, "application/apply-patch+yaml", body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "", Body::empty()).await
    }

    /// Opens a watch; the path has its query.
    pub(crate) async fn watch(&self, path: &str) -> Lines {
        let response = self.raw(Request::builder().uri(path).body(Body::empty()).expect("a request")).await;
        assert_eq!(response.status(), 200);
        Lines::new(response.into_body())
    }

    /// Puts into the store what no request can: an object that is too deep to be read, by the end of its key.
    pub(crate) async fn make_unreadable(&self, key: &str) {
        self.overwrite(key, nested(200).into()).await;
    }

    /// Stores this at the key that ends so, past all requests. Returns what was there.
    pub(crate) async fn overwrite(&self, key: &str, value: Bytes) -> Bytes {
        let everything = KeyRange { start: Bytes::new(), end: Bytes::from_static(&[0xff]) };
        let page = self.store.range(everything, None, 1_000).await.expect("a page");
        let item = page.items.iter().find(|item| item.key.ends_with(key.as_bytes())).expect("the object");
        let ops = vec![Op::Put(item.key.clone(), value)];
        self.store.commit(Commit { compare: Vec::new(), ops }).await.expect("committed");
        item.value.clone()
    }

    /// Reads until the answer is as wanted.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Answer) -> bool) -> Answer {
        let waiting = async {
            loop {
                let answer = self.get(path).await;
                if wanted(&answer) {
                    return answer;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{path} did not become as wanted"))
    }
}

pub(crate) async fn answer(response: Response<Body>) -> Answer {
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    let warnings = parts.headers.get_all("warning");
    Answer {
        code: parts.status.as_u16(),
        body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        warnings: warnings.iter().map(|value| value.to_str().expect("text").to_owned()).collect(),
    }
}

/// The events of a watch.
pub(crate) struct Lines {
    body: axum::body::BodyDataStream,
    buffer: BytesMut,
}

impl Lines {
    fn new(body: Body) -> Self {
        Self { body: body.into_data_stream(), buffer: BytesMut::new() }
    }

    /// The next event, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let more: Option<Result<Bytes, _>> =
                tokio::time::timeout(PATIENCE, self.body.next()).await.expect("an event in time");
            self.buffer.extend_from_slice(&more?.expect("a whole body"));
        }
    }

    /// The next event in short: type and name.
    pub(crate) async fn short(&mut self) -> (String, String) {
        let event = self.next().await.expect("an event");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&event["object"]["metadata"]["name"]))
    }
}

pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}})
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "example.com/main:1"}]},
        },
    }})
}

/// An object of so many levels, as text.
pub(crate) fn nested(levels: usize) -> String {
    format!("{}{}", r#"{"a":"#.repeat(levels - 1) + "{", "}".repeat(levels))
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

pub(crate) fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}
