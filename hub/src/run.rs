use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use kube::api::PostParams;
use kube::{Api, Client};
use ring::digest::{SHA256, digest};
use tideline_api::{Allow, EmbeddedSpace, Space, SpaceSpec};
use tideline_apiserver::{
    Admission, ApiServer, Credentials, Crowded, Identity as User, MASTERS, OnAuthenticated, SpaceConfig,
    Unauthenticated,
};
use tideline_common::wire::v1::PollSettings;
use tideline_common::{Revision, RunId, SpaceName};
use tideline_runtime::health::{self, Health};
use tideline_runtime::{BindError, Shutdown, TaskError, bind, tls};
use tideline_store::{SqliteStore, Store};
use tokio_util::sync::CancellationToken;
use tracing::info;
use uuid::Uuid;

use crate::addresses::{self, Addresses};
use crate::agents::Agents;
use crate::deletion_guard::DeletionGuard;
use crate::engine::Engine;
use crate::history::HistoryBreaks;
use crate::identity::{self, Identity};
use crate::link::core::Config;
use crate::link::http as link_http;
use crate::link::refusals::Refusals;
use crate::listener::{Caller, Listener, Peer, Peers, Places, Purpose};
use crate::options::Options;
use crate::removal_guards::Fuse;
use crate::removals::approve;
use crate::removals::held_deletions::HeldDeletions;
use crate::removals::held_unassignments::HeldUnassignments;
use crate::reserve::{self, NoRoom, Reserve, Reserving};
use crate::service::LinkService;
use crate::shared::{self, Shared};
use crate::spaces::EmbeddedSource;
use crate::{
    certificates, committer, ingest, kubeconfig, last_contact, ledger, listener, metrics, statuses, token,
    virtual_resources, written_by,
};

/// The spaces of a hub: the inventory's, and the one that workloads go to unless others are made.
const SPACES: [&str; 2] = ["root", "default"];
/// The authorities of this hub, for whoever has to be given them.
const CA_FILE: &str = "ca.crt";
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
/// How often the engine is asked whether it lives.
const BEAT_EVERY: Duration = Duration::from_secs(10);
/// An engine that did not answer for so long is stuck: three missed beats on a machine that swaps.
const BEAT_MAX: Duration = Duration::from_mins(1);

