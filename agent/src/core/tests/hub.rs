//! A hub as the wire describes it, with small pages.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_common::wire::v1::{
    ApprovedPage, Attested, BodiesAnswer, BodiesRequest, Body, Continuity, Decommission, DesiredAnswer, DesiredPage,
    DesiredRequest, EnrolAnswer, Fenced, Handover, HubAddresses, ObjectReport, PollSettings, Progress, Refusal,
    RefusalKind, ReportedAnswer, ReportedRequest, SessionAnswer, TargetCondition, TerminalFact,
};
use tideline_common::{
    ApplyPolicy, ApproveDeletions, DesiredSet, Digest, Entry, EntryState, Epoch, ObjectKey, Prune, PrunePolicy, Reason,
    Revision, SessionName, TargetId, Tombstone, Uid, Version,
};

use super::{Policies, attestation, entry, hub_id, policies, target_id};
use crate::core::{Answer, LinkFailure, Request};

#[derive(Debug, Default)]
pub(crate) struct Hub {
    pub(crate) desired: DesiredSet,
    revision: u64,
    epoch: u64,
    changed: BTreeMap<ObjectKey, u64>,
    pub(crate) tombstones: BTreeMap<Tombstone, (u64, PrunePolicy)>,
    pub(crate) reports: BTreeMap<ObjectKey, (SessionName, u64, ObjectReport)>,
    sessions: u64,
    /// How often it has forgotten what it was told.
    forgot: u64,
    pub(crate) page: usize,
    bodies: BTreeMap<Digest, String>,
    /// Of whatever is placed from now on.
    pub(crate) policy: ApplyPolicy,
    pub(crate) waves: BTreeMap<ObjectKey, i32>,
    conditions: Vec<TargetCondition>,
    /// Whether the agent said that it sees its cluster as it is.
    pub(crate) in_sync: Option<bool>,
    /// Whether it reads of polls that the last report stands.
    pub(crate) hears_polls: bool,
    /// The newest report of the session that it knows.
    seq: u64,
    /// How many reports came, and polls that say that the last one stands.
    pub(crate) heard: (u64, u64),
    /// What a person approved.
    pub(crate) approved: Vec<Tombstone>,
    /// How many reports of objects it got.
    pub(crate) told_objects: usize,
    /// What a person released.
    pub(crate) released: Vec<Tombstone>,
    /// For how long the agent may use that.
    pub(crate) approved_seconds: u64,
    decommission: Decommission,
    /// The cluster that the SyncTarget names.
    pub(crate) cluster: Option<Uid>,
    /// The refusal of every request.
    pub(crate) refuses: Option<RefusalKind>,
    pub(crate) sessions_asked: u64,
    pub(crate) enrolments_asked: u64,
    /// The target that the agent is handed when it asks for a session next.
    pub(crate) hands_to: Option<TargetId>,
    /// The accepted set that the agent showed last.
    pub(crate) shown: Option<Attested>,
    /// The answer to a request to enrol.
    pub(crate) enrols_as: Option<TargetId>,
    /// Its token is of no use at the moment.
    pub(crate) refuses_token: bool,
    /// The fencing that the agent reported when it asked last.
    pub(crate) proved: Option<Fenced>,
    /// What it says of its history.
    pub(crate) history: Continuity,
    /// Terminal facts of assigned objects.
    pub(crate) terminal: Vec<TerminalFact>,
}

