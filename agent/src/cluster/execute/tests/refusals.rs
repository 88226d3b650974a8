//! Whatever an API server says, or somebody on the way to it: what it says it of is tried again later and later, is reported
//! in its words, and keeps nothing else waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::core::Status;
use serde_json::{Value, json};
use tideline_common::wire::v1::Progress;
use tideline_common::{ApplyMode, Digest, GroupKind, Monotonic, ObjectKey, Prune, Reason, Recreate};

use super::super::super::decode;
use super::super::super::failure::Refused;
use super::super::super::resource::Resource;
use super::super::*;
use super::api_server::{ApiServer, Fault, News, Refusal, Verb, root_of, serve};
use crate::core::tests::hub::Hub;
use crate::core::tests::world::config;
use crate::core::tests::{hub_id, key, target_id};
use crate::core::{
    Config, Core, Effect, Enrolled, Event, FuseLimits, ListedItem, Loaded, Request, RequestId, Served, Timer,
};

/// Objects without a fault, in whatever wave, are done by then: five attempts at one in a lower wave.
const OTHERS_DONE: Duration = Duration::from_mins(3);
/// How long it is watched what comes of the rest after that: an hour in all.
const WATCHED: Duration = Duration::from_mins(57);
/// Requests about one object at one instant: three inspections of a namespace, each of five lists and two reads, then two
/// deletions and a read.
const AT_ONCE_MAX: usize = 24;
/// Requests about one object in that hour: of what the API server has no time for 160 tries, of all else thirty. A try takes up
/// to five requests, or two for each of the rounds in which an object is rewritten.
const IN_ALL_MAX: usize = 250;
const THROTTLED_IN_ALL_MAX: usize = 800;

/// The object that something is refused about.
const VICTIM: &str = "web";

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Create,
    Change,
    /// Changed in an immutable field.
    Replace,
    /// It is left alone, and is another source's from now on.
    HandOver,
    Remove,
    Orphan,
    /// The namespace of that name is removed.
    Empty,
}

/// Each kind of request that each task takes.
const CASES: [(Task, &str, Verb); 19] = [
    (Task::Create, "ConfigMap", Verb::Post),
    (Task::Create, "Deployment", Verb::Post),
    (Task::Create, "Job", Verb::Post),
    (Task::Change, "ConfigMap", Verb::Get),
    (Task::Change, "ConfigMap", Verb::Merge),
    (Task::Change, "ConfigMap", Verb::Apply),
    (Task::Change, "Deployment", Verb::Apply),
    (Task::Change, "Deployment", Verb::List),
    (Task::Replace, "Job", Verb::DryRun),
    (Task::Replace, "Job", Verb::Delete),
    (Task::Replace, "Job", Verb::Post),
    (Task::HandOver, "ConfigMap", Verb::Get),
    (Task::HandOver, "ConfigMap", Verb::Merge),
    (Task::Remove, "ConfigMap", Verb::Delete),
    (Task::Remove, "Job", Verb::Delete),
    (Task::Orphan, "ConfigMap", Verb::Get),
    (Task::Orphan, "ConfigMap", Verb::Merge),
    (Task::Empty, "Namespace", Verb::List),
    (Task::Empty, "Namespace", Verb::Delete),
];

#[derive(Default)]
struct Texts(Mutex<BTreeMap<Digest, Arc<str>>>);

impl Bodies for Texts {
    fn body(&self, input: Digest) -> Result<Arc<str>, BodyError> {
        self.0.lock().expect("no test has panicked").get(&input).cloned().ok_or(BodyError::Missing(String::new()))
    }
}

/// An agent with its hub and its cluster.
struct World {
    core: Core,
    now: Monotonic,
    hub: Hub,
    server: Arc<Mutex<ApiServer>>,
    executor: Executor,
    texts: Arc<Texts>,
    events: VecDeque<Event>,
    /// Long polls, and when they are answered at the latest.
    polls: Vec<(Monotonic, RequestId, Request)>,
    timers: BTreeMap<Timer, Monotonic>,
    /// When each object was written last, by path.
    written: BTreeMap<String, Monotonic>,
    /// Requests about the victim: in all, and at most at one instant.
    about_victim: (usize, usize),
    at_this_instant: usize,
}

