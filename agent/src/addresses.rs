//! The addresses at which the hub is asked, and the certificates trusted on the way there. Pure.
//!
//! The hub is its key; an address says only where to ask, and nothing unsigned is believed from there. So addresses are
//! collected from every source, and dropped when they are not needed:
//!
//! ```text
//!  token, new ─┐
//!  --hub-url ──┼─▶ [`Addresses`], the one that answered last in front ─▶ [`Locator`]: one at a time, the next when it fails
//!  the hub ────┘                             ▲                              │
//!                                            └── dropped, once another has answered for a day
//! ```
//!
//! Whatever tokens and announcements name, the address that answered last stays, and the authorities that the token named with
//! it: others give way where there are too many, those first of which nothing ever came.
//!
//! One that the hub does not announce any more may still be the only one that leads there: the announcement may be wrong,
//! or not true yet. Which authority a connection relied on is not known, so those that are not announced any more are left
//! out on trial, for one new connection, and go when that is answered.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tideline_common::limits::{HUB_ADDRESSES_KNOWN_MAX, HUB_ADDRESSES_MAX, TOKENS_SEEN_MAX};
use tideline_common::wire::v1::HubAddresses;
use tideline_common::{Authority, Digest, EnrolmentToken, HubUrl, Monotonic};

/// How long another address must have answered before one that is not announced any more is dropped.
const ANSWERS_FOR: Duration = Duration::from_hours(24);
/// A longer pause between two answers begins the day anew: several of the longest waits between two tries.
const PAUSE_MAX: Duration = Duration::from_hours(1);
/// Exchanges in a row that break off, from an address that takes connections, before the next one is tried. A middlebox
/// that cuts long polls is no reason to go elsewhere: shorter ones are answered in between.
const CUTS_MAX: u32 = 3;

/// What is stored of the hub's addresses, with the identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Addresses {
    /// Rises with every change: of two copies the newer is known by it.
    changes: u64,
    /// In the order in which they are tried; the first is the one that answered last.
    urls: Vec<Known<HubUrl>>,
    authorities: Vec<Known<Authority>>,
    /// Tokens that were used. They stay where they are mounted, and their addresses become old.
    #[serde(default)]
    tokens: Vec<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known<T> {
    is: T,
    /// The hub named it when it last said where it is reached.
    #[serde(default)]
    announced: bool,
    /// The last token that named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Digest>,
    /// Of a URL: it is the one that answered last. Of an authority: a URL of its token has answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    proven: bool,
}

impl<T> Known<T> {
    const fn new(is: T) -> Self {
        Self { is, announced: false, token: None, proven: false }
    }
}

/// Which go first where there are too many: those for which the first of these says so, then the second.
type GiveWay<T> = [fn(&Known<T>) -> bool];

/// The one that answered last does not.
const URLS_GIVE_WAY: &GiveWay<HubUrl> = &[|url| !url.announced && !url.proven, |url| !url.proven];
/// First those that only tokens named and whose addresses never answered. Of the others, the hub names again what it has
/// announced; what a token has named nobody may name again.
const AUTHORITIES_GIVE_WAY: &GiveWay<Authority> = &[
    |authority| !authority.announced && !authority.proven && authority.token.is_some(),
    |authority| !authority.announced && authority.token.is_none(),
    |authority| !authority.announced,
    |_| true,
];

/// Drops those beyond the bound, the last first. The first `kept` stay.
fn bound<T>(known: &mut Vec<Known<T>>, kept: usize, give_way: &GiveWay<T>) {
    for gives_way in give_way {
        while known.len() > HUB_ADDRESSES_KNOWN_MAX {
            let Some(at) = known.iter().rposition(gives_way).filter(|at| *at >= kept) else { break };
            known.remove(at);
        }
    }
}

/// Whether a token says anything new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    New,
    SeenBefore,
}

impl Addresses {
    /// Those of a token, for an identity that has none.
    pub fn of(token: &EnrolmentToken) -> Self {
        let mut addresses = Self::default();
        addresses.take(token);
        addresses
    }

    /// Takes what a token says, if it was not seen before: it comes first.
    pub fn take(&mut self, token: &EnrolmentToken) -> Token {
        let id = token.id();
        if self.tokens.contains(&id) {
            return Token::SeenBefore;
        }
        self.tokens.push(id);
        let surplus = self.tokens.len().saturating_sub(TOKENS_SEEN_MAX);
        self.tokens.drain(..surplus);
        put_first(&mut self.urls, &token.urls, Some(id), URLS_GIVE_WAY);
        put_first(&mut self.authorities, &token.authorities, Some(id), AUTHORITIES_GIVE_WAY);
        self.changes += 1;
        Token::New
    }