impl Hub {
    /// It was set back, or is another target's: an epoch of its own, and every revision but the last is forgotten.
    pub(crate) fn begin_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.tombstones.clear();
    }

    pub(crate) fn with_pages_of(page: usize) -> Self {
        Self { page, epoch: 1, approved_seconds: 86_400, ..Self::default() }
    }

    /// Takes the cluster out of service: the set is empty from now on, and says why.
    pub(crate) fn decommission(&mut self, how: Decommission) {
        for key in self.desired.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(&key);
        }
        self.decommission = how;
    }

    pub(crate) fn put(&mut self, key: &ObjectKey, source: u64, input: u64) {
        self.revision += 1;
        let mut entry = entry(key, source, input);
        entry.policy = self.policy.digest();
        entry.wave = self.waves.get(key).copied().unwrap_or(entry.wave);
        let entry = Arc::new(entry);
        self.bodies.insert(entry.input, format!("{{\"{key}\":\"{source} {input}\"}}"));
        self.desired.insert(Arc::clone(&entry));
        self.changed.insert(key.clone(), self.revision);
    }

    /// What is assigned there is held, or withheld, or neither any more.
    pub(crate) fn set_state(&mut self, key: &ObjectKey, state: EntryState) {
        self.revision += 1;
        let entry = Entry { state, ..(**self.desired.get(key).expect("it is assigned")).clone() };
        self.desired.insert(Arc::new(entry));
        self.changed.insert(key.clone(), self.revision);
    }

    /// The entry is only implied by objects in the namespace.
    pub(crate) fn imply(&mut self, key: &ObjectKey) {
        self.revision += 1;
        let entry = Entry { implied: true, ..(**self.desired.get(key).expect("it is assigned")).clone() };
        self.desired.insert(Arc::new(entry));
        self.changed.insert(key.clone(), self.revision);
    }

    /// Whatever is placed from now on is approved for deletion.
    pub(crate) fn approve_in_advance(&mut self) {
        self.policy.approve_deletions = ApproveDeletions::InAdvance;
    }

    fn policies(&self) -> Policies {
        let policy = Arc::new(self.policy.clone());
        policies().into_iter().chain([(policy.digest(), policy)]).collect()
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        if let Some(former) = self.desired.remove(key) {
            self.revision += 1;
            let tombstone = Tombstone { key: key.clone(), source: former.source.uid.clone() };
            let earlier = self.tombstones.iter().find(|(tombstone, _)| tombstone.key == *key);
            let earlier = earlier.map(|(_, (_, policy))| *policy);
            let applied = &self.policies()[&former.policy];
            let policy = former.prune_policy(applied);
            let policy = earlier.map_or(policy, |earlier| policy.after(earlier, applied.takeover));
            self.tombstones.retain(|tombstone, _| tombstone.key != *key);
            self.tombstones.insert(tombstone, (self.revision, policy));
            self.changed.insert(key.clone(), self.revision);
        }
    }

    /// It is unassigned, and whatever it was placed with, it is to stay as nobody's.
    pub(crate) fn order_orphaning(&mut self, key: &ObjectKey) {
        self.remove(key);
        for (_, (_, policy)) in self.tombstones.iter_mut().filter(|(tombstone, _)| tombstone.key == *key) {
            *policy = PrunePolicy { prune: Prune::Orphan, ..*policy };
        }
    }

    /// What it was told is lost, as when it is restarted.
    pub(crate) fn forget_reports(&mut self) {
        self.forgot += 1;
        self.seq = 0;
        self.reports.clear();
    }

    /// A person accepts that history was lost: no removal is ordered any more.
    pub(crate) fn forget_removals(&mut self) {
        self.epoch += 1;
        self.tombstones.clear();
    }

    /// A hub that lost everything and noticed.
    pub(crate) fn restored_empty(&self) -> Self {
        let Self { page, epoch, sessions, approved_seconds, .. } = *self;
        Self { page, epoch: epoch + 1, sessions, approved_seconds, ..Self::default() }
    }

    pub(crate) fn version(&self) -> Version {
        Version { epoch: Epoch(self.epoch), revision: Revision(self.revision) }
    }

    /// Whether a long poll would be answered only when its time is over.
    pub(crate) fn would_wait(&self, request: &Request) -> bool {
        match request {
            Request::Desired(request) if self.asks_again(request) => false,
            Request::Desired(request) => {
                if self.refuses.is_none() && self.history != Continuity::Whole {
                    return request.wait_seconds > 0 && request.history == self.history;
                }
                self.refuses.is_none()
                    && request.wait_seconds > 0
                    && request.history == Continuity::Whole
                    && request.since == Some(self.version())
                    && request.after.is_none()
                    && self.approval(request).is_none()
            }
            Request::Enrol(_) | Request::Session(_) | Request::Bodies(_) | Request::Reported(_) => false,
        }
    }

    /// The keys for which it was told that a deletion is held for this reason.
    pub(crate) fn held(&self, reason: Reason) -> impl Iterator<Item = &ObjectKey> {
        let held =
            move |report: &ObjectReport| (report.progress, report.reason) == (Progress::DeletionHeld, Some(reason));
        self.reports.iter().filter(move |(_, (_, _, report))| held(report)).map(|(key, _)| key)
    }

    /// What the agent reported last of its target as a whole.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let text =
            |TargetCondition { reason, count, message }: &TargetCondition| format!("{reason} {count}: {message}");
        self.conditions.iter().map(text).collect()
    }

    pub(crate) fn reply(&mut self, request: Request) -> Result<Answer, LinkFailure> {
        self.enrolments_asked += u64::from(matches!(request, Request::Enrol(_)));
        if let Request::Session(request) = &request {
            self.sessions_asked += 1;
            self.proved = request.fenced;
            self.shown = request.accepted;
        }
        if let (Request::Session(_), Some(target)) = (&request, self.hands_to.take()) {
            let poll = PollSettings { wait_seconds: 0, stale_after_seconds: 0 };
            let handover = Handover { key: Vec::new(), former: target_id(), target, name: "again".into() };
            let (session, epoch) = (SessionName::default(), Epoch::default());
            let handover = Some(handover);
            let addresses = HubAddresses::default();
            let history = self.history;
            let answer =
                SessionAnswer { session, outdated: true, epoch, poll, addresses, history, cluster: None, handover };
            return Ok(Answer::Session(answer));
        }
        if let (Request::Enrol(_), true) = (&request, self.refuses_token) {
            return Err(refused(RefusalKind::TokenRefused));
        }
        if let (Request::Enrol(_), Some(target)) = (&request, self.enrols_as) {
            self.refuses = None;
            return Ok(Answer::Enrolled(EnrolAnswer { hub: hub_id(), target, name: "anew".into() }));
        }
        match self.refuses {
            None => Ok(self.answer(request)),
            Some(refusal) => Err(refused(refusal)),
        }
    }

    pub(crate) fn answer(&mut self, request: Request) -> Answer {
        match request {
            Request::Enrol(_) => {
                Answer::Enrolled(EnrolAnswer { hub: hub_id(), target: target_id(), name: "store".into() })
            }
            Request::Session(_) => {
                self.sessions += 1;
                self.seq = 0;
                Answer::Session(SessionAnswer {
                    session: SessionName::new(self.sessions, 1),
                    outdated: false,
                    epoch: Epoch(self.epoch),
                    poll: PollSettings { wait_seconds: 40, stale_after_seconds: 90 },
                    addresses: HubAddresses::default(),
                    history: self.history,
                    cluster: self.cluster.clone(),
                    handover: None,
                })
            }
            Request::Desired(request) if self.asks_again(&request) => Answer::Desired(DesiredAnswer::ReportAgain),
            Request::Desired(request) => {
                self.heard.1 += u64::from(request.stands.is_some());
                Answer::Desired(self.desired(&request))
            }
            Request::Bodies(request) => Answer::Bodies(self.bodies(request)),
            Request::Reported(request) => Answer::Reported(self.reported(request)),
        }
    }

    pub(crate) fn desired(&self, request: &DesiredRequest) -> DesiredAnswer {
        if self.history != Continuity::Whole {
            return DesiredAnswer::Broken;
        }
        if let Some(page) = self.approval(request) {
            return DesiredAnswer::Approved(page);
        }
        let at = self.version();
        if request.decommission == self.decommission
            && request.since == Some(at)
            && request.digest == Some(self.desired.digest())
        {
            return DesiredAnswer::NothingNew;
        }
        if request.since.is_some_and(|since| since > at || since.epoch != at.epoch) {
            return DesiredAnswer::SnapshotRequired { epoch: at.epoch };
        }
        let since = request.since.map(|since| since.revision.0);
        let keys = self.changed.iter().filter(|(key, changed)| match since {
            Some(since) => **changed > since,
            None => self.desired.get(key).is_some(),
        });
        let mut keys = keys.map(|(key, _)| key).filter(|key| request.after.as_ref().is_none_or(|after| *key > after));
        let page: Vec<ObjectKey> = keys.by_ref().take(self.page).cloned().collect();
        let next = keys.next().and_then(|_| page.last().cloned());
        let tombstones = self.tombstones.iter().filter(|(tombstone, _)| match since {
            Some(_) => page.contains(&tombstone.key),
            None => next.is_none(),
        });
        DesiredAnswer::Page(DesiredPage {
            at,
            attestation: attestation(at),
            digest: self.desired.digest(),
            total: self.desired.len() as u64,
            snapshot: since.is_none(),
            entries: page.iter().filter_map(|key| self.desired.get(key).cloned()).collect(),
            tombstones: tombstones
                .map(|(tombstone, (at, policy))| tombstone.clone().under(*policy, Revision(*at)))
                .collect(),
            policies: self.policies(),
            terminal: self.terminal.iter().filter(|fact| page.contains(&fact.key)).cloned().collect(),
            next,
            decommission: self.decommission,
            absence_unexplained: false,
        })
    }

    /// The part of the approvals that the agent does not know.
    fn approval(&self, request: &DesiredRequest) -> Option<ApprovedPage> {
        let held = request.approved;
        let all: Vec<_> =
            self.approved.iter().map(|it| (it, false)).chain(self.released.iter().map(|it| (it, true))).collect();
        let list = (!all.is_empty()).then(|| Digest::of(format!("{all:?}").as_bytes()));
        let total = all.len() as u64;
        if held.list == list && held.count == total {
            return None;
        }
        let offset = if held.list == list { held.count } else { 0 };
        let page: Vec<_> = all.into_iter().skip(usize::try_from(offset).unwrap()).take(self.page).collect();
        let count = page.len() as u64;
        let assigned = |removal: &Tombstone| {
            self.desired.get(&removal.key).is_some_and(|entry| entry.source.uid == removal.source)
        };
        let (releases, removals) =
            page.into_iter().filter(|(it, _)| !assigned(it)).partition::<Vec<_>, _>(|(_, releases)| *releases);
        let cloned = |part: Vec<(&Tombstone, bool)>| part.into_iter().map(|(it, _)| it.clone()).collect();
        let (removals, releases) = (cloned(removals), cloned(releases));
        Some(ApprovedPage { list, offset, count, total, expires_seconds: self.approved_seconds, removals, releases })
    }

    fn bodies(&self, request: BodiesRequest) -> BodiesAnswer {
        // A few bytes at a time, so that parts are common.
        let mut bodies = Vec::new();
        let mut outdated = Vec::new();
        for wanted in request.wanted.into_iter().take(self.page * 2) {
            if self.desired.get(&wanted.key).is_none_or(|entry| entry.input != wanted.input) {
                outdated.push(wanted.input);
                continue;
            }
            let text = &self.bodies[&wanted.input];
            let from = usize::try_from(wanted.offset).unwrap();
            let to = (from + 24).min(text.len());
            bodies.push(Body {
                input: wanted.input,
                sha256: Digest::of(text.as_bytes()),
                size: text.len() as u64,
                offset: wanted.offset,
                text: text[from..to].to_owned(),
            });
        }
        BodiesAnswer { bodies, outdated }
    }

    fn asks_again(&self, request: &DesiredRequest) -> bool {
        request.stands.is_some_and(|stands| stands.report > self.seq)
    }

    fn reported(&mut self, request: ReportedRequest) -> ReportedAnswer {
        self.seq = self.seq.max(request.seq);
        self.heard.0 += 1;
        self.conditions = request.conditions.clone();
        self.in_sync = Some(request.in_sync);
        self.told_objects += request.objects.len();
        for report in request.objects {
            let newer = (request.session, request.seq);
            if self.reports.get(&report.key).is_none_or(|(session, seq, _)| (*session, *seq) < newer) {
                self.reports.insert(report.key.clone(), (newer.0, newer.1, report));
            }
        }
        for tombstone in request.removed {
            self.tombstones.remove(&tombstone);
            if self.reports.get(&tombstone.key).is_some_and(|(_, _, report)| report.source_uid == tombstone.source) {
                self.reports.remove(&tombstone.key);
            }
        }
        for tombstone in request.overtaken {
            if self.desired.get(&tombstone.key).is_some() {
                self.tombstones.remove(&tombstone);
            }
        }
        ReportedAnswer { seq: request.seq, memory: 1 + self.forgot, stands: self.hears_polls }
    }
}

fn refused(refusal: RefusalKind) -> LinkFailure {
    let fenced_by = (refusal == RefusalKind::Fenced).then(|| SessionName::new(99, 1));
    LinkFailure::Refused(Refusal { fenced_by, ..Refusal::new(refusal, "no") })
}
