//! Writes that get no answer.

use super::*;

/// When the API server gives up a write, its webhooks included.
const GIVEN_UP: Duration = Duration::from_secs(34);

/// A number of objects for which the API server gives up each write, one of a later wave, and a removal.
fn hanging(objects: usize) -> Offline {
    let hang = (0..objects).map(|nth| config_map(&format!("c{nth:03}"), 0));
    let later = Entry { wave: 1, ..entry(&key("apps", "Deployment", "later"), 1, 1) };
    let mut offline = Offline::new(hang.chain([later]).collect());
    let gone = entry(&key("", "Secret", "gone"), 1, 1);
    let said = PrunePolicy { prune: Prune::Delete, ..PrunePolicy::LEAST };
    let record = plan::record_of(&gone, &Seen::from(&created(&gone.key, None)), Origin::Created, true);
    let Entry { key: gone, source, .. } = gone;
    offline.loaded.applied = vec![(gone.clone(), record)];
    offline.loaded.removing =
        vec![(Tombstone { key: gone.clone(), source: source.uid }, RemovalPolicy::Tombstone(said))];
    offline.restart_without_lists();
    offline.core.history_whole(offline.now);
    let served = Served::Yes { namespaced: true, status: false };
    offline.step(Event::Kind { kind: gone.kind.clone(), served });
    offline.step(Event::Listed { kind: gone.kind, objects: Vec::new() });
    offline.list();
    offline
}

/// One object's failure never blocks a sibling: neither a later wave, nor a removal, nor whatever comes later.
#[test]
fn objects_whose_writes_are_given_up_delay_neither_later_waves_nor_removals() {
    let mut offline = hanging(60);
    let (mut ends, mut hung) = (VecDeque::new(), 0);
    let (mut later, mut removal) = (None, None);
    while offline.now < Monotonic::START + Duration::from_mins(10) {
        let is_removal = |op: &InFlight| op.purpose.removal().is_some();
        if removal.is_none() && offline.core.work.in_flight.values().any(is_removal) {
            removal = Some(offline.now.since(Monotonic::START));
        }
        for (id, key) in std::mem::take(&mut offline.begun) {
            if &*key.kind.kind == "Deployment" {
                later.get_or_insert(offline.now.since(Monotonic::START));
                offline.step(Event::Executed { id, result: made(created(&key, None)) });
            } else {
                ends.push_back((offline.now + GIVEN_UP, id));
            }
        }
        let end = ends.front().map(|(at, _)| *at);
        let timer = offline.core.work.next_retry();
        let Some(next) = [end, timer].into_iter().flatten().min() else { panic!("nothing is left to be done") };
        offline.now = offline.now.max(next);
        if end.is_some_and(|at| at <= offline.now)
            && let Some((_, id)) = ends.pop_front()
        {
            hung += 1;
            offline.step(Event::Executed { id, result: throttled(None) });
        } else {
            offline.step(Event::Timer(Timer::Retry));
        }
    }
    let soon = Duration::from_mins(2);
    assert!(later.is_some_and(|after| after < soon), "the later wave began after {later:?}");
    assert!(removal.is_some_and(|after| after < soon), "the removal began after {removal:?}");
    assert!((32..100).contains(&hung), "{hung} operations hung, two at a time");
    assert!(offline.core.work.concurrency().limit >= 20, "{:?}", offline.core.work.concurrency());
    let outcome = &offline.core.model.objects.get(&key("", "ConfigMap", "c000")).unwrap().outcome;
    assert_eq!((outcome.progress, outcome.reason), (Progress::Failed, Some(Reason::Unavailable)));
    assert!(outcome.message.contains("webhooks") && outcome.message.contains("too many"), "{}", outcome.message);
}
