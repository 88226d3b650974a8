//! Ports for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

/// Ports are taken from below the range that Linux gives to outgoing connections (32768 and up), so that a server
/// restarted on its port never finds it taken by somebody's connection.
const FIRST: u16 = 20_000;
/// Number of ports to choose from.
const COUNT: u16 = 10_000;

/// Offset of the next candidate from where this process began.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Returns a loopback TCP port on which nothing listens at the moment.
///
/// Processes begin at different ports, so that test binaries run side by side do not race for one; a caller that can retry
/// with another port still should.
pub fn free_port() -> Result<u16> {
    let spread = u32::from(COUNT);
    // Knuth's multiplicative hash: consecutive process ids land far apart.
    let begin = process::id().wrapping_mul(2_654_435_761) % spread;
    for _ in 0..COUNT {
        let offset = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let candidate = FIRST + u16::try_from((begin + offset) % spread)?;
        if TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, candidate))).is_ok() {
            return Ok(candidate);
        }
    }
    bail!("no free loopback port between {FIRST} and {}", FIRST + COUNT)
}
