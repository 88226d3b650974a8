//! A peer between agent and hub that ends TLS, has every answer that it likes of the hub, and the stolen key of another target.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::HeaderValue;
use serde_json::{Value, json};
use tideline_common::replay::{RunNumber, RunNumbers};
use tideline_common::signature::{self, Parameters, SigningKey, sign_request};
use tideline_common::wire::v1::{
    BODIES_PATH, DESIRED_PATH, ENROL_PATH, REPORTED_PATH, Refusal, RefusalKind, SESSION_PATH,
};
use tideline_common::{Digest, TargetId};
use tideline_tests::fleet::{Agent, Hub};
use tideline_tests::{
    Answered, Asked, EmbeddedCluster, HostileProxy, Scratch, Upstream, ask_health, ask_metric, eventually_ok,
};

use crate::objects::{CONFIG, apply, config, placement, shows};

const SOON: Duration = Duration::from_mins(1);
/// Some tries of an agent that backs off, and asks nothing for the length of a poll.
const SUFFERED: Duration = Duration::from_mins(4);
/// Requests that each trick is played on, and faults that the agent counts for it, before the wire is honest again.
const TRIED: u64 = 4;
/// As the agent counts an answer that it does not believe.
const NOT_THE_HUB: &str = "not_the_hub";
/// As it counts one that is the hub's, and of no use.
const UNREACHABLE: &str = "unreachable";

/// What the proxy answers.
enum Played {
    /// As the trick has it.
    Trick(Answered),
    /// What the trick needs first.
    Honest(Answered),
}

/// The answers to each question, in their order, and which of them is to be given next.
type Recorded = Arc<Mutex<BTreeMap<String, (Vec<Answered>, usize)>>>;

