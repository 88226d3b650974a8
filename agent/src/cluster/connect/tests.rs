use std::sync::Arc;

use futures::future::{join_all, try_join_all};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 8;

#[tokio::test]
async fn connections_without_use_are_closed() {
    tideline_runtime::tls::install_provider();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client = client(Config::new(url.parse().unwrap()), Duration::from_millis(100)).unwrap();

    // Answers when all are there, so that each request has a connection of its own, and waits for its end.
    let all = Arc::new(Barrier::new(CONNECTIONS));
    let served = tokio::spawn(async move {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let (mut connection, _) = listener.accept().await.unwrap();
            let all = Arc::clone(&all);
            connections.push(tokio::spawn(async move {
                let mut bytes = [0; 4096];
                assert_ne!(connection.read(&mut bytes).await.unwrap(), 0, "no request came");
                all.wait().await;
                connection.write_all(ANSWER).await.unwrap();
                assert_eq!(connection.read(&mut bytes).await.unwrap(), 0, "more came than was awaited");
            }));
        }
        try_join_all(connections).await.unwrap();
    });
    let ask = || async { client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await };
    let answers = timeout(WAIT_MAX, join_all((0..CONNECTIONS).map(|_| ask()))).await.expect("all are answered");
    assert!(answers.iter().all(|answer| answer.as_deref().is_ok_and(|text| text == "{}")), "{answers:?}");

    timeout(WAIT_MAX, served).await.expect("all connections are closed").unwrap();
    drop(client);
}
