//! Agents whose machines have wrong clocks. The API server and a proxy that ends TLS before the hub have certificates for a
//! year, of authorities that are pinned.
//!
//! A test may not set the clock of this machine, so a library between the agent and it does; see `wrong_clock.c`.

use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use tideline_tests::{Binaries, EmbeddedCluster, Scratch, TlsProxy, eventually_ok, require_binaries, run_to_end};

use crate::harness::{Agent, Hub, NAMESPACE, SOON};

/// By clocks that were never set, and by one that was set to nonsense.
const IN_1970: i64 = 60;
const IN_2050: i64 = 2_524_608_000;

/// The library, built, and the file that sets its time.
struct WrongClock {
    dir: Scratch,
}

impl WrongClock {
    async fn built() -> Result<Self> {
        let dir = Scratch::new("clock")?;
        let source = dir.join("wrong_clock.c");
        fs::write(&source, include_str!("wrong_clock.c"))?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(dir.join("wrong_clock.so")).arg(&source);
        let built = run_to_end(&mut cc, "", SOON).await?;
        ensure!(built.status.success(), "{}", built.stderr);
        Ok(Self { dir })
    }

    fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.dir.join("wrong_clock.so").into()), ("TIDELINE_CLOCK", self.dir.join("offset").into())]
    }

    /// It is so late from now on, in seconds since 1970.
    fn says(&self, time: i64) -> Result<()> {
        let now = i64::try_from(UNIX_EPOCH.elapsed()?.as_secs())?;
        self.is_off_by(time - now)
    }

    fn is_right(&self) -> Result<()> {
        self.is_off_by(0)
    }

    /// Another file in its place: half of a number is another time.
    fn is_off_by(&self, seconds: i64) -> Result<()> {
        fs::write(self.dir.join("next"), seconds.to_string())?;
        Ok(fs::rename(self.dir.join("next"), self.dir.join("offset"))?)
    }
}

/// A hub behind a proxy that ends TLS, a cluster, and an agent that joins by this clock.
struct Shop {
    agent: Agent,
    hub: Hub,
    cluster: EmbeddedCluster,
    clock: WrongClock,
    _proxy: TlsProxy,
    _dir: Scratch,
}

impl Shop {
    async fn start(binaries: &Binaries, time: i64) -> Result<Self> {
        let (dir, clock) = (Scratch::new("cluster")?, WrongClock::built().await?);
        clock.says(time)?;
        let cluster = EmbeddedCluster::start(dir.path(), "cluster").await?;
        let hub = Hub::start(binaries).await?;
        hub.place_config_maps().await?;
        let proxy = TlsProxy::start(hub.address(), &authority(&hub)?).await?;
        let proxy_ca = dir.join("proxy.pem");
        fs::write(&proxy_ca, proxy.ca_pem())?;
        let url = format!("https://localhost:{}", proxy.address().port());
        let given = ["--hub-url", &url, "--hub-ca", proxy_ca.to_str().context("a path of ours is UTF-8")?];
        let token = hub.token_file("store").await?;
        let agent = Agent::start_in(binaries, cluster.kubeconfig(), &token, &given, clock.environment())?;
        let mut shop = Self { agent, hub, cluster, clock, _proxy: proxy, _dir: dir };
        shop.agent.is_ready().await?;
        Ok(shop)
    }

    async fn delivers(&self, name: &str) -> Result<()> {
        self.hub.delivers(name, &self.cluster).await
    }

    /// Whether the hub shows the clock as wrong.
    async fn is_shown(&self) -> Result<()> {
        eventually_ok(SOON, "the condition ClockImplausible", async || {
            let target = self.hub.get("root", "SyncTarget", "store").await?;
            let conditions = target.data["status"]["conditions"].as_array().context("no conditions")?;
            let shown =
                conditions.iter().any(|it| it["type"] == json!("ClockImplausible") && it["status"] == json!("True"));
            ensure!(shown, "{conditions:?}");
            Ok(())
        })
        .await
    }

    /// Another run of both, which make new connections.
    async fn restarts(&mut self) -> Result<()> {
        self.agent.process.terminate()?;
        self.agent.process.wait(SOON).await?;
        self.hub.process.kill()?;
        self.hub.resume().await?;
        self.agent.resume()?;
        self.agent.is_ready().await
    }

    /// Without the hub, what is deleted in the cluster comes back.
    async fn is_kept_without_the_hub(&mut self, name: &str) -> Result<()> {
        self.agent.process.kill()?;
        self.hub.process.kill()?;
        let config_maps = Api::<ConfigMap>::namespaced(self.cluster.client(), NAMESPACE);
        config_maps.delete(name, &DeleteParams::default()).await?;
        self.agent.resume()?;
        eventually_ok(SOON, &format!("{name} to be back"), async || config_maps.get(name).await).await?;
        self.hub.resume().await
    }
}

/// PEM, as `admin.kubeconfig` has it.
fn authority(hub: &Hub) -> Result<String> {
    Ok(fs::read_to_string(hub.data_dir().join("ca.crt"))?)
}

#[tokio::test]
async fn an_agent_in_1970_joins_and_stays_and_its_clock_is_shown() -> Result<()> {
    let binaries = require_binaries!();
    let mut shop = Shop::start(&binaries, IN_1970).await?;
    shop.agent.says("the clock of this machine says 1970-01-01T00:0").await?;
    shop.agent.says("which is before this version was built").await?;
    shop.delivers("first").await?;
    shop.is_shown().await?;
    shop.restarts().await?;
    shop.delivers("second").await?;
    shop.is_kept_without_the_hub("second").await?;

    shop.clock.is_right()?;
    shop.delivers("third").await?;
    shop.agent.says("which is plausible again").await
}

#[tokio::test]
async fn an_agent_in_2050_joins_and_stays_and_survives_jumps_of_its_clock() -> Result<()> {
    let binaries = require_binaries!();
    let mut shop = Shop::start(&binaries, IN_2050).await?;
    shop.agent.says("the clock of this machine says 2050-01-01T00:0").await?;
    shop.agent.says("and the hub says 20").await?;
    shop.delivers("first").await?;
    shop.is_shown().await?;
    shop.is_kept_without_the_hub("first").await?;
    for (jump, name) in [(IN_1970, "second"), (IN_2050, "third")] {
        shop.clock.says(jump)?;
        shop.restarts().await?;
        shop.delivers(name).await?;
    }
    Ok(())
}
