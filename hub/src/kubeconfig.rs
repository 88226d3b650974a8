//! Kubeconfig files for the spaces of a hub.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// A kubeconfig with one context per space; the last one is current. YAML, as its subset JSON.
pub(crate) fn text(url: &str, ca_pem: &str, token: &str, spaces: &[&str]) -> String {
    let clusters: Vec<_> = spaces
        .iter()
        .map(|space| {
            let cluster = json!({
                "server": format!("{url}/spaces/{space}"),
                "certificate-authority-data": STANDARD.encode(ca_pem),
            });
            json!({"name": space, "cluster": cluster})
        })
        .collect();
    let contexts: Vec<_> =
        spaces.iter().map(|space| json!({"name": space, "context": {"cluster": space, "user": "admin"}})).collect();
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "contexts": contexts,
        "users": [{"name": "admin", "user": {"token": token}}],
        "current-context": spaces.last(),
    });
    let mut text = serde_json::to_string_pretty(&config).expect("a config of strings is JSON");
    text.push('\n');
    text
}