    /// Joins two copies: the newer one, and the tokens that either has seen.
    pub(crate) fn merge(self, other: Self) -> Self {
        let (mut newer, older) = if other.changes > self.changes { (other, self) } else { (self, other) };
        for token in older.tokens {
            if newer.tokens.len() < TOKENS_SEEN_MAX && !newer.tokens.contains(&token) {
                newer.tokens.insert(0, token);
            }
        }
        newer
    }

    /// The one that is tried first.
    pub(crate) fn first(&self) -> Option<&HubUrl> {
        self.urls.first().map(|known| &known.is)
    }
}

/// Puts `values`, which this token named, before all others, in their order. Known values keep their state.
fn put_first<T: Clone + PartialEq>(
    known: &mut Vec<Known<T>>,
    values: &[T],
    token: Option<Digest>,
    give_way: &GiveWay<T>,
) {
    let mut rest = std::mem::take(known);
    for value in values.iter().take(HUB_ADDRESSES_MAX) {
        if !known.iter().any(|known| known.is == *value) {
            let former = take(&mut rest, value).unwrap_or_else(|| Known::new(value.clone()));
            known.push(Known { token: token.or(former.token), ..former });
        }
    }
    let kept = known.len();
    known.append(&mut rest);
    bound(known, kept, give_way);
}

/// Marks `values` as announced, and adds new ones behind the first `kept` and before those that are announced no more. Returns
/// whether the announced values changed.
fn announce<T: Clone + PartialEq>(known: &mut Vec<Known<T>>, kept: usize, values: &[T], give_way: &GiveWay<T>) -> bool {
    let is_announced = |value: &T| values.contains(value);
    let same = known.iter().all(|known| known.announced == is_announced(&known.is))
        && values.iter().all(|value| known.iter().any(|known| known.is == *value));
    for known in &mut *known {
        known.announced = is_announced(&known.is);
    }
    let mut rest = known.split_off(kept.min(known.len()));
    for value in values {
        if !known.iter().any(|known| known.is == *value) {
            let former = take(&mut rest, value).unwrap_or_else(|| Known::new(value.clone()));
            known.push(Known { announced: true, ..former });
        }
    }
    known.append(&mut rest);
    bound(known, kept, give_way);
    !same
}

fn take<T: PartialEq>(from: &mut Vec<Known<T>>, value: &T) -> Option<Known<T>> {
    let at = from.iter().position(|known| known.is == *value)?;
    Some(from.remove(at))
}

/// Which address is asked, and what became of it.
#[derive(Debug)]
pub struct Locator {
    known: Addresses,
    /// What the command line says stays known while it does.
    given: Option<HubUrl>,
    /// Which of the known URLs is asked.
    at: usize,
    /// Exchanges that broke off there since it last answered.
    cuts: u32,
    /// Addresses that were given up one after the other since one answered.
    missed: usize,
    /// Since when the first URL has answered without a long pause.
    answering: Option<Answering>,
    /// Authorities that are announced no more are left out, for as long as nobody has answered.
    trial: bool,
    trust: TrustRevision,
    unsaved: bool,
}

#[derive(Clone, Copy, Debug)]
struct Answering {
    since: Monotonic,
    last: Monotonic,
}

/// Rises whenever other authorities are trusted than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrustRevision(u64);

/// Where one request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub url: HubUrl,
    pub trust: TrustRevision,
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// Nobody is there, or somebody who is not the hub.
    NotThere,
    /// It broke off, or took too long.
    Cut,
}

impl Locator {
    /// None if there is no address at all.
    pub fn new(mut known: Addresses, given: Option<HubUrl>) -> Option<Self> {
        if let Some(url) = &given {
            put_first(&mut known.urls, std::slice::from_ref(url), None, URLS_GIVE_WAY);
        }
        known.first()?;
        Some(Self {
            known,
            given,
            at: 0,
            cuts: 0,
            missed: 0,
            answering: None,
            trial: false,
            trust: TrustRevision::default(),
            unsaved: false,
        })
    }

    /// Where the next request goes.
    pub fn destination(&self) -> Destination {
        Destination { url: self.known.urls[self.at].is.clone(), trust: self.trust }
    }

    /// The authorities that are trusted, at the present revision.
    pub fn trusted(&self) -> (TrustRevision, impl Iterator<Item = &Authority>) {
        let trusted = self.known.authorities.iter().filter(|known| known.announced || !self.trial);
        (self.trust, trusted.map(|known| &known.is))
    }

    fn trusted_set(&self) -> BTreeSet<Authority> {
        self.trusted().1.cloned().collect()
    }

    /// The trusted authorities beside these have changed.
    pub(crate) fn others_are_trusted(&mut self) {
        self.trust.0 += 1;
    }