fn scope_of_tests() -> Scope {
    Scope { hub: hub_id(), target: target_id(), formers: tideline_common::Formers::default() }
}

fn group_of(kind: &str) -> &'static str {
    match kind {
        "Deployment" => "apps",
        "Job" => "batch",
        _ => "",
    }
}

fn object_key(kind: &str, name: &str) -> ObjectKey {
    key(group_of(kind), kind, name)
}

fn path_of(key: &ObjectKey) -> String {
    let (root, plural) = root_of(&key.kind.kind);
    match &*key.namespace {
        "" => format!("{root}/{plural}/{}", key.name),
        namespace => format!("{root}/namespaces/{namespace}/{plural}/{}", key.name),
    }
}

/// What a source says the `input`th time.
fn body(key: &ObjectKey, input: u64) -> Value {
    let api_version = super::super::super::render::api_version(&key.kind.group, "v1");
    let mut body = json!({"apiVersion": api_version, "kind": &*key.kind.kind, "metadata": {"name": &*key.name}});
    if key.is_namespaced() {
        body["metadata"]["namespace"] = json!(&*key.namespace);
    }
    match &*key.kind.kind {
        "ConfigMap" => body["data"] = json!({"n": input.to_string()}),
        "Deployment" => body["spec"] = json!({"replicas": 2, "template": {"n": input}}),
        "Job" => body["spec"] = json!({"template": {"n": input}}),
        _ => {}
    }
    body
}

impl World {
    fn new() -> Self {
        let server = Arc::new(Mutex::new(ApiServer::default()));
        let shared = Arc::clone(&server);
        let service = tower::service_fn(move |request| serve(Arc::clone(&shared), request));
        let client = Client::new(service, "default");
        let texts = Arc::new(Texts::default());
        let executor = Executor::new(client.clone(), Arc::new(Kinds::new(client)), Arc::clone(&texts) as _);
        let fuse = FuseLimits { always: usize::MAX, percent: 0 };
        let config = Config { enrolment: None, patrol: Duration::from_hours(24), ..config(1, fuse) };
        let enrolled = Some(Enrolled { target: target_id(), name: "store".into() });
        let loaded = Loaded { enrolled, token_spent: true, ..Loaded::default() };
        Self {
            core: Core::new(config, loaded),
            now: Monotonic::START,
            hub: Hub::with_pages_of(100),
            server,
            executor,
            texts,
            events: [Event::Started].into(),
            polls: Vec::new(),
            timers: BTreeMap::new(),
            written: BTreeMap::new(),
            about_victim: (0, 0),
            at_this_instant: 0,
        }
    }

    fn put(&mut self, key: &ObjectKey, input: u64) {
        self.put_of(1, key, input);
    }

    fn put_of(&mut self, source: u64, key: &ObjectKey, input: u64) {
        self.hub.put(key, source, input);
        let entry = self.hub.desired.get(key).expect("it was put");
        self.texts.0.lock().expect("no test has panicked").insert(entry.input, body(key, input).to_string().into());
    }

