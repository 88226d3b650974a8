//! Somebody has the key of an agent, and uses it for all that it is worth against the real hub.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tideline_common::replay::RunNumbers;
use tideline_common::signature::{self, CONTENT_DIGEST, Parameters, RUN, SIGNATURE, SIGNATURE_INPUT, SigningKey};
use tideline_common::wire::codec;
use tideline_common::wire::v1::{
    ApprovedHeld, Continuity, DESIRED_PATH, Decommission, DesiredAnswer, DesiredPage, DesiredRequest, Instance,
    MEDIA_TYPE, REPORTED_PATH, SESSION_PATH, SessionAnswer, SessionRequest,
};
use tideline_common::{Capabilities, Digest, InstanceId, SessionName};
use tideline_tests::{EmbeddedCluster, Scratch, eventually_ok, require_binaries, run_to_end};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use crate::crowds::tls;
use crate::harness::{Hub, SOON, Site};

/// Pages of 1,000 objects that the target reports and that nobody assigned: more bytes than are kept of one target.
const PAGES: u64 = 60;
/// Messages of the largest size that are sent besides, as few bytes on the wire: more than a key may send at once.
const LARGE_MESSAGES: u64 = 600;

/// Signs with the key of an agent, as that does.
pub(crate) struct Thief {
    key: SigningKey,
    target: String,
    cluster: String,
    /// The stored session that was stolen with it.
    persisted: SessionName,
    numbers: RunNumbers,
    sent: u64,
    wire: SendRequest<Full<Bytes>>,
    driven: JoinHandle<Result<(), hyper::Error>>,
}

impl Thief {
    /// With the identity in this file, at a hub to which the wire leads.
    pub(crate) async fn with(identity: &Path, wire: TlsStream<TcpStream>) -> Result<Self> {
        let identity: Value = serde_json::from_slice(&fs::read(identity)?)?;
        let identity = &identity["identity"];
        let text = |value: &Value| value.as_str().map(str::to_owned).context("it is text");
        let seed: Digest = text(&identity["seed"])?.parse()?;
        let (wire, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(wire)).await?;
        Ok(Self {
            key: SigningKey::from_seed(*seed.as_bytes()),
            target: text(&identity["enrolled"]["target"])?,
            cluster: text(&identity["cluster"])?,
            persisted: serde_json::from_value(identity["session"].clone())?,
            numbers: RunNumbers::default(),
            sent: 0,
            wire,
            driven: tokio::spawn(connection),
        })
    }

    /// Sends this, with the number that the hub wants, and returns the answer.
    async fn send(
        &mut self,
        method: &str,
        path: &str,
        media_type: &str,
        content: &[u8],
    ) -> Result<(StatusCode, Bytes)> {
        let answer = self.exchange((method, path, ""), media_type, content).await?;
        Ok((answer.status(), answer.into_body()))
    }

    async fn exchange(
        &mut self,
        (method, path, query): (&str, &str, &str),
        media_type: &str,
        content: &[u8],
    ) -> Result<Response<Bytes>> {
        let digest = signature::content_digest(content);
        for _ in 0..3 {
            self.sent += 1;
            let run = self.numbers.take();
            let mut random = [0; signature::NONCE_BYTES];
            random[..8].copy_from_slice(&self.sent.to_be_bytes());
            let nonce = signature::nonce(random);
            let request = signature::Request { method, path, query, content_digest: &digest, run: &run };
            let parameters = Parameters { key_id: &self.target, created: 1, nonce: &nonce };
            let headers = signature::sign_request(&self.key, request, parameters);
            let mut request = Request::builder().method(method).uri(format!("https://localhost{path}?{query}"));
            for (name, value) in [
                ("content-type", media_type),
                (CONTENT_DIGEST, &digest),
                (RUN, &run),
                (SIGNATURE_INPUT, &headers.signature_input),
                (SIGNATURE, &headers.signature),
            ] {
                request = request.header(name, value);
            }
            let body = Full::new(Bytes::copy_from_slice(content));
            let answer = timeout(SOON, self.wire.send_request(request.body(body)?)).await.context("an answer")??;
            let said = answer.headers().get(RUN).and_then(|run| run.to_str().ok()?.parse().ok());
            if let Some(said) = said {
                self.numbers.answered(said);
            }
            let (head, body) = answer.into_parts();
            let content = body.collect().await?.to_bytes();
            if head.status != StatusCode::CONFLICT || !content.windows(16).any(|at| at == b"BadRequestNumber") {
                return Ok(Response::from_parts(head, content));
            }
        }
        anyhow::bail!("the hub gives no number")
    }

    async fn send_json(&mut self, method: &str, path: &str, message: &Value) -> Result<(StatusCode, Bytes)> {
        self.send(method, path, MEDIA_TYPE, &serde_json::to_vec(message)?).await
    }

    /// What the hub tells the agent to keep, as far as it is on the first page.
    pub(crate) async fn is_told(&mut self, session: SessionName) -> Result<DesiredPage> {
        let request = DesiredRequest {
            session,
            since: None,
            digest: None,
            after: None,
            wait_seconds: 0,
            approved: ApprovedHeld::default(),
            decommission: Decommission::No,
            shown: None,
            history: Continuity::Whole,
            stands: None,
        };
        let asked = ("GET", DESIRED_PATH, &*codec::desired_query(&request));
        let answer = self.exchange(asked, MEDIA_TYPE, &[]).await?;
        let media_type = answer.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
        match codec::decode(media_type, answer.body())? {
            DesiredAnswer::Page(page) => Ok(page),
            other => anyhow::bail!("{other:?}"),
        }
    }

