//! Whatever the API server answers, and however often: no request is repeated without a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tideline_common::health::Health;
use tideline_common::wire::v1::{Accepted, Decommission};
use tideline_common::{
    ApplyMode, DesiredSet, Digest, DriftPolicy, EntryState, FieldMode, FieldPolicy, Mark, Prune, PrunePolicy, Recreate,
    Revision, Takeover, Version,
};

use super::*;
use crate::core::decide::plan::mark_of;
use crate::core::interface::effect::{Effect, Op, Timer};
use crate::core::interface::event::Event;
use crate::core::interface::observed::Served;
use crate::core::interface::op_result::Compared;
use crate::core::interface::write::{AppliedRecord, Enrolled, FreezeReason, RemovalPolicy};
use crate::core::model::POLICIES_SPARE;
use crate::core::model::change::Change;
use crate::core::model::removal::{Removal, RemovalState};
use crate::core::sync::mode::HubVerdict;
use crate::core::tests::world::config;
use crate::core::tests::{attested, entry, key, me, target_id, uid};
use crate::core::{Config, FuseLimits, Loaded};

mod each_time;
mod reads;

/// Operations on one object that may follow one another without a wait: a read, what it leads to, that the object was
/// replaced, and the same again.
const AT_ONCE_MAX: usize = 10;
/// How long it is watched, and how many operations are too many by then: with doubled waits there are ten, and of throttled
/// ones some forty, with four operations each where the last one of a replacement fails.
const WATCHED: Duration = Duration::from_mins(10);
const IN_ALL_MAX: usize = 160;

/// The answer of the API server to all operations of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Done,
    Exists,
    Gone,
    Another,
    Finalizing,
    Failed(Reason),
}

impl Says {
    /// To operations on one certain object.
    fn is_stale(self) -> bool {
        matches!(self, Self::Gone | Self::Another)
    }
}

const SAYS: [Says; 8] = [
    Says::Done,
    Says::Exists,
    Says::Gone,
    Says::Another,
    Says::Finalizing,
    Says::Failed(Reason::Unavailable),
    Says::Failed(Reason::Immutable),
    Says::Failed(Reason::Throttled),
];

