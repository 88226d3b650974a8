//! What a hub is told at its start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tideline_common::HubUrl;

use crate::addresses::PublicCa;
use crate::placement::SETTLE;
use crate::removal_guards::UNASSIGN_LIMIT;

const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8443);
const HEALTH_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8444);
/// Two lost long polls of 45 s, and the way back.
const STALE_AFTER: Duration = Duration::from_mins(2);

/// Everything the hub is told at its start.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where the hub keeps its store, its identity and admin.kubeconfig. One hub, one directory
    #[arg(long, env = "TIDELINE_DATA_DIR", value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where agents and Kubernetes clients are served, over TLS; port 0 takes a free one
    #[arg(long, env = "TIDELINE_LISTEN", value_name = "ADDRESS", default_value_t = LISTEN)]
    pub listen: SocketAddr,
    /// Where agents and clients reach this hub from outside, as https://hub.example.com; by default the address it
    /// listens on, or 127.0.0.1 where that is every address. Several may be given: agents are told of all of them, and try
    /// them in this order; clients are told of the first. Before the hub moves, add its new address
    #[arg(long, env = "TIDELINE_PUBLIC_URL", value_name = "URL,…", value_delimiter = ',')]
    pub public_url: Vec<HubUrl>,
    /// Who certifies the public addresses, where a proxy or load balancer ends TLS there: a file with certificates, PEM, or
    /// `system` for an authority that every system trusts. It goes into admin.kubeconfig and tokens, and agents are told
    #[arg(long, env = "TIDELINE_PUBLIC_CA", value_name = "FILE|system", value_parser = |text: &str| text.parse::<PublicCa>())]
    pub public_ca: Option<PublicCa>,
    /// Where /livez, /readyz and /metrics are served, without authentication; port 0 takes a free one
    #[arg(long, env = "TIDELINE_HEALTH_LISTEN", value_name = "ADDRESS", default_value_t = HEALTH_LISTEN)]
    pub health_listen: SocketAddr,
    /// How long a cluster may be silent before it is shown as stale, as 90s, 5m or 1h
    #[arg(long, env = "TIDELINE_STALE_AFTER", value_name = "TIME", default_value = "120s", value_parser = duration)]
    pub stale_after: Duration,
    /// How long a removal waits that comes from a changed Placement, Location or label, so that replacing a Placement
    /// replaces nothing in the clusters
    #[arg(long, env = "TIDELINE_SETTLE", value_name = "TIME", default_value = "10s", value_parser = settle)]
    pub settle: Duration,
    /// The share of all assignments, in percent, that one change may end without a person's approval, if they are more
    /// than 100; 100 lets everything go. Look at what waits with tideline-hub approve-unassignments --list
    #[arg(long, env = "TIDELINE_UNASSIGN_LIMIT", value_name = "PERCENT", default_value_t = UNASSIGN_LIMIT,
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub unassign_limit: u8,
}

impl Options {
    /// The defaults of the command line.
    pub fn new(data_dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen,
            public_url: Vec::new(),
            public_ca: None,
            health_listen: HEALTH_LISTEN,
            stale_after: STALE_AFTER,
            settle: SETTLE,
            unassign_limit: UNASSIGN_LIMIT,
        }
    }
}

/// Reads a time that is not zero, as people write it: `90s`, `5m`, `24h`, `7d`; a bare number is seconds.
///
/// # Errors
///
/// Why the text is no such time, for a person to read.
pub fn duration(text: &str) -> Result<Duration, String> {
    match settle(text)? {
        Duration::ZERO => Err("it must be more than zero".to_owned()),
        some => Ok(some),
    }
}

fn settle(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|last: char| last.is_ascii_alphabetic());
    let number: Option<u64> = digits.parse().ok();
    let unit = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(60 * 60),
        "d" => Some(24 * 60 * 60),
        _ => None,
    };
    number
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .map(Duration::from_secs)
        .ok_or_else(|| "it must be a whole number of s, m, h or d, as 90s, 5m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests;