/// Why a hub could not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use the data directory {path}; give another --data-dir, or make this one writable")]
    DataDir { path: PathBuf, source: std::io::Error },
    #[error(
        "tideline-hub {by} wrote this data directory, and this is {}, which cannot read it; run version {by}, or a newer one",
        env!("CARGO_PKG_VERSION")
    )]
    Newer { by: String, source: Box<Error> },
    #[error(
        "a hub kept its store in {dir}, and store.db is gone or empty: with a new one in its place no agent would be known. Put it \
         back; or remove what is left of it, and restore a backup: tideline-hub restore FILE --data-dir {dir}. To begin anew with \
         nothing but the keys, remove {dir}/written-by"
    )]
    StoreLost { dir: String },
    #[error("cannot open the store")]
    Store(#[source] tideline_store::Error),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error(transparent)]
    Identity(#[from] identity::Error),
    #[error(transparent)]
    Addresses(#[from] addresses::Error),
    #[error(transparent)]
    Certificate(#[from] certificates::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("cannot prepare the spaces")]
    Spaces(#[from] tideline_apiserver::Error),
    #[error(transparent)]
    Ledger(#[from] committer::Error),
    #[error("cannot say in the root space how agents reach this hub")]
    Facts(#[source] kube::Error),
    #[error("cannot make the Space default")]
    DefaultSpace(#[source] kube::Error),
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl Error {
    /// Whether another version of the hub wrote what this one cannot read.
    fn is_of_the_version(&self) -> bool {
        matches!(
            self,
            Self::Store(tideline_store::Error::Schema { .. })
                | Self::Identity(identity::Error::Schema { .. })
                | Self::Ledger(committer::Error::Ledger(ledger::Error::Schema { .. }))
        )
    }
}

/// Runs a hub until `shutdown`: the whole program less argument parsing.
///
/// It serves when `admin.kubeconfig` is in its data directory with the present address.
///
/// # Errors
///
/// The hub cannot start, or ended by itself: see [`Error`].
pub async fn run(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    let dir = options.data_dir.clone();
    Box::pin(run_in(options, shutdown)).await.map_err(|error| match written_by::read(&dir) {
        Some(by) if error.is_of_the_version() => Error::Newer { by, source: Box::new(error) },
        Some(_) | None => error,
    })
}

async fn run_in(options: Options, shutdown: CancellationToken) -> Result<(), Error> {
    tls::install_provider();
    let dir = &options.data_dir;
    identity::refuse_of_agent(dir)?;
    // It will hold Secrets of every space.
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|source| Error::DataDir { path: dir.clone(), source })?;
    // Before an empty one is made there.
    if loses_store(dir).map_err(|source| Error::DataDir { path: dir.clone(), source })? {
        return Err(Error::StoreLost { dir: dir.display().to_string() });
    }
    let health = Health::new();
    let store_health = committer::StoreHealth::new(&health);
    let reserve = Arc::new(Reserve::new(dir, store_health.clone()));
    if is_begun(dir).map_err(|source| Error::DataDir { path: dir.clone(), source })? {
        reserve.make_room_for_start();
    } else {
        reserve.allows_first_start()?;
    }
    let engine = SqliteStore::open(dir).map_err(Error::Store)?;
    let store: Arc<dyn Store> = Arc::new(Reserving::new(Arc::clone(&engine) as _, &reserve));
    let identity = Identity::open(dir, engine.revision())?;
    let listener = bind(options.listen, "agents and Kubernetes clients", "--listen")?;
    let health_listener = health::bind(options.health_listen, "--health-listen")?;
    let address = listener.local_addr().unwrap_or(options.listen);
    let listening = addresses::listening_at(address);
    let addresses = Addresses::new(&options.public_url, options.public_ca.as_ref(), &identity, listening)?;
    // After all that a start may be refused for, so that such a start says just that.
    let places = Places::within(listener::raise_descriptors());

    let poll = PollSettings { stale_after_seconds: options.stale_after.as_secs(), ..Config::default().poll };
    let config = Config { poll, memory: Uuid::new_v4().as_u64_pair().0 };
    let fuse = Fuse::new(options.unassign_limit);
    let shared = Shared::new(committer::load(store.as_ref(), config, options.settle, fuse).await?);
    shared.read_mut(Engine::say_history);
    written_by::write(dir).map_err(|source| Error::DataDir { path: dir.clone(), source })?;
    let server = ApiServer::new(Arc::clone(&store), tideline_apiserver::Config::default()).await?;
    for space in SPACES {
        server.create_space(space, space_config(space, &shared)).await?;
    }
    let root = client(&server, "root");
    token::publish(&root, &identity, &addresses).await.map_err(Error::Facts)?;
    // Where it was deleted since, it is not made again: it would be allowed everything.
    if shared.read(|engine| engine.ledger.revision() == Revision::default()) {
        allow_default_space(&root).await.map_err(Error::DefaultSpace)?;
    }

    let run = Shutdown::with_token(shutdown);
    let peers = Peers::new(places);
    let refusals = Arc::<Refusals>::default();
    let metrics = metrics::registry(&shared, &peers, &refusals, &store_health);
    let ingesting = ingest::Ingest::new(shared.clone(), health.gate("spaces"));
    let heartbeat = health.heartbeat("engine", BEAT_MAX);
    run.spawn("heartbeat", shared::beat(shared.clone(), heartbeat, BEAT_EVERY, run.token().clone()));
    run.spawn("ingest", ingesting.run(EmbeddedSource::new(&server), run.token().clone()));
    run.spawn("approvals", approve::sweep(root.clone(), run.token().clone()));
    run.spawn("committer", committer::run(shared.clone(), Arc::clone(&store), store_health, run.token().clone()));
    run.spawn("reserve", reserve::keep(reserve, run.token().clone()));
    run.spawn("compactor", committer::compact(Arc::clone(&store), run.token().clone()));
    let clients =
        SPACES.iter().filter_map(|name| Some((name.parse::<SpaceName>().ok()?, client(&server, name)))).collect();
    run.spawn("ticks", shared::tick(shared.clone(), run.token().clone()));
    run.spawn("statuses", statuses::run(shared.clone(), clients, run.token().clone()));
    run.spawn("health", health::serve_apart(health_listener, health, metrics, run.token().clone()));

    let service = Arc::new(LinkService { shared: shared.clone(), hub: identity.hub, root });
    let tls = identity.authority.server_config(&addresses.names(address))?;
    write_client_files(&options, &identity, &addresses)?;
    let spaces = server.router(authenticator(&identity.admin_token)).layer(from_fn(tell_peer));
    let signer = Arc::new(link_http::Signer {
        hub: identity.hub,
        key: identity.key,
        run: RunId::from_uuid(Uuid::new_v4()),
        addresses: addresses.announcement(),
    });
    let router = link_http::router(service, signer, refusals).merge(spaces);
    let serving = Listener::new(tls, router, peers, places).serve(listener, run.token().clone());
    run.spawn("listener", serving);
    info!(url = %addresses.first(), data_dir = %dir.display(), "the hub serves");

    run.token().cancelled().await;
    shared.read_mut(Engine::stop);
    let ended = run.finished().await;
    server.shutdown().await;
    // Others may still hold it, such as a connection that was cut off; the next run is not to wait for them.
    engine.close().await;
    Ok(ended?)
}

/// Whether a hub was begun there: what a start writes, it has.
fn is_begun(dir: &Path) -> io::Result<bool> {
    Ok(written_by::is_in(dir)? || SqliteStore::is_in(dir)?)
}

/// Whether a hub kept its store there, and nothing of it is left.
fn loses_store(dir: &Path) -> io::Result<bool> {
    Ok(written_by::is_in(dir)? && !SqliteStore::is_in(dir)?)
}

fn space_config(space: &str, shared: &Shared) -> SpaceConfig {
    let is_root = space == SpaceName::root().as_str();
    let crds = if is_root { tideline_api::root_crds() } else { tideline_api::workload_crds() };
    let crds = crds.iter().map(|crd| serde_json::to_value(crd).expect("a definition is JSON")).collect();
    let virtual_resources = if is_root {
        vec![
            virtual_resources::resource::<Agents>(shared),
            virtual_resources::resource::<HeldDeletions>(shared),
            virtual_resources::resource::<HeldUnassignments>(shared),
            virtual_resources::resource::<HistoryBreaks>(shared),
        ]
    } else {
        virtual_resources::all(shared)
    };
    let guard = || Arc::new(DeletionGuard::new(shared, &SPACES)) as Arc<dyn Admission>;
    let admission = is_root.then(guard);
    let filled_fields = if is_root { vec![last_contact::field(shared)] } else { Vec::new() };
    SpaceConfig { crds, virtual_resources, filled_fields, authorizer: None, admission }
}

/// The space `default` may do everything, until its Space object says otherwise.
async fn allow_default_space(root: &Client) -> Result<(), kube::Error> {
    let spec = SpaceSpec { embedded: Some(EmbeddedSpace {}), kubeconfig: None, allow: Allow::everything() };
    let space = Space::new("default", spec);
    match Api::<Space>::all(root.clone()).create(&PostParams::default(), &space).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(error),
    }
}

/// A client in memory, as the hub itself.
fn client(server: &ApiServer, space: &str) -> Client {
    let user = User::new(tideline_common::FIELD_MANAGER_HUB, [MASTERS.to_owned()]);
    Client::new(server.service(space, user), "default")
}

/// The administrator's token opens every space; there are no other users yet.
fn authenticator(token: &str) -> Arc<dyn tideline_apiserver::Authenticator> {
    // Hashes are compared, so that the time it takes says nothing about the token.
    let admin = digest(&SHA256, token.as_bytes());
    Arc::new(move |credentials: Credentials<'_>| {
        let bearer = credentials.bearer.ok_or(Unauthenticated)?;
        if digest(&SHA256, bearer.as_bytes()).as_ref() == admin.as_ref() {
            Ok(User::new("admin", [MASTERS.to_owned()]))
        } else {
            Err(Unauthenticated)
        }
    })
}

/// Who authenticates with the API server may be read, and has a place with the listener.
async fn tell_peer(mut request: Request, next: Next) -> Response {
    if let Some(peer) = request.extensions_mut().remove::<Peer>() {
        request.extensions_mut().insert(OnAuthenticated::new(move |_| {
            peer.verified(Caller::Administrator, Purpose::Other)
                .map_err(|crowded| Crowded { message: crowded.to_string() })
        }));
    }
    next.run(request).await
}

fn write_client_files(options: &Options, identity: &Identity, addresses: &Addresses) -> Result<(), Error> {
    let bundle = addresses.client_bundle.as_deref();
    let kubeconfig = kubeconfig::text(addresses.first().as_str(), bundle, &identity.admin_token, &SPACES);
    let write = |name: &str, text: &str| {
        let path = options.data_dir.join(name);
        identity::keep_private(&path, text.as_bytes()).map_err(|source| Error::DataDir { path, source })
    };
    write(CA_FILE, bundle.unwrap_or(identity.authority.certificate_pem()))?;
    write(ADMIN_KUBECONFIG, &kubeconfig)
}

#[cfg(test)]
mod tests;