/// What is known of the one object when the agent starts.
#[derive(Clone, Debug, Default)]
struct Known {
    /// By source, and the UID of the object that it is of.
    record: Option<(u64, &'static str)>,
    /// The object is marked for this source, and was perhaps changed since.
    seen: Option<(Option<u64>, bool)>,
    assigned: Option<(EntryState, ApplyPolicy)>,
    /// By source, with the policy of a tombstone; none if there is none.
    removals: BTreeMap<u64, Option<Prune>>,
    /// The journal says that the recorded object is due for orphaning.
    orphaning: bool,
    /// The object is being deleted, which does not end.
    deleting: bool,
    /// The cluster was set back to before the last write.
    set_back: bool,
}

/// One kind each: creations, applies, marks, deletions, orphanings, reads, comparisons, dry runs.
type Answers = [Says; 8];

struct Server {
    core: Core,
    now: Monotonic,
    answers: Answers,
    there: Observed,
    version: u64,
    waiting: Vec<(OpId, Op)>,
    timer: Option<Monotonic>,
    asked: Vec<String>,
    /// The last dry run was accepted, and nothing followed from it yet.
    would_be_created: bool,
}

fn web() -> ObjectKey {
    key("", "ConfigMap", "c")
}

fn observed(source: Option<u64>, changed: bool) -> Observed {
    let mark = source.map(|source| mark_of(me(), &entry(&web(), source, 1), &ApplyPolicy::default(), Origin::Created));
    Observed {
        key: web(),
        uid: uid("u1"),
        resource_version: "5".into(),
        generation: 0,
        managed: Some(Digest::of(if changed { b"changed" } else { b"managed" })),
        labelled: mark.is_some(),
        mark: mark.map(Arc::new),
        deleting: false,
        health: Health::Ready,
        health_message: String::new(),
        observed_generation: None,
        terminal: None,
        template: None,
        status: crate::core::ObservedStatus::None,
        illegible: false,
        managed_elsewhere: false,
        others: None,
    }
}

impl Server {
    fn new(known: &Known, answers: Answers) -> Self {
        let entries: Vec<Arc<Entry>> = known
            .assigned
            .iter()
            .map(|(state, policy)| Arc::new(Entry { state: *state, policy: policy.digest(), ..entry(&web(), 1, 2) }))
            .collect();
        let set: DesiredSet = entries.iter().cloned().collect();
        let default = ApplyPolicy::default();
        let policies = known.assigned.iter().map(|(_, policy)| policy).chain([&default]);
        let record = known.record.map(|(source, of)| {
            let resource_version = if known.set_back { "1000" } else { "5" }.into();
            let seen = Seen::from(&Observed { uid: uid(of), resource_version, ..observed(Some(source), false) });
            let record = record_of(&entry(&web(), source, 1), &seen, Origin::Created, true);
            (web(), AppliedRecord { orphaning: known.orphaning, ..record })
        });
        let removing = known.removals.iter().map(|(source, said)| {
            let told = said.map(|prune| RemovalPolicy::Tombstone(PrunePolicy { prune, ..PrunePolicy::LEAST }));
            let policy = told.unwrap_or(RemovalPolicy::Absence(None));
            (Tombstone { key: web(), source: uid(&format!("s{source}")) }, policy)
        });
        let loaded = Loaded {
            enrolled: Some(Enrolled { target: target_id(), name: "store".into() }),
            accepted: Some(attested(Accepted { version: Version::default(), digest: set.digest() })),
            bodies: entries.iter().map(|entry| entry.input).collect(),
            policies: policies.map(|policy| (policy.digest(), Arc::new(policy.clone()))).collect(),
            entries,
            applied: record.into_iter().collect(),
            removing: removing.collect(),
            ..Loaded::default()
        };
        let config = Config { enrolment: None, patrol: Duration::from_hours(1), ..config(1, FuseLimits::default()) };
        let (source, changed) = known.seen.unwrap_or((Some(1), false));
        let mut server = Self {
            core: Core::new(config, loaded),
            now: Monotonic::START,
            answers,
            there: Observed { deleting: known.deleting, ..observed(source, changed) },
            version: 5,
            waiting: Vec::new(),
            timer: None,
            asked: Vec::new(),
            would_be_created: false,
        };
        let kind = web().kind;
        server.step(Event::Started);
        server.step(Event::Kind { kind: kind.clone(), served: Served::Yes { namespaced: true, status: false } });
        let objects = known.seen.map(|_| server.there.clone()).into_iter().collect();
        server.step(Event::Listed { kind, objects });
        server
    }

    fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.step(self.now, event, &mut out);
        for effect in out {
            match effect {
                Effect::Execute { id, op } => self.waiting.push((id, op)),
                Effect::Persist { id, .. } => self.step(Event::Persisted { id, result: Ok(()) }),
                Effect::SetTimer { timer: Timer::Retry, at } => self.timer = Some(at),
                _ => {}
            }
        }
    }

    /// The object is read for this purpose, and found so.
    fn reads(&mut self, what_for: Purpose, found: Observed) {
        let read = self.begin_read(what_for);
        self.end_read(read, Ok(Some(Box::new(found))));
    }

    fn begin_read(&mut self, what_for: Purpose) -> OpId {
        let get = Op::Get { key: web(), version: "v1".into() };
        self.core.execute(self.now, &web(), what_for, get, &mut Vec::new());
        self.core.work.last()
    }

    fn end_read(&mut self, id: OpId, found: Result<Option<Box<Observed>>, Failure>) {
        self.core.executed(self.now, id, OpResult::Get(found), &mut Vec::new());
    }

    /// The entry is unassigned, and its object removed.
    fn unassign(&mut self) {
        self.switch(None, Prune::Delete);
    }