    /// Advances time by so much.
    async fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            while let Some(event) = self.events.pop_front() {
                self.step(event).await;
                if self.at_this_instant > 10 * AT_ONCE_MAX {
                    // It would not end.
                    return self.count_at_once();
                }
            }
            if let Some(at) = self.polls.iter().position(|(_, _, request)| !self.hub.would_wait(request)) {
                let (_, id, request) = self.polls.remove(at);
                self.events.push_back(Event::Answered { id, result: self.hub.reply(request) });
                continue;
            }
            self.count_at_once();
            let timer = self.timers.iter().map(|(timer, at)| (*at, Some(*timer))).min();
            let poll = self.polls.iter().map(|(at, ..)| (*at, None)).min();
            let (at, timer) = [timer, poll].into_iter().flatten().min().expect("something always waits");
            if at > until {
                self.now = until;
                return;
            }
            self.now = self.now.max(at);
            if let Some(timer) = timer {
                self.timers.remove(&timer);
                self.events.push_back(Event::Timer(timer));
            } else {
                let (_, id, request) = self.polls.remove(0);
                self.events.push_back(Event::Answered { id, result: self.hub.reply(request) });
            }
        }
    }

    async fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.core.step(self.now, event, &mut out);
        for effect in out {
            match effect {
                Effect::SetTimer { timer, at } => drop(self.timers.insert(timer, at)),
                Effect::Send { id, request } if self.hub.would_wait(&request) => {
                    self.polls.push((self.now + Duration::from_secs(40), id, request));
                }
                Effect::Send { id, request } => {
                    self.events.push_back(Event::Answered { id, result: self.hub.reply(request) });
                }
                Effect::KeepSession { session, .. } => {
                    self.events.push_back(Event::SessionKept { result: Ok(session) });
                }
                Effect::Persist { id, .. } => self.events.push_back(Event::Persisted { id, result: Ok(()) }),
                Effect::Execute { id, op } => {
                    let result = self.executor.execute(scope_of_tests(), &op).await;
                    self.events.push_back(Event::Executed { id, result });
                    self.hear();
                }
                Effect::Watch(kinds) => kinds.keys().for_each(|kind| {
                    let served = Served::Yes { namespaced: &*kind.kind != "Namespace", status: false };
                    self.events.push_back(Event::Kind { kind: kind.clone(), served });
                    self.list(kind);
                }),
                Effect::Relist(kinds) => kinds.iter().for_each(|kind| self.list(kind)),
                Effect::ListMetadata { id, kind, .. } => {
                    let objects = self.labelled(&kind).into_iter().map(ListedItem::from).collect();
                    self.events.push_back(Event::ListPage { list: id, objects });
                    self.events.push_back(Event::ListEnded { list: id, result: Ok(()) });
                }
                Effect::RecordEvent(_) | Effect::Patrolled(_) | Effect::Decommissioned(_) | Effect::Thaw => {}
                Effect::Follow(follow) => assert!(follow.is_empty(), "nobody asks for it"),
                other => panic!("{other:?}"),
            }
        }
    }

    fn list(&mut self, kind: &GroupKind) {
        let objects = self.labelled(kind);
        self.events.push_back(Event::Listed { kind: kind.clone(), objects });
    }

    fn labelled(&self, kind: &GroupKind) -> Vec<Observed> {
        let server = self.server.lock().expect("no test has panicked");
        let of_kind = server.objects.values().filter(|object| object["kind"] == *kind.kind);
        of_kind.map(observed).filter(|observed| observed.labelled).collect()
    }

    /// What the watches tell, and what the API server was asked.
    fn hear(&mut self) {
        let mut server = self.server.lock().expect("no test has panicked");
        let asked = std::mem::take(&mut server.asked);
        self.at_this_instant += asked.iter().filter(|(about, _)| about == VICTIM).count();
        for (path, news) in std::mem::take(&mut server.news) {
            let event = match news {
                News::Put(object) => {
                    self.written.insert(path, self.now);
                    let observed = observed(&object);
                    if observed.labelled {
                        Event::Observed(Box::new(observed))
                    } else {
                        Event::Gone { key: observed.key, uid: observed.uid }
                    }
                }
                News::Gone(object) => {
                    let observed = observed(&object);
                    Event::Gone { key: observed.key, uid: observed.uid }
                }
            };
            self.events.push_back(event);
        }
    }

    fn count_at_once(&mut self) {
        let count = std::mem::take(&mut self.at_this_instant);
        self.about_victim = (self.about_victim.0 + count, self.about_victim.1.max(count));
    }

    fn stands(&self, key: &ObjectKey) -> Option<Value> {
        self.server.lock().expect("no test has panicked").objects.get(&path_of(key)).cloned()
    }

    /// Whether an object is as its source says.
    fn is_applied(&self, key: &ObjectKey, input: u64) -> bool {
        let body = body(key, input);
        self.stands(key).is_some_and(|there| there["data"] == body["data"] && there["spec"] == body["spec"])
    }
}

fn observed(object: &Value) -> Observed {
    let kind = object["kind"].as_str().expect("a kind");
    let (_, plural) = root_of(kind);
    let resource = Resource {
        kind: GroupKind::new(group_of(kind), kind),
        version: "v1".into(),
        plural: plural.to_owned(),
        namespaced: kind != "Namespace",
        status: false,
    };
    let metadata = json!({"metadata": object["metadata"]}).to_string();
    let metadata = serde_json::from_str(&metadata).expect("metadata");
    decode::decode(&scope_of_tests(), &resource, metadata).unwrap_or_else(|| panic!("{object}"))
}

