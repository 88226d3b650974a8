//! A peer between agent and hub that ends TLS, has every answer that it likes of the hub, and the stolen key of another target.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::HeaderValue;
use serde_json::{Value, json};
use tideline_common::replay::{RunNumber, RunNumbers};
use tideline_common::signature::{self, Parameters, SigningKey, sign_request};
use tideline_common::wire::v1::{Refusal, RefusalKind};
use tideline_common::{Digest, TargetId};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::{Answered, Asked, EmbeddedCluster, HostileProxy, Scratch, Upstream, eventually, eventually_ok};

use crate::objects::{CONFIG, apply, config, placement, shows};

const SOON: Duration = Duration::from_mins(1);
/// Requests that each trick is tried on before the wire is honest again.
const TRIED: usize = 4;

/// An agent behind the proxy, and another of the same hub whose key was stolen.
struct Site {
    hub: Hub,
    proxy: HostileProxy,
    agent: Agent,
    cluster: EmbeddedCluster,
    stolen: Stolen,
    _other: Agent,
    _scratch: Scratch,
}

/// The key of a target, in the hands of somebody else.
#[derive(Clone)]
struct Stolen {
    target: TargetId,
    seed: [u8; 32],
    numbers: Arc<Mutex<RunNumbers>>,
}

impl Site {
    async fn start() -> Result<Self> {
        let scratch = Scratch::new("hostile")?;
        let cluster = EmbeddedCluster::start(scratch.path(), "east").await?;
        let other_cluster = EmbeddedCluster::start(scratch.path(), "west").await?;
        let hub = Hub::start().await?;
        let mut token = hub.token("east", &[("tier", "shop")]).await?;
        let proxy = HostileProxy::start(hub.address(), &mut token).await?;
        let mut agent = Agent::new(&token, cluster.kubeconfig())?;
        agent.resume();
        let other = hub.agent("west", &[("tier", "none")], other_cluster.kubeconfig(), None).await?;
        let stolen = eventually_ok(SOON, "the other agent's key", async || Stolen::from(&other)).await?;
        Ok(Self { hub, proxy, agent, cluster, stolen, _other: other, _scratch: scratch })
    }

    /// Changes what is placed, and waits until it is so in the cluster.
    async fn goes_on(&self, value: &str) -> Result<()> {
        apply(&self.hub.client("default").await?, config("web", value)).await?;
        shows(&self.cluster.client(), CONFIG, "web", "the change", |it| it["data"]["value"] == value).await
    }

    /// Plays a trick until it was tried on some requests, while something else is placed; then the wire is honest.
    async fn suffers<F>(&self, value: &str, trick: impl Fn(Upstream, Asked) -> F + Send + Sync + 'static) -> Result<()>
    where
        F: Future<Output = Result<Answered>> + Send + 'static,
    {
        let tried = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tried);
        self.proxy.plays(move |upstream, asked| {
            let (played, counted) = (trick(upstream, asked), Arc::clone(&counted));
            async move {
                let answered = played.await?;
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(answered)
            }
        });
        apply(&self.hub.client("default").await?, config("web", value)).await?;
        eventually(SOON, "the trick to be tried", async || (tried.load(Ordering::Relaxed) >= TRIED).then_some(()))
            .await?;
        self.proxy.is_honest();
        shows(&self.cluster.client(), CONFIG, "web", "the change", |it| it["data"]["value"] == value).await
    }
}

impl Stolen {
    fn from(agent: &Agent) -> Result<Self> {
        let text = std::fs::read(agent.data_dir().join("identity.json"))?;
        let identity: Value = serde_json::from_slice(&text)?;
        let of = |path: &str| identity["identity"].pointer(path).and_then(Value::as_str).context("enrolled");
        let target = of("/enrolled/target")?.parse()?;
        let seed: Digest = of("/seed")?.parse()?;
        Ok(Self { target, seed: *seed.as_bytes(), numbers: Arc::default() })
    }

    /// What the hub answers if this is asked with the stolen key, as soon as that is in a number that it takes.
    async fn ask(&self, upstream: &Upstream, asked: &Asked) -> Result<Answered> {
        let key = SigningKey::from_seed(self.seed);
        let mut answered = upstream.send(self.signed(&key, asked)).await?;
        if let Some(next) = said(&answered).filter(|_| refused(&answered) == Some(RefusalKind::BadRequestNumber)) {
            self.numbers.lock().expect("it is not poisoned").answered(next);
            answered = upstream.send(self.signed(&key, asked)).await?;
        }
        ensure!(refused(&answered) != Some(RefusalKind::BadRequestNumber), "the hub takes the stolen key");
        Ok(answered)
    }

    fn signed(&self, key: &SigningKey, asked: &Asked) -> Asked {
        let run = self.numbers.lock().expect("it is not poisoned").take();
        resigned(asked, key, &self.target.to_string(), &run)
    }
}

