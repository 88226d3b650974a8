use std::fs;

use tokio::time::timeout;

use super::*;
use crate::link::USABLE;

const WAIT: Duration = Duration::from_mins(1);

/// Of a cluster whose certificate is in a file beside it.
fn kubeconfig(server: &str) -> String {
    let kubeconfig = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "edge",
        "clusters": [{"name": "edge", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "agent", "user": {"token": "t"}}],
        "contexts": [{"name": "edge", "context": {"cluster": "edge", "user": "agent"}}],
    });
    kubeconfig.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_noticed_when_it_or_a_file_that_it_names_has_changed_and_can_be_used() {
    tideline_runtime::tls::install_provider();
    let directory = tempfile::tempdir().unwrap();
    let (path, authority) = (directory.path().join("kubeconfig"), directory.path().join("ca.crt"));
    fs::write(&authority, USABLE).unwrap();
    fs::write(&path, kubeconfig("https://127.0.0.1:6443")).unwrap();
    let in_use = fs::read(&path).unwrap();
    let begin = || KubeconfigFile::new(&path, Arc::default());

    let mut changed = Box::pin(begin().changed());
    assert!(timeout(WAIT, &mut changed).await.is_err(), "it is as it was");
    for useless in ["", "{", "apiVersion: v1\nkind: Config\n"] {
        fs::write(&path, useless).unwrap();
        assert!(timeout(WAIT, &mut changed).await.is_err(), "no client can be made of it: {useless:?}");
    }
    fs::write(&path, &in_use).unwrap();
    assert!(timeout(WAIT, &mut changed).await.is_err(), "it is as it was");
    fs::write(&path, kubeconfig("https://127.0.0.2:6443")).unwrap();
    timeout(WAIT, &mut changed).await.expect("it is another");

    let mut changed = Box::pin(begin().changed());
    fs::remove_file(&authority).unwrap();
    assert!(timeout(WAIT, &mut changed).await.is_err(), "it is being written");
    fs::write(&authority, format!("renewed\n{USABLE}")).unwrap();
    timeout(WAIT, &mut changed).await.expect("the certificate is another");
}

#[tokio::test(start_paused = true)]
async fn the_authority_of_the_cluster_is_noticed_when_it_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    fs::write(&path, USABLE).unwrap();
    let mut changed = Box::pin(AuthorityFile::new(&path).changed());
    assert!(timeout(WAIT, &mut changed).await.is_err(), "it is as it was");
    for useless in ["", "-----BEGIN CERTIFICATE-----"] {
        fs::write(&path, useless).unwrap();
        assert!(timeout(WAIT, &mut changed).await.is_err(), "there is no certificate in it: {useless:?}");
    }
    fs::remove_file(&path).unwrap();
    assert!(timeout(WAIT, &mut changed).await.is_err(), "it is being replaced");
    fs::write(&path, format!("renewed\n{USABLE}")).unwrap();
    timeout(WAIT, &mut changed).await.expect("it is another");
}
