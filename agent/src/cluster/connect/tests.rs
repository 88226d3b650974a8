use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::time::timeout;

use super::super::watch::decoded;
use super::*;
use crate::core::{Failure, Fate};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(30);
const CONNECTIONS: usize = 8;

#[tokio::test]
async fn connections_without_use_are_closed() {
    tideline_runtime::tls::install_provider();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let client =
        client(Config::new(url.parse().unwrap()), Duration::from_millis(100), DEADLINES, &Arc::default()).unwrap();

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

/// What an API server, or a middlebox before it, does with a request.
#[derive(Clone, Copy, Debug)]
enum Serves {
    /// Takes it, and says nothing.
    Nothing,
    /// Begins an answer of two bytes.
    Half,
    All,
}

/// While `/livez` is answered on other connections, nothing else says that one of them hangs.
#[tokio::test]
async fn an_answer_that_does_not_come_is_given_up_and_asked_for_on_another_connection() {
    const DEADLINE: Duration = Duration::from_millis(200);
    const WATCH: &str = "/api/v1/configmaps?watch=true&resourceVersion=1";
    const LIST: &str = "/api/v1/configmaps?limit=100";
    tideline_runtime::tls::install_provider();
    for (uri, first) in [(LIST, Serves::Nothing), (LIST, Serves::Half), (WATCH, Serves::Nothing), (LIST, Serves::All)] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let deadlines = Deadlines { head: DEADLINE, part: DEADLINE };
        let client = client(Config::new(url.parse().unwrap()), IDLE_MAX, deadlines, &Arc::default()).unwrap();
        let served = tokio::spawn(async move {
            for serves in [first, Serves::All] {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 4096];
                loop {
                    if connection.read(&mut bytes).await.unwrap() == 0 {
                        break;
                    }
                    match serves {
                        Serves::Nothing => {}
                        Serves::Half => connection.write_all(&ANSWER[..ANSWER.len() - 1]).await.unwrap(),
                        Serves::All => return connection.write_all(ANSWER).await.unwrap(),
                    }
                }
            }
        });
        let ask = || async {
            let request = http::Request::get(uri).body(Vec::new()).unwrap();
            timeout(WAIT_MAX, client.request_text(request)).await.expect("it is given up in time")
        };
        let answer = ask().await;
        assert_eq!(answer.is_ok(), matches!(first, Serves::All), "{uri}, {first:?}: {answer:?}");
        if answer.is_err() {
            assert_eq!(ask().await.expect("on another connection"), "{}");
        }
        served.await.unwrap();
    }
}

/// Where nobody listens nothing was done. A connection that ends with the request says nothing.
#[tokio::test]
async fn a_request_without_a_connection_was_not_sent_and_one_without_an_answer_may_have_been_carried_out() {
    tideline_runtime::tls::install_provider();
    for (listens, expected) in [(false, Fate::NotDone), (true, Fate::Unknown)] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = tokio::spawn(async move {
            if listens {
                let (mut connection, _) = listener.accept().await.unwrap();
                assert_ne!(connection.read(&mut [0; 4096]).await.unwrap(), 0, "no request came");
            }
        });
        if !listens {
            served.await.unwrap();
        }
        let client = client(Config::new(url.parse().unwrap()), IDLE_MAX, DEADLINES, &Arc::default()).unwrap();
        let request = http::Request::post("/api/v1/configmaps").body(b"{}".to_vec()).unwrap();
        let error = timeout(WAIT_MAX, client.request_text(request)).await.unwrap().unwrap_err();
        assert_eq!(Failure::of_client(&error).fate, expected, "{error:?}");
    }
}

/// Nothing happened for a while, which is no reason to begin anew with a list.
#[tokio::test]
async fn a_watch_that_has_begun_may_be_silent() {
    tideline_runtime::tls::install_provider();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let deadlines = Deadlines { head: WAIT_MAX, part: Duration::from_millis(1) };
    let client = client(Config::new(url.parse().unwrap()), IDLE_MAX, deadlines, &Arc::default()).unwrap();
    let (began, wait) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut bytes = [0; 4096];
        assert_ne!(connection.read(&mut bytes).await.unwrap(), 0, "no request came");
        connection.write_all(&ANSWER[..ANSWER.len() - 1]).await.unwrap();
        // Longer than any part of a list may take.
        let _ = timeout(Duration::from_millis(100), wait).await;
        connection.write_all(b"}").await.unwrap();
    });
    let request = http::Request::get("/api/v1/configmaps?watch=1").body(Vec::new()).unwrap();
    assert_eq!(timeout(WAIT_MAX, client.request_text(request)).await.unwrap().unwrap(), "{}");
    drop(began);
    served.await.unwrap();
}