/// The same request in another's name, with the nonce of the original.
fn resigned(asked: &Asked, key: &SigningKey, key_id: &str, run: &str) -> Asked {
    let mut asked = asked.clone();
    let original = asked.headers()[signature::SIGNATURE_INPUT].to_str().unwrap_or_default();
    let claims = signature::claims(original).expect("the agent signs");
    let content_digest = signature::content_digest(asked.body());
    let (method, path) = (asked.method().as_str(), asked.uri().path());
    let query = asked.uri().query().unwrap_or_default();
    let covered = signature::Request { method, path, query, content_digest: &content_digest, run };
    let signed = sign_request(key, covered, Parameters { key_id, created: claims.created, nonce: &claims.nonce });
    for (name, value) in [
        (signature::CONTENT_DIGEST, &*content_digest),
        (signature::RUN, run),
        (signature::SIGNATURE_INPUT, &signed.signature_input),
        (signature::SIGNATURE, &signed.signature),
    ] {
        asked.headers_mut().insert(name, HeaderValue::from_str(value).expect("it is text"));
    }
    asked
}

fn said(answered: &Answered) -> Option<RunNumber> {
    answered.headers().get(signature::RUN)?.to_str().ok()?.parse().ok()
}

fn refused(answered: &Answered) -> Option<RefusalKind> {
    Some(serde_json::from_slice::<Refusal>(answered.body()).ok()?.refusal)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_believes_no_answer_but_that_to_its_own_request() -> Result<()> {
    let mut site = Site::start().await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    apply(&site.hub.client("default").await?, namespace).await?;
    let tier = json!({"matchLabels": {"tier": "shop"}});
    apply(&site.hub.client("default").await?, placement("web", &tier, "web", &[("", "configmaps")])).await?;
    site.goes_on("honest").await?;

    // Everybody gets the answer to what was asked before.
    let last: Arc<Mutex<Option<Answered>>> = Arc::default();
    site.suffers("swapped", move |upstream, asked| {
        let last = Arc::clone(&last);
        async move {
            let answered = upstream.send(asked).await?;
            let former = last.lock().expect("it is not poisoned").replace(answered.clone());
            Ok(former.unwrap_or(answered))
        }
    })
    .await?;

    // The first answer to each question is the answer for ever.
    let first: Arc<Mutex<BTreeMap<String, Answered>>> = Arc::default();
    site.suffers("replayed", move |upstream, asked| {
        let first = Arc::clone(&first);
        async move {
            let question = asked.uri().path().to_owned();
            if let Some(answered) = first.lock().expect("it is not poisoned").get(&question) {
                return Ok(answered.clone());
            }
            let answered = upstream.send(asked).await?;
            first.lock().expect("it is not poisoned").insert(question, answered.clone());
            Ok(answered)
        }
    })
    .await?;

    for header in [signature::SIGNATURE, signature::SIGNATURE_INPUT, signature::CONTENT_DIGEST, signature::RUN] {
        site.suffers(&format!("without-{header}"), move |upstream, asked| async move {
            let mut answered = upstream.send(asked).await?;
            answered.headers_mut().remove(header);
            Ok(answered)
        })
        .await?;
    }

    // The genuine refusal that a target gets whom nobody knows, over the agent's own nonce.
    site.suffers("made-up", |upstream, asked| async move {
        let made_up = "00000000-0000-4000-8000-000000000bad";
        let answered = upstream.send(resigned(&asked, &SigningKey::from_seed([5; 32]), made_up, "-")).await?;
        ensure!(refused(&answered) == Some(RefusalKind::UnknownTarget), "{answered:?}");
        Ok(answered)
    })
    .await?;

    // What another target is told, by its stolen key.
    let stolen = site.stolen.clone();
    site.suffers("stolen", move |upstream, asked| {
        let stolen = stolen.clone();
        async move { stolen.ask(&upstream, &asked).await }
    })
    .await?;

    // That it was fenced, which freezes an agent that is.
    let stolen = site.stolen.clone();
    site.suffers("fenced", move |upstream, asked| {
        let stolen = stolen.clone();
        async move {
            let mut fenced = asked.clone();
            *fenced.uri_mut() = "/link/v1/desired?session=0.0000000000000000".parse()?;
            *fenced.method_mut() = http::Method::GET;
            *fenced.body_mut() = Bytes::new();
            fenced.headers_mut().remove(http::header::CONTENT_LENGTH);
            let answered = stolen.ask(&upstream, &fenced).await?;
            ensure!(refused(&answered) == Some(RefusalKind::Fenced), "{answered:?}");
            Ok(answered)
        }
    })
    .await?;

    // The second answer to the same request: that its number is taken.
    site.suffers("doubled", |upstream, asked| async move {
        upstream.send(asked.clone()).await?;
        upstream.send(asked).await
    })
    .await?;
    site.agent.stop().await
}
