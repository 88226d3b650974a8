use super::*;
use crate::core::tests::key;

const WELL: OpResult = OpResult::DryRunCreate(Ok(()));

fn failed(reason: Reason) -> OpResult {
    OpResult::DryRunCreate(Err(Failure::new(reason, "failed calling webhook \"a.b\"")))
}

fn judge(limiter: &mut ConcurrencyLimiter, key: &ObjectKey, took: Duration, result: &OpResult) -> Vec<String> {
    let mut jitter = Jitter::new(1);
    let woken = limiter.judge(Monotonic::START, (OpId(1), key, Access::Write, took), result, OpId(1), &mut jitter);
    woken.into_iter().map(|key| key.name.to_string()).collect()
}

fn in_namespace(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { namespace: namespace.into(), ..key("", "ConfigMap", name) }
}

#[test]
fn no_kind_gets_everything() {
    let mut limiter = ConcurrencyLimiter::default();
    let (config, secret) = (key("", "ConfigMap", "a"), key("", "Secret", "a"));
    let mut begun = 0;
    while limiter.admits(&config) == Admission::Free {
        limiter.began(&config, Access::Write);
        begun += 1;
    }
    assert_eq!((begun, limiter.aimd.limit()), (32, 40));
    assert_eq!(limiter.admits(&in_namespace("other", "a")), Admission::Full, "wherever it is");
    assert_eq!(limiter.admits(&secret), Admission::Free);
    limiter.finished(&config, Access::Write);
    assert_eq!(limiter.admits(&config), Admission::Free);
}

#[test]
fn behind_a_silent_webhook_few_operations_begin_until_one_succeeds() {
    let mut limiter = ConcurrencyLimiter::default();
    let (a, b) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"));
    judge(&mut limiter, &a, Duration::from_millis(1), &failed(Reason::Webhook));
    (0..STUCK_MAX).for_each(|_| limiter.began(&a, Access::Write));
    assert_eq!(limiter.admits(&a), Admission::Free, "one that answers at once is in nobody's way");
    judge(&mut limiter, &a, Duration::from_secs(2), &failed(Reason::Webhook));
    assert_eq!(limiter.admits(&a), Admission::Stuck);
    assert_eq!(limiter.admits(&key("", "Secret", "a")), Admission::Free);
    let elsewhere = in_namespace("elsewhere", "a");
    assert_eq!(limiter.admits(&elsewhere), Admission::Free);
    assert!(judge(&mut limiter, &elsewhere, Duration::from_secs(1), &WELL).is_empty());
    assert_eq!(limiter.admits(&a), Admission::Stuck, "it was not asked about the other");

    assert!(limiter.wait(&b).is_some_and(|why| why.message.contains("a.b")));
    assert!(judge(&mut limiter, &elsewhere, Duration::from_secs(2), &failed(Reason::Invalid)).is_empty());
    assert_eq!(judge(&mut limiter, &a, Duration::from_secs(1), &WELL), ["b"]);
    assert_eq!(limiter.admits(&a), Admission::Free);
}

/// What is slow to be denied takes as many slots as what gets no answer.
#[test]
fn a_webhook_that_denies_after_long_is_in_the_way_like_one_that_does_not_answer() {
    let (soon, late) = (Duration::from_millis(1), Duration::from_secs(2));
    for (reason, took, expected) in [
        (Reason::Webhook, late, Admission::Stuck),
        (Reason::Denied, late, Admission::Stuck),
        (Reason::Webhook, soon, Admission::Free),
        (Reason::Denied, soon, Admission::Free),
        (Reason::Invalid, late, Admission::Free),
    ] {
        let mut limiter = ConcurrencyLimiter::default();
        let (a, b) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"));
        judge(&mut limiter, &a, took, &failed(reason));
        (0..STUCK_MAX).for_each(|_| limiter.began(&a, Access::Write));
        assert_eq!(limiter.admits(&b), expected, "{reason:?} after {took:?}");
    }
}

#[test]
fn objects_behind_a_webhook_are_tried_one_by_one_as_slots_become_free() {
    let mut limiter = ConcurrencyLimiter::default();
    let (a, b, c) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"), key("", "ConfigMap", "c"));
    judge(&mut limiter, &a, Duration::from_secs(2), &failed(Reason::Webhook));
    for waiting in [&b, &c] {
        assert!(limiter.wait(waiting).is_some());
    }
    assert_eq!(judge(&mut limiter, &a, Duration::from_secs(2), &failed(Reason::Webhook)), ["b"]);
    limiter.failed(&a);
    limiter.failed(&b);
    // No webhook is called for a read.
    limiter.began(&c, Access::Read);
    limiter.finished(&c, Access::Read);
    let read = (OpId(1), &c, Access::Read, Duration::ZERO);
    assert!(limiter.judge(Monotonic::START, read, &OpResult::Get(Ok(None)), OpId(1), &mut Jitter::new(1)).is_empty());
    // A success of one for which no webhook is called does not let all of them begin.
    assert_eq!(judge(&mut limiter, &key("", "ConfigMap", "free"), Duration::from_millis(1), &WELL), ["a", "c"]);
    limiter.began(&a, Access::Write);
    limiter.began(&c, Access::Write);
    assert_eq!(limiter.admits(&b), Admission::Stuck);
    assert_eq!(judge(&mut limiter, &a, Duration::from_millis(1), &WELL), ["b"]);
    assert_eq!(limiter.admits(&b), Admission::Free, "nothing is left");
}

