//! The stored bodies, by what names them, and the claims that are made of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tideline_common::Digest;

use super::{Body, Claim, ClaimId, ClaimRecord, Error, Form, FormRecord, Input, key};

pub(super) struct Bodies {
    pub(super) bodies: HashMap<Digest, StoredBody>,
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
        Self { bodies }
    }

    pub(super) fn claim(&mut self, header: ClaimRecord, bitmaps: Vec<RoaringBitmap>) -> Result<Claim, Error> {
        let ClaimRecord { id: of, destination, source, key, admitted, changed, kept_at, forms } = header;
        let id = ClaimId { source: of, destination };
        let mut bitmaps = bitmaps.into_iter();
        let held = bitmaps.next().unwrap_or_default();
        let mut made = Vec::with_capacity(forms.len());
        for (FormRecord { entry, policy }, targets) in forms.into_iter().zip(bitmaps.by_ref()) {
            let missing = || Error::BodyMissing { input: entry.input, key: Box::new(key.clone()) };
            let stored = self.bodies.get_mut(&entry.input).ok_or_else(missing)?;
            stored.variants += 1;
            let hash = entry.hash();
            made.push(Form::new((entry, hash), policy, stored.body.clone(), targets));
        }
        let (kept, kept_at) = (bitmaps.next().unwrap_or_default(), kept_at.unwrap_or_default());
        Ok(Claim { id, source, key, admitted, changed, forms: made, held, kept, kept_at })
    }
}
