//! What the agent is given of its hub: a token, an address, authorities.
//!
//! An agent that is enrolled keeps its cluster without any of it: unreadable input is logged and ignored. An agent that is not
//! enrolled has nothing else, and ends.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tideline_common::{Digest, EnrolmentToken, HubId, HubUrl, TokenError};
use tideline_runtime::exit::chain;
use tracing::{info, warn};

use crate::identity::{self, Found, HubPin, TokenUse};
use crate::link::{self, GivenAuthorities};

/// Where the hub is reached, if not where it was at enrolment.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct HubAddress {
    /// Where the hub is reached, tried before the addresses that the token and the hub itself have named. It must be the
    /// hub that this agent enrolled with: that is known by its key
    #[arg(long, env = "TIDELINE_HUB_URL", value_name = "URL")]
    pub hub_url: Option<HubUrl>,
    /// A file with certificates, PEM, of authorities that may certify whoever ends TLS at the hub's address, such as a proxy
    /// with a private CA; the system's and the hub's own are trusted beside them. It is read again when it changes
    #[arg(long, env = "TIDELINE_HUB_CA", value_name = "FILE")]
    pub hub_ca: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot read the token file {path:?}; write the output of `tideline-hub token create` into it, or leave out \
         --token-file if this agent is enrolled"
    )]
    TokenFile { path: PathBuf, source: io::Error },
    #[error("the token file {path:?} holds no token; write the output of `tideline-hub token create` into it")]
    Token { path: PathBuf, source: TokenError },
    #[error("the token file {path:?} holds a damaged token; write the output of `tideline-hub token create` into it")]
    TokenKey { path: PathBuf, source: identity::Error },
    #[error("cannot read the file {path:?} of --hub-ca; give certificates of authorities in PEM")]
    Authorities { path: PathBuf, source: io::Error },
    #[error("the file {path:?} of --hub-ca cannot be used; give certificates of authorities in PEM")]
    NoAuthorities { path: PathBuf, source: link::Error },
}

/// How often the files of the token and of the authorities are checked. They are small, and whoever puts one there waits for
/// it.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// The input, as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct StartInput {
    pub(crate) token: Option<EnrolmentToken>,
    pub(crate) url: Option<HubUrl>,
    pub(crate) authorities: GivenAuthorities,
    pub(crate) file: Option<TokenFile>,
    pub(crate) authorities_file: Option<AuthoritiesFile>,
    unreadable: Vec<Error>,
}

impl StartInput {
    pub(crate) fn read(token_file: Option<&Path>, address: HubAddress) -> Self {
        let HubAddress { hub_url, hub_ca } = address;
        let mut input = Self { url: hub_url, ..Self::default() };
        match token_file.map(read_token).transpose() {
            Ok(token) => input.token = token,
            Err(error) => input.unreadable.push(error),
        }
        let in_use = input.token.as_ref().map(EnrolmentToken::id);
        input.file = token_file.map(|path| TokenFile { path: path.to_owned(), in_use, holds: in_use });
        if let Some(path) = hub_ca {
            let in_use = match read_authorities(&path) {
                Ok(authorities) => {
                    input.authorities = authorities.clone();
                    Some(authorities)
                }
                Err(error) => {
                    input.unreadable.push(error);
                    None
                }
            };
            input.authorities_file = Some(AuthoritiesFile { path, complained: in_use.is_none(), in_use });
        }
        input
    }

    /// Why there is no token, where one was given: what an agent ends with that needs it.
    pub(crate) fn take_unreadable(&mut self) -> Option<Error> {
        (!self.unreadable.is_empty()).then(|| self.unreadable.swap_remove(0))
    }