/// What becomes of a set where this is refused of the victim.
async fn check(task: Task, kind: &str, verb: Verb, said: &GivenAnswer, times: Option<u32>) -> Result<(), String> {
    let mut world = World::new();
    let victim = object_key(kind, VICTIM);
    let [peer, late, goes] = ["peer", "late", "goes"].map(|name| object_key("ConfigMap", name));
    world.hub.waves.insert(late.clone(), 5);
    world.hub.policy = match task {
        Task::Replace => ApplyPolicy { recreate: Recreate::OnImmutable, ..ApplyPolicy::default() },
        Task::HandOver => ApplyPolicy { mode: ApplyMode::CreateOnly, ..ApplyPolicy::default() },
        Task::Orphan => ApplyPolicy { prune: Prune::Orphan, ..ApplyPolicy::default() },
        Task::Create | Task::Change | Task::Remove | Task::Empty => ApplyPolicy::default(),
    };
    if task != Task::Create {
        world.put(&victim, 1);
    }
    // Where nothing is changed, the others are created.
    let others = if task == Task::HandOver { &[&goes][..] } else { &[&goes, &peer, &late] };
    for key in others {
        world.put(key, 1);
    }
    world.run_for(Duration::from_mins(2)).await;
    assert!(others.iter().all(|key| world.is_applied(key, 1)), "without a fault all is applied");
    let refusal = said.refusal.clone();
    let about = if verb == Verb::List && task == Task::Change { "shop" } else { VICTIM };
    world.server.lock().expect("no test has panicked").fault = Some(Fault { verb, about, refusal, times });
    world.about_victim = (0, 0);
    let begun = world.now;
    let goes_at = path_of(&goes);
    match task {
        Task::Create | Task::Change | Task::Replace => world.put(&victim, 2),
        Task::HandOver => world.put_of(2, &victim, 2),
        Task::Remove | Task::Orphan | Task::Empty => world.hub.remove(&victim),
    }
    for key in [&peer, &late] {
        world.put(key, 2);
    }
    world.hub.remove(&goes);
    world.run_for(OTHERS_DONE).await;
    let fail = |what: &str| Err(format!("{what} (since {begun:?})"));
    if !world.is_applied(&peer, 2) {
        return fail("what has no fault is not applied");
    }
    if !world.is_applied(&late, 2) {
        return fail("what is in a later wave waits");
    }
    let orphaned = |world: &World, key: &ObjectKey| {
        world.stands(key).is_none_or(|there| there["metadata"]["labels"][MARK_LABEL].is_null())
    };
    if !orphaned(&world, &goes) {
        return fail(&format!("another removal waits: {goes_at}"));
    }
    world.run_for(WATCHED).await;
    let (in_all, at_once) = world.about_victim;
    let bound = if said.reason == Reason::Throttled { THROTTLED_IN_ALL_MAX } else { IN_ALL_MAX };
    if in_all > bound || at_once > AT_ONCE_MAX {
        return fail(&format!("{in_all} requests in all, and {at_once} at once"));
    }
    let reported =
        world.hub.reports.get(&victim).map(|(_, _, report)| (report.progress, report.reason, report.message.clone()));
    let removes = matches!(task, Task::Remove | Task::Orphan | Task::Empty);
    let done = if task == Task::HandOver {
        let mark = world.stands(&victim).map(|there| there["metadata"]["annotations"][MARK_ANNOTATION].to_string());
        mark.is_some_and(|mark| mark.contains("s2")) && matches!(reported, Some((Progress::Applied, ..)))
    } else if removes {
        !world.hub.tombstones.keys().any(|tombstone| tombstone.key == victim)
    } else {
        // An object with fields left to others is not as the source says.
        let left = matches!(reported, Some((_, Some(Reason::FieldConflict), _)));
        (world.is_applied(&victim, 2) || left) && matches!(reported, Some((Progress::Applied, ..)))
    };
    if done && removes && !orphaned(&world, &victim) && !said.is_of_nothing {
        return fail("it stands, and is said to be removed");
    }
    if done {
        return Ok(());
    }
    if times.is_some() {
        return fail(&format!("it is not done though nothing is refused any more: {reported:?}"));
    }
    match reported {
        Some((Progress::Failed, Some(Reason::Throttled), _)) => fail("that there was no time is taken for a failure"),
        Some((_, Some(_), message)) if said.is_named_in(verb, &message) => Ok(()),
        other => fail(&format!("it is not reported in these words: {other:?}")),
    }
}

