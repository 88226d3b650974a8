//! A proxy that asks for a password stands between agent and hub, as HTTPS_PROXY says.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use tideline_tests::require_binaries;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{SOON, Site};

/// `me:secret`, as RFC 7617 has it.
const AUTHORIZATION: &str = "proxy-authorization: basic bwu6c2vjcmv0";

/// Opens tunnels for whoever knows the password, until it is dropped.
struct Proxy {
    address: SocketAddr,
    _serves: JoinSet<()>,
}

impl Proxy {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut serves = JoinSet::new();
        serves.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                tunnels.spawn(async { tunnel(client).await.unwrap_or_default() });
            }
        });
        Ok(Self { address, _serves: serves })
    }
}

async fn tunnel(client: TcpStream) -> Result<()> {
    let mut client = BufReader::new(client);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        client.read_line(&mut line).await?;
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_ascii_lowercase()),
        }
    }
    let first = head.first().context("a request")?;
    let to = first.strip_prefix("connect ").and_then(|rest| rest.split(' ').next()).context("CONNECT")?;
    if !head.iter().any(|line| line == AUTHORIZATION) {
        let asks =
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";
        return Ok(client.write_all(asks).await?);
    }
    let mut hub = TcpStream::connect(to).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut hub).await?;
    Ok(())
}

async fn restarts_with(site: &mut Site, https_proxy: &str) -> Result<()> {
    site.agent.process.terminate()?;
    site.agent.process.wait(SOON).await?;
    site.agent.environ(vec![("HTTPS_PROXY", https_proxy.into())]);
    site.agent.resume()
}

#[tokio::test]
async fn a_proxy_is_used_and_named_where_it_lets_nothing_pass() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;

    // The cluster is kept all the same, and the hub may be reached without one.
    restarts_with(&mut site, "http//proxy:3128").await?;
    site.agent.says("HTTPS_PROXY names no proxy and is ignored: write it as http://HOST:PORT").await?;
    site.agent.is_ready().await?;
    site.delivers("without").await?;

    let proxy = Proxy::start().await?;
    restarts_with(&mut site, &format!("http://me:wrong@{}", proxy.address)).await?;
    site.agent
        .says(&format!("the proxy {} answers 407: put its user and password into HTTPS_PROXY", proxy.address))
        .await?;
    ensure!(!site.agent.process.log().contains("wrong@"), "the password is logged: {}", site.agent.process.log());

    restarts_with(&mut site, &format!("http://me:secret@{}", proxy.address)).await?;
    site.delivers("through").await?;

    let address = proxy.address;
    drop(proxy);
    site.agent.says(&format!("the proxy {address} of HTTPS_PROXY cannot be reached")).await
}
