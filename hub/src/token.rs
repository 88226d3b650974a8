//! Making enrolment tokens, from wherever an administrator's kubeconfig is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tideline_api::{EnrolmentToken, EnrolmentTokenSpec, Selector, SelectorError, SyncTarget};
use tideline_common::signature::SigningKey;
use tideline_common::{Authority, EnrolmentToken as Token, FIELD_MANAGER_HUB, HubId, HubUrl, SpaceName};

use crate::addresses::Addresses;
use crate::enrol::AGENT_KEY_ANNOTATION;
use crate::identity::{self, Identity};
use crate::kubeconfig::{self, Access, RequestError};
use crate::object_name::{NAME_BYTES_MAX, is_object_name};

/// The ConfigMap of the root space that says how agents reach and recognise this hub. Nothing in it is secret.
const FACTS: &str = "tideline-hub";
const FACTS_NAMESPACE: &str = "default";
/// A token that is good for longer is a password that nobody changes.
const EXPIRES_MAX: Duration = Duration::from_hours(365 * 24);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// An administrator's kubeconfig with the context `root`; that of `$KUBECONFIG` if none is given.
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
    #[error(
        "{0:?} cannot be the name of a token and of its SyncTarget: lower case letters, digits, '-' and '.', at most \
         {NAME_BYTES_MAX} of them, are needed"
    )]
    Name(String),
    #[error("the labels cannot be given to a SyncTarget")]
    Labels(#[from] SelectorError),
    #[error("a token can be made for at most {} days; agents that enrolled need it no more", EXPIRES_MAX.as_secs() / 86_400)]
    Expires,
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error("cannot {operation}")]
    Request { operation: &'static str, source: RequestError },
    #[error(
        "the ConfigMap {FACTS_NAMESPACE}/{FACTS} of the root space is missing or damaged; restart the hub, which writes \
         it anew"
    )]
    Facts,
    #[error(
        "there is an enrolment token {0:?} already that an agent may still use; choose another name, or delete it: \
         kubectl --context root delete enrolmenttoken {0}"
    )]
    Exists(String),
    #[error(
        "there is a SyncTarget {0:?} with an agent already; choose another name, or shut that agent out: \
         tideline-hub targets revoke {0}"
    )]
    Enrolled(String),
    #[error(transparent)]
    Random(#[from] identity::Error),
}

/// Makes a token, in the place of one of its name that no agent can use any more. Its secret is in what is returned, and
/// nowhere else.
///
/// # Errors
///
/// An agent may still use the token of that name, or the request failed.
pub async fn create(request: TokenRequest) -> Result<Token, Error> {
    let access = Access::read(request.kubeconfig.as_deref())?;
    let root = access.client(&SpaceName::root()).await?;
    create_in(&root, request, Timestamp::now()).await.map_err(|error| match error {
        Error::Request { operation, source } => Error::Request { operation, source: access.locate(source) },
        other => other,
    })
}

pub(crate) async fn create_in(root: &Client, request: TokenRequest, now: Timestamp) -> Result<Token, Error> {
    let TokenRequest { kubeconfig: _, name, labels, expires } = request;
    if !is_object_name(&name) {
        return Err(Error::Name(name));
    }
    // A selector of labels is checked as labels are.
    Selector::try_from(&LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() })?;
    if expires > EXPIRES_MAX {
        return Err(Error::Expires);
    }
    let end = now.saturating_add(expires).unwrap_or(Timestamp::MAX);
    let facts = read_facts(root).await?;
    let target = Api::<SyncTarget>::all(root.clone())
        .get_opt(&name)
        .await
        .map_err(|error| Error::Request { operation: "look for a SyncTarget of this name", source: error.into() })?;
    if target.is_some_and(|target| target.annotations().contains_key(AGENT_KEY_ANNOTATION)) {
        return Err(Error::Enrolled(name));
    }

    let key = SigningKey::from_seed(identity::random()?);
    let spec = EnrolmentTokenSpec {
        target_name: name.clone(),
        labels,
        expires: Time(end.round(jiff::Unit::Second).unwrap_or(end)),
        public_key: Some(STANDARD.encode(key.public().as_bytes())),
    };
    let object = EnrolmentToken::new(&name, spec);
    let tokens = Api::<EnrolmentToken>::all(root.clone());
    let mut made = tokens.create(&PostParams::default(), &object).await;
    if is_conflict(&made) && remove_spent(&tokens, &name, now).await? {
        made = tokens.create(&PostParams::default(), &object).await;
    }
    if is_conflict(&made) {
        return Err(Error::Exists(name));
    }
    made.map_err(|error| Error::Request { operation: "make the token", source: error.into() })?;
    let Facts { hub, hub_key, authorities, urls } = facts;
    Ok(Token { name, urls, hub, hub_key, authorities, seed: key.seed().to_vec() })
}

