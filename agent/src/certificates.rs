//! Which certificates of a server are accepted, and as of when.
//!
//! A root is *pinned* that a token, the hub, `--hub-ca` or the kubeconfig names. What it certifies is wanted whatever the clock
//! says; see [`judge_pinned`]. The system's roots, of which anybody may have a certificate, are always judged by the clock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::VerifierBuilderError;
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use tideline_common::Monotonic;
use tracing::{info, warn};

use crate::clock::{HubTime, Judgement, UnixSeconds, Worth, judge};

/// How many beginnings of certificates a chain is verified at. Public authorities have two or three certificates in one.
const CHAIN_MAX: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("a pinned certificate cannot be used as that of an authority")]
    Pinned(#[source] Error),
    #[error("no certificate of an authority is known: this machine has none, and none is pinned")]
    None(#[source] VerifierBuilderError),
}

/// The clock of this machine, and what is known of the time besides. One for each agent.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    hub: Option<HubTime>,
    /// That the clock is implausible was logged.
    complained: bool,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now(), known: Mutex::default() }
    }
}

impl Clock {
    /// Says so if the clock is wrong, as far as that can be known before the hub was heard.
    pub(crate) fn check(&self) {
        self.say(&mut self.known(), read_clock());
    }

    /// The hub signed that it was so late, and that was verified.
    pub(crate) fn hub_says(&self, signed: u64) {
        let mut known = self.known();
        known.hub = Some(HubTime { signed: UnixSeconds(signed), heard: self.now() });
        self.say(&mut known, read_clock());
    }

    fn say(&self, known: &mut Known, clock: UnixSeconds) {
        let judged = judge(clock, self.now(), known.hub);
        let complained = std::mem::replace(&mut known.complained, judged.is_implausible());
        match (complained, known.complained) {
            (false, true) => warn!(
                "{judged}. The hub and the API server are reached all the same where their authorities are pinned; what an \
                 authority of the system has certified is judged by this clock"
            ),
            (true, false) => info!("the clock of this machine says {}, which is plausible again", judged.clock),
            (false, false) | (true, true) => {}
        }
    }

    fn judge(&self, clock: UnixSeconds) -> Judgement {
        judge(clock, self.now(), self.known().hub)
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_millis(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// rustls' own ends the process before 1970.
impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(unix_time(read_clock()))
    }
}

/// A clock before 1970, as of a machine that starts in 1970 by the time of a zone east of Greenwich, is in 1970.
pub(crate) fn read_clock() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

const fn unix_time(at: UnixSeconds) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(at.0))
}

/// Whether the system's roots are trusted beside those that are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Trusted,
    Untrusted,
}

/// Has a client accept what these certify, by this clock.
pub(crate) fn verify_by(
    config: &mut ClientConfig,
    pinned: &[Vec<u8>],
    system: System,
    clock: &Arc<Clock>,
) -> Result<(), Unusable> {
    let verifier = Verifier::new(pinned, system, Arc::clone(clock))?;
    config.dangerous().set_certificate_verifier(Arc::new(verifier));
    config.time_provider = Arc::clone(clock) as Arc<dyn TimeProvider>;
    Ok(())
}

