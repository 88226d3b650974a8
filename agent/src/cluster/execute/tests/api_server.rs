//! An API server in memory: two namespaces, a few kinds, and one kind of request about one object that it refuses.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Map, Value, json};

/// Requests, as far as one is refused and another is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Get,
    Post,
    DryRun,
    Apply,
    Merge,
    Delete,
    List,
}

/// The answer instead of carrying it out.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    Status {
        code: u16,
        retry_after: Option<u64>,
        status: Value,
    },
    /// By somebody on the way.
    Page {
        code: u16,
    },
    /// The answer breaks off.
    Torn,
    NoAnswer,
}

/// Whatever says this about objects of this name, or lists anything where the name is of a namespace or kind.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) verb: Verb,
    pub(super) about: &'static str,
    pub(super) refusal: Refusal,
    /// How often; for ever without.
    pub(super) times: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct ApiServer {
    /// By path.
    pub(super) objects: BTreeMap<String, Value>,
    /// Objects created since the last call, by path: their present state, or their last.
    pub(super) news: Vec<(String, News)>,
    pub(super) fault: Option<Fault>,
    /// A kind that is served without the verb `list`.
    pub(super) sealed: Option<&'static str>,
    /// About which object or list, by name.
    pub(super) asked: Vec<(String, Verb)>,
    version: u64,
}

#[derive(Clone, Debug)]
pub(super) enum News {
    Put(Value),
    Gone(Value),
}

/// A kind as it is served: at one version, which need not be the one that its group prefers.
struct Kind {
    root: &'static str,
    plural: &'static str,
    name: &'static str,
    namespaced: bool,
    verbs: &'static [&'static str],
}

const ALL_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "watch"];

const fn kind(root: &'static str, plural: &'static str, name: &'static str) -> Kind {
    Kind { root, plural, name, namespaced: true, verbs: ALL_VERBS }
}

const KINDS: [Kind; 8] = [
    kind("/api/v1", "configmaps", "ConfigMap"),
    Kind { namespaced: false, ..kind("/api/v1", "namespaces", "Namespace") },
    kind("/apis/apps/v1", "deployments", "Deployment"),
    kind("/apis/batch/v1", "jobs", "Job"),
    kind("/apis/autoscaling/v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    kind("/apis/batch/v1beta1", "cronjobs", "CronJob"),
    Kind {
        namespaced: false,
        ..kind("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition")
    },
    Kind { verbs: &["create"], ..kind("/apis/authorization.k8s.io/v1", "localsubjectaccessreviews", "Review") },
];

pub(super) fn root_of(kind: &str) -> (&'static str, &'static str) {
    let kind = KINDS.iter().find(|known| known.name == kind).expect("a kind that is served");
    (kind.root, kind.plural)
}

type Answer = (u16, Value);

/// Answers for an API server that is shared with the test.
pub(super) async fn serve(server: Arc<Mutex<ApiServer>>, request: Request<Body>) -> Result<Response<Body>, String> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let metadata_only = header("accept").contains("PartialObjectMetadata");
    let (query, path) = (parts.uri.query().unwrap_or_default(), parts.uri.path());
    let mut server = server.lock().expect("no test has panicked");
    let Some((verb, about)) = verb_of(&parts.method, path, query, header("content-type"), &body) else {
        let is_served = matches!(path, "/api" | "/apis") || KINDS.iter().any(|kind| kind.root == path);
        if !is_served {
            return Ok(respond(404, None, b"404 page not found".to_vec()));
        }
        return Ok(respond(200, None, discovery(path, server.sealed).to_string().into_bytes()));
    };
    server.asked.push((about.clone(), verb));
    let fault = server.fault.as_mut().filter(|fault| fault.verb == verb && fault.about == about);
    if let Some(fault) = fault.filter(|fault| fault.times != Some(0)) {
        fault.times = fault.times.map(|times| times - 1);
        return match &fault.refusal {
            Refusal::Status { code, retry_after, status } => {
                Ok(respond(*code, *retry_after, status.to_string().into_bytes()))
            }
            Refusal::Page { code } => Ok(respond(*code, None, b"<html>no route</html>".to_vec())),
            Refusal::Torn => Ok(respond(200, None, b"{\"metadata\": {\"na".to_vec())),
            Refusal::NoAnswer => Err("connection reset".to_owned()),
        };
    }
    let (code, mut answer) = server.carry_out(verb, path, &body);
    if metadata_only && let Some(answer) = answer.as_object_mut() {
        answer.retain(|field, _| field != "data" && field != "spec");
    }
    Ok(respond(code, None, answer.to_string().into_bytes()))
}

fn respond(code: u16, retry_after: Option<u64>, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code.try_into().expect("a status code");
    if let Some(seconds) = retry_after {
        response.headers_mut().insert("retry-after", seconds.into());
    }
    response
}

