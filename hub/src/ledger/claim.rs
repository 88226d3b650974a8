use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use roaring::RoaringBitmap;
use tideline_common::limits::{REPORT_PATH_BYTES_MAX, REPORT_PATHS_MAX};
use tideline_common::{
    ApplyMode, ApplyPolicy, ApproveDeletions, Capability, Digest, Entry, EntryState, ItemHash, ObjectKey, Revision,
    SourceRef, WithheldEntry, needs, withheld,
};

use super::TargetIndex;
use super::missing_capabilities::MissingCapabilities;
use crate::bitmap::fit;
use crate::clean::{Destination, Input, place_at};
use crate::placement::{Assignment, SourceId, Variant};

/// A rendered object, shared by every entry that names it.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    pub input: Digest,
    /// SHA-256 of `text`.
    pub sha256: Digest,
    pub text: Arc<str>,
}

/// A source at one destination: what its namespace is called at targets tells its claims apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClaimId {
    pub(super) source: SourceId,
    pub(super) destination: Destination,
}

/// A source's claim to one destination key on some of its targets.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) id: ClaimId,
    pub(super) source: SourceRef,
    /// The destination key.
    pub(super) key: ObjectKey,
    /// Lower was first.
    pub(super) admitted: u64,
    /// The last commit that changed any of it.
    pub(super) changed: Revision,
    /// Over disjoint, non-empty sets of targets.
    pub(super) forms: Vec<Form>,
    /// Where it holds the destination: a subset of the forms' targets, disjoint from every other claim's.
    pub(super) held: RoaringBitmap,
    /// Where nothing wants it any more, and that waits for a person: a subset of `held`.
    pub(super) kept: RoaringBitmap,
    /// The commit that kept any of it last.
    pub(super) kept_at: Revision,
}

/// What an agent must understand to be told of a form, and what others are told.
#[derive(Debug)]
pub(super) struct Needing {
    pub(super) needs: BTreeSet<Capability>,
    /// Made and hashed when an agent lacks any of it.
    instead: OnceLock<Instead>,
}

/// An entry as it is told to whom it is withheld from.
#[derive(Debug)]
pub(super) struct Instead {
    pub(super) entry: Arc<Entry>,
    pub(super) hash: ItemHash,
    pub(super) policy: Arc<ApplyPolicy>,
}

/// What some of a claim's targets are to hold, made and hashed once for all of them.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) entry: Arc<Entry>,
    pub(super) hash: ItemHash,
    pub(super) policy: Arc<ApplyPolicy>,
    /// What an agent must understand to be told of it; none for most.
    pub(super) needing: Option<Arc<Needing>>,
    pub(super) body: Arc<Body>,
    pub(super) targets: RoaringBitmap,
}

/// Bytes of a form's record beside what its policy says in words, at most: an entry has names of up to 253 bytes, and a policy
/// asks for paths of 8 KiB in all, twice over for what JSON escapes.
const FORM_BYTES_MAX: usize = 20 << 10;
const _: () = assert!(FORM_BYTES_MAX > 2 * REPORT_PATHS_MAX * REPORT_PATH_BYTES_MAX + 8 * 253);

impl Claim {
    /// What its record takes at the most, without writing it: for most a fraction of what it may take.
    pub(super) fn bytes_at_most(&self) -> usize {
        let bitmaps = self.forms.iter().map(|form| &form.targets).chain([&self.held, &self.kept]);
        let bitmaps: usize = bitmaps.map(RoaringBitmap::serialized_size).sum();
        bitmaps + self.forms.iter().map(|form| FORM_BYTES_MAX + words_at_most(&form.policy)).sum::<usize>()
    }

    /// The claim that an assignment makes to one of its destinations, holding nothing yet. `former` lends what has not
    /// changed, so that it is not hashed again.
    pub(super) fn of(assignment: &Assignment, destination: Destination, admitted: u64, former: Option<&Claim>) -> Self {
        let Assignment { id, source, key, version, generation, wave, impersonate, variants } = assignment;
        let key = place_at(key, &destination);
        let mut forms: Vec<Form> = Vec::with_capacity(variants.len());
        for variant in variants.iter().filter(|variant| variant.destination == destination) {
            if variant.targets.is_empty() {
                continue;
            }
            let entry = Entry {
                key: key.clone(),
                version: version.clone(),
                source: source.clone(),
                generation: *generation,
                state: EntryState::Apply,
                input: variant.input.digest,
                policy: variant.policy.digest(),
                wave: *wave,
                impersonate: impersonate.clone(),
                implied: variant.implied,
            };
            if let Some(same) = forms.iter_mut().find(|form| *form.entry == entry) {
                same.targets |= &variant.targets;
                continue;
            }
            let known = former.and_then(|claim| claim.forms.iter().find(|form| *form.entry == entry));
            let (entry, hash) = match known {
                Some(form) => (form.entry.clone(), form.hash),
                None => (Arc::new(entry.clone()), entry.hash()),
            };
            let body = former
                .and_then(|claim| claim.forms.iter().find(|form| form.body.input == variant.input.digest))
                .map_or_else(|| Arc::new(Body::of(&variant.input)), |form| form.body.clone());
            let (policy, targets) = (variant.policy.clone(), variant.targets.clone());
            forms.push(Form::new((entry, hash), policy, body, targets));
        }
        forms.sort_by_key(Form::order);
        let id = ClaimId { source: id.clone(), destination };
        Self {
            id,
            source: source.clone(),
            key,
            admitted,
            changed: Revision(0),
            forms,
            held: RoaringBitmap::new(),
            kept: RoaringBitmap::new(),
            kept_at: Revision(0),
        }
    }

