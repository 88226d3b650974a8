use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpListener;

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
pub async fn bind(address: SocketAddr, purpose: &'static str, option: &'static str) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address, purpose, option, source })
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
