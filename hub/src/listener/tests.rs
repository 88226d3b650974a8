use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::net::Ipv4Addr;

use axum::body::to_bytes;
use axum::routing::{get, post};
use hyper::client::conn::http2;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tideline_common::HubId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use tokio_rustls::{TlsConnector, client};
use tokio_util::sync::DropGuard;
use uuid::Uuid;

use super::*;
use crate::certificates::Authority;

/// Long for everything that these tests wait for.
const SOON: Duration = Duration::from_secs(20);
const SHORT: Patience = Patience {
    handshake: Duration::from_millis(400),
    unverified: Duration::from_millis(800),
    idle: Duration::from_millis(1_200),
    unread: Duration::from_millis(600),
    body: Duration::from_millis(400),
};
const LONG: Patience = Patience {
    handshake: HANDSHAKE_MAX,
    unverified: UNVERIFIED_MAX,
    idle: IDLE_MAX,
    unread: ANSWER_UNREAD_MAX,
    body: BODY_GRACE,
};
const FEW: Places = Places {
    unverified: 8,
    unverified_per_network: 8,
    agents: 4,
    administrators: 2,
    per_key: 4,
    requests_per_key: 4,
    request_every: Duration::from_millis(1),
    requests_burst: 1_000,
    bytes_every_second: 1 << 20,
    bytes_burst: 256 << 20,
};

/// A listener on a port of its own.
struct Served {
    address: SocketAddr,
    authority: Vec<u8>,
    peers: Peers,
    _stop: DropGuard,
}

type Tls = client::TlsStream<TcpStream>;

impl Served {
    async fn new(patience: Patience, places: Places) -> Self {
        tideline_runtime::tls::install_provider();
        let authority =
            Authority::create(Uuid::new_v4().to_string().parse::<HubId>().expect("a UUID")).expect("an authority");
        let tls = authority.server_config(&BTreeSet::from(["localhost".to_owned()])).expect("a certificate");
        let router = Router::new()
            .route("/read", post(read))
            .route("/poll", get(poll))
            .route("/large", get(large))
            .route("/ask", get(|request: axum::extract::Request| async move { verified(&request) }));
        let (peers, stop) = (Peers::new(places), CancellationToken::new());
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = socket.local_addr().expect("an address");
        let listener = Listener { patience, ..Listener::new(tls, router, peers.clone(), places) };
        tokio::spawn(listener.serve(socket, stop.clone()));
        Self { address, authority: authority.certificate_der().to_vec(), peers, _stop: stop.drop_guard() }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it accepts")
    }

    async fn connect_tls(&self) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.authority.clone())).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::try_from("localhost").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, self.connect().await);
        timeout(SOON, connecting).await.expect("in time").expect("TLS")
    }

    /// Sends this and reads until the listener closes the connection.
    async fn ends(&self, sent: &[u8]) -> String {
        let mut stream = self.connect_tls().await;
        stream.write_all(sent).await.expect("it is open");
        end_of(&mut stream).await
    }
}

async fn end_of(stream: &mut (impl AsyncReadExt + Unpin)) -> String {
    let mut said = Vec::new();
    // That it ends without a word of TLS is as good an end as any.
    let _ended = timeout(SOON, stream.read_to_end(&mut said)).await.expect("the listener closes it");
    String::from_utf8_lossy(&said).into_owned()
}

