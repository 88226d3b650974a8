//! A TCP relay between two parties, whose condition the test sets.
//!
//! ```text
//! client ──▶ accept ──▶ reader ──queue──▶ writer ──▶ upstream
//!                       writer ◀──queue── reader ◀──
//! ```
//!
//! Each direction is a reader that stamps what it read and a writer that passes it on when the condition allows.
//! The queue between them is bounded, so a stalled relay holds its sender up as a full pipe does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Bytes read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks on the way in one direction: 1 MiB, more than a delayed long-poll answer of the largest body batch needs.
const CHUNKS_MAX: usize = 64;

/// How the wire is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Everything passes.
    Open,
    /// Everything passes, later by this much in each direction.
    Delayed(Duration),
    /// Connections are accepted and stay open, and nothing passes: a silent outage. What was under way arrives when
    /// the wire is open again.
    Stalled,
    /// Open connections are closed and new ones closed at once: an outage that both ends see.
    Cut,
}

/// A relay on a loopback port of its own, to one upstream. It stops, with all its connections, on drop.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    condition: watch::Sender<Condition>,
    passed: Arc<AtomicU64>,
    _stop: DropGuard,
}

impl Relay {
    /// Listens on a free loopback port and relays to `upstream`, which is dialled for each connection.
    ///
    /// Must be called within a Tokio runtime; the relay lives on it.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (condition, watched) = watch::channel(Condition::Open);
        let (stop, passed) = (CancellationToken::new(), Arc::default());
        let accepting = accept(listener, upstream, watched, Arc::clone(&passed), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Ok(Self { address, condition, passed, _stop: stop.drop_guard() })
    }

    /// Returns the address to dial instead of the upstream's.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bytes that have passed so far, both directions together: what TCP carried, without its own headers.
    pub fn passed_bytes(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }

    /// Sets how the wire is from now on.
    pub fn set(&self, condition: Condition) {
        self.condition.send_replace(condition);
    }

    /// Cuts the wire.
    pub fn cut(&self) {
        self.set(Condition::Cut);
    }

    /// Lets everything pass again, at once.
    pub fn resume(&self) {
        self.set(Condition::Open);
    }

    /// Holds everything up by this much in each direction.
    pub fn delay(&self, by: Duration) {
        self.set(Condition::Delayed(by));
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    condition: watch::Receiver<Condition>,
    passed: Arc<AtomicU64>,
    stop: CancellationToken,
) {
    // An accept fails when the client is gone already or when this process is out of files; the latter shows.
    while let Ok((client, _)) = listener.accept().await {
        let connection = connection(client, upstream, condition.clone(), Arc::clone(&passed));
        tokio::spawn(stop.clone().run_until_cancelled_owned(connection));
    }
}

/// Relays one connection until both sides are done, one fails, or the wire is cut.
async fn connection(
    client: TcpStream,
    upstream: SocketAddr,
    mut condition: watch::Receiver<Condition>,
    passed: Arc<AtomicU64>,
) {
    let mut cut = condition.clone();
    let relayed = async {
        // While stalled not even the dial passes.
        passable(&mut condition).await?;
        let server = TcpStream::connect(upstream).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::try_join!(
            direction(from_client, to_server, condition.clone(), &passed),
            direction(from_server, to_client, condition.clone(), &passed),
        )
    };
    // Cancel-safe: the loser is dropped, and with it both sockets.
    tokio::select! {
        _ = cut.wait_for(|condition| *condition == Condition::Cut) => {}
        _ = relayed => {}
    }
}

/// Relays one direction until the end of its stream, which is passed on as such.
async fn direction(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut condition: watch::Receiver<Condition>,
    passed: &AtomicU64,
) -> io::Result<()> {
    let (queue, mut queued) = mpsc::channel::<(Instant, Vec<u8>)>(CHUNKS_MAX);
    let read = async move {
        loop {
            let mut chunk = Vec::with_capacity(CHUNK_BYTES);
            if from.read_buf(&mut chunk).await? == 0 {
                return Ok(());
            }
            if queue.send((Instant::now(), chunk)).await.is_err() {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((read_at, chunk)) = queued.recv().await {
            if let Condition::Delayed(by) = passable(&mut condition).await? {
                sleep_until(read_at + by).await;
            }
            to.write_all(&chunk).await?;
            passed.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|((), ())| ())
}

/// Waits until something may pass, and returns under which condition.
async fn passable(condition: &mut watch::Receiver<Condition>) -> io::Result<Condition> {
    let open = |condition: &Condition| matches!(condition, Condition::Open | Condition::Delayed(_));
    condition.wait_for(open).await.map(|now| *now).map_err(|_| io::ErrorKind::ConnectionAborted.into())
}

#[cfg(test)]
mod tests;