/// An agent behind the proxy, and another of the same hub whose key was stolen.
struct Site {
    hub: Hub,
    proxy: HostileProxy,
    agent: Agent,
    cluster: EmbeddedCluster,
    stolen: Stolen,
    /// Every answer that the agent got before the first trick, since it enrolled.
    recorded: Recorded,
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
        let recorded = Recorded::default();
        let records = Arc::clone(&recorded);
        proxy.plays(move |upstream, asked| {
            let records = Arc::clone(&records);
            async move {
                let question = asked.uri().path().to_owned();
                let answered = upstream.send(asked).await?;
                let mut records = records.lock().expect("it is not poisoned");
                records.entry(question).or_default().0.push(answered.clone());
                Ok(answered)
            }
        });
        let mut agent = Agent::new(&token, cluster.kubeconfig())?.with_health()?;
        agent.resume();
        let other = hub.agent("west", &[("tier", "none")], other_cluster.kubeconfig(), None).await?;
        let stolen = eventually_ok(SOON, "the other agent's key", async || Stolen::from(&other)).await?;
        Ok(Self { hub, proxy, agent, cluster, stolen, recorded, _other: other, _scratch: scratch })
    }

    /// Changes the placed objects, and waits until the cluster has the change.
    async fn goes_on(&self, value: &str) -> Result<()> {
        apply(&self.hub.client("default").await?, config("web", value)).await?;
        shows(&self.cluster.client(), CONFIG, "web", "the change", |it| it["data"]["value"] == value).await
    }

    /// How many requests ended so in this run of the agent, by its own count.
    async fn counted(&self, outcome: &str) -> Result<u64> {
        let mut sum = 0;
        for request in ["enrol", "session", "desired", "bodies", "reported"] {
            let name = format!(r#"tideline_agent_link_requests_total{{request="{request}",outcome="{outcome}"}}"#);
            sum += ask_metric(self.agent.health_port()?, &name).await?.unwrap_or_default();
        }
        Ok(sum)
    }

    /// Plays a trick until it was played on some requests, and the agent has counted as many faults, while something else is
    /// placed; then the wire is honest.
    async fn suffers<F>(&self, value: &str, trick: impl Fn(Upstream, Asked) -> F + Send + Sync + 'static) -> Result<()>
    where
        F: Future<Output = Result<Played>> + Send + 'static,
    {
        let before = self.counted(NOT_THE_HUB).await?;
        let played = self.plays(trick);
        apply(&self.hub.client("default").await?, config("web", value)).await?;
        self.has_suffered(value, (&played, NOT_THE_HUB), before).await
    }

    /// From now on the proxy plays this; how often it has.
    fn plays<F>(&self, trick: impl Fn(Upstream, Asked) -> F + Send + Sync + 'static) -> Arc<AtomicU64>
    where
        F: Future<Output = Result<Played>> + Send + 'static,
    {
        let played = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&played);
        self.proxy.plays(move |upstream, asked| {
            let (playing, counted) = (trick(upstream, asked), Arc::clone(&counted));
            async move {
                match playing.await? {
                    Played::Honest(answered) => Ok(answered),
                    Played::Trick(answered) => {
                        counted.fetch_add(1, Ordering::Relaxed);
                        Ok(answered)
                    }
                }
            }
        });
        played
    }

    /// Waits until a trick was played, and was counted as this outcome as often; then the wire is honest.
    async fn has_suffered(&self, value: &str, (played, outcome): (&AtomicU64, &str), before: u64) -> Result<()> {
        eventually_ok(SUFFERED, &format!("the trick to be played and seen through: {value}"), async || {
            let (played, counted) = (played.load(Ordering::Relaxed), self.counted(outcome).await?);
            ensure!(played >= TRIED && counted >= before + TRIED, "played {played}, counted {counted} after {before}");
            anyhow::Ok(())
        })
        .await?;
        self.proxy.is_honest();
        shows(&self.cluster.client(), CONFIG, "web", "the change", |it| it["data"]["value"] == value).await
    }

    /// The answer to an earlier request of the same kind.
    fn replays(&self) -> impl Fn(Upstream, Asked) -> BoxFuture<'static, Result<Played>> + Send + Sync + 'static {
        let recorded = Arc::clone(&self.recorded);
        move |upstream, asked| {
            let next = {
                let mut recorded = recorded.lock().expect("it is not poisoned");
                recorded.get_mut(asked.uri().path()).and_then(|(answers, next)| {
                    let answered = answers.get(*next % answers.len().max(1)).cloned();
                    *next += 1;
                    answered
                })
            };
            Box::pin(async move {
                match next {
                    Some(answered) => Ok(Played::Trick(answered)),
                    None => upstream.send(asked).await.map(Played::Honest),
                }
            })
        }
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

    // Everybody gets the answer to an earlier request.
    let last: Arc<Mutex<Option<Answered>>> = Arc::default();
    site.suffers("swapped", move |upstream, asked| {
        let last = Arc::clone(&last);
        async move {
            let answered = upstream.send(asked).await?;
            let former = last.lock().expect("it is not poisoned").replace(answered.clone());
            Ok(former.map_or(Played::Honest(answered), Played::Trick))
        }
    })
    .await?;

    // Every question is answered as it was before.
    let asked_before: Vec<_> = site.recorded.lock().expect("it is not poisoned").keys().cloned().collect();
    for question in [ENROL_PATH, SESSION_PATH, DESIRED_PATH, BODIES_PATH, REPORTED_PATH] {
        ensure!(asked_before.iter().any(|it| it == question), "{question} is not among {asked_before:?}");
    }
    site.suffers("replayed", site.replays()).await?;

    // The next process of the agent has other keys of requests, and believes nothing of it either.
    site.agent.stop().await?;
    let played = site.plays(site.replays());
    apply(&site.hub.client("default").await?, config("web", "replayed-later")).await?;
    site.agent.resume();
    site.has_suffered("replayed-later", (&played, NOT_THE_HUB), 0).await?;

    for header in [signature::SIGNATURE, signature::SIGNATURE_INPUT, signature::CONTENT_DIGEST, signature::RUN] {
        site.suffers(&format!("without-{header}"), move |upstream, asked| async move {
            let mut answered = upstream.send(asked).await?;
            answered.headers_mut().remove(header).context("the hub signs")?;
            Ok(Played::Trick(answered))
        })
        .await?;
    }

    // The genuine refusal for an unknown target, over the agent's own nonce.
    site.suffers("made-up", |upstream, asked| async move {
        let made_up = "00000000-0000-4000-8000-000000000bad";
        let answered = upstream.send(resigned(&asked, &SigningKey::from_seed([5; 32]), made_up, "-")).await?;
        ensure!(refused(&answered) == Some(RefusalKind::UnknownTarget), "{answered:?}");
        Ok(Played::Trick(answered))
    })
    .await?;

    // The answer to another target, by its stolen key.
    let stolen = site.stolen.clone();
    site.suffers("stolen", move |upstream, asked| {
        let stolen = stolen.clone();
        async move { stolen.ask(&upstream, &asked).await.map(Played::Trick) }
    })
    .await?;

    // That it was fenced, which freezes an agent that is.
    let stolen = site.stolen.clone();
    site.suffers("fenced", move |upstream, asked| {
        let stolen = stolen.clone();
        async move {
            let mut fenced = asked.clone();
            *fenced.uri_mut() = format!("{DESIRED_PATH}?session=0.0000000000000000").parse()?;
            *fenced.method_mut() = http::Method::GET;
            *fenced.body_mut() = Bytes::new();
            fenced.headers_mut().remove(http::header::CONTENT_LENGTH);
            let answered = stolen.ask(&upstream, &fenced).await?;
            ensure!(refused(&answered) == Some(RefusalKind::Fenced), "{answered:?}");
            Ok(Played::Trick(answered))
        }
    })
    .await?;

    // The second answer to the same request: that its number is taken. It is the hub's, and the agent asks in vain.
    let before = site.counted(UNREACHABLE).await?;
    let played = site.plays(|upstream, asked| async move {
        upstream.send(asked.clone()).await?;
        let answered = upstream.send(asked).await?;
        ensure!(refused(&answered) == Some(RefusalKind::BadRequestNumber), "{answered:?}");
        Ok(Played::Trick(answered))
    });
    apply(&site.hub.client("default").await?, config("web", "doubled")).await?;
    site.has_suffered("doubled", (&played, UNREACHABLE), before).await?;
    ensure!(ask_health(site.agent.health_port()?, "/readyz").await?.0 == 200, "nothing of it froze the agent");
    site.agent.stop().await
}