    /// Logs which input is not used. A token of another hub is none for this identity.
    pub(crate) fn judge(&mut self, found: &Found) -> Result<(), Error> {
        for error in std::mem::take(&mut self.unreadable) {
            if !found.is_enrolled() {
                return Err(error);
            }
            warn!("{}; this agent is enrolled and runs without it until it can be read", chain(&error));
        }
        match found.token() {
            TokenUse::OtherHub(hub) => {
                say_other_hub(hub);
                self.token = None;
            }
            TokenUse::Taken if found.is_enrolled() => {
                info!("the token is new; the hub addresses in it are tried first");
            }
            TokenUse::Spent if found.is_enrolled() => info!(
                "the token in --token-file is ignored: this agent enrolled with it, and keeps what it was told since. If it \
                 needs one, make another by `tideline-hub token create`"
            ),
            TokenUse::SeenBefore if found.is_enrolled() => info!(
                "the hub addresses in --token-file are ignored: this token was given before, and the addresses that the hub \
                 gave since are kept"
            ),
            TokenUse::None | TokenUse::Taken | TokenUse::SeenBefore | TokenUse::Spent => {}
        }
        Ok(())
    }
}

/// Where the token was read at the start of a run.
#[derive(Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    /// Names the token that the run began with.
    in_use: Option<Digest>,
    /// Names the token that was found there last.
    holds: Option<Digest>,
}

impl TokenFile {
    /// Waits until it holds another token that is of use. An agent may need one long after its start, where nobody can reach
    /// it: the file is a mounted Secret there. `used` says what a token is to the agent now.
    ///
    /// A token that was seen before may be used again: the cause of its refusal may have been removed since.
    pub(crate) async fn changed(mut self, used: impl Fn(&EnrolmentToken) -> TokenUse) {
        let mut said = false;
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let path = self.path.clone();
            let read = tokio::task::spawn_blocking(move || read_token(&path)).await;
            // A file that is gone or half written is checked again.
            let Ok(Ok(token)) = read else { continue };
            if self.holds.replace(token.id()) == Some(token.id()) {
                continue;
            }
            match used(&token) {
                TokenUse::Taken => return,
                TokenUse::SeenBefore if self.in_use != Some(token.id()) => return,
                TokenUse::OtherHub(hub) => say_other_hub(hub),
                TokenUse::SeenBefore | TokenUse::Spent if !std::mem::replace(&mut said, true) => {
                    info!(
                        "the token file holds a token that this agent has made use of, and which is ignored; if it needs \
                         one, make another by `tideline-hub token create`"
                    );
                }
                // Two hands may put one and the other there in turn.
                TokenUse::None | TokenUse::SeenBefore | TokenUse::Spent => {}
            }
        }
    }
}

/// Where the authorities of `--hub-ca` are read.
#[derive(Debug)]
pub(crate) struct AuthoritiesFile {
    path: PathBuf,
    /// Its content when it was usable last.
    in_use: Option<GivenAuthorities>,
    /// That it cannot be used was logged.
    complained: bool,
}

impl AuthoritiesFile {
    /// Waits until it holds other authorities than before. A file that is not there, is being written or holds none that can
    /// be used changes nothing: a certificate is renewed in many ways, and the agent may reach its hub by none but the former.
    pub(crate) async fn changed(&mut self) -> GivenAuthorities {
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            let path = self.path.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || read_authorities(&path)).await else { continue };
            match read {
                Ok(found) => {
                    self.complained = false;
                    if self.in_use.as_ref() != Some(&found) {
                        self.in_use = Some(found.clone());
                        return found;
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        warn!("{}; its previous content stays trusted, and reading is retried", chain(&error));
                    }
                }
            }
        }
    }
}

fn say_other_hub(hub: HubId) {
    warn!(
        %hub,
        "the token is of another hub than the one that this agent is enrolled with, and is ignored. To join that hub, give \
         it another data directory and no identity Secret"
    );
}

fn read_token(path: &Path) -> Result<EnrolmentToken, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::TokenFile { path: path.to_owned(), source })?;
    let token = text.parse().map_err(|source| Error::Token { path: path.to_owned(), source })?;
    match HubPin::of(&token) {
        Ok(_) => Ok(token),
        Err(source) => Err(Error::TokenKey { path: path.to_owned(), source }),
    }
}

fn read_authorities(path: &Path) -> Result<GivenAuthorities, Error> {
    let pem = std::fs::read(path).map_err(|source| Error::Authorities { path: path.to_owned(), source })?;
    GivenAuthorities::from_pem(&pem).map_err(|source| Error::NoAuthorities { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