    /// Has it take no more memory than it needs, before it is kept.
    pub(super) fn fit(&mut self) {
        let Self { forms, held, kept, .. } = self;
        forms.iter_mut().map(|form| &mut form.targets).chain([held, kept]).for_each(fit);
        forms.shrink_to_fit();
    }

    /// The place of the source in its space.
    pub(super) fn place(&self) -> ObjectKey {
        self.source.key(&self.key.kind)
    }

    /// The claim without what nothing wants any more, if anything is left.
    pub(super) fn wanted(&self) -> Option<Self> {
        let mut wanted = self.clone();
        if !self.kept.is_empty() {
            wanted.forms.iter_mut().for_each(|form| form.targets -= &self.kept);
            wanted.forms.retain(|form| !form.targets.is_empty());
            wanted.held -= &self.kept;
            (wanted.kept, wanted.kept_at) = (RoaringBitmap::new(), Revision(0));
        }
        (!wanted.forms.is_empty()).then_some(wanted)
    }

    /// Takes up on these targets what `former` has there, for a person has not approved yet that it goes.
    pub(super) fn keep(&mut self, former: &Self, kept: RoaringBitmap, at: Revision) {
        for form in &former.forms {
            let targets = &form.targets & &kept;
            match self.forms.iter_mut().find(|same| same.entry == form.entry) {
                Some(same) => same.targets |= targets,
                None if targets.is_empty() => {}
                None => self.forms.push(Form { targets, ..form.clone() }),
            }
        }
        self.forms.sort_by_key(Form::order);
        self.held |= &kept;
        (self.kept, self.kept_at) = (kept, at);
    }

    /// Takes the forms of a later claim of the same source, where it has any.
    pub(super) fn restate(&mut self, later: &Self) {
        let mine = self.forms.iter().fold(RoaringBitmap::new(), |all, form| all | &form.targets);
        for form in &later.forms {
            let targets = &form.targets & &mine;
            if !targets.is_empty() {
                self.forms.iter_mut().for_each(|form| form.targets -= &targets);
                match self.forms.iter_mut().find(|same| same.entry == form.entry) {
                    Some(same) => same.targets |= targets,
                    None => self.forms.push(Form { targets, ..form.clone() }),
                }
            }
        }
        self.forms.retain(|form| !form.targets.is_empty());
        self.forms.sort_by_key(Form::order);
    }

    /// Targets where it is there for its own sake, and not for what is in it.
    pub(super) fn placed(&self) -> RoaringBitmap {
        self.targets_where(|form| !form.entry.implied)
    }

    /// Targets where a person is asked before it goes with many others.
    pub(super) fn asking(&self) -> RoaringBitmap {
        self.targets_where(|form| !form.entry.implied && form.policy.approve_deletions == ApproveDeletions::Ask)
    }

    /// The assignment that makes this claim and no other, without what nothing wants any more.
    pub(super) fn assignment(&self) -> Assignment {
        let Self { id, source, key: _, admitted: _, changed: _, forms, held: _, kept, kept_at: _ } = self;
        let wanted: Vec<_> = forms.iter().filter(|form| !form.targets.is_subset(kept)).collect();
        let entry = &wanted.first().copied().or(forms.first()).expect("a claim without forms is none").entry;
        Assignment {
            id: id.source.clone(),
            source: source.clone(),
            key: self.place(),
            version: entry.version.clone(),
            generation: entry.generation,
            wave: entry.wave,
            impersonate: entry.impersonate.clone(),
            variants: wanted.into_iter().map(|form| form.variant(id.destination.clone(), kept)).collect(),
        }
    }

    pub(super) fn form(&self, target: TargetIndex) -> Option<&Form> {
        self.forms.iter().find(|form| form.targets.contains(target))
    }

