//! One agent's connection: TLS, HTTP/1.1 and signatures as the real agent has them. What the hub signs is not verified.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_common::TargetId;
use tideline_common::replay::{RUNS_MAX, RunNumbers};
use tideline_common::signature::{
    self, CONTENT_DIGEST, NONCE_BYTES, Parameters, RUN, SIGNATURE, SIGNATURE_INPUT, SigningKey,
};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{DESIRED_PATH, DesiredAnswer, DesiredRequest, MEDIA_TYPE};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

/// Longest wait for what the hub does not hold back.
const ANSWER_MAX: Duration = Duration::from_mins(2);

/// Who speaks.
pub(crate) struct Identity {
    pub(crate) key: SigningKey,
    pub(crate) target: TargetId,
}

/// A connection that is open.
pub(crate) struct Wire {
    sender: SendRequest<Full<Bytes>>,
    driven: JoinHandle<Result<(), hyper::Error>>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driven.abort();
    }
}

impl Wire {
    pub(crate) async fn connect(hub: SocketAddr, tls: Arc<ClientConfig>) -> Result<Self> {
        let stream = TcpStream::connect(hub).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(tls).connect(ServerName::try_from("localhost")?, stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driven: tokio::spawn(connection) })
    }

    /// Sends a message, and reads the answer.
    pub(crate) async fn say<M: Serialize + Sync, A: DeserializeOwned>(
        &mut self,
        who: (&Identity, &mut RunNumbers),
        (method, path): (&str, &str),
        message: &M,
    ) -> Result<A> {
        let (media_type, content) = codec::encode(message)?;
        self.exchange(who, (method, path, ""), (media_type, Bytes::from(content)), ANSWER_MAX).await
    }

    /// Polls, and waits as long as that asks for.
    pub(crate) async fn poll(
        &mut self,
        who: (&Identity, &mut RunNumbers),
        request: &DesiredRequest,
    ) -> Result<DesiredAnswer> {
        let wait = Duration::from_secs(request.wait_seconds) + ANSWER_MAX;
        let query = codec::desired_query(request);
        self.exchange(who, ("GET", DESIRED_PATH, &query), (MEDIA_TYPE, Bytes::new()), wait).await
    }

    async fn exchange<A: DeserializeOwned>(
        &mut self,
        (identity, numbers): (&Identity, &mut RunNumbers),
        (method, path, query): (&str, &str, &str),
        (media_type, content): (&str, Bytes),
        wait: Duration,
    ) -> Result<A> {
        let digest = signature::content_digest(&content);
        let key_id = identity.target.to_string();
        for _ in 0..=RUNS_MAX {
            let (run, nonce) = (numbers.take(), signature::nonce(Uuid::new_v4().into_bytes()));
            let signed = signature::Request { method, path, query, content_digest: &digest, run: &run };
            let parameters = Parameters { key_id: &key_id, created: 1, nonce: &nonce };
            let headers = signature::sign_request(&identity.key, signed, parameters);
            let request = Request::builder()
                .method(method)
                .uri(format!("{path}?{query}"))
                .header(HOST, "localhost")
                .header(CONTENT_TYPE, media_type)
                .header(CONTENT_DIGEST, &digest)
                .header(RUN, &run)
                .header(SIGNATURE_INPUT, &headers.signature_input)
                .header(SIGNATURE, &headers.signature)
                .body(Full::new(content.clone()))?;
            self.sender.ready().await?;
            let answer = timeout(wait, self.sender.send_request(request)).await.context("no answer")??;
            let (head, body) = answer.into_parts();
            let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
            if let Ok(said) = text(RUN).parse() {
                numbers.answered(said);
            }
            let body = timeout(ANSWER_MAX, body.collect()).await.context("half an answer")??.to_bytes();
            if head.status == StatusCode::CONFLICT && body.windows(16).any(|at| at == b"BadRequestNumber") {
                continue;
            }
            ensure!(
                head.status == StatusCode::OK,
                "{method} {path}: {}: {}",
                head.status,
                String::from_utf8_lossy(&body)
            );
            return Ok(codec::decode(text(CONTENT_TYPE.as_str()), &body)?);
        }
        bail!("the hub gives no number")
    }
}

const _: () = assert!(NONCE_BYTES == 16, "a random UUID is a nonce");
