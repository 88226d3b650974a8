//! Kubeconfigs of spaces: written for people and their tools, read by the hub's own command line.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::Value;
use tideline_common::SpaceName;

/// The administrator's kubeconfig in a hub's data directory.
pub const ADMIN_FILE: &str = "admin.kubeconfig";
/// The user that every context names.
const USER: &str = "tideline-admin";
/// Where the spaces are, below the hub's URL.
const SPACES: &str = "/spaces/";
/// The context by which a kubeconfig is known to be a hub's.
const ROOT: &str = "root";
/// Longest wait for a connection to the hub.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for a part of an answer.
const READ_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no kubeconfig is given; use --kubeconfig DIR/{} of the hub's data directory, or set KUBECONFIG to it",
        ADMIN_FILE
    )]
    NotGiven,
    /// Without the cause: that quotes the file, and the file may be a token.
    #[error("{origin} is no kubeconfig; use {ADMIN_FILE} of the hub's data directory")]
    NotAKubeconfig { origin: String },
    #[error("cannot read the kubeconfig {origin}; give a readable one with --kubeconfig")]
    Unreadable { origin: String, source: Box<KubeconfigError> },
    #[error(
        "the kubeconfig {origin} is not a hub's: it has {contexts}, and needs a context {ROOT:?} whose server ends in \
         {SPACES}{ROOT}; use {} of the hub's data directory",
        ADMIN_FILE
    )]
    NotOfAHub { origin: String, contexts: String },
    #[error("the context {ROOT:?} of {origin} lacks {what}, which a kubeconfig of a space is made from")]
    Incomplete { origin: String, what: &'static str },
    #[error("cannot make a client of {origin}")]
    Client { origin: String, source: Box<kube::Error> },
}

/// What a hub answered instead of what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the hub does not accept the credentials of this kubeconfig; use {} of its data directory", ADMIN_FILE)]
    Unauthorized,
    #[error("{message}")]
    Refused { code: u16, message: String },
    #[error("no answer: {why}")]
    NoAnswer { why: String },
    #[error(
        "cannot reach the hub at {url}, where the context {ROOT:?} of the kubeconfig {origin} has it; see that it runs \
         there and can be reached from here, or give the kubeconfig of another with --kubeconfig: {why}"
    )]
    Unreachable { url: String, origin: String, why: String },
}

impl From<kube::Error> for RequestError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized,
            kube::Error::Api(status) => Self::Refused { code: status.code, message: status.message },
            other => Self::NoAnswer { why: innermost(&other) },
        }
    }
}

/// The cause that says most to a person: what the system or TLS said, not the layers around it.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A kubeconfig with one context for each of `spaces`, as YAML. It is a secret: `token` opens what it opens. Without
/// authorities, clients trust those of their system.
///
/// `default` is the current context where it is among the spaces, else the first.
pub fn text(url: &str, ca_pem: Option<&str>, token: &str, spaces: &[&str]) -> String {
    render(url, ca_pem.map(|pem| STANDARD.encode(pem)).as_deref(), token, spaces)
}

fn render(url: &str, ca_data: Option<&str>, token: &str, spaces: &[&str]) -> String {
    let url = url.trim_end_matches('/');
    let current = spaces.iter().find(|space| **space == "default").or(spaces.first()).copied().unwrap_or_default();
    let mut yaml = format!("apiVersion: v1\nkind: Config\ncurrent-context: {}\nclusters:\n", quoted(current));
    // Writing to a String cannot fail.
    for space in spaces {
        let server = quoted(&format!("{url}{SPACES}{space}"));
        let _ = write!(yaml, "- name: {}\n  cluster:\n    server: {server}\n", quoted(space));
        if let Some(ca_data) = ca_data {
            let _ = writeln!(yaml, "    certificate-authority-data: {}", quoted(ca_data));
        }
    }
    yaml.push_str("contexts:\n");
    for space in spaces {
        let name = quoted(space);
        let _ = write!(yaml, "- name: {name}\n  context:\n    cluster: {name}\n    user: {}\n", quoted(USER));
    }
    let _ = write!(yaml, "users:\n- name: {}\n  user:\n    token: {}\n", quoted(USER), quoted(token));
    yaml
}

/// A YAML scalar that is a string whatever it looks like: JSON strings are such scalars.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The way to a hub's spaces, by a kubeconfig with the context `root`.
#[derive(Debug)]
pub struct Access {
    /// For messages.
    origin: String,
    kubeconfig: Kubeconfig,
    /// Position of the root space's cluster in the kubeconfig.
    cluster: usize,
    /// The hub's URL, without a slash at its end.
    url: String,
}

