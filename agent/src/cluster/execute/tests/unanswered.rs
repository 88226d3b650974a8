//! A Job of which nobody heard whether it was created.

use std::sync::Mutex;

use super::super::*;
use super::api_server::{ApiServer, Fault, Refusal, Verb, serve};
use super::{entry, mark, scope};

const PATH: &str = "/apis/batch/v1/namespaces/shop/jobs/web";

/// The Job, with a time to live or without one.
struct Job {
    lives: Option<u32>,
}

impl Bodies for Job {
    fn body(&self, _: Digest) -> Result<Arc<str>, BodyError> {
        let spec = match self.lives {
            Some(seconds) => json!({"template": {}, "ttlSecondsAfterFinished": seconds}),
            None => json!({"template": {}}),
        };
        let metadata = json!({"name": "web", "namespace": "shop"});
        Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}).to_string().into())
    }
}

/// Creates the Job, and returns what was asked of the API server for that.
async fn create(server: ApiServer, lives: Option<u32>, earlier: Earlier) -> (Result<Created, Failure>, Vec<Verb>) {
    let server = Arc::new(Mutex::new(server));
    let shared = Arc::clone(&server);
    let client = Client::new(tower::service_fn(move |request| serve(Arc::clone(&shared), request)), "default");
    let executor = Executor::new(client.clone(), Arc::new(Kinds::new(client)), Arc::new(Job { lives }));
    let key = ObjectKey::new(tideline_common::GroupKind::new("batch", "Job"), "shop", "web");
    let entry = Arc::new(Entry { key, ..(*entry(false)).clone() });
    let op = Op::Create { entry, policy: Arc::default(), mark: mark(), ran: None, earlier };
    let OpResult::Create(result) = executor.execute(scope(), &op).await else { unreachable!("it was a creation") };
    let asked = server.lock().expect("no test has panicked").asked.iter().map(|(_, verb)| *verb).collect();
    (result, asked)
}

fn with_job() -> ApiServer {
    let metadata = json!({"name": "web", "namespace": "shop", "uid": "u2", "resourceVersion": "7"});
    let mut server = ApiServer::default();
    server.objects.insert(PATH.to_owned(), json!({"kind": "Job", "apiVersion": "batch/v1", "metadata": metadata}));
    server
}

#[tokio::test]
async fn only_a_job_that_is_collected_is_looked_for_and_not_created() {
    let (result, asked) = create(ApiServer::default(), Some(60), Earlier::Unanswered).await;
    assert!(matches!(result, Ok(Created::Vanished { template: Some(_) })), "{result:?}");
    assert_eq!(asked, [Verb::Get]);
    let (result, asked) = create(with_job(), Some(60), Earlier::Unanswered).await;
    assert!(matches!(result, Ok(Created::Exists(_))), "{result:?}");
    assert_eq!(asked, [Verb::Get]);
    for (lives, earlier) in [(None, Earlier::Unanswered), (Some(60), Earlier::Answered)] {
        let (result, asked) = create(ApiServer::default(), lives, earlier).await;
        assert!(matches!(result, Ok(Created::Made(_))), "{result:?}");
        assert_eq!(asked, [Verb::Post]);
    }
}

#[tokio::test]
async fn what_became_of_a_creation_is_unknown_only_where_it_was_sent_and_not_answered() {
    let status = |code: u16, reason: &str| {
        let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "no"});
        Refusal::Status { code, retry_after: None, status }
    };
    for (verb, earlier, refusal, expected) in [
        (Verb::Post, Earlier::Answered, Refusal::NoAnswer, Fate::Unknown),
        (Verb::Post, Earlier::Answered, Refusal::Torn, Fate::Unknown),
        (Verb::Post, Earlier::Answered, Refusal::Page { code: 502 }, Fate::Unknown),
        (Verb::Post, Earlier::Answered, status(422, "Invalid"), Fate::NotDone),
        (Verb::Post, Earlier::Answered, status(429, "TooManyRequests"), Fate::NotDone),
        // It is looked for first, and was not asked for.
        (Verb::Get, Earlier::Unanswered, Refusal::NoAnswer, Fate::NotDone),
    ] {
        let mut server = ApiServer::default();
        server.fault = Some(Fault { verb, about: "web", refusal: refusal.clone(), times: None });
        let (result, _) = create(server, Some(60), earlier).await;
        let failure = result.expect_err("it fails");
        assert_eq!(failure.fate, expected, "{verb:?}, {refusal:?}: {failure:?}");
    }
}
