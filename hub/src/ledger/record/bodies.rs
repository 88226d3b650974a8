//! The stored bodies, by what names them, and the claims that are made of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::{ApplyPolicy, Digest, Entry, Impersonation, ObjectKey, SourceRef, SpaceName};

use super::{Body, Claim, ClaimId, ClaimRecord, Error, Form, FormRecord, Input, SourceId, key};

pub(super) struct Bodies {
    pub(super) bodies: HashMap<Digest, StoredBody>,
    words: Words,
}

/// What several records say in the same words, kept once for all of them.
#[derive(Default)]
struct Words {
    texts: HashSet<Arc<str>>,
    spaces: HashSet<SpaceName>,
    accounts: HashSet<Arc<Impersonation>>,
    policies: HashMap<Digest, Arc<ApplyPolicy>>,
}

pub(super) struct StoredBody {
    body: Arc<Body>,
    pub(super) parts: usize,
    pub(super) variants: usize,
}

impl Bodies {
    /// Puts parts together. What does not hash to its name was not written whole, so that nothing refers to it.
    pub(super) fn assemble(records: BTreeMap<String, BTreeMap<String, Vec<u8>>>, garbage: &mut Vec<Vec<u8>>) -> Self {
        let mut bodies = HashMap::new();
        for (name, parts) in records {
            let bytes: Vec<u8> = parts.values().flatten().copied().collect();
            let input = String::from_utf8(bytes).ok().map(Input::new).filter(|input| input.digest.to_string() == name);
            let Some(Input { text, digest }) = input else {
                garbage.extend(parts.keys().map(|part| key(&format!("body/{name}/{part}"))));
                continue;
            };
            let body = Arc::new(Body { input: digest, sha256: Digest::of(text.as_bytes()), text });
            bodies.insert(digest, StoredBody { body, parts: parts.len(), variants: 0 });
        }
        Self { bodies, words: Words::default() }
    }

    pub(super) fn claim(&mut self, header: ClaimRecord, bitmaps: Vec<RoaringBitmap>) -> Result<Claim, Error> {
        let ClaimRecord { id: mut of, mut destination, mut source, mut key, admitted, changed, kept_at, forms } =
            header;
        self.words.share_id(&mut of);
        self.words.share_source(&mut source);
        self.words.share_key(&mut key);
        if let Some(name) = &mut destination {
            share(&mut self.words.texts, name);
        }
        let id = ClaimId { source: of, destination };
        let mut bitmaps = bitmaps.into_iter();
        let held = bitmaps.next().unwrap_or_default();
        let mut made = Vec::with_capacity(forms.len());
        for (FormRecord { entry, policy }, targets) in forms.into_iter().zip(bitmaps.by_ref()) {
            let missing = || Error::BodyMissing { input: entry.input, key: Box::new(key.clone()) };
            let stored = self.bodies.get_mut(&entry.input).ok_or_else(missing)?;
            stored.variants += 1;
            let mut entry = Arc::unwrap_or_clone(entry);
            self.words.share_entry(&mut entry);
            let (hash, policy) = (entry.hash(), self.words.policy(entry.policy, policy));
            made.push(Form::new((Arc::new(entry), hash), policy, stored.body.clone(), targets));
        }
        let (kept, kept_at) = (bitmaps.next().unwrap_or_default(), kept_at.unwrap_or_default());
        Ok(Claim { id, source, key, admitted, changed, forms: made, held, kept, kept_at })
    }
}

impl Words {
    fn share_id(&mut self, id: &mut SourceId) {
        let SourceId { space, resource, uid: _ } = id;
        share(&mut self.spaces, space);
        share(&mut self.texts, &mut resource.group);
        share(&mut self.texts, &mut resource.resource);
    }

    fn share_source(&mut self, source: &mut SourceRef) {
        let SourceRef { space, uid: _, namespace, name } = source;
        share(&mut self.spaces, space);
        share(&mut self.texts, namespace);
        share(&mut self.texts, name);
    }

    fn share_key(&mut self, key: &mut ObjectKey) {
        let ObjectKey { kind, namespace, name } = key;
        for text in [&mut kind.group, &mut kind.kind, namespace, name] {
            share(&mut self.texts, text);
        }
    }

    fn share_entry(&mut self, entry: &mut Entry) {
        self.share_key(&mut entry.key);
        self.share_source(&mut entry.source);
        share(&mut self.texts, &mut entry.version);
        if let Some(account) = &mut entry.impersonate {
            share(&mut self.accounts, account);
        }
    }

    /// A record may have another policy than the one that its entry names, if somebody wrote into it.
    fn policy(&mut self, name: Digest, policy: Arc<ApplyPolicy>) -> Arc<ApplyPolicy> {
        let known = self.policies.entry(name).or_insert_with(|| policy.clone());
        if *known == policy { known.clone() } else { policy }
    }
}

fn share<T: Clone + Eq + Hash>(known: &mut HashSet<T>, one: &mut T) {
    match known.get(one) {
        Some(same) => *one = same.clone(),
        None => {
            known.insert(one.clone());
        }
    }
}