/// The verb, and the key of its object; of a list, its namespace. None for discovery.
fn verb_of(method: &Method, path: &str, query: &str, media_type: &str, body: &Value) -> Option<(Verb, String)> {
    let rest = KINDS.iter().find_map(|kind| path.strip_prefix(kind.root)?.strip_prefix('/'))?;
    let (namespace, name) = match rest.split('/').collect::<Vec<_>>()[..] {
        ["namespaces", namespace, _plural, name] => (namespace, name.to_owned()),
        ["namespaces", namespace, _plural] => (namespace, String::new()),
        [_plural, name] => ("", name.to_owned()),
        _ => ("", String::new()),
    };
    Some(match *method {
        Method::GET if name.is_empty() => (Verb::List, namespace.to_owned()),
        Method::GET => (Verb::Get, name),
        Method::DELETE => (Verb::Delete, name),
        Method::POST if query.contains("dryRun=All") => {
            let name = body["metadata"]["generateName"].as_str().unwrap_or_default();
            (Verb::DryRun, name.trim_end_matches('-').to_owned())
        }
        Method::POST => (Verb::Post, body["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
        Method::PATCH if media_type.starts_with("application/apply-patch") => (Verb::Apply, name),
        Method::PATCH => (Verb::Merge, name),
        _ => panic!("{method} {path}"),
    })
}

fn discovery(path: &str, sealed: Option<&str>) -> Value {
    let of_group = |kind: &Kind| kind.root.strip_prefix("/apis/")?.split_once('/');
    let mut versions = BTreeMap::<&str, Vec<Value>>::new();
    for (group, version) in KINDS.iter().filter_map(of_group) {
        let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
        versions.entry(group).or_default().push(version);
    }
    let groups = versions.into_iter().map(|(group, versions)| {
        // A group prefers its first version, whatever it serves at others.
        json!({"name": group, "versions": versions, "preferredVersion": versions[0]})
    });
    match path {
        "/api" => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        "/apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups.collect::<Vec<_>>()}),
        root => {
            let kinds = KINDS.iter().filter(|kind| kind.root == root).map(|kind| {
                let mut verbs = kind.verbs.to_vec();
                verbs.retain(|verb| *verb != "list" || sealed != Some(kind.name));
                json!({"name": kind.plural, "singularName": "", "namespaced": kind.namespaced, "kind": kind.name,
                    "verbs": verbs})
            });
            let version = root.trim_start_matches("/apis/").trim_start_matches("/api/");
            json!({"kind": "APIResourceList", "groupVersion": version, "resources": kinds.collect::<Vec<_>>()})
        }
    }
}

fn status(code: u16, reason: &str, message: &str, details: &Value) -> Answer {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": message, "details": details});
    (code, status)
}

impl ApiServer {
    fn carry_out(&mut self, verb: Verb, path: &str, body: &Value) -> Answer {
        let (collection, name) = path.rsplit_once('/').expect("a path");
        let plural = collection.rsplit('/').next().unwrap_or_default();
        let details = json!({"name": name, "kind": plural});
        let stale = || {
            let message = format!("Operation cannot be fulfilled on {plural} \"{name}\": it is another");
            status(409, "Conflict", &message, &details)
        };
        let stands = self.objects.get(path).cloned();
        match (verb, stands) {
            (Verb::List, _) => {
                let under = |at: &&String| at.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
                let items: Vec<&Value> = self.objects.iter().filter(|(at, _)| under(at)).map(|(_, it)| it).collect();
                (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}))
            }
            (Verb::DryRun, _) => (201, with_uid(body.clone(), "dry")),
            (Verb::Post, _) => self.create(path, body),
            (_, None) => status(404, "NotFound", &format!("{plural} \"{name}\" not found"), &details),
            (Verb::Get, Some(object)) => (200, object),
            (Verb::Delete, Some(object)) => {
                let wanted = &body["preconditions"]["uid"];
                if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
                    return stale();
                }
                self.objects.remove(path);
                self.news.push((path.to_owned(), News::Gone(object)));
                (200, json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}))
            }
            (Verb::Apply, Some(object)) => {
                if body["metadata"]["uid"] != object["metadata"]["uid"] {
                    return stale();
                }
                if object["spec"]["template"] != body["spec"]["template"] && object["kind"] == "Job" {
                    let message = format!("Job.batch \"{name}\" is invalid: spec.template: field is immutable");
                    return status(422, "Invalid", &message, &details);
                }
                let mut applied = body.clone();
                let changed = applied["spec"] != object["spec"] || applied["data"] != object["data"];
                let generation = object["metadata"]["generation"].as_i64().unwrap_or(1) + i64::from(changed);
                applied["metadata"]["generation"] = json!(generation);
                applied["metadata"]["managedFields"] = json!([managed("Apply")]);
                (200, self.put(path, applied))
            }
            (Verb::Merge, Some(mut object)) => {
                let wanted = &body["metadata"]["resourceVersion"];
                if !wanted.is_null() && *wanted != object["metadata"]["resourceVersion"] {
                    return stale();
                }
                for field in ["labels", "annotations"] {
                    for (name, value) in body["metadata"][field].as_object().into_iter().flatten() {
                        let there = object["metadata"][field].as_object_mut().expect("what is marked has both");
                        match value {
                            Value::Null => drop(there.remove(name)),
                            value => drop(there.insert(name.clone(), value.clone())),
                        }
                    }
                }
                let managed = body["metadata"]["managedFields"].as_array().into_iter().flatten();
                let managed: Vec<_> = managed.filter(|entry| **entry != json!({})).cloned().collect();
                object["metadata"]["managedFields"] = json!(managed);
                (200, self.put(path, object))
            }
        }
    }

    fn create(&mut self, collection: &str, body: &Value) -> Answer {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        if self.objects.contains_key(&path) {
            return status(409, "AlreadyExists", &format!("\"{name}\" already exists"), &json!({"name": name}));
        }
        let mut object = with_uid(body.clone(), &format!("uid-{}", self.version + 1));
        object["metadata"]["generation"] = json!(1);
        object["metadata"]["managedFields"] = json!([managed("Update")]);
        (201, self.put(&path, object))
    }

    fn put(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path.to_owned(), object.clone());
        self.news.push((path.to_owned(), News::Put(object.clone())));
        object
    }
}

fn with_uid(mut object: Value, uid: &str) -> Value {
    object["metadata"].as_object_mut().unwrap_or(&mut Map::new()).insert("uid".to_owned(), json!(uid));
    object
}

fn managed(operation: &str) -> Value {
    json!({"manager": "tideline", "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:n": {}}}})
}
