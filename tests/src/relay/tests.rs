use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::{Condition, Relay};
use crate::eventually_ok;

const LIMIT: Duration = Duration::from_secs(10);

/// Starts a server that returns what it is sent, and a relay to it.
async fn echo() -> Result<Relay> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.into_split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    Ok(Relay::start(address).await?)
}

async fn exchange(stream: &mut TcpStream, text: &str) -> Result<String> {
    stream.write_all(text.as_bytes()).await?;
    let mut answer = vec![0; text.len()];
    timeout(LIMIT, stream.read_exact(&mut answer)).await??;
    Ok(String::from_utf8(answer)?)
}

#[tokio::test]
async fn open_wire_passes_both_ways() -> Result<()> {
    let relay = echo().await?;
    let mut stream = TcpStream::connect(relay.address()).await?;
    assert_eq!(exchange(&mut stream, "there and back").await?, "there and back");
    Ok(())
}

#[tokio::test]
async fn end_of_stream_passes_after_everything_before_it() -> Result<()> {
    let relay = echo().await?;
    let mut stream = TcpStream::connect(relay.address()).await?;
    let sent = vec![7_u8; 1 << 20];
    let (mut from, mut to) = stream.split();
    let mut received = Vec::new();
    let send = async {
        to.write_all(&sent).await?;
        to.shutdown().await
    };
    timeout(LIMIT, async { tokio::try_join!(send, from.read_to_end(&mut received)) }).await??;
    assert_eq!(received, sent);
    Ok(())
}

#[tokio::test]
async fn cut_closes_old_and_new_connections_until_resumed() -> Result<()> {
    let relay = echo().await?;
    let mut stream = TcpStream::connect(relay.address()).await?;
    exchange(&mut stream, "before").await?;
    relay.cut();
    assert!(exchange(&mut stream, "lost").await.is_err());
    let mut late = TcpStream::connect(relay.address()).await?;
    assert!(exchange(&mut late, "lost").await.is_err());
    relay.resume();
    let answer = eventually_ok(LIMIT, "the wire to be open", async || {
        exchange(&mut TcpStream::connect(relay.address()).await?, "after").await
    });
    assert_eq!(answer.await?, "after");
    Ok(())
}

#[tokio::test]
async fn stalled_wire_is_silent_and_loses_nothing() -> Result<()> {
    let relay = echo().await?;
    let mut stream = TcpStream::connect(relay.address()).await?;
    exchange(&mut stream, "before").await?;
    relay.set(Condition::Stalled);
    stream.write_all(b"held").await?;
    let mut answer = [0; 4];
    let silent = timeout(Duration::from_millis(200), stream.read_exact(&mut answer)).await;
    assert!(silent.is_err(), "something passed a stalled wire");
    relay.resume();
    timeout(LIMIT, stream.read_exact(&mut answer)).await??;
    assert_eq!(&answer, b"held");
    Ok(())
}

#[tokio::test]
async fn delay_counts_once_in_each_direction() -> Result<()> {
    let relay = echo().await?;
    let mut stream = TcpStream::connect(relay.address()).await?;
    relay.delay(Duration::from_millis(100));
    let since = Instant::now();
    exchange(&mut stream, "slow").await?;
    assert!(since.elapsed() >= Duration::from_millis(200), "{:?}", since.elapsed());
    Ok(())
}
