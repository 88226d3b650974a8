//! Crowds of strangers at the hub's port: whatever they do, agents and administrators are served, and memory is bounded.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::config::Kubeconfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use tideline_tests::{Process, Scratch, ask_metric, client_config, eventually, require_binaries};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::{Descriptors, Hub, SOON, Site};

/// Files that a process needs besides its connections.
const OWN_DESCRIPTORS: u64 = 100;
/// Connections of one process, which opens one after the other.
const PART_MAX: u64 = 5_000;
/// In a process that is part of a crowd: the address of the hub, and how many connections it is to open.
const PART: &str = "TIDELINE_TEST_CROWD_PART";
/// What such a process says when it has.
const CONNECTED: &str = "all are connected";
/// Some handshakes a second, where everybody shares one core.
const CROWDED: Duration = Duration::from_mins(5);
/// What one of them says before it falls silent.
const SAYINGS: [&[u8]; 3] = [
    b"",
    // The beginning of a TLS handshake.
    &[22],
    &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3],
];

/// Connections that stay open as long as this is kept, in processes of their own: one alone may not have as many files open.
struct Crowd {
    _parts: Vec<Process>,
    _logs: Scratch,
}

/// Opens so many connections, and keeps them.
async fn crowd(hub: SocketAddr, count: u64) -> Result<Crowd> {
    let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let each = most.saturating_sub(OWN_DESCRIPTORS).clamp(1, PART_MAX);
    let logs = Scratch::new("crowd")?;
    let mut parts = Vec::new();
    for number in 0..count.div_ceil(each) {
        let mut command = Command::new(env::current_exe()?);
        command.args(["--exact", "crowds::a_part_of_a_crowd_is_silent", "--nocapture"]);
        command.env(PART, format!("{hub} {}", each.min(count - number * each)));
        parts.push(Process::spawn("a part of the crowd", &mut command, &logs.join(number.to_string()))?);
    }
    for part in &mut parts {
        let log = eventually(CROWDED, "a part of the crowd", async || {
            let ended = part.exit_status().is_ok_and(|status| status.is_some());
            (ended || part.log().contains(CONNECTED)).then(|| part.log())
        });
        let log = log.await.with_context(|| part.log_tail())?;
        ensure!(log.contains(CONNECTED), "a part of the crowd ended: {log}");
    }
    Ok(Crowd { _parts: parts, _logs: logs })
}

/// Opens connections from eight addresses, each of which says little or nothing.
async fn connect(hub: SocketAddr, count: u64) -> Result<Vec<TcpStream>> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let mut crowd = Vec::new();
    for number in 0..count {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2 + u8::try_from(number % 8)?), 0)))?;
        let mut stream = timeout(SOON, socket.connect(hub)).await.context("the hub accepts in time")??;
        // It may be closed by now.
        let _sent = stream.write_all(SAYINGS[usize::try_from(number)? % SAYINGS.len()]).await;
        crowd.push(stream);
    }
    Ok(crowd)
}

/// A process of a crowd, which its test ends. In a run of all tests there is nothing to do here.
#[tokio::test]
async fn a_part_of_a_crowd_is_silent() -> Result<()> {
    let Ok(part) = env::var(PART) else { return Ok(()) };
    let (hub, count) = part.split_once(' ').context("an address and a number")?;
    let _crowd = connect(hub.parse()?, count.parse()?).await?;
    println!("{CONNECTED}");
    std::future::pending().await
}

/// Opens this many connections with TLS, announces a message on each that nobody signed, and sends one byte of it.
async fn slow_bodies(hub: &Hub, count: usize) -> Result<Vec<TlsStream<TcpStream>>> {
    let mut slow = Vec::new();
    for _ in 0..count {
        let mut stream = tls(&hub.kubeconfig(), hub.address()).await?;
        let head = "PUT /link/v1/reported HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8388608\r\n\r\nx";
        // It may be answered and closed by now.
        let _sent = stream.write_all(head.as_bytes()).await;
        slow.push(stream);
    }
    Ok(slow)
}

/// Everybody that the hub is for is served.
async fn everybody_is_served(site: &mut Site, name: &str) -> Result<()> {
    site.delivers(name).await?;
    site.agent.process.kill()?;
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.delivers(&format!("{name}-again")).await
}

/// The value of one of the hub's metrics, such as `connections{state="agent"}`.
async fn metric(hub: &Hub, name: &str) -> Result<u64> {
    ask_metric(hub.health, &format!("tideline_hub_{name}"))
        .await?
        .with_context(|| format!("nothing is counted as {name}"))
}