    /// Opens a session as the agent's next start would.
    pub(crate) async fn opens(&mut self) -> Result<SessionName> {
        let mut request = SessionRequest {
            instance: Instance { id: InstanceId(77), host: "elsewhere".to_owned() },
            persisted: self.persisted,
            last: self.persisted.number,
            capabilities: Capabilities::all(),
            ..SessionRequest::default()
        };
        request.facts.cluster = Some(self.cluster.parse()?);
        let (status, said) = self.send_json("POST", SESSION_PATH, &json!(request)).await?;
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&said));
        let answer: SessionAnswer = serde_json::from_slice(&said)?;
        ensure!(!answer.outdated, "{answer:?}");
        Ok(answer.session)
    }
}

fn report(session: SessionName, seq: u64, objects: &[Value]) -> Value {
    json!({"session": session, "seq": seq, "inSync": true, "objects": objects})
}

/// A thousand objects that are reported under the target's own mark.
fn invented(page: u64) -> Vec<Value> {
    let object = |number: u64| {
        json!({
            "group": "", "kind": "ConfigMap", "namespace": "shop", "name": format!("x-{page}-{number}"),
            "sourceUid": format!("u-{page}-{number}"), "progress": "DeletionHeld", "reason": "HistoryLost",
            "message": "m".repeat(1_000), "health": "Unknown",
        })
    };
    (0..1_000).map(object).collect()
}

async fn is_in_breach(hub: &Hub, name: &str) -> Result<bool> {
    let conditions = hub.get("root", "SyncTarget", name).await?.data["status"]["conditions"].clone();
    let conditions = conditions.as_array().context("conditions")?;
    Ok(conditions.iter().any(|condition| condition["type"] == "TooMuchReported" && condition["status"] == "True"))
}

#[tokio::test]
async fn a_stolen_key_costs_other_targets_nothing_and_the_hub_little() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    let dir = Scratch::new("other")?;
    let other = EmbeddedCluster::start(dir.path(), "other").await?;
    let _agent = site.hub.agent("other", &other).await?;

    // The machine is stolen: nobody else has the key any more.
    site.agent.process.kill()?;
    let wire = tls(&site.hub.kubeconfig(), site.hub.address()).await?;
    let mut thief = Thief::with(&site.agent.data_dir().join("identity.json"), wire).await?;
    let session = thief.opens().await?;
    let before = site.hub.process.resident_bytes()?;

    let flood = async {
        for page in 0..PAGES {
            let (status, said) =
                thief.send_json("PUT", REPORTED_PATH, &report(session, page + 1, &invented(page))).await?;
            ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&said));
        }
        // As large as a message may be, and small on the wire.
        let mut large = report(session, 1, &invented(0)[..1]);
        large["objects"][0]["padding"] = json!(vec![json!([]); ((4 << 20) - 4_000) / "[],".len()]);
        let (media_type, content) = codec::encode(&large)?;
        ensure!(content.len() < 64 << 10, "{}", content.len());
        for sent in 0..LARGE_MESSAGES {
            let (status, said) = thief.send("PUT", REPORTED_PATH, media_type, &content).await?;
            if status == StatusCode::SERVICE_UNAVAILABLE {
                let said = String::from_utf8_lossy(&said).into_owned();
                ensure!(said.contains("too many bytes"), "{said}");
                return Ok(sent);
            }
            ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&said));
        }
        anyhow::bail!("{LARGE_MESSAGES} messages of 4 MiB were read")
    };
    let others = async {
        for number in 0..3 {
            site.hub.delivers(&format!("web-{number}"), &other).await?;
        }
        anyhow::Ok(())
    };
    let (flooded, served) = tokio::join!(flood, others);
    served.context("the other target")?;
    ensure!(flooded? > 10, "an agent that is asked for everything may send that much");

    eventually_ok(SOON, "the breach", async || {
        ensure!(is_in_breach(&site.hub, "store").await?, "it is not shown");
        Ok(())
    })
    .await?;
    ensure!(!is_in_breach(&site.hub, "other").await?, "the other has said nothing");
    let cost = site.hub.process.peak_bytes()?.saturating_sub(before);
    // 64 MiB of words, as objects in memory, and a message of 4 MiB while it is read.
    ensure!(cost < 256 << 20, "{cost} bytes");

    let mut revoke = site.hub.command(&["targets", "revoke", "store"]);
    ensure!(run_to_end(&mut revoke, "", SOON).await?.code()? == 0);
    eventually_ok(SOON, "the end of it", async || {
        let (status, said) = thief.send_json("PUT", REPORTED_PATH, &report(session, PAGES + 1, &[])).await?;
        ensure!(status == StatusCode::FORBIDDEN, "{status}: {}", String::from_utf8_lossy(&said));
        Ok(())
    })
    .await?;
    site.hub.delivers("after", &other).await?;
    thief.driven.abort();
    Ok(())
}
