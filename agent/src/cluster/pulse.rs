//! Whether the API server answers at all.
//!
//! A watch is silent while nothing happens, and as silent where its connection is open and leads nowhere. So the API server is
//! asked now and then how it is. Whatever it says is an answer, "not well" and "you may not ask" too; by default everybody
//! may (`system:public-info-viewer`), so that no manifest has to grant it.

use std::time::Duration;

use futures::Stream;
use http::Request;
use kube::Client;
use tideline_runtime::exit::chain;
use tokio::time::{sleep, timeout};

/// Between two questions. Seven requests in five minutes, where an agent at rest has three others.
const EVERY: Duration = Duration::from_secs(45);
/// Longest wait for an answer. It is made from memory, and comes within seconds from an API server that swaps.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Between a question without an answer and the next.
const AGAIN: Duration = Duration::from_secs(5);
/// Questions in a row without an answer that mean silence: one may be lost with the connection that it was sent by.
const MISSES_MAX: u32 = 2;

/// What is to be known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// It does not answer, for this reason. Told again with every question that it leaves open.
    Silent(String),
    /// It answers again.
    Back,
}

/// Tells when the API server falls silent and when it is back. Asks nothing while it is not polled, and ends when it is
/// dropped.
pub fn pulse(client: Client) -> impl Stream<Item = Pulse> + Send {
    futures::stream::unfold((client, 0), |(client, misses)| async move {
        let (told, misses) = next(&client, misses).await;
        Some((told, (client, misses)))
    })
}

async fn next(client: &Client, mut misses: u32) -> (Pulse, u32) {
    loop {
        sleep(if misses == 0 { EVERY } else { AGAIN }).await;
        match asked(client).await {
            Ok(()) if misses >= MISSES_MAX => return (Pulse::Back, 0),
            Ok(()) => misses = 0,
            Err(why) => {
                misses = misses.saturating_add(1);
                if misses >= MISSES_MAX {
                    return (Pulse::Silent(why), misses);
                }
            }
        }
    }
}

async fn asked(client: &Client) -> Result<(), String> {
    let request = Request::get("/livez").body(Vec::new()).expect("a path is a URI");
    match timeout(ANSWER_MAX, client.request_text(request)).await {
        Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
        Ok(Err(error)) => Err(chain(&error)),
        Err(_elapsed) => Err(format!("the API server does not answer within {} s", ANSWER_MAX.as_secs())),
    }
}

#[cfg(test)]
mod tests;