fn is_conflict<T>(answer: &Result<T, kube::Error>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 409)
}

/// Removes the token of a name if it was used up, or has expired. Says whether there is none any more.
async fn remove_spent(tokens: &Api<EnrolmentToken>, name: &str, now: Timestamp) -> Result<bool, Error> {
    let failed = |operation| move |error: kube::Error| Error::Request { operation, source: error.into() };
    let Some(token) = tokens.get_opt(name).await.map_err(failed("look for a token of this name"))? else {
        return Ok(true);
    };
    // One whose SyncTarget is still being made is used again by the same agent.
    let used_by = token.status.as_ref().and_then(|status| status.used_by.as_ref());
    let used = used_by.is_some_and(|used| used.target_uid.is_some());
    if !used && token.spec.expires.0 > now {
        return Ok(false);
    }
    let preconditions = Some(Preconditions { uid: token.uid(), resource_version: token.resource_version() });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    match tokens.delete(name, &params).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => Ok(false),
        Err(error) => Err(failed("remove the token of this name that nobody can use any more")(error)),
    }
}

/// Says in the root space how agents reach and recognise this hub.
pub(crate) async fn publish(root: &Client, identity: &Identity, addresses: &Addresses) -> Result<(), kube::Error> {
    let facts = Facts {
        hub: identity.hub,
        hub_key: identity.key.public().as_bytes().to_vec(),
        authorities: addresses.authorities.clone(),
        urls: addresses.urls.clone(),
    };
    let api = Api::<ConfigMap>::namespaced(root.clone(), FACTS_NAMESPACE);
    let params = PatchParams::apply(FIELD_MANAGER_HUB).force();
    api.patch(FACTS, &params, &Patch::Apply(ConfigMap::from(&facts))).await.map(drop)
}

async fn read_facts(root: &Client) -> Result<Facts, Error> {
    let found = Api::<ConfigMap>::namespaced(root.clone(), FACTS_NAMESPACE).get_opt(FACTS).await;
    let found = found.map_err(|error| Error::Request {
        operation: "ask the root space how agents reach the hub",
        source: error.into(),
    })?;
    found.as_ref().and_then(Facts::of).ok_or(Error::Facts)
}

/// How agents reach and recognise a hub.
#[derive(Debug, PartialEq, Eq)]
struct Facts {
    hub: HubId,
    hub_key: Vec<u8>,
    authorities: Vec<Authority>,
    urls: Vec<HubUrl>,
}

impl Facts {
    fn of(config_map: &ConfigMap) -> Option<Self> {
        let data = config_map.data.as_ref()?;
        let bytes = |key: &str| STANDARD.decode(data.get(key)?).ok();
        Some(Self {
            hub: data.get("hub")?.parse().ok()?,
            hub_key: bytes("hubKey")?,
            authorities: serde_json::from_str(data.get("authorities")?).ok()?,
            urls: serde_json::from_str(data.get("urls")?).ok().filter(|urls: &Vec<HubUrl>| !urls.is_empty())?,
        })
    }
}

impl From<&Facts> for ConfigMap {
    fn from(facts: &Facts) -> Self {
        let Facts { hub, hub_key, authorities, urls } = facts;
        let json = |value: serde_json::Result<String>| value.expect("lists of strings are JSON");
        let data = [
            ("hub", hub.to_string()),
            ("hubKey", STANDARD.encode(hub_key)),
            ("authorities", json(serde_json::to_string(authorities))),
            ("urls", json(serde_json::to_string(urls))),
        ];
        Self {
            metadata: ObjectMeta {
                name: Some(FACTS.to_owned()),
                namespace: Some(FACTS_NAMESPACE.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(data.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