    /// The first source is unassigned, and this one of that number assigned instead.
    fn switch(&mut self, instead: Option<(u64, &ApplyPolicy)>, prune: Prune) {
        let put: Vec<Arc<Entry>> = instead
            .iter()
            .map(|(source, policy)| Arc::new(Entry { policy: policy.digest(), ..entry(&web(), *source, 2) }))
            .collect();
        let version = Version { revision: Revision(self.version + 9), ..Version::default() };
        let accepted = Accepted { version, digest: put.iter().cloned().collect::<DesiredSet>().digest() };
        let tombstone = Tombstone { key: web(), source: uid("s1") };
        let policy = RemovalPolicy::Tombstone(PrunePolicy { prune, ..PrunePolicy::LEAST });
        let again = instead.is_some_and(|(source, _)| source == 1);
        for entry in &put {
            self.core.model.inputs.keep(entry.input);
        }
        self.core.begin_switch(Box::new(Change {
            accepted: attested(accepted),
            remove: if put.is_empty() { vec![web()] } else { Vec::new() },
            put,
            policies: instead.iter().map(|(_, policy)| (policy.digest(), Arc::new((*policy).clone()))).collect(),
            tombstones: if again { [].into() } else { [(tombstone, policy)].into() },
            left_at: [].into(),
            terminal: Vec::new(),
            decommission: Decommission::No,
        }));
        self.step(Event::Timer(Timer::Retry));
    }

    /// All operations that follow without a wait.
    fn answer_all(&mut self) -> usize {
        let mut count = 0;
        while count <= AT_ONCE_MAX
            && let Some((id, op)) = self.waiting.pop()
        {
            let result = self.answer(&op);
            self.judge(&op, &result);
            self.asked.push(format!("{} s: {}", self.now.since(Monotonic::START).as_secs(), name(&op)));
            self.step(Event::Executed { id, result });
            count += 1;
        }
        count
    }

    /// An assigned object is deleted only to be created again, and only if that was tried.
    fn judge(&mut self, op: &Op, result: &OpResult) {
        if matches!(op, Op::DryRunCreate { .. }) {
            self.would_be_created = matches!(result, OpResult::DryRunCreate(Ok(())));
        }
        if matches!(op, Op::Delete { .. }) && self.core.model.desired.get(&web()).is_some_and(is_applied) {
            assert!(
                std::mem::take(&mut self.would_be_created),
                "it was deleted, and nobody knows that it can be made again"
            );
        }
    }

    fn answer(&mut self, op: &Op) -> OpResult {
        self.version += 1;
        let there = Observed { resource_version: self.version.to_string().into(), ..self.there.clone() };
        let marked = |mark: &Arc<Mark>, uid: &Uid| {
            Box::new(Observed { mark: Some(Arc::clone(mark)), uid: uid.clone(), labelled: true, ..there.clone() })
        };
        let [create, apply, mark_anew, delete, orphan, get, compare, dry_run] = self.answers;
        let says = match op {
            Op::Create { .. } => create,
            Op::DryRunCreate { .. } => dry_run,
            Op::Apply { .. } => apply,
            Op::TransferOwnership { .. } => mark_anew,
            Op::ReTarget { .. } => unreachable!("this agent was never another target"),
            Op::Delete { .. } => delete,
            Op::Orphan { .. } => orphan,
            Op::Inspect { .. } | Op::Get { .. } => get,
            Op::Compare { .. } => compare,
        };
        if let Says::Failed(reason) = says {
            return op.failed(Failure::new(reason, "no"));
        }
        // Answers that no API server has an occasion to give count as success.
        match op {
            Op::Create { .. } if says == Says::Exists => OpResult::Create(Ok(Created::Exists(Box::new(there)))),
            Op::Create { mark, .. } => OpResult::Create(Ok(Created::Made(marked(mark, &uid("u9"))))),
            Op::DryRunCreate { .. } => OpResult::DryRunCreate(Ok(())),
            Op::Apply { .. } if says.is_stale() => OpResult::Apply(Err(NotDone::Stale)),
            Op::Apply { mark, uid, .. } => {
                OpResult::Apply(Ok(Applied { observed: marked(mark, uid), conflicts: Vec::new() }))
            }
            Op::TransferOwnership { .. } if says.is_stale() => OpResult::TransferOwnership(Err(NotDone::Stale)),
            Op::TransferOwnership { .. } if says == Says::Finalizing => {
                OpResult::TransferOwnership(Ok(OwnershipTransferred::Finalizing))
            }
            Op::TransferOwnership { mark, uid, .. } => {
                OpResult::TransferOwnership(Ok(OwnershipTransferred::Marked(marked(mark, uid))))
            }
            Op::ReTarget { .. } => unreachable!("this agent was never another target"),
            Op::Delete { .. } => OpResult::Delete(match says {
                Says::Another => Err(NotDone::Stale),
                Says::Finalizing => Ok(Deleted::Finalizing),
                Says::Done | Says::Exists | Says::Gone | Says::Failed(_) => Ok(Deleted::Gone),
            }),
            Op::Orphan { .. } => OpResult::Orphan(match says {
                Says::Another => Err(NotDone::Stale),
                Says::Gone => Ok(Orphaned::Gone),
                Says::Done | Says::Exists | Says::Finalizing | Says::Failed(_) => {
                    self.there = Observed { mark: None, labelled: false, ..there };
                    Ok(Orphaned::Done)
                }
            }),
            Op::Inspect { .. } => {
                let itself = Box::new(there);
                OpResult::Inspect(Ok(Inspected::Holds { foreign: 0, example: None, ours: 0, itself }))
            }
            Op::Get { .. } => OpResult::Get(Ok((says != Says::Gone).then(|| Box::new(there)))),
            Op::Compare { .. } if says.is_stale() => OpResult::Compare(Err(NotDone::Stale)),
            Op::Compare { .. } => {
                let (observed, at) = (Box::new(there), "2026-01-01T00:00:00Z".into());
                let (differences, local) = (Vec::new(), Arc::default());
                OpResult::Compare(Ok(Compared { observed, differences, total: 1, local, at }))
            }
        }
    }