    /// The hub answered there: it is asked there first from now on. Returns whether it was found elsewhere before.
    pub fn answered(&mut self, now: Monotonic, from: &Destination) -> bool {
        let Some(at) = self.known.urls.iter().position(|known| known.is == from.url) else { return false };
        let moved = at > 0;
        if moved {
            let known = self.known.urls.remove(at);
            self.known.urls.insert(0, known);
            self.answering = None;
            self.changed();
        }
        (self.at, self.cuts, self.missed) = (0, 0, 0);
        self.prove_first();
        let since = match self.answering {
            Some(Answering { since, last }) if now.since(last) <= PAUSE_MAX => since,
            Some(_) | None => now,
        };
        self.answering = Some(Answering { since, last: now });
        if self.trial && from.trust == self.trust {
            self.trial = false;
            self.known.authorities.retain(|known| known.announced);
            self.changed();
        }
        if now.since(since) >= ANSWERS_FOR {
            self.drop_what_is_not_needed();
        }
        moved
    }

    /// The first URL has answered.
    fn prove_first(&mut self) {
        let Addresses { urls, authorities, .. } = &mut self.known;
        let Some(token) = urls.first().map(|first| first.token) else { return };
        let mut news = false;
        for (at, url) in urls.iter_mut().enumerate() {
            news |= std::mem::replace(&mut url.proven, at == 0) != (at == 0);
        }
        // Where that came from no token, as with --hub-url, it is by those that were there first.
        let first = token.is_none() && !authorities.iter().any(|authority| authority.proven);
        for authority in authorities {
            if first || (token.is_some() && authority.token == token) {
                news |= !std::mem::replace(&mut authority.proven, true);
            }
        }
        if news {
            self.changed();
        }
    }

    /// It was not the hub that answered there, or nobody: the next one is tried, at once or after some times.
    pub fn missed(&mut self, from: &Destination, how: Missed) {
        let url = &self.known.urls[self.at].is;
        if *url != from.url || self.trust != from.trust {
            return;
        }
        if self.trial {
            self.trial = false;
            self.answering = None;
            self.trust.0 += 1;
            return;
        }
        self.cuts += 1;
        if how == Missed::NotThere || self.cuts >= CUTS_MAX {
            self.cuts = 0;
            self.missed = self.missed.saturating_add(1);
            self.at = (self.at + 1) % self.known.urls.len();
        }
    }

    /// Whether the hub was found at none of its addresses since it answered last.
    pub(crate) fn is_lost(&self) -> bool {
        self.missed >= self.known.urls.len()
    }

    /// Takes in where the hub says it is reached. Returns whether that is news.
    pub fn announced(&mut self, addresses: &HubAddresses) -> bool {
        let HubAddresses { urls, authorities } = addresses;
        let urls: Vec<HubUrl> = urls.iter().filter_map(|url| url.parse().ok()).take(HUB_ADDRESSES_MAX).collect();
        let authorities: Vec<Authority> =
            authorities.iter().filter(|authority| authority.is_bounded()).take(HUB_ADDRESSES_MAX).cloned().collect();
        let asked = self.known.urls[self.at].is.clone();
        let (former, trusted) = (self.known.clone(), self.trusted_set());
        // A hub that names none is none that can be found elsewhere.
        let mut news = false;
        if !urls.is_empty() {
            news |= announce(&mut self.known.urls, 1, &urls, URLS_GIVE_WAY);
            if let Some(given) = &self.given
                && !self.known.urls.iter().any(|known| known.is == *given)
            {
                self.known.urls.truncate(HUB_ADDRESSES_KNOWN_MAX - 1);
                self.known.urls.push(Known::new(given.clone()));
            }
        }
        if !authorities.is_empty() {
            news |= announce(&mut self.known.authorities, 0, &authorities, AUTHORITIES_GIVE_WAY);
        }
        self.at = self.known.urls.iter().position(|known| known.is == asked).unwrap_or(0);
        if news {
            // Values that were announced until now have a day from now on.
            (self.answering, self.trial) = (None, false);
        }
        if trusted != self.trusted_set() {
            self.trust.0 += 1;
        }
        if former != self.known {
            self.changed();
        }
        news
    }

    /// The state to store, if it changed since the last call.
    pub fn take_unsaved(&mut self) -> Option<Addresses> {
        std::mem::take(&mut self.unsaved).then(|| self.known.clone())
    }

    fn drop_what_is_not_needed(&mut self) {
        let is_announced = |known: &Known<HubUrl>| known.announced;
        if self.known.urls.iter().any(is_announced) {
            let (first, given) = (self.known.urls[0].is.clone(), self.given.clone());
            let before = self.known.urls.len();
            self.known.urls.retain(|known| {
                known.announced || known.is == first || given.as_ref().is_some_and(|given| known.is == *given)
            });
            if self.known.urls.len() != before {
                self.changed();
            }
        }
        let announced = self.known.authorities.iter().filter(|known| known.announced).count();
        if !self.trial && announced > 0 && announced < self.known.authorities.len() {
            self.trial = true;
            self.trust.0 += 1;
        }
    }

    fn changed(&mut self) {
        self.known.changes += 1;
        self.unsaved = true;
    }
}

#[cfg(test)]
mod tests;