/// The answer given instead of the requested one.
#[derive(Clone, Debug)]
struct GivenAnswer {
    refusal: Refusal,
    reason: Reason,
    /// What of it a person is to read.
    words: String,
    /// It names another object, or none: the final report of it is in our own words.
    is_about_another: bool,
    /// It says that nothing is there.
    is_of_nothing: bool,
}

impl GivenAnswer {
    fn is_named_in(&self, verb: Verb, message: &str) -> bool {
        // Nobody takes the word of somebody on the way for it that a kind is not served.
        let is_doubted = verb == Verb::List
            && matches!(self.refusal, Refusal::Status { code: 404, .. } | Refusal::Page { code: 404 });
        !message.is_empty()
            && (self.is_about_another || self.is_of_nothing || is_doubted || message.contains(&self.words))
    }
}

/// `metav1.StatusReason`, none, and one that nobody knows.
const REASONS: [&str; 22] = [
    "",
    "Unauthorized",
    "Forbidden",
    "NotFound",
    "AlreadyExists",
    "Conflict",
    "Gone",
    "Invalid",
    "ServerTimeout",
    "StoreReadError",
    "Timeout",
    "TooManyRequests",
    "BadRequest",
    "MethodNotAllowed",
    "NotAcceptable",
    "RequestEntityTooLarge",
    "UnsupportedMediaType",
    "InternalError",
    "Expired",
    "ServiceUnavailable",
    "Unknown",
    "Novel",
];

const CODES: [(u16, Option<u64>); 19] = [
    (400, None),
    (401, None),
    (403, None),
    (404, None),
    (405, None),
    (406, None),
    (409, None),
    (410, None),
    (413, None),
    (415, None),
    (422, None),
    (429, None),
    (429, Some(7)),
    (429, Some(600)),
    (500, None),
    (502, None),
    (503, None),
    (503, Some(7)),
    (504, None),
];

/// What the API server itself says, and those that it asks.
const MESSAGES: [&str; 16] = [
    "",
    "the server could not find the requested resource",
    "configmaps \"web\" not found",
    "Operation cannot be fulfilled on configmaps \"web\": the object has been modified",
    "Deployment.apps \"web\" is invalid: spec.selector: Invalid value: {}: field is immutable",
    "ConfigMap \"web\" is invalid: metadata.labels: Invalid value: \"-\"",
    "admission webhook \"policy.example\" denied the request: no",
    "Internal error occurred: failed calling webhook \"policy.example\": context deadline exceeded",
    "admission webhook \"hnc.example\" denied the request: Cannot modify object: it is propagated from \"parent\"",
    "configmaps \"web\" is forbidden: exceeded quota: small, requested: configmaps=1, used: 1, limited: 1",
    "configmaps \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
    "configmaps is forbidden: User \"agent\" cannot create resource \"configmaps\" in API group \"\"",
    "configmaps \"web\" is forbidden: unable to create new content in namespace shop because it is being terminated",
    "etcdserver: request timed out",
    "etcdserver: request is too large",
    "the server is currently unable to handle the request",
];

/// The object of the answer, and its reason.
fn details() -> Vec<Value> {
    let of = |name: &str, kind: &str| json!({"name": name, "kind": kind});
    let cause = |reason: &str, field: &str, message: &str| {
        let causes = json!([{"reason": reason, "field": field, "message": message}]);
        json!({"name": "web", "kind": "configmaps", "causes": causes})
    };
    vec![
        Value::Null,
        json!({}),
        of("web", "configmaps"),
        of("shop", "namespaces"),
        cause("FieldManagerConflict", ".data.n", "conflict with \"helper\" using v1"),
        cause("UnexpectedServerResponse", "", "404 page not found"),
        cause("NamespaceTerminating", "metadata.namespace", "namespace shop is being terminated"),
        cause("FieldValueInvalid", "spec.selector", "Invalid value: {}: field is immutable"),
        cause("FieldValueInvalid", "metadata.labels", "Invalid value: \"-\""),
        cause("FieldValueForbidden", "spec", "Forbidden: updates to spec are not allowed"),
        cause("FieldValueNotFound", "spec.x", "Not found"),
        cause("FieldValueInvalid", "metadata.uid", "Invalid value: \"other\": field is immutable"),
        // One of what cannot be changed, after one of what may not be written at all.
        json!({"name": "web", "kind": "configmaps", "causes": [
            {"reason": "FieldValueInvalid", "field": "metadata.labels", "message": "Invalid value: \"-\""},
            {"reason": "FieldValueInvalid", "field": "spec.selector", "message": "Invalid value: {}: field is immutable"},
        ]}),
    ]
}