    pub(super) fn explicit(&self) -> RoaringBitmap {
        self.targets_where(|form| !form.entry.implied)
    }

    pub(super) fn implied(&self) -> RoaringBitmap {
        self.targets_where(|form| form.entry.implied)
    }

    pub(super) fn targets(&self) -> RoaringBitmap {
        self.targets_where(|_| true)
    }

    /// Whether it does its work once and ends: to make it again when it is gone is to run it again.
    pub(super) fn runs_once(&self) -> bool {
        let kind = &self.key.kind;
        kind.is("batch", "Job") || (kind.is("", "Pod") && self.forms.iter().any(|form| form.body.ends()))
    }

    /// Where it is created and then left alone.
    pub(super) fn made_once(&self) -> RoaringBitmap {
        self.targets_where(|form| form.policy.mode == ApplyMode::CreateOnly)
    }

    fn targets_where(&self, which: impl Fn(&Form) -> bool) -> RoaringBitmap {
        self.forms.iter().filter(|form| which(form)).fold(RoaringBitmap::new(), |all, form| all | &form.targets)
    }

    /// Keeps to these targets; forms left without any are dropped.
    pub(super) fn restrict(&mut self, to: &RoaringBitmap) {
        for form in &mut self.forms {
            form.targets &= to;
        }
        self.forms.retain(|form| !form.targets.is_empty());
        self.held &= to;
        self.kept &= to;
    }

    /// Whether both say the same, whenever they were written.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.key == other.key
            && self.admitted == other.admitted
            && self.held == other.held
            && self.kept == other.kept
            && (self.kept.is_empty() || self.kept_at == other.kept_at)
            && self.forms.len() == other.forms.len()
            && self.forms.iter().zip(&other.forms).all(|(a, b)| a.entry == b.entry && a.targets == b.targets)
    }
}

/// What a policy says in words of others, as JSON: which writes a byte as six at the worst.
fn words_at_most(policy: &ApplyPolicy) -> usize {
    let added = policy.additions.labels.iter().chain(&policy.additions.annotations);
    let added = added.map(|(name, value)| name.len() + value.len());
    let fields = policy.fields.iter().map(|field| field.path.len());
    let gates = policy.gates.iter().map(|gate| gate.placement.len());
    added.chain(fields).chain(gates).map(|bytes| 6 * bytes + 64).sum()
}

impl Form {
    pub(super) fn new(
        (entry, hash): (Arc<Entry>, ItemHash),
        policy: Arc<ApplyPolicy>,
        body: Arc<Body>,
        targets: RoaringBitmap,
    ) -> Self {
        let needs = needs(&entry, &policy);
        let needing = (!needs.is_empty()).then(|| Arc::new(Needing { needs, instead: OnceLock::new() }));
        Self { entry, hash, policy, needing, body, targets }
    }

    /// Who of them is not told of it as it is, with what is told instead.
    pub(super) fn withheld(
        &self,
        lacking: &MissingCapabilities,
        from: &RoaringBitmap,
    ) -> Option<(&Instead, RoaringBitmap)> {
        let needing = self.needing.as_ref()?;
        let from = lacking.any_of(&needing.needs) & from;
        (!from.is_empty()).then(|| (self.instead(needing), from))
    }

    /// What is told of it to an agent that lacks something that it needs.
    pub(super) fn instead<'a>(&'a self, needing: &'a Needing) -> &'a Instead {
        needing.instead.get_or_init(|| {
            let WithheldEntry { entry, policy } = withheld(&self.entry, &self.policy);
            Instead { hash: entry.hash(), entry: Arc::new(entry), policy: Arc::new(policy) }
        })
    }

    fn variant(&self, destination: Destination, kept: &RoaringBitmap) -> Variant {
        Variant {
            destination,
            policy: self.policy.clone(),
            input: Input { text: self.body.text.clone(), digest: self.body.input },
            implied: self.entry.implied,
            targets: &self.targets - kept,
        }
    }

    /// As variants are ordered.
    fn order(&self) -> (bool, Digest, Digest) {
        (self.entry.implied, self.entry.policy, self.entry.input)
    }
}

impl Body {
    /// Whether a Pod of this text ends by itself.
    fn ends(&self) -> bool {
        #[derive(Default, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            restart_policy: String,
        }
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Pod {
            spec: Spec,
        }
        let pod: Pod = serde_json::from_str(&self.text).unwrap_or_default();
        matches!(&*pod.spec.restart_policy, "Never" | "OnFailure")
    }

    fn of(input: &Input) -> Self {
        Self { input: input.digest, sha256: Digest::of(input.text.as_bytes()), text: input.text.clone() }
    }
}
