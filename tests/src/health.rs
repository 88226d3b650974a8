//! What a process under test says of itself at its health port.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Asks the health port of a process on this machine for `path`, such as `/readyz`, and returns the status code and the body.
///
/// # Errors
///
/// When nobody listens there, or what is answered is no HTTP.
pub async fn ask_health(port: u16, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.context("connecting to the health port")?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let (head, body) = response.split_once("\r\n\r\n").context("the response has no end of its head")?;
    let code = head.split(' ').nth(1).context("the response has no status code")?;
    Ok((code.parse()?, body.to_owned()))
}

/// Asks for the metrics, and returns the value of the one with this name and these labels, such as
/// `tideline_hub_connections{state="agent"}`; `None` if it was never counted.
///
/// # Errors
///
/// When nobody listens there, or the value is no whole number.
pub async fn ask_metric(port: u16, name: &str) -> Result<Option<u64>> {
    let (_, metrics) = ask_health(port, "/metrics").await?;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map(|value| value.parse().with_context(|| format!("{name} is {value}"))).transpose()
}