/// Reads one answer of which the end is known.
async fn answer(stream: &mut Tls, end: &str) -> String {
    let (mut said, mut bytes) = (String::new(), [0; 1024]);
    while !said.ends_with(end) {
        let read = timeout(SOON, stream.read(&mut bytes)).await.expect("an answer in time").expect("an answer");
        assert!(read > 0, "it ended with {said:?}");
        said.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    said
}

fn verified(request: &axum::extract::Request) -> String {
    let caller = request.headers().get("caller").and_then(|value| value.to_str().ok());
    let peer = request.extensions().get::<Peer>().expect("every request has one");
    match caller {
        None => "nobody.".to_owned(),
        Some(name) => {
            let caller = if name == "administrator" { Caller::Administrator } else { Caller::Agent(name.to_owned()) };
            peer.verified(caller, Purpose::Other)
                .map_or_else(|crowded| format!("{crowded}."), |()| "verified.".to_owned())
        }
    }
}

async fn read(request: axum::extract::Request) -> String {
    let verified = verified(&request);
    match to_bytes(request.into_body(), usize::MAX).await {
        Ok(bytes) => format!("{verified} read {}.", bytes.len()),
        Err(error) => format!("{verified} {error}."),
    }
}

async fn poll(request: axum::extract::Request) -> String {
    verified(&request);
    pending().await
}

/// As much as no buffer takes.
const LARGE: usize = 32 << 20;

async fn large(request: axum::extract::Request) -> Vec<u8> {
    verified(&request);
    vec![b'x'; LARGE]
}

fn ask(caller: &str) -> Vec<u8> {
    format!("GET /ask HTTP/1.1\r\nhost: localhost\r\ncaller: {caller}\r\n\r\n").into_bytes()
}

#[tokio::test]
async fn who_does_not_show_who_they_are_is_closed_in_time() {
    let served = Served::new(SHORT, FEW).await;
    end_of(&mut served.connect().await).await;
    let (mut cut, mut hello) = (served.connect().await, [0; 64]);
    // The beginning of a handshake: a record of 512 bytes that are not there.
    hello[..5].copy_from_slice(&[22, 3, 1, 2, 0]);
    cut.write_all(&hello).await.expect("it is open");
    end_of(&mut cut).await;
    for said in [
        &b""[..],
        b"P",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"POST /read HTTP/1.1\r\nhost: localhost\r\n",
        b"GET /poll HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ] {
        served.ends(said).await;
    }
    assert_eq!(served.peers.census().closed[&Closed::Late], 8);
}

#[tokio::test]
async fn of_an_unfinished_head_as_much_is_kept_as_the_largest_has() {
    let served = Served::new(LONG, FEW).await;
    let long = |bytes: usize| "x".repeat(bytes);
    // The longest URL of an agent with its signature, and a token of an administrator.
    let mut largest =
        format!("GET /ask?{} HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\nconnection: close\r\n", long(6 << 10));
    for (name, bytes) in [("authorization", 8 << 10), ("a", 1 << 10), ("b", 1 << 10), ("c", 1 << 10), ("d", 1 << 10)] {
        largest.extend([name, ": ", &long(bytes), "\r\n"]);
    }
    let said = served.ends(format!("{largest}\r\n").as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    // Long before anybody is late.
    let unfinished = format!("GET /ask HTTP/1.1\r\nhost: localhost\r\nlong: {}", long(HTTP1_BUFFER_BYTES_MAX));
    served.ends(&unfinished.as_bytes()[..HTTP1_BUFFER_BYTES_MAX]).await;
    assert_eq!(served.peers.census().closed.get(&Closed::Late), None);
}

#[tokio::test]
async fn a_body_of_nobody_is_not_read() {
    let served = Served::new(SHORT, FEW).await;
    let head = "POST /read HTTP/1.1\r\nhost: localhost\r\ncontent-length: 8388608\r\nexpect: 100-continue\r\n\r\n";
    let said = served.ends(head.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("nobody. the request was not verified."), "{said}");
    let mut known = served.connect_tls().await;
    let head =
        "POST /read HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
    known.write_all(head.as_bytes()).await.expect("it is open");
    answer(&mut known, "HTTP/1.1 100 Continue\r\n\r\n").await;
    known.write_all(b"12345").await.expect("it is open");
    answer(&mut known, "verified. read 5.").await;
}

#[tokio::test]
async fn a_verified_connection_is_kept_while_in_use_and_a_while_longer() {
    let served = Served::new(SHORT, FEW).await;
    let mut idle = served.connect_tls().await;
    idle.write_all(&ask("a")).await.expect("it is open");
    let mut used = served.connect_tls().await;
    used.write_all(b"GET /poll HTTP/1.1\r\nhost: localhost\r\ncaller: b\r\n\r\n").await.expect("it is open");
    assert!(end_of(&mut idle).await.ends_with("verified."));
    let longer = timeout(SHORT.unverified * 2, used.read_u8()).await;
    assert!(longer.is_err(), "a poll waits for as long as it wants: {longer:?}");
    assert_eq!(served.peers.census().closed, BTreeSet::new().into_iter().collect());
}

impl Served {
    /// Waits until no request of this key is under way any more.
    async fn gives_place_back(&self, key: &str) {
        let free = async {
            while self.peers.under_way(key) > 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, free).await.expect("its place is given back");
    }
}

/// Whoever has a key could take every place of it, and the room for bodies, with a byte each.
#[tokio::test]
async fn a_verified_body_that_does_not_come_on_ends_and_gives_its_place_back() {
    let served = Served::new(SHORT, FEW).await;
    let head = "POST /read HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\ncontent-length: 8388608\r\n\r\nx";
    let said = served.ends(head.as_bytes()).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("verified. it comes too slowly."), "{said}");
    served.gives_place_back("a").await;
    assert_eq!(served.peers.census().body_bytes, 0);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_let_go_of_and_its_connection_closed() {
    let served = Served::new(SHORT, FEW).await;
    let mut silent = served.connect_tls().await;
    silent.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\n\r\n").await.expect("it is open");
    let mut first = [0; 16];
    silent.read_exact(&mut first).await.expect("the answer begins");
    assert_eq!(served.peers.under_way("a"), 1);
    served.gives_place_back("a").await;
    let closed = async {
        while served.peers.census().counts.agents > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, closed).await.expect("it is closed");
    assert!(end_of(&mut silent).await.len() < LARGE);
}

#[tokio::test]
async fn an_answer_that_is_read_slowly_arrives_however_long_it_takes() {
    let served = Served::new(SHORT, FEW).await;
    let mut slow = served.connect_tls().await;
    slow.write_all(b"GET /large HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\nconnection: close\r\n\r\n")
        .await
        .expect("open");
    let (begun, mut read, mut piece) = (Instant::now(), 0, vec![0; 2 << 20]);
    let mut pauses = tokio::time::interval(SHORT.unread / 4);
    loop {
        let (end, mut some) = (piece.len(), 0);
        while some < end {
            match slow.read(&mut piece[some..]).await.expect("it goes on") {
                0 => break,
                bytes => some += bytes,
            }
        }
        read += some;
        if some < end {
            break;
        }
        // Many of these are longer than an answer may lie unread.
        pauses.tick().await;
    }
    assert!(read > LARGE, "{read}");
    assert!(begun.elapsed() > SHORT.unread * 3);
}

/// One stream that is not read gives its place back, and others of the same connection, a load balancer's perhaps, go on.
#[tokio::test]
async fn a_stream_that_nobody_reads_is_let_go_of_alone() {
    let served = Served::new(SHORT, FEW).await;
    let stream = TokioIo::new(served.connect_tls().await);
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let get = |path: &str, caller: &str| {
        let request = Request::get(format!("https://localhost{path}")).header("caller", caller);
        request.body(String::new()).expect("a request")
    };
    let unread = sender.clone().send_request(get("/large", "a")).await.expect("an answer");
    let mut sender = sender;
    let begun = Instant::now();
    let mut others = 0;
    while served.peers.under_way("a") > 0 {
        assert!(begun.elapsed() < SOON);
        // Another each time: one alone would ask too fast.
        others += 1;
        let other = sender.send_request(get("/ask", &format!("b{others}"))).await.expect("others are answered");
        assert_eq!(to_bytes(axum::body::Body::new(other.into_body()), 100).await.expect("whole"), "verified.");
    }
    assert!(begun.elapsed() >= SHORT.unread / 2);
    let rest = to_bytes(axum::body::Body::new(unread.into_body()), usize::MAX).await;
    assert!(rest.is_err(), "it is not said to be whole");
    sender.send_request(get("/ask", "b")).await.expect("others are answered");
}

/// Of HTTP/2 a piece is taken before its stream has room for it, and the last one is no other.
#[tokio::test]
async fn an_answer_of_one_piece_that_nobody_reads_is_let_go_of() {
    let served = Served::new(SHORT, FEW).await;
    let stream = TokioIo::new(served.connect_tls().await);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.initial_stream_window_size(0).handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::get("https://localhost/ask").header("caller", "a").body(String::new()).expect("a request");
    let unread = sender.send_request(request).await.expect("an answer");
    let let_go = async {
        while served.peers.under_way("a") > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, let_go).await.expect("it gives its place back");
    drop(unread);
}

/// One frame of HTTP/2 (RFC 9113, section 4.1): its type, its flags, its stream and what it carries.
async fn frame(stream: &mut Tls) -> (u8, u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    timeout(SOON, stream.read_exact(&mut head)).await.expect("a frame in time").expect("a frame");
    let [first, second, third, kind, flags, id @ ..] = head;
    let mut content = vec![0; u32::from_be_bytes([0, first, second, third]) as usize];
    timeout(SOON, stream.read_exact(&mut content)).await.expect("all of it in time").expect("all of it");
    (kind, flags, u32::from_be_bytes(id), content)
}

/// What a client may do is bounded by what it is told at the beginning: it keeps to that, or is disconnected.
#[tokio::test]
async fn a_client_of_http2_is_told_every_bound() {
    const SETTINGS: u8 = 4;
    const WINDOW_UPDATE: u8 = 8;
    let served = Served::new(LONG, FEW).await;
    let mut stream = served.connect_tls().await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("it is open");
    let (mut settings, mut window) = (BTreeMap::new(), None);
    while settings.is_empty() || window.is_none() {
        match frame(&mut stream).await {
            (SETTINGS, 0, 0, content) => settings.extend(content.chunks(6).map(|setting| {
                let (name, value) = setting.split_at(2);
                let value: [u8; 4] = value.try_into().expect("a setting has six bytes");
                (u16::from_be_bytes([name[0], name[1]]), u32::from_be_bytes(value))
            })),
            // To what every connection begins with.
            (WINDOW_UPDATE, _, 0, more) => {
                window = Some(65_535 + u32::from_be_bytes(more.try_into().expect("it has four bytes")));
            }
            _acknowledgement => {}
        }
    }
    for (name, setting, bound) in [
        ("SETTINGS_MAX_CONCURRENT_STREAMS", 3, STREAMS_MAX),
        ("SETTINGS_INITIAL_WINDOW_SIZE", 4, STREAM_WINDOW_BYTES),
        ("SETTINGS_MAX_HEADER_LIST_SIZE", 6, HEADER_BYTES_MAX),
    ] {
        assert_eq!(settings.get(&setting), Some(&bound), "{name}");
    }
    assert_eq!(window, Some(CONNECTION_WINDOW_BYTES));
}

#[tokio::test]
async fn a_crowd_of_silent_connections_keeps_nobody_out() {
    let served = Served::new(LONG, FEW).await;
    let mut agent = served.connect_tls().await;
    agent.write_all(&ask("a")).await.expect("it is open");
    answer(&mut agent, "verified.").await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(served.connect().await);
    }
    let mut administrator = served.connect_tls().await;
    administrator.write_all(&ask("administrator")).await.expect("it is open");
    answer(&mut administrator, "verified.").await;
    agent.write_all(&ask("a")).await.expect("it is open");
    answer(&mut agent, "verified.").await;
    let census = served.peers.census();
    assert_eq!((census.counts.agents, census.counts.administrators), (1, 1));
    assert!(census.counts.unverified <= FEW.unverified, "{census:?}");
    // The oldest gave way, and are closed.
    for stream in &mut silent[..150] {
        end_of(stream).await;
    }
}

#[tokio::test]
async fn one_key_takes_no_place_of_others() {
    let served = Served::new(LONG, FEW).await;
    let mut polls = Vec::new();
    for _ in 0..FEW.requests_per_key {
        let mut stream = served.connect_tls().await;
        stream.write_all(b"GET /poll HTTP/1.1\r\nhost: localhost\r\ncaller: a\r\n\r\n").await.expect("it is open");
        polls.push(stream);
    }
    let counted = async {
        while served.peers.census().counts.agents < FEW.requests_per_key {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, counted).await.expect("all of them are served");
    let mut more = served.connect_tls().await;
    more.write_all(&ask("a")).await.expect("it is open");
    answer(&mut more, "too many requests of this key are under way.").await;
    drop(polls.pop());
    let mut other = served.connect_tls().await;
    let served_in_the_end = async {
        loop {
            other.write_all(&ask("b")).await.expect("it is open");
            if answer(&mut other, ".").await.ends_with("verified.") {
                return;
            }
            other = served.connect_tls().await;
        }
    };
    timeout(SOON, served_in_the_end).await.expect("there is a place");
}
