use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::{Health, bind, register_process, serve};

#[tokio::test(start_paused = true)]
async fn process_is_ready_when_every_gate_is_dropped() {
    let health = Health::new();
    let (first, second, twin) = (health.gate("journal"), health.gate("watches"), health.gate("watches"));
    drop(first);
    drop(second);
    assert_eq!(health.waiting_for(), ["watches"]);
    drop(twin);
    assert!(health.waiting_for().is_empty());
}

#[tokio::test(start_paused = true)]
async fn loop_that_does_not_beat_in_time_is_stuck() {
    let health = Health::new();
    let heartbeat = health.heartbeat("core", Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(health.stuck(), ["core"]);
    heartbeat.beat();
    assert!(health.stuck().is_empty());
}

#[tokio::test]
async fn verdicts_are_served_over_http() -> std::io::Result<()> {
    let health = Health::new();
    let gate = health.gate("journal");
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "--listen").expect("a free port");
    let address = listener.local_addr()?;
    let shutdown = CancellationToken::new();
    let mut registry = Registry::default();
    register_process(&mut registry, "agent", "1.2.3");
    let server = tokio::spawn(serve(listener, health.clone(), registry, shutdown.clone()));
    let get = async |path: &str| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    };
    let waiting = get("/readyz").await?;
    assert!(waiting.starts_with("HTTP/1.1 503") && waiting.ends_with("waiting for journal\n"), "{waiting}");
    drop(gate);
    assert!(get("/readyz").await?.starts_with("HTTP/1.1 200"));
    assert!(get("/livez").await?.starts_with("HTTP/1.1 200"));
    let note = health.note("standby");
    let noted = get("/readyz").await?;
    assert!(noted.starts_with("HTTP/1.1 200") && noted.ends_with("ok, standby\n"), "{noted}");
    drop(note);
    assert!(get("/readyz").await?.ends_with("\r\n\r\nok\n"));
    let metrics = get("/metrics").await?;
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert!(metrics.contains("tideline_build_info{component=\"agent\",version=\"1.2.3\"} 1"), "{metrics}");
    #[cfg(target_os = "linux")]
    for name in ["process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds "] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    assert!(get("/").await?.starts_with("HTTP/1.1 404"));
    shutdown.cancel();
    assert!(server.await.is_ok());
    Ok(())
}
