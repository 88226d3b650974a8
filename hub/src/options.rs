use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::placement::SETTLE;

const STALE_AFTER: Duration = Duration::from_secs(120);
const HEALTH_PORT: u16 = 8081;

/// Everything the hub is told at its start.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Where the hub keeps its store, its identity and admin.kubeconfig. One hub, one directory
    #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// The one port for agents and Kubernetes clients, TLS
    #[arg(long, env = "TIDELINE_LISTEN", value_name = "ADDRESS", default_value = "0.0.0.0:8443")]
    pub listen: SocketAddr,
    /// How agents and clients reach this hub, if not at the listen address
    #[arg(long, env = "TIDELINE_PUBLIC_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// Where /livez, /readyz and /metrics are served, without authentication
    #[arg(long, env = "TIDELINE_HEALTH_LISTEN", value_name = "ADDRESS", default_value_t = health_listen())]
    pub health_listen: SocketAddr,
    /// How long a target may be silent before it is shown as stale: 90s, 5m, 1h
    #[arg(long, env = "TIDELINE_STALE_AFTER", value_name = "TIME", default_value = "2m", value_parser = duration)]
    pub stale_after: Duration,
    /// How long a removal waits that a change of Placement, Location or labels causes
    #[arg(long, env = "TIDELINE_SETTLE", value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub settle: Duration,
}

impl Options {
    /// The defaults, on a directory and an address.
    pub fn new(data_dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen,
            public_url: None,
            health_listen: health_listen(),
            stale_after: STALE_AFTER,
            settle: SETTLE,
        }
    }
}

fn health_listen() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), HEALTH_PORT)
}

/// Reads a time span as people write it: `90s`, `10m`, `24h`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time span; write a number and a unit, such as 90s, 10m, 24h, 7d");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
