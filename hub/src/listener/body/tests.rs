use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;
use tokio::time::interval_at;

use tideline_common::limits::REQUEST_BYTES_MAX;

use super::super::connections::{Caller, Crowded, Places, Purpose};
use super::super::peer::Peers;
use super::*;
use crate::limits::{
    AGENT_BODY_BYTES_MAX, BODY_BYTES_PER_KEY_FREE, BODY_BYTES_PER_KEY_MAX, BODY_BYTES_PER_SECOND_MIN,
    BODY_BYTES_PER_SECOND_MIN_CROWDED, BODY_GRACE,
};

/// What a client sends, whenever it does.
struct Wire(mpsc::Receiver<Bytes>);

impl http_body::Body for Wire {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

fn peers() -> Peers {
    Peers::new(Places::within(usize::MAX))
}

fn nobody(peers: &Peers) -> Peer {
    peers.admit(IpAddr::V4(Ipv4Addr::LOCALHOST)).begin()
}

fn peer(peers: &Peers, caller: Caller) -> Peer {
    let connected = peers.admit(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let peer = connected.begin();
    peer.verified(caller, Purpose::Other).expect("there are places");
    peer
}

fn agent(name: &str) -> Caller {
    Caller::Agent(name.to_owned())
}

fn body_of<B>(inner: B, peer: Peer) -> Body<B> {
    Body::new(inner, peer, BODY_GRACE)
}

fn zeros(bytes: usize) -> Bytes {
    Bytes::from(vec![0; bytes])
}

/// Sends `bytes` every second until nobody listens, and says why the body ended.
async fn at_rate(peers: &Peers, bytes: usize, seconds: usize) -> Result<usize, BodyError<Infallible>> {
    let (sender, receiver) = mpsc::channel(1);
    let client = async move {
        let mut second = interval_at(Instant::now() + Duration::from_secs(1), Duration::from_secs(1));
        for _ in 0..seconds {
            second.tick().await;
            if sender.send(zeros(bytes)).await.is_err() {
                return;
            }
        }
    };
    let body = body_of(Wire(receiver), peer(peers, agent("slow")));
    let (read, ()) = tokio::join!(body.collect(), client);
    read.map(|read| read.to_bytes().len())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_read_of_a_request_that_was_not_verified() {
    let (sender, receiver) = mpsc::channel(1);
    sender.send(zeros(1)).await.expect("there is room");
    let read = body_of(Wire(receiver), nobody(&peers())).collect().await;
    assert!(matches!(read, Err(BodyError::Unverified)), "{read:?}");
    let none = body_of(Full::new(Bytes::new()), nobody(&peers())).collect().await;
    assert!(none.expect("nothing is to be read").to_bytes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_comes_too_slowly_ends_and_a_slow_one_arrives() {
    let begin = Instant::now();
    let slow = at_rate(&peers(), BODY_BYTES_PER_SECOND_MIN / 2, 600).await;
    assert!(matches!(slow, Err(BodyError::Slow)), "{slow:?}");
    let (took, most) = (begin.elapsed(), BODY_GRACE * 2 + TICK);
    assert!(took >= BODY_GRACE && took <= most, "{took:?}");
    let bytes = BODY_BYTES_PER_SECOND_MIN * 2;
    assert_eq!(at_rate(&peers(), bytes, 600).await.expect("it is fast enough"), 600 * bytes);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_at_all_ends() {
    let (_silent, receiver) = mpsc::channel(1);
    let read = body_of(Wire(receiver), peer(&peers(), agent("silent"))).collect().await;
    assert!(matches!(read, Err(BodyError::Slow)), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn who_is_slow_gives_way_while_it_is_crowded() {
    let (peers, rate) = (peers(), BODY_BYTES_PER_SECOND_MIN_CROWDED / 2);
    assert!(at_rate(&peers, rate, 60).await.is_ok());
    let crowd = fill(&peers, AGENT_BODY_BYTES_MAX / 2 + 1).await;
    let slow = at_rate(&peers, rate, 60).await;
    assert!(matches!(slow, Err(BodyError::Slow)), "{slow:?}");
    drop(crowd);
    assert!(at_rate(&peers, rate, 60).await.is_ok());
}

/// Bodies of many agents, of so many bytes in all, each read but for its end.
async fn fill(peers: &Peers, bytes: usize) -> Vec<(Body<Wire>, mpsc::Sender<Bytes>)> {
    fill_by(peers, bytes, BODY_BYTES_PER_KEY_FREE).await
}

/// The same of agents that have so many bytes each.
async fn fill_by(peers: &Peers, mut bytes: usize, each: usize) -> Vec<(Body<Wire>, mpsc::Sender<Bytes>)> {
    let mut bodies = Vec::new();
    while bytes > 0 {
        let part = bytes.min(each);
        bytes -= part;
        let (sender, receiver) = mpsc::channel(1);
        sender.send(zeros(part)).await.expect("there is room");
        let mut body = body_of(Wire(receiver), peer(peers, agent(&bodies.len().to_string())));
        body.frame().await.expect("it came").expect("there is room");
        bodies.push((body, sender));
    }
    bodies
}

#[tokio::test(start_paused = true)]
async fn what_there_is_no_room_for_waits_and_is_refused_in_the_end() {
    let peers = peers();
    let mut crowd = fill(&peers, AGENT_BODY_BYTES_MAX).await;
    assert_eq!(peers.census().body_bytes, AGENT_BODY_BYTES_MAX);
    let refused = body_of(Full::new(zeros(1)), peer(&peers, agent("late"))).collect().await;
    assert!(matches!(refused, Err(BodyError::Crowded)), "{refused:?}");
    // Administrators have room of their own.
    let administrator = peer(&peers, Caller::Administrator);
    assert!(body_of(Full::new(zeros(3 << 20)), administrator).collect().await.is_ok());
    let waits = body_of(Full::new(zeros(1)), peer(&peers, agent("late"))).collect();
    let leaves = async {
        interval_at(Instant::now() + BODY_ROOM_WAIT_MAX / 2, BODY_ROOM_WAIT_MAX).tick().await;
        crowd.pop();
    };
    let (read, ()) = tokio::join!(waits, leaves);
    assert_eq!(read.expect("there is room by now").to_bytes().len(), 1);
    drop(crowd);
    assert_eq!(peers.census().body_bytes, 0, "all is given back");
}

/// Four stolen keys send as much as they may, as slowly as they may.
#[tokio::test(start_paused = true)]
async fn however_much_a_few_keys_send_there_is_room_for_others_at_once() {
    let peers = peers();
    let mut crowd = Vec::new();
    for name in ["a", "b", "c", "d"] {
        for _ in 0..4 {
            let (sender, receiver) = mpsc::channel(64);
            let mut body = body_of(Wire(receiver), peer(&peers, agent(name)));
            crowd.push(tokio::spawn(async move { while let Some(Ok(_)) = body.frame().await {} }));
            tokio::spawn(async move {
                while sender.send(zeros(64 << 10)).await.is_ok() {
                    interval_at(Instant::now() + Duration::from_millis(1), TICK).tick().await;
                }
            });
        }
    }
    interval_at(Instant::now() + BODY_ROOM_WAIT_MAX / 2, TICK).tick().await;
    let used = peers.census().body_bytes;
    assert!(used > AGENT_BODY_BYTES_MAX / 4 && used <= AGENT_BODY_BYTES_MAX * 5 / 8, "{used}");
    let begun = Instant::now();
    let read = body_of(Full::new(zeros(REQUEST_BYTES_MAX)), peer(&peers, agent("other"))).collect().await;
    assert_eq!(read.expect("there is room").to_bytes().len(), REQUEST_BYTES_MAX);
    assert!(begun.elapsed() < TICK, "at once");
    crowd.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn one_key_takes_no_more_than_its_share_of_the_room() {
    let peers = peers();
    let first = fill_by(&peers, BODY_BYTES_PER_KEY_MAX, BODY_BYTES_PER_KEY_MAX).await;
    let more = body_of(Full::new(zeros(1)), peer(&peers, agent("0"))).collect().await;
    assert!(matches!(more, Err(BodyError::Share)), "{more:?}");
    assert!(body_of(Full::new(zeros(1)), peer(&peers, agent("1"))).collect().await.is_ok());
    drop(first);
    assert!(body_of(Full::new(zeros(1)), peer(&peers, agent("0"))).collect().await.is_ok());
}

/// Whoever has a key sends no more with it for ending each request before it is whole.
#[tokio::test(start_paused = true)]
async fn what_came_of_a_body_that_breaks_off_counts_as_its_key_s() {
    let peers = Peers::new(Places { bytes_burst: 3 * REQUEST_BYTES_MAX, ..Places::within(usize::MAX) });
    let connected = peers.admit(IpAddr::V4(Ipv4Addr::LOCALHOST));
    for sent in 0..4 {
        let peer = connected.begin();
        assert!(peer.verified(agent("a"), Purpose::Report).is_ok(), "{sent}");
        let (sender, receiver) = mpsc::channel(1);
        let mut body = Body::new(Wire(receiver), peer, BODY_GRACE);
        sender.send(zeros(REQUEST_BYTES_MAX)).await.expect("it is read");
        assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
    }
    assert_eq!(connected.begin().verified(agent("a"), Purpose::Report), Err(Crowded::BytesOfKey));
}