    /// What is retried is retried so often.
    fn try_again(&mut self, times: usize) {
        for _ in 0..times {
            self.answer_all();
            if let Some(at) = self.timer.take() {
                self.now = self.now.max(at);
                self.step(Event::Timer(Timer::Retry));
            }
        }
    }

    fn outcome(&self) -> (Progress, Option<Reason>) {
        let object = self.core.model.objects.get(&web()).expect("it is assigned");
        (object.outcome.progress, object.outcome.reason)
    }

    /// The operations; as an error, if they were too many.
    fn watch(mut self) -> Result<Vec<String>, String> {
        let end = self.now + WATCHED;
        loop {
            let at_once = self.answer_all();
            if at_once > AT_ONCE_MAX || self.asked.len() > IN_ALL_MAX * self.core.model.removals.len().max(1) {
                return Err(self.asked.join("\n"));
            }
            match self.timer.take() {
                Some(at) if at < end => self.now = self.now.max(at),
                // Later waves and all removals wait until everything was tried.
                Some(_) | None if !self.core.work.all_tried() => {
                    return Err(format!("untried: {}", self.asked.join("\n")));
                }
                Some(_) | None => return Ok(self.asked),
            }
            self.step(Event::Timer(Timer::Retry));
        }
    }
}

fn name(op: &Op) -> &'static str {
    match op {
        Op::Create { .. } => "Create",
        Op::DryRunCreate { .. } => "DryRunCreate",
        Op::Apply { .. } => "Apply",
        Op::TransferOwnership { .. } => "TransferOwnership",
        Op::ReTarget { .. } => "ReTarget",
        Op::Delete { .. } => "Delete",
        Op::Orphan { .. } => "Orphan",
        Op::Inspect { .. } => "Inspect",
        Op::Get { .. } => "Get",
        Op::Compare { .. } => "Compare",
    }
}

fn is_applied(entry: &Arc<Entry>) -> bool {
    entry.state == EntryState::Apply
}

fn policies() -> Vec<ApplyPolicy> {
    vec![
        ApplyPolicy::default(),
        ApplyPolicy { recreate: Recreate::OnImmutable, ..ApplyPolicy::default() },
        ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() },
        ApplyPolicy { drift: DriftPolicy::Report, ..ApplyPolicy::default() },
        ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() },
    ]
}