#[test]
fn objects_behind_webhooks_get_a_quarter_of_the_limit() {
    let mut limiter = ConcurrencyLimiter::default();
    let stuck: Vec<_> = (0..20).map(|nth| in_namespace(&format!("n{nth:02}"), "a")).collect();
    // Operations that began before it was known count as well.
    limiter.began(&stuck[0], Access::Write);
    limiter.began(&stuck[0], Access::Write);
    limiter.began(&stuck[0], Access::Write);
    for key in &stuck {
        judge(&mut limiter, key, Duration::from_secs(2), &failed(Reason::Webhook));
    }
    let mut begun = vec![&stuck[0]; 3];
    for key in &stuck {
        while limiter.admits(key) == Admission::Free {
            limiter.began(key, Access::Write);
            begun.push(key);
        }
    }
    assert_eq!((begun.len(), limiter.aimd.limit()), (10, 40));
    assert_eq!(limiter.admits(&in_namespace("well", "a")), Admission::Free);

    // One that got an answer is none of them any more, and leaves its slots to the others.
    judge(&mut limiter, &stuck[0], Duration::from_secs(1), &WELL);
    assert_eq!(limiter.admits(&stuck[19]), Admission::Free);
    for key in begun {
        limiter.finished(key, Access::Write);
    }
    assert_eq!(limiter.stuck_under_way, 0);
    assert!(limiter.under_way.is_empty() && limiter.under_way_in.is_empty());
}

#[test]
fn of_few_slots_no_kind_gets_all() {
    let shares: Vec<_> = (1..=10).map(share_of_a_kind).collect();
    assert_eq!(shares, [1, 1, 2, 3, 4, 5, 6, 7, 8, 8]);
}

/// Operations that end one after the other, each a while after it began.
struct Ends {
    limiter: ConcurrencyLimiter,
    now: Monotonic,
    last: u64,
}

impl Ends {
    fn new() -> Self {
        Self { limiter: ConcurrencyLimiter::default(), now: Monotonic::START, last: 0 }
    }

    fn end(&mut self, key: &ObjectKey, took: Duration, result: &OpResult) {
        self.last += 1;
        self.now = self.now + took;
        let op = (OpId(self.last), key, Access::Write, took);
        self.limiter.judge(self.now, op, result, OpId(self.last), &mut Jitter::new(1));
    }
}

/// The API server gives up a write whose webhooks take longer together than it has time, and says that it had none.
#[test]
fn a_write_that_gets_no_answer_while_others_do_is_stuck_with_its_kind_and_no_sign_of_overload() {
    let given_up = Duration::from_secs(34);
    for reason in [Reason::Throttled, Reason::Unavailable] {
        let mut ends = Ends::new();
        let (a, b, elsewhere) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"), in_namespace("elsewhere", "a"));
        ends.end(&elsewhere, Duration::from_secs(1), &WELL);
        ends.now = ends.now + Duration::from_secs(20);
        // What ended well while it was under way.
        let well = ends.now;
        ends.end(&elsewhere, Duration::ZERO, &WELL);
        ends.now = well + Duration::from_secs(10);
        ends.end(&a, given_up, &failed(reason));
        assert_eq!(ends.limiter.aimd.limit(), 20, "{reason:?}: nothing says that it was not the API server");
        assert_eq!(ends.limiter.wait(&b).map(|why| why.cause), Some(Cause::Silence));
        (0..STUCK_MAX).for_each(|_| ends.limiter.began(&a, Access::Write));
        assert_eq!(ends.limiter.admits(&b), Admission::Stuck);
        assert_eq!(ends.limiter.admits(&elsewhere), Admission::Free);

        ends.end(&a, given_up, &failed(reason));
        assert_eq!(ends.limiter.aimd.limit(), 20, "{reason:?}: that it hangs there is known");
        let other = in_namespace("other", "a");
        ends.end(&elsewhere, Duration::ZERO, &WELL);
        ends.end(&other, given_up, &failed(reason));
        assert_eq!(ends.limiter.aimd.limit(), 20, "{reason:?}: meanwhile the API server had time for others");
        ends.end(&in_namespace("third", "a"), given_up, &failed(reason));
        assert_eq!(ends.limiter.aimd.limit(), 10, "{reason:?}: for nobody");
    }
}

#[test]
fn what_went_well_in_its_own_area_does_not_speak_for_the_api_server() {
    let mut ends = Ends::new();
    let (here, there) = (in_namespace("here", "a"), in_namespace("there", "a"));
    let given_up = Duration::from_secs(34);
    ends.end(&there, Duration::ZERO, &WELL);
    ends.end(&here, Duration::ZERO, &WELL);
    assert!(!ends.limiter.concerns_only(&Area::from(&here), ends.now + given_up, Duration::from_secs(1)));
    assert!(ends.limiter.concerns_only(&Area::from(&here), ends.now + given_up, given_up));
    ends.now = ends.now + given_up + given_up;
    (0..3).for_each(|_| ends.end(&here, Duration::ZERO, &WELL));
    assert!(!ends.limiter.concerns_only(&Area::from(&here), ends.now, given_up), "elsewhere it is too long ago");
    assert!(ends.limiter.concerns_only(&Area::from(&there), ends.now, given_up));
}