/// A client of HTTP/1.1 that trusts these beside the system's.
pub(crate) fn client(pinned: &[Vec<u8>], clock: &Arc<Clock>) -> Result<ClientConfig, Unusable> {
    let mut config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    verify_by(&mut config, pinned, System::Trusted, clock)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// At least one of the two is there.
#[derive(Debug)]
struct Verifier {
    pinned: Option<Arc<WebPkiServerVerifier>>,
    system: Option<Arc<WebPkiServerVerifier>>,
    clock: Arc<Clock>,
}

impl Verifier {
    fn new(pinned: &[Vec<u8>], system: System, clock: Arc<Clock>) -> Result<Self, Unusable> {
        let mut roots = RootCertStore::empty();
        for der in pinned {
            roots.add(CertificateDer::from(der.clone())).map_err(Unusable::Pinned)?;
        }
        let system = match system {
            System::Trusted => system_roots(),
            System::Untrusted => RootCertStore::empty(),
        };
        Self::of(roots, system, clock)
    }

    fn of(pinned: RootCertStore, system: RootCertStore, clock: Arc<Clock>) -> Result<Self, Unusable> {
        let verifier = |roots: RootCertStore| WebPkiServerVerifier::builder(Arc::new(roots)).build();
        let is_any_pinned = !pinned.is_empty();
        let pinned = is_any_pinned.then(|| verifier(pinned)).transpose().map_err(Unusable::None)?;
        let system =
            if is_any_pinned && system.is_empty() { None } else { Some(verifier(system).map_err(Unusable::None)?) };
        Ok(Self { pinned, system, clock })
    }

    /// Any of the two that it has can check a signature.
    fn any(&self) -> &WebPkiServerVerifier {
        self.pinned.as_ref().or(self.system.as_ref()).expect("it is made with one of the two")
    }
}

/// Also where the system has none: the hub's own may be pinned.
fn system_roots() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in found.errors {
        warn!("authorities of the system cannot be read, and are ignored: {}", tideline_runtime::exit::chain(&error));
    }
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(found.certs);
    if ignored > 0 {
        warn!("{ignored} authorities of the system cannot be used, and are ignored");
    }
    roots
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verify = |verifier: &WebPkiServerVerifier, at: UnixTime| {
            verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, at)
        };
        let judged = self.clock.judge(UnixSeconds(now.as_secs()));
        let pinned = self.pinned.as_ref().map(|pinned| judge_pinned(&judged, |at| verify(pinned, unix_time(at))));
        let system =
            || self.system.as_ref().map(|system| verify(system, now).map_err(|error| judged_by_clock(error, &judged)));
        match pinned {
            // What no pinned root has signed may be signed by a root of the system.
            None | Some(Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))) => {
                system().unwrap_or(Err(CertificateError::UnknownIssuer.into()))
            }
            Some(Ok(verified)) => Ok(verified),
            Some(Err(error)) => system().and_then(Result::ok).ok_or(error),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.any().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.any().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.any().supported_verify_schemes()
    }
}

/// What a pinned root certifies may begin whenever it does, by whatever clock: one that the hub has confirmed may still be hours
/// behind a certificate that was renewed an hour ago. It must not have ended: by the clock if the hub has confirmed that, else
/// by the later of the time of the build and the hub's. A clock that may be right is tried first: until the hub is heard,
/// which may take the API server, nobody can tell.
fn judge_pinned<T>(judged: &Judgement, verify: impl Fn(UnixSeconds) -> Result<T, Error>) -> Result<T, Error> {
    let (as_of, outcome) = match judged.worth {
        Worth::Confirmed => (judged.clock, from(judged.clock, &verify)),
        Worth::Unconfirmed | Worth::FarFromHub { .. } => {
            let outcome = verify(judged.clock).or_else(|error| from(judged.at_least, &verify).map_err(|_| error));
            (judged.at_least, outcome)
        }
        Worth::BeforeBuild => (judged.at_least, from(judged.at_least, &verify)),
    };
    outcome.map_err(|error| explained(error, &format!("it is judged as of {as_of}, for {judged}")))
}

/// Verifies as of `at`, or of the first moment after it at which every certificate of the chain has begun: it is no earlier
/// than that, for they were issued. Whatever has ended by then has ended.
fn from<T>(at: UnixSeconds, verify: impl Fn(UnixSeconds) -> Result<T, Error>) -> Result<T, Error> {
    let mut at = at;
    for _ in 0..CHAIN_MAX {
        match verify(at) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }))
                if not_before.as_secs() > at.0 =>
            {
                at = UnixSeconds(not_before.as_secs());
            }
            outcome => return outcome,
        }
    }
    verify(at)
}

/// Names the clock where a certificate of a root of the system may be out of its time for it.
fn judged_by_clock(error: Error, judged: &Judgement) -> Error {
    explained(error, &format!("authorities of the system are judged by the clock, and {judged}"))
}

/// Says of a certificate that is out of its time what its time is, and by which clock that was judged.
fn explained(error: Error, why: &str) -> Error {
    let time = |at: &UnixTime| UnixSeconds(at.as_secs());
    let what = match &error {
        Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
            format!("certificate expired at {}", time(not_after))
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
            format!("certificate not valid before {}", time(not_before))
        }
        _ => return error,
    };
    CertificateError::Other(OtherError(Arc::new(OutOfTime(format!("{what}; {why}"))))).into()
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OutOfTime(String);

#[cfg(test)]
mod tests;