fn known() -> impl Strategy<Value = Known> {
    let states = prop_oneof![4 => Just(EntryState::Apply), 1 => Just(EntryState::Withheld(Reason::AgentTooOld))];
    (
        prop::option::of((1..3_u64, prop_oneof![3 => Just("u1"), 1 => Just("u0")])),
        prop::option::of((prop::option::weighted(0.8, 1..3_u64), any::<bool>())),
        prop::option::weighted(0.8, (states, prop::sample::select(policies()))),
        prop::collection::btree_map(
            1..4_u64,
            prop_oneof![Just(Some(Prune::Delete)), Just(Some(Prune::Orphan)), Just(None)],
            0..3,
        ),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        any::<bool>(),
    )
        .prop_map(|(record, seen, assigned, removals, orphaning, deleting, set_back)| Known {
            record,
            seen,
            assigned,
            removals,
            orphaning,
            deleting,
            set_back,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn no_operation_is_repeated_without_a_pause(
        known in known(),
        answers in prop::array::uniform8(prop::sample::select(SAYS.to_vec())),
    ) {
        if let Err(asked) = Server::new(&known, answers).watch() {
            prop_assert!(false, "{}", asked);
        }
    }
}

/// Due for orphaning, and assigned again before that was done: it may not be taken over, so it is orphaned now.
#[test]
fn an_orphaning_that_fails_waits_though_something_is_assigned_to_its_key() {
    let never = ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() };
    for reason in [Reason::Unavailable, Reason::Forbidden] {
        for (state, record) in [
            (EntryState::Apply, None),
            (EntryState::Apply, Some((2, "u1"))),
            (EntryState::Withheld(Reason::AgentTooOld), None),
            (EntryState::Withheld(Reason::AgentTooOld), Some((2, "u1"))),
        ] {
            let known = Known {
                record,
                seen: Some((Some(2), false)),
                assigned: Some((state, never.clone())),
                removals: [(2, Some(Prune::Orphan))].into(),
                ..Known::default()
            };
            let mut answers = [Says::Done; 8];
            answers[4] = Says::Failed(reason);
            let asked = Server::new(&known, answers).watch().unwrap_or_else(|asked| panic!("{asked}"));
            assert!(asked.iter().any(|asked| asked.ends_with("Orphan")), "{asked:?}");
        }
    }
}

/// Ours as it was created, assigned with another input, and to be replaced where that cannot be changed.
fn to_be_recreated() -> Known {
    let recreates = ApplyPolicy { recreate: Recreate::OnImmutable, ..ApplyPolicy::default() };
    Known {
        record: Some((1, "u1")),
        seen: Some((Some(1), false)),
        assigned: Some((EntryState::Apply, recreates)),
        ..Known::default()
    }
}

/// What the hub says.
type Said = fn(&mut Server);

fn shut_out(server: &mut Server, verdict: HubVerdict) {
    server.core.take_verdict(server.now, verdict, &mut Vec::new());
}

/// A frozen agent keeps what it has, and so does one that was told that history is broken: an apply was in flight by then, and
/// fails for an immutable field.
#[test]
fn an_immutable_object_is_not_replaced_once_the_agent_is_frozen() {
    let known = to_be_recreated();
    let said: [(bool, Said); 4] = [
        (false, |_| ()),
        (true, |server| shut_out(server, HubVerdict::UnknownTarget)),
        (true, |server| shut_out(server, HubVerdict::Frozen(FreezeReason::TargetGone("deleted".to_owned())))),
        (true, |server| server.core.history_broken(server.now)),
    ];
    for (keeps_still, said) in said {
        let mut server = Server::new(&known, [Says::Done; 8]);
        let (id, op) = server.waiting.pop().expect("it has another input");
        assert_eq!(name(&op), "Apply");
        said(&mut server);
        let result = OpResult::Apply(Err(NotDone::Failed(Failure::new(Reason::Immutable, "no"))));
        server.step(Event::Executed { id, result });
        let begun: Vec<_> = server.waiting.iter().map(|(_, op)| name(op)).collect();
        assert_eq!(begun.is_empty(), keeps_still, "{begun:?}");
    }
}

/// A list that lags does not show what a former process created, or a creation whose end nobody heard.
#[test]
fn an_object_that_only_a_creation_found_or_left_is_removed() {
    let exists = || OpResult::Create(Ok(Created::Exists(Box::new(observed(Some(1), false)))));
    let failed = |reason| OpResult::Create(Err(Failure::new(reason, "no")));
    let unheard = || OpResult::Create(Err(Failure::new(Reason::Unavailable, "no").unanswered()));
    let stands = ["Get", "Delete"].as_slice();
    for (ends, last_is_heard, expected) in [
        (vec![exists()], false, stands),
        (vec![unheard()], false, stands),
        (vec![unheard()], true, stands),
        (vec![unheard(), exists()], true, stands),
        (vec![failed(Reason::Unavailable)], true, &[]),
        (vec![failed(Reason::Invalid)], false, &[]),
        (vec![failed(Reason::Invalid)], true, &[]),
    ] {
        let assigned = Some((EntryState::Apply, ApplyPolicy::default()));
        let known = Known { assigned, ..Known::default() };
        let mut server = Server::new(&known, [Says::Done; 8]);
        server.there = observed(Some(1), false);
        let case = format!("{ends:?}, the last one before it is unassigned: {last_is_heard}");
        let mut ends = ends.into_iter().peekable();
        while let Some(result) = ends.next() {
            let (id, op) = server.waiting.pop().expect("nothing stands there, as far as is known");
            assert_eq!(name(&op), "Create");
            if ends.peek().is_none() && !last_is_heard {
                server.unassign();
            }
            server.step(Event::Executed { id, result });
            if ends.peek().is_some() {
                server.now = server.timer.take().expect("it is tried again");
                server.step(Event::Timer(Timer::Retry));
            }
        }
        if last_is_heard {
            server.unassign();
        }
        server.try_again(4);
        let asked = server.asked.iter().map(|asked| asked.split_once(": ").map_or("", |(_, op)| op));
        // It is evaluated once more when the journal has it that it passed the fuse.
        let mut asked: Vec<_> = asked.collect();
        asked.dedup();
        assert_eq!(asked, expected, "{case}");
        let mut removals = server.core.model.removals.values();
        assert!(removals.all(Removal::is_done), "{case}");
    }
}

/// Nobody heard how its creation ended, its label was lost, and it is due for orphaning: the next entry of its key finds it,
/// and takes over only what it may.
#[test]
fn an_object_of_an_unanswered_creation_is_orphaned_before_it_is_taken_over() {
    let never = ApplyPolicy { takeover: Takeover::Never, ..ApplyPolicy::default() };
    let once = ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() };
    let always = ApplyPolicy { takeover: Takeover::Always, ..ApplyPolicy::default() };
    for (source, policy, labelled, expected) in [
        (2, &never, false, &["Create", "Orphan", "Create"][..]),
        (2, &never, true, &["Create", "Orphan", "Create"]),
        (2, &always, false, &["Create", "Apply"]),
        (2, &once, false, &["Create", "TransferOwnership"]),
        (1, &always, false, &["Get", "Create", "Apply"]),
        (1, &always, true, &["Get", "Create", "Apply"]),
        (1, &never, false, &["Get", "Orphan", "Create"]),
    ] {
        let case = format!("{source}, {policy:?}, labelled {labelled}");
        let assigned = Some((EntryState::Apply, ApplyPolicy::default()));
        let known = Known { assigned, ..Known::default() };
        let mut answers = [Says::Done; 8];
        answers[0] = Says::Exists;
        let mut server = Server::new(&known, answers);
        server.there = Observed { labelled, ..observed(Some(1), false) };
        let (id, op) = server.waiting.pop().expect("nothing stands there, as far as is known");
        assert_eq!(name(&op), "Create");
        let unheard = OpResult::Create(Err(Failure::new(Reason::Unavailable, "no").unanswered()));
        server.step(Event::Executed { id, result: unheard });
        if source == 1 {
            server.switch(None, Prune::Orphan);
        }
        server.switch(Some((source, policy)), Prune::Orphan);
        server.try_again(4);
        let mut asked: Vec<_> = server.asked.iter().filter_map(|asked| asked.split(' ').nth(2)).collect();
        asked.dedup();
        assert_eq!(asked, expected, "{case}");
        assert!(server.core.model.removals.values().all(Removal::is_done), "{case}");
        let object = server.core.model.objects.get(&web()).expect("it is assigned");
        let origin = object.record.as_ref().map(|record| record.origin);
        let taken_over = policy.takeover != Takeover::Never;
        assert_eq!(origin, taken_over.then_some(Origin::Adopted), "{case}");
    }
}

