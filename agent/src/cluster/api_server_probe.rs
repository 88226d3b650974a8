//! Whether the API server answers at all.
//!
//! A watch is silent while nothing happens, and as silent where its connection is open and leads nowhere. So the API server is
//! asked now and then how it is. Whatever it says is an answer, "not well" and "you may not ask" too; by default everybody
//! may (`system:public-info-viewer`), so that no manifest has to grant it. But that it does not accept the credentials (401) is
//! as good as silence: nothing else is answered either, until they are renewed.

use std::time::Duration;

use futures::Stream;
use http::Request;
use kube::Client;
use tideline_runtime::exit::chain;
use tokio::time::{Instant, sleep, timeout};

/// Between two questions. Seven requests in five minutes, where an agent at rest has three others.
const EVERY: Duration = Duration::from_secs(45);
/// Longest wait for an answer. It is made from memory, and comes within seconds from an API server that swaps.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Between a question without an answer and the next.
const AGAIN: Duration = Duration::from_secs(5);
/// Questions in a row without an answer that mean silence: one may be lost with the connection that it was sent by.
const MISSES_MAX: u32 = 2;

/// How long to wait for credentials that the API server accepts. A restart may bring new ones.
const UNAUTHORIZED_MAX: Duration = Duration::from_hours(1);
/// Refusals of the credentials that are further apart say nothing of what was between them.
const SILENCE_MAX: Duration = Duration::from_mins(5);

/// The state of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServerProbe {
    /// It does not answer, for this reason. Reported again with every request that it leaves unanswered.
    Silent(String),
    /// It answers again.
    Back,
    /// It has not accepted the credentials for [`UNAUTHORIZED_MAX`], as it says last.
    Unauthorized(String),
}

/// Tells when the API server falls silent and when it is back. Asks nothing while it is not polled, and ends when it is
/// dropped.
pub fn probe_api_server(client: Client) -> impl Stream<Item = ApiServerProbe> + Send {
    futures::stream::unfold((client, Misses::default()), |(client, mut misses)| async move {
        let told = misses.next(&client).await;
        Some((told, (client, misses)))
    })
}

/// Questions in a row that were not answered.
#[derive(Debug, Default)]
struct Misses {
    count: u32,
    /// Since when every answer was that the credentials are not accepted, and when the last of them came.
    unauthorized: Option<(Instant, Instant)>,
}

/// Why a question counts as not answered.
#[derive(Debug)]
enum Missed {
    Silent(String),
    Unauthorized(String),
}

impl Misses {
    async fn next(&mut self, client: &Client) -> ApiServerProbe {
        loop {
            sleep(if self.count == 0 { EVERY } else { AGAIN }).await;
            let missed = match asked(client).await {
                Ok(()) if self.count >= MISSES_MAX => {
                    *self = Self::default();
                    return ApiServerProbe::Back;
                }
                Ok(()) => {
                    *self = Self::default();
                    continue;
                }
                Err(missed) => missed,
            };
            self.count = self.count.saturating_add(1);
            let why = match missed {
                // No sign that the credentials are accepted: a refusal may have been lost.
                Missed::Silent(why) => why,
                Missed::Unauthorized(why) => {
                    let now = Instant::now();
                    let goes_on = self.unauthorized.filter(|(_, last)| now - *last <= SILENCE_MAX);
                    let since = goes_on.map_or(now, |(since, _)| since);
                    self.unauthorized = Some((since, now));
                    if now - since >= UNAUTHORIZED_MAX {
                        return ApiServerProbe::Unauthorized(why);
                    }
                    why
                }
            };
            if self.count >= MISSES_MAX {
                return ApiServerProbe::Silent(why);
            }
        }
    }
}

async fn asked(client: &Client) -> Result<(), Missed> {
    let request = Request::get("/livez").body(Vec::new()).expect("a path is a URI");
    match timeout(ANSWER_MAX, client.request_text(request)).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 401 => {
            Err(Missed::Unauthorized(format!("it does not accept this agent's credentials: {}", status.message)))
        }
        Ok(Ok(_) | Err(kube::Error::Api(_))) => Ok(()),
        Ok(Err(error)) => Err(Missed::Silent(chain(&error))),
        Err(_elapsed) => {
            Err(Missed::Silent(format!("the API server does not answer within {} s", ANSWER_MAX.as_secs())))
        }
    }
}

#[cfg(test)]
mod tests;
