use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that the system keeps until they are accepted, or as many as it is allowed to (`net.core.somaxconn`). When a hub is
/// back thousands of agents come at once, and to one that comes while there is no room nothing is said: it tries again after one
/// second, three, seven, and so on to a minute.
const ACCEPT_QUEUE: u32 = 4_096;

/// A port could not be taken. The message names the option that says which.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {purpose}; {}", advice(.source.kind(), .option))]
pub struct BindError {
    address: SocketAddr,
    purpose: &'static str,
    option: &'static str,
    source: std::io::Error,
}

/// Binds a port for `purpose`, so that a port in use is reported before anything else is done. `option` is that of the command
/// line by which `address` was given.
///
/// # Errors
///
/// The port is in use, or the address is not this machine's.
///
/// # Panics
///
/// Outside of a runtime.
pub fn bind(address: SocketAddr, purpose: &'static str, option: &'static str) -> Result<TcpListener, BindError> {
    listen(address).map_err(|source| BindError { address, purpose, option, source })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A process that starts anew need not wait until the system has forgotten the connections of the one before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_QUEUE)
}

fn advice(kind: ErrorKind, option: &str) -> String {
    match kind {
        ErrorKind::AddrInUse => format!("choose another address with {option}, or stop what holds it"),
        ErrorKind::AddrNotAvailable => format!("choose an address of this machine with {option}"),
        ErrorKind::PermissionDenied => format!("choose a port above 1023 with {option}, or permit this one"),
        // The system's kinds are not our enum.
        _ => format!("choose another address with {option}"),
    }
}

#[cfg(test)]
mod tests;
