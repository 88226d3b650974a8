//! Lists and watches made of what kube's watcher would give, in order.

use futures::channel::mpsc::{Sender, channel};
use kube::core::Status;
use tokio::time::Duration;

use super::*;

type Given = watcher::Result<Event<Option<u32>>>;

/// One namespace, and its other end. It gives no end by itself: a watch that goes on.
fn namespace() -> (Sender<Given>, Decoded<u32>) {
    let (sender, receiver) = channel(16);
    (sender, until_failed(receiver))
}

fn give(namespace: &mut Sender<Given>, given: impl IntoIterator<Item = Given>) {
    for given in given {
        namespace.try_send(given).expect("the watch is there, and has room");
    }
}

fn list(objects: impl IntoIterator<Item = u32>) -> Vec<Given> {
    let objects = objects.into_iter().map(|object| Ok(Event::InitApply(Some(object))));
    std::iter::once(Ok(Event::Init)).chain(objects).chain([Ok(Event::InitDone)]).collect()
}

fn refused() -> Status {
    let mut status = Status::failure("pods is forbidden", "Forbidden");
    status.code = 403;
    status
}

fn watch_forbidden() -> Given {
    Err(watcher::Error::WatchError(Box::new(refused())))
}

fn list_forbidden() -> Given {
    Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(refused()))))
}

fn forbidden_before() -> WatchPermission {
    WatchPermission::new(true)
}

fn never_forbidden() -> WatchPermission {
    WatchPermission::new(false)
}

/// All that is told at once, and why it ended, if it did.
async fn told(watch: &mut Watch<u32>) -> (Vec<News<u32>>, Option<Ended>) {
    told_within(TRIAL / 2, watch).await
}

/// All that is told until nothing more comes for so long.
async fn told_within(pause: Duration, watch: &mut Watch<u32>) -> (Vec<News<u32>>, Option<Ended>) {
    let mut told = Vec::new();
    while let Ok(next) = tokio::time::timeout(pause, watch.next()).await {
        match next {
            Ok(news) => told.push(news),
            Err(ended) => return (told, Some(ended)),
        }
    }
    (told, None)
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_listed_when_its_last_namespace_is_listed() {
    let ((mut one, in_one), (mut other, in_other)) = (namespace(), namespace());
    let mut watch = Watch::new([in_one, in_other], &never_forbidden());
    give(&mut one, list([1, 2]));
    give(&mut one, [Ok(Event::Apply(Some(3))), Ok(Event::Apply(None)), Ok(Event::Delete(Some(1)))]);
    let (before, ended) = told(&mut watch).await;
    assert_eq!(before, [News::Listed(1), News::Listed(2), News::Changed(3), News::Gone(1)]);
    assert!(ended.is_none());

    give(&mut other, list([4]));
    let (after, ended) = told(&mut watch).await;
    assert_eq!(after, [News::Listed(4), News::AllListed]);
    assert!(ended.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_forbidden_in_one_namespace_ends_when_the_others_are_listed() {
    let ((mut one, in_one), (mut other, in_other)) = (namespace(), namespace());
    let mut watch = Watch::new([in_one, in_other], &never_forbidden());
    give(&mut one, list([1]));
    give(&mut one, [watch_forbidden()]);
    let (before, ended) = told(&mut watch).await;
    assert_eq!(before, [News::Listed(1)]);
    assert!(ended.is_none(), "{ended:?}");

    give(&mut other, list([2]));
    let (after, ended) = told(&mut watch).await;
    assert_eq!(after, [News::Listed(2), News::AllListed]);
    assert!(matches!(ended, Some(Ended::Forbidden(_))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_forbidden_is_lost() {
    let (mut only, in_only) = namespace();
    let mut watch = Watch::new([in_only], &never_forbidden());
    give(&mut only, [Ok(Event::Init), list_forbidden()]);
    let (told, ended) = told(&mut watch).await;
    assert!(told.is_empty());
    assert!(matches!(ended, Some(Ended::Lost(Failure { reason: Reason::Forbidden, .. }))), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_forbidden_is_granted_when_it_is_not_forbidden_for_a_while() {
    let (mut only, in_only) = namespace();
    let mut watch = Watch::new([in_only], &forbidden_before());
    give(&mut only, list([1]));
    assert_eq!(told(&mut watch).await.0, [News::Listed(1), News::AllListed]);
    assert_eq!(told_within(TRIAL * 2, &mut watch).await.0, [News::Granted], "once");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_not_forbidden_before_needs_no_trial() {
    let (mut only, in_only) = namespace();
    let mut watch = Watch::new([in_only], &never_forbidden());
    give(&mut only, list([]));
    assert_eq!(told_within(TRIAL * 2, &mut watch).await.0, [News::AllListed]);
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_kind_is_listed_ever_less_often_until_it_is_granted() {
    let mut permission = never_forbidden();
    let pauses: Vec<_> = (0..50).map(|_| permission.forbidden()).collect();
    assert!(permission.is_forbidden());
    assert!(pauses.iter().all(|pause| *pause >= POLL_LEAST));
    assert!(pauses[0] <= POLL_LEAST + POLL.0, "{:?}", pauses[0]);
    assert!(pauses.iter().any(|pause| *pause > POLL_LEAST + POLL.0 * 2), "{pauses:?}");
    permission.granted();
    assert!(!permission.is_forbidden());
    let anew = permission.forbidden();
    assert!(anew <= POLL_LEAST + POLL.0, "{anew:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_its_first_failure() {
    let (mut only, in_only) = namespace();
    let mut watch = Watch::new([in_only], &never_forbidden());
    give(&mut only, list([1]));
    give(&mut only, [Err(watcher::Error::NoResourceVersion), Ok(Event::Init)]);
    let (told, ended) = told(&mut watch).await;
    assert_eq!(told, [News::Listed(1), News::AllListed]);
    assert!(matches!(ended, Some(Ended::Lost(_))));
    assert!(matches!(watch.next().await, Err(Ended::Lost(_))), "its stream is over");
}
