use rustls::crypto::CryptoProvider;

use super::install_provider;

#[test]
fn provider_is_installed_once_however_often_asked() {
    install_provider();
    install_provider();
    assert!(CryptoProvider::get_default().is_some());
}
