//! Making enrolment tokens, from wherever an administrator's kubeconfig is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Api, Client, Config};
use serde_json::json;
use tideline_api::{EnrolmentToken, EnrolmentTokenSpec};
use tideline_common::signature::SigningKey;
use tideline_common::{EnrolmentToken as Token, FIELD_MANAGER_HUB, SpaceName};

use crate::identity::{self, Identity};

/// The ConfigMap of the root space that says how agents reach and recognise this hub. Nothing in it is secret.
const FACTS: &str = "tideline-hub";
const FACTS_NAMESPACE: &str = "default";

/// What is asked for.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// An administrator's kubeconfig with the context `root`; as kubectl finds it if none is given.
    pub kubeconfig: Option<PathBuf>,
    /// The name of the token, and of the SyncTarget that it makes.
    pub name: String,
    /// The labels of the SyncTarget.
    pub labels: BTreeMap<String, String>,
    /// How long the token is accepted.
    pub expires: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use the kubeconfig; give the hub's admin.kubeconfig with --kubeconfig or in $KUBECONFIG")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot reach the hub")]
    Client(#[source] kube::Error),
    #[error("cannot read how agents reach this hub; is it a Tideline hub that the kubeconfig leads to?")]
    Facts(#[source] kube::Error),
    #[error("the ConfigMap {FACTS_NAMESPACE}/{FACTS} of the root space is damaged; restart the hub, which writes it anew")]
    Damaged,
    #[error("there is an enrolment token {0:?} already; choose another name, or delete it: kubectl --context root delete enrolmenttoken {0}")]
    Exists(String),
    #[error("the hub refuses the token")]
    Refused(#[source] kube::Error),
    #[error(transparent)]
    Random(#[from] identity::Error),
}

/// A client of one space, as the administrator.
pub(crate) async fn client(kubeconfig: Option<&PathBuf>, space: &SpaceName) -> Result<Client, Error> {
    tideline_runtime::tls::install_provider();
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path)?,
        None => Kubeconfig::read()?,
    };
    let options = KubeConfigOptions { context: Some(space.to_string()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(read, &options).await?;
    Client::try_from(config).map_err(Error::Client)
}

/// Makes a token. Its secret is in what is returned, and nowhere else.
pub async fn create(request: TokenRequest) -> Result<Token, Error> {
    let TokenRequest { kubeconfig, name, labels, expires } = request;
    let client = client(kubeconfig.as_ref(), &SpaceName::root()).await?;
    let facts = Api::<ConfigMap>::namespaced(client.clone(), FACTS_NAMESPACE).get(FACTS).await.map_err(Error::Facts)?;
    let facts = facts.data.unwrap_or_default();
    let fact = |key: &str| facts.get(key).cloned().ok_or(Error::Damaged);
    let bytes = |key: &str| STANDARD.decode(fact(key)?).map_err(|_| Error::Damaged);
    let key = SigningKey::from_seed(identity::random()?);
    let token = Token {
        name: name.clone(),
        url: fact("url")?,
        hub: fact("hub")?.parse().map_err(|_| Error::Damaged)?,
        hub_key: bytes("hubKey")?,
        ca: bytes("ca")?,
        seed: key.seed().to_vec(),
    };
    let expires = Timestamp::now().saturating_add(expires).unwrap_or(Timestamp::MAX);
    let expires = expires.round(jiff::Unit::Second).unwrap_or(expires);
    let spec = EnrolmentTokenSpec {
        target_name: name.clone(),
        labels,
        expires: Time(expires),
        public_key: Some(STANDARD.encode(key.public().as_bytes())),
    };
    let object = EnrolmentToken::new(&name, spec);
    match Api::<EnrolmentToken>::all(client).create(&PostParams::default(), &object).await {
        Ok(_) => Ok(token),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Exists(name)),
        Err(error) => Err(Error::Refused(error)),
    }
}

/// Says in the root space how agents reach and recognise this hub.
pub(crate) async fn publish(root: &Client, identity: &Identity, url: &str) -> Result<(), kube::Error> {
    let facts = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": FACTS, "namespace": FACTS_NAMESPACE},
        "data": {
            "url": url,
            "hub": identity.hub.to_string(),
            "hubKey": STANDARD.encode(identity.key.public().as_bytes()),
            "ca": STANDARD.encode(identity.authority.certificate_der()),
        },
    });
    let api = Api::<ConfigMap>::namespaced(root.clone(), FACTS_NAMESPACE);
    api.patch(FACTS, &PatchParams::apply(FIELD_MANAGER_HUB).force(), &Patch::Apply(facts)).await.map(drop)
}
