//! `/livez`, `/readyz` and `/metrics` on a local port of their own.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use crate::BindError;
use crate::process::ProcessCollector;

/// Connections served at once; a Prometheus, a kubelet and a person need three.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take to send its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which is nearly always a lack of file descriptors and would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// Whether a process is alive and ready, set by its parts. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<Parts>>,
}

#[derive(Debug, Default)]
struct Parts {
    waiting: BTreeMap<&'static str, usize>,
    notes: BTreeMap<&'static str, usize>,
    beats: BTreeMap<&'static str, Beat>,
}

#[derive(Debug)]
struct Beat {
    last: Instant,
    deadline: Duration,
}

/// Something that must happen before the process is ready. It has happened when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it at once says that the part is ready"]
pub struct ReadinessGate {
    health: Health,
    name: &'static str,
}

/// A note of a process that is ready, such as that it stands by. Shown until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it at once takes it back"]
pub struct Note {
    health: Health,
    text: &'static str,
}

/// The heartbeat of a loop. A loop that does not beat within its deadline makes the process not alive.
#[derive(Debug)]
pub struct Heartbeat {
    health: Health,
    name: &'static str,
}

impl Health {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn gate(&self, name: &'static str) -> ReadinessGate {
        *self.lock().waiting.entry(name).or_default() += 1;
        ReadinessGate { health: self.clone(), name }
    }

    pub fn note(&self, text: &'static str) -> Note {
        *self.lock().notes.entry(text).or_default() += 1;
        Note { health: self.clone(), text }
    }

    pub fn heartbeat(&self, name: &'static str, deadline: Duration) -> Heartbeat {
        self.lock().beats.insert(name, Beat { last: Instant::now(), deadline });
        Heartbeat { health: self.clone(), name }
    }

    /// The parts that are not ready yet.
    pub fn waiting_for(&self) -> Vec<&'static str> {
        self.lock().waiting.keys().copied().collect()
    }

    /// Notes to be shown.
    pub fn notes(&self) -> Vec<&'static str> {
        self.lock().notes.keys().copied().collect()
    }

    /// The loops that are stuck.
    pub fn stuck(&self) -> Vec<&'static str> {
        let now = Instant::now();
        let parts = self.lock();
        parts.beats.iter().filter(|(_, beat)| now - beat.last > beat.deadline).map(|(name, _)| *name).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReadinessGate {
    fn drop(&mut self) {
        count_down(&mut self.health.lock().waiting, self.name);
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        count_down(&mut self.health.lock().notes, self.text);
    }
}

fn count_down(counts: &mut BTreeMap<&'static str, usize>, name: &'static str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

impl Heartbeat {
    pub fn beat(&self) {
        if let Some(beat) = self.health.lock().beats.get_mut(self.name) {
            beat.last = Instant::now();
        }
    }
}

impl Drop for Heartbeat {
    /// A loop that ended is somebody else's to report.
    fn drop(&mut self) {
        self.health.lock().beats.remove(self.name);
    }
}

/// Takes the port of health and metrics, which the command line's `option` names.
///
/// # Errors
///
/// The port is in use, or the address is not this machine's.
pub fn bind(address: SocketAddr, option: &'static str) -> Result<TcpListener, BindError> {
    crate::bind(address, "health and metrics", option)
}

/// Registers what every process tells: its version, as `tideline_build_info`, and what it costs.
pub fn register_process(registry: &mut Registry, component: &'static str, version: &'static str) {
    let info = Info::new(vec![("component", component), ("version", version)]);
    registry.register("tideline_build", "What is running", info);
    registry.register_collector(Box::new(ProcessCollector));
}

/// Serves until `shutdown`.
///
/// # Errors
///
/// The listener failed.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: Registry,
    shutdown: CancellationToken,
) -> Result<(), Infallible> {
    let metrics = Arc::new(metrics);
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            permit = Arc::clone(&permits).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the health port");
                let _stopped = shutdown.run_until_cancelled(time::sleep(ACCEPT_PAUSE)).await;
                continue;
            }
        };
        let (health, metrics, shutdown) = (health.clone(), Arc::clone(&metrics), shutdown.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (health, metrics) = (health.clone(), Arc::clone(&metrics));
            async move { Ok::<_, Infallible>(respond(&request, &health, metrics).await) }
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // A client that breaks off is its own affair.
            let _ended = shutdown.run_until_cancelled(connection).await;
            drop(permit);
        });
    }
}

/// The same on a thread of its own, so that whoever asks whether the process lives waits for nothing that it does.
///
/// # Errors
///
/// The thread cannot be started, or its runtime.
pub async fn serve_apart(
    listener: TcpListener,
    health: Health,
    metrics: Registry,
    shutdown: CancellationToken,
) -> Result<(), std::io::Error> {
    let listener = listener.into_std()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ended, end) = oneshot::channel::<std::io::Result<()>>();
    thread::Builder::new().name("health".to_owned()).spawn(move || {
        let served = runtime.block_on(async {
            let Ok(()) = serve(TcpListener::from_std(listener)?, health, metrics, shutdown).await;
            Ok(())
        });
        // Nobody waits for it when the process ends.
        let _ = ended.send(served);
    })?;
    end.await.unwrap_or(Ok(()))
}

async fn respond(request: &Request<Incoming>, health: &Health, metrics: Arc<Registry>) -> Response<Full<Bytes>> {
    match request.uri().path() {
        "/livez" => verdict(&health.stuck(), "stuck", &[]),
        "/readyz" => verdict(&health.waiting_for(), "waiting for", &health.notes()),
        "/metrics" => {
            // What is counted may have to be waited for.
            let encoded = tokio::task::spawn_blocking(move || {
                let mut text = String::new();
                encode(&mut text, &metrics).map(|()| text).map_err(|error| error.to_string())
            });
            match encoded.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(text) => answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
                Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            }
        }
        _ => answer(StatusCode::NOT_FOUND, PLAIN, "there are /livez, /readyz and /metrics\n".to_owned()),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn verdict(bad: &[&str], what: &str, notes: &[&str]) -> Response<Full<Bytes>> {
    if bad.is_empty() {
        let said: Vec<_> = ["ok"].iter().chain(notes).copied().collect();
        answer(StatusCode::OK, PLAIN, format!("{}\n", said.join(", ")))
    } else {
        answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{what} {}\n", bad.join(", ")))
    }
}

fn answer(status: StatusCode, content_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

#[cfg(test)]
mod tests;