#[tokio::test]
async fn silent_connections_at_the_usual_limit_of_files_keep_nobody_out() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start_within(&binaries, Descriptors::AtMost(1_024)).await?;
    site.hub.place_config_maps().await?;
    let crowd = crowd(site.hub.address(), 3_000).await?;
    everybody_is_served(&mut site, "web").await?;
    ensure!(metric(&site.hub, r#"connections{state="unverified"}"#).await? <= 208, "no more than have a place");
    ensure!(metric(&site.hub, r#"connections_gave_way_total{reason="unverified"}"#).await? > 1_000, "they gave way");
    drop(crowd);
    Ok(())
}

/// Slots for connections follow the limit: where it was not raised, all but two of the crowd would give way.
#[tokio::test]
async fn a_hub_that_begins_with_few_files_raises_its_limit_and_has_room() -> Result<()> {
    const FEW: u32 = 200;
    let binaries = require_binaries!();
    let hub = Hub::start_within(&binaries, Descriptors::AtFirst(FEW)).await?;
    let limits = fs::read_to_string(format!("/proc/{}/limits", hub.process.id()))?;
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("the limit of files")?;
    let mut files = files.split_whitespace();
    let (soft, hard) = (files.next().context("the soft limit")?, files.next().context("the hard limit")?);
    ensure!(soft != FEW.to_string() && hard != FEW.to_string(), "it was not raised: {limits}");
    let _crowd = crowd(hub.address(), 100).await?;
    ensure!(metric(&hub, r#"connections_gave_way_total{reason="unverified"}"#).await? == 0, "they have places");
    Ok(())
}

#[tokio::test]
async fn twenty_thousand_silent_connections_and_slow_bodies_keep_nobody_out_and_cost_little() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    let before = site.hub.process.resident_bytes()?;
    let crowd = crowd(site.hub.address(), 20_000).await?;
    let slow = slow_bodies(&site.hub, 300).await?;
    everybody_is_served(&mut site, "web").await?;
    let cost = site.hub.process.peak_bytes()?.saturating_sub(before);
    // 4,096 connections that said nothing whole, of some 20 KiB.
    ensure!(cost < 128 << 20, "{cost} bytes");
    drop((crowd, slow));
    Ok(())
}

/// A connection to the hub that this kubeconfig is of.
pub(crate) async fn tls(kubeconfig: &Path, hub: SocketAddr) -> Result<TlsStream<TcpStream>> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let cluster = kubeconfig.clusters[0].cluster.clone().context("a cluster")?;
    let config = client_config(&cluster, "h2")?;
    let stream = TcpStream::connect(hub).await?;
    Ok(TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost")?, stream).await?)
}

#[tokio::test]
async fn a_hundred_streams_of_8_mib_that_nobody_signed_cost_no_memory() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.delivers("before").await?;
    let before = site.hub.process.resident_bytes()?;
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(tls(&site.hub.kubeconfig(), site.hub.address()).await?))
            .await?;
    let driven = tokio::spawn(connection);
    let body = Bytes::from(vec![b'x'; 8 << 20]);
    let streams = (0..100).map(|number| {
        let (mut sender, body) = (sender.clone(), body.clone());
        let path = if number % 2 == 0 { "link/v1/reported" } else { "spaces/root/api/v1/namespaces" };
        async move {
            let mut request = Request::put(format!("https://localhost/{path}"));
            // Well formed, by a key that nobody has.
            for (name, value) in [
                ("content-digest", "sha-256=:AAAA:"),
                ("tideline-run", "11111111-1111-4111-8111-111111111111=1"),
                (
                    "signature-input",
                    r#"tideline=("@method" "@path" "@query" "content-digest" "tideline-run");created=1;keyid="11111111-1111-4111-8111-111111111111";alg="ed25519";nonce="AAAA";tag="tideline-link-v1""#,
                ),
                ("signature", "tideline=:AAAA:"),
            ] {
                request = request.header(name, value);
            }
            let answer = sender.send_request(request.body(Full::new(body))?).await?;
            anyhow::Ok(answer.status())
        }
    });
    let answers = timeout(SOON, join_all(streams)).await.context("all are answered")?;
    // A request that is refused before it is complete is broken off, or answered first.
    for status in answers.into_iter().flatten() {
        ensure!(matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND), "{status}");
    }
    let cost = site.hub.process.peak_bytes()?.saturating_sub(before);
    ensure!(cost < 32 << 20, "{cost} bytes");
    everybody_is_served(&mut site, "web").await?;
    driven.abort();
    Ok(())
}

#[tokio::test]
async fn an_http2_preface_alone_is_closed() -> Result<()> {
    let binaries = require_binaries!();
    let hub = Hub::start(&binaries).await?;
    let mut stream = tls(&hub.kubeconfig(), hub.address()).await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    let mut rest = Vec::new();
    let ended = timeout(Duration::from_mins(1), tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut rest)).await;
    ensure!(ended.is_ok(), "the hub closes it");
    Ok(())
}