/// A webhook, a quota or a port that the old object holds refuses the new one.
#[test]
fn an_immutable_object_is_deleted_only_if_a_dry_run_shows_that_it_can_be_created() {
    let known = to_be_recreated();
    for (dry_run, expected) in [
        (Says::Done, &["Apply", "DryRunCreate", "Delete", "Create"][..]),
        (Says::Failed(Reason::Invalid), &["Apply", "DryRunCreate"]),
        (Says::Failed(Reason::Webhook), &["Apply", "DryRunCreate"]),
        (Says::Failed(Reason::Throttled), &["Apply", "DryRunCreate"]),
    ] {
        let mut answers = [Says::Done; 8];
        (answers[1], answers[7]) = (Says::Failed(Reason::Immutable), dry_run);
        let mut server = Server::new(&known, answers);
        server.answer_all();
        let asked: Vec<_> = server.asked.iter().filter_map(|asked| asked.split(' ').nth(2)).collect();
        assert_eq!(asked, expected, "{dry_run:?}");
        let outcome = server.core.model.objects.get(&web()).expect("it stands").outcome.clone();
        match dry_run {
            Says::Failed(reason) => assert_eq!(outcome.reason, Some(reason), "{}", outcome.message),
            _ => assert_eq!(outcome.progress, Progress::Applied),
        }
    }
}