impl Access {
    /// Reads `path`, or else what `KUBECONFIG` names.
    ///
    /// # Errors
    ///
    /// There is no such file, or it cannot be read.
    pub fn read(path: Option<&Path>) -> Result<Self, Error> {
        let (origin, read) = if let Some(path) = path {
            (path.display().to_string(), Kubeconfig::read_from(path).map(Some))
        } else {
            let named = std::env::var("KUBECONFIG").unwrap_or_default();
            (format!("{named} (by KUBECONFIG)"), Kubeconfig::from_env())
        };
        match read {
            Ok(Some(kubeconfig)) => Self::of(origin, kubeconfig),
            Ok(None) => Err(Error::NotGiven),
            Err(KubeconfigError::Parse(_)) => Err(Error::NotAKubeconfig { origin }),
            Err(source) => Err(Error::Unreadable { origin, source: Box::new(source) }),
        }
    }

    fn of(origin: String, kubeconfig: Kubeconfig) -> Result<Self, Error> {
        // Other spaces are found beside the root space, not by a context's name: many a kubeconfig has a context
        // `default` that is a cluster.
        let found = kubeconfig
            .contexts
            .iter()
            .find(|context| context.name == ROOT)
            .and_then(|context| context.context.as_ref())
            .and_then(|context| kubeconfig.clusters.iter().position(|cluster| cluster.name == context.cluster))
            .and_then(|at| {
                let server = kubeconfig.clusters[at].cluster.as_ref()?.server.as_deref()?;
                let url = server.trim_end_matches('/').strip_suffix(ROOT)?.strip_suffix(SPACES)?;
                Some((at, url.to_owned()))
            });
        if let Some((cluster, url)) = found {
            return Ok(Self { origin, kubeconfig, cluster, url });
        }
        let names: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        let contexts =
            if names.is_empty() { "no context".to_owned() } else { format!("the contexts {}", names.join(", ")) };
        Err(Error::NotOfAHub { origin, contexts })
    }

    /// Says of an error where the hub was sought.
    pub fn locate(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::NoAnswer { why } => {
                RequestError::Unreachable { url: self.url.clone(), origin: self.origin.clone(), why }
            }
            said @ (RequestError::Unauthorized | RequestError::Refused { .. } | RequestError::Unreachable { .. }) => {
                said
            }
        }
    }

    /// A client of one space. Dials nothing yet, and uses no proxy.
    ///
    /// # Errors
    ///
    /// It has no context for the space, or what it names cannot be used.
    pub async fn client(&self, space: &SpaceName) -> Result<Client, Error> {
        tideline_runtime::tls::install_provider();
        let mut kubeconfig = self.kubeconfig.clone();
        if let Some(cluster) = &mut kubeconfig.clusters[self.cluster].cluster {
            cluster.server = Some(format!("{}{SPACES}{}", self.url, space.as_str()));
        }
        let options = KubeConfigOptions { context: Some(ROOT.to_owned()), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|source| Error::Unreadable { origin: self.origin.clone(), source: Box::new(source) })?;
        config.proxy_url = None;
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_MAX);
        config.read_timeout = Some(READ_MAX);
        Client::try_from(config)
            .map_err(|source| Error::Client { origin: self.origin.clone(), source: Box::new(source) })
    }

    /// A kubeconfig of one space with the same credentials, as YAML.
    ///
    /// # Errors
    ///
    /// It has no context for the space, or cannot be written as YAML.
    pub fn kubeconfig(&self, space: &SpaceName) -> Result<String, Error> {
        let lacks = |what| Error::Incomplete { origin: self.origin.clone(), what };
        let whole = serde_json::to_value(&self.kubeconfig).map_err(|_| lacks("a readable form"))?;
        let user = named(&whole["contexts"], ROOT)["context"]["user"].as_str().unwrap_or_default();
        let token = named(&whole["users"], user)["user"]["token"].as_str().ok_or_else(|| lacks("a token"))?;
        let ca_data = whole["clusters"][self.cluster]["cluster"]["certificate-authority-data"].as_str();
        Ok(render(&self.url, ca_data, token, &[space.as_str()]))
    }
}

/// The item of a kubeconfig's list with this name, or null.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().into_iter().flatten().find(|item| item["name"] == name).unwrap_or(&Value::Null)
}

#[cfg(test)]
mod tests;