/// It is begun anew with a list, after a pause. By itself kube would begin it again at once, for ever, and say nothing.
#[tokio::test]
async fn a_watch_that_ends_as_soon_as_it_has_begun_has_failed() {
    const LIST: &str =
        r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}"#;
    /// The server goes away after so many.
    const WATCHES_MAX: usize = 10;
    tideline_runtime::tls::install_provider();
    for end in [
        "content-length: 0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\n\r\n",
    ] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = client(Config::new(url.parse().unwrap()), IDLE_MAX, DEADLINES, &Arc::default()).unwrap();
        let watches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&watches);
        let served = tokio::spawn(async move {
            while counted.load(Ordering::SeqCst) < WATCHES_MAX {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 4096];
                loop {
                    let count = connection.read(&mut bytes).await.unwrap();
                    if count == 0 {
                        break;
                    }
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
                    if String::from_utf8_lossy(&bytes[..count]).contains("watch=") {
                        counted.fetch_add(1, Ordering::SeqCst);
                        let answer = format!("{head}connection: close\r\n{end}");
                        connection.write_all(answer.as_bytes()).await.unwrap();
                        break;
                    }
                    let answer = format!("{head}content-length: {}\r\n\r\n{LIST}", LIST.len());
                    connection.write_all(answer.as_bytes()).await.unwrap();
                }
            }
        });
        let events = decoded(Api::<ConfigMap>::all(client), watcher::Config::default(), Some);
        let told: Vec<_> = timeout(WAIT_MAX, events.collect()).await.expect("it ends");
        assert!(matches!(told.last(), Some(Err(watcher::Error::WatchFailed(_)))), "{end:?}: {told:?}");
        // The stream is asked once more before it ends.
        assert!(told.len() == 3 && watches.load(Ordering::SeqCst) <= 2, "{end:?}: {told:?}");
        served.abort();
    }
}

/// Says this to whoever asks which cluster it is.
fn saying(code: u16, answer: &'static str) -> Client {
    let service = service_fn(move |request: Request<kube::client::Body>| {
        let (code, answer) = match request.uri().path() {
            "/version" => (
                200,
                r#"{"major": "1", "minor": "35", "gitVersion": "v1.35.0", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}"#,
            ),
            _ => (code, answer),
        };
        let mut response = http::Response::new(kube::client::Body::from(answer.as_bytes().to_vec()));
        *response.status_mut() = code.try_into().unwrap();
        async { Ok::<_, std::convert::Infallible>(response) }
    });
    Client::new(service, "default")
}

/// Otherwise an agent would take any cluster for its own while that is starting.
#[tokio::test]
async fn only_one_that_forbids_the_question_says_that_nobody_may_ask_which_cluster_it_is() {
    let forbidden = r#"{"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"}"#;
    let named = r#"{"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "c1"}}"#;
    for (code, answer) in [(403, forbidden), (200, named)] {
        let (facts, answers) = facts(&saying(code, answer)).await;
        assert_eq!(answers, Answers::All, "{code}");
        assert_eq!(facts.cluster.is_some(), code == 200);
    }
    let status = r#"{"kind": "Status", "status": "Failure", "code": CODE, "reason": "NotFound", "message": "no"}"#;
    for code in [400, 401, 404, 405, 408, 410, 422, 429, 500, 503] {
        let status: &'static str = status.replace("CODE", &code.to_string()).leak();
        for answer in [status, "<html>no route</html>"] {
            let (_, answers) = facts(&saying(code, answer)).await;
            assert!(matches!(answers, Answers::Missing(_)), "{code}: {answer}");
        }
    }
    let (_, answers) = facts(&saying(403, "<html>blocked</html>")).await;
    assert!(matches!(answers, Answers::Missing(_)), "by somebody on the way");
}