/// How a refusal is read, which is all that follows from it.
fn reading(code: u16, refused: &Refused) -> String {
    let Failure { reason, retry_after, .. } = refused.failure();
    let conflicts = refused.field_conflicts();
    let (missing, kind_missing) = (refused.is_object_missing(), refused.is_kind_missing());
    let (there, stale) = (refused.is_already_there(), refused.is_stale());
    // Of these codes the reading itself is asked for here and there.
    let code = if matches!(code, 403..=405) { code } else { 0 };
    format!("{code} {reason} {retry_after:?} {missing} {kind_missing} {there} {stale} {conflicts:?}")
}

/// One of each kind of answer that an API server may give, and one that is none of its own.
fn all_said() -> Vec<GivenAnswer> {
    let mut said: BTreeMap<String, GivenAnswer> = BTreeMap::new();
    let products = CODES.into_iter().flat_map(|code| REASONS.into_iter().map(move |reason| (code, reason)));
    let details = details();
    for ((code, retry_after), reason) in products {
        for (message, details) in MESSAGES.into_iter().flat_map(|message| details.iter().map(move |it| (message, it))) {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
                "message": message, "details": details});
            let read: Status = serde_json::from_value(status.clone()).expect("a Status");
            let refused =
                Refused::Status { code, status: Box::new(read), retry_after: retry_after.map(Duration::from_secs) };
            let words = if message.is_empty() { format!("answered {code}") } else { message.to_owned() };
            let failure = refused.failure();
            assert!(failure.message.contains(&words), "{status}: {}", failure.message);
            let is_about_another = refused.is_object_missing() || refused.is_stale() || refused.is_already_there();
            let is_of_nothing =
                refused.is_object_missing() || is_missing(&refused) && failure.reason == Reason::NamespaceUnavailable;
            let (refusal, reason) = (Refusal::Status { code, retry_after, status }, failure.reason);
            said.entry(reading(code, &refused)).or_insert(GivenAnswer {
                refusal,
                reason,
                words,
                is_about_another,
                is_of_nothing,
            });
        }
    }
    let pages = [400, 404, 502, 503, 504].map(|code| (Refusal::Page { code }, "no route"));
    let broken = [(Refusal::Torn, "answer"), (Refusal::NoAnswer, "connection reset")];
    let others = pages.into_iter().chain(broken).map(|(refusal, words)| GivenAnswer {
        refusal,
        reason: Reason::Unavailable,
        words: words.to_owned(),
        is_about_another: false,
        is_of_nothing: false,
    });
    said.into_values().chain(others).collect()
}

async fn holds_for(tasks: &[Task]) {
    let said = all_said();
    for (task, kind, verb) in CASES.into_iter().filter(|(task, ..)| tasks.contains(task)) {
        for (said, times) in said.iter().flat_map(|said| [None, Some(3)].map(|times| (said, times))) {
            let case = || format!("{task:?} of a {kind}, {verb:?} is refused {times:?} times with {:?}", said.refusal);
            check(task, kind, verb, said, times).await.unwrap_or_else(|why| panic!("{}: {why}", case()));
        }
    }
}

#[tokio::test]
async fn a_write_refused_in_any_way_backs_off_and_delays_nothing_else() {
    holds_for(&[Task::Create, Task::Change, Task::Replace, Task::HandOver]).await;
}

#[tokio::test]
async fn a_removal_refused_in_any_way_backs_off_and_delays_nothing_else() {
    holds_for(&[Task::Remove, Task::Orphan, Task::Empty]).await;
}