/// A removal that is tried again and again reads the object each time.
#[test]
fn a_read_for_a_removal_brings_forward_no_entry_in_backoff() {
    let assigned = Some((EntryState::Apply, ApplyPolicy::default()));
    let known = Known { assigned, ..Known::default() };
    let tombstone = Tombstone { key: web(), source: uid("s2") };
    for waits in [false, true] {
        let mut server = Server::new(&known, [Says::Done; 8]);
        server.answer_all();
        if waits {
            server.core.retry(server.now, &web(), None);
        }
        server.reads(Purpose::ReadForRemoval { tombstone: tombstone.clone(), wave: 0 }, observed(Some(1), false));
        let object = server.core.model.objects.get(&web()).expect("it is assigned");
        assert_eq!((object.work.is_busy(), object.work.is_waiting()), (true, waits));
    }
}

/// A year of edits of a Placement, with the agent never restarted.
#[test]
fn policies_that_nothing_names_any_more_are_dropped() {
    let mut server = Server::new(&Known::default(), [Says::Done; 8]);
    let mut dropped = 0;
    for n in 0..1_000 {
        let field = FieldPolicy { path: format!(".data.key-{n}"), mode: FieldMode::Initial };
        let policy = ApplyPolicy { fields: vec![field], ..ApplyPolicy::default() };
        server.switch(Some((1, &policy)), Prune::Orphan);
        // Some are under way while the next ones come.
        if n % 7 == 0 {
            server.answer_all();
        }
        let model = &server.core.model;
        let object = model.objects.get(&web()).expect("it is assigned");
        let recorded = object.record.as_ref().map(|record| record.policy);
        for digest in recorded.into_iter().chain([policy.digest()]) {
            assert!(model.policies.contains_key(&digest), "after {n}: {recorded:?}");
        }
        assert!(model.policies.len() <= POLICIES_SPARE + 2 * 3, "{}", model.policies.len());
        dropped = (n + 1_usize).saturating_sub(model.policies.len());
    }
    assert!(dropped > 800, "{dropped}");
}
