use super::super::tests::key;
use super::*;

fn failed(reason: Reason) -> OpResult {
    OpResult::Failed { reason, message: "failed calling webhook \"a.b\"".to_owned(), retry_after: None }
}

fn judge(slots: &mut Slots, key: &ObjectKey, took: Duration, result: &OpResult) -> Vec<String> {
    let mut jitter = Jitter::new(1);
    let woken = slots.judge(Monotonic::START, (OpId(1), key, took), result, OpId(1), &mut jitter);
    woken.into_iter().map(|key| key.name.to_string()).collect()
}

#[test]
fn no_kind_gets_everything() {
    let mut slots = Slots::default();
    let (config, secret) = (GroupKind::new("", "ConfigMap"), GroupKind::new("", "Secret"));
    let mut begun = 0;
    while slots.admits(&config) == Admission::Free {
        slots.began(&config);
        begun += 1;
    }
    assert_eq!((begun, slots.pace.limit()), (32, 40));
    assert_eq!(slots.admits(&secret), Admission::Free);
    slots.landed(&config);
    assert_eq!(slots.admits(&config), Admission::Free);
}

#[test]
fn a_kind_whose_webhook_does_not_answer_gets_next_to_nothing_until_one_succeeds() {
    let mut slots = Slots::default();
    let (a, b) = (key("", "ConfigMap", "a"), key("", "ConfigMap", "b"));
    judge(&mut slots, &a, Duration::from_millis(1), &failed(Reason::Webhook));
    (0..STUCK_MAX).for_each(|_| slots.began(&a.kind));
    assert_eq!(slots.admits(&a.kind), Admission::Free, "one that answers at once is in nobody's way");
    judge(&mut slots, &a, Duration::from_secs(2), &failed(Reason::Webhook));
    assert_eq!(slots.admits(&a.kind), Admission::Stuck);
    assert_eq!(slots.admits(&GroupKind::new("", "Secret")), Admission::Free);

    assert!(slots.wait(&b).is_some_and(|message| message.contains("a.b")));
    assert!(judge(&mut slots, &a, Duration::from_secs(2), &failed(Reason::Invalid)).is_empty());
    assert_eq!(judge(&mut slots, &a, Duration::from_secs(1), &OpResult::Gone), ["b"]);
    assert_eq!(slots.admits(&a.kind), Admission::Free);
}
