//! The one TLS and crypto provider.

use rustls::crypto::{CryptoProvider, ring};

/// Makes ring the provider of this process. Must come before the first TLS configuration; doing it again does nothing.
///
/// Two providers in one process panic at the first handshake that has to choose.
pub fn install_provider() {
    if CryptoProvider::get_default().is_none() {
        // Losing a race means that another thread installed the same one.
        let _raced = ring::default_provider().install_default();
    }
}

#[cfg(test)]
mod tests;
