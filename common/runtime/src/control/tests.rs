use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::{Reconciler, Wake, run};

const RESYNC: Duration = Duration::from_mins(10);
const STEP: Duration = Duration::from_mins(1);

/// Says what it was asked for; zero is never reached.
struct Echo;

impl Reconciler for Echo {
    type Desired = u32;
    type Outcome = u32;
    const RESYNC: Duration = RESYNC;

    async fn reconcile(&mut self, desired: &u32) -> u32 {
        if *desired == 0 {
            std::future::pending::<()>().await;
        }
        *desired
    }
}

struct Loop {
    desired: watch::Sender<Arc<u32>>,
    outcome: watch::Receiver<Option<(Wake, u32)>>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Loop {
    fn start(first: u32) -> Self {
        let (desired, desired_rx) = watch::channel(Arc::new(first));
        let (outcome_tx, outcome) = watch::channel(None);
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(run(Echo, desired_rx, outcome_tx, shutdown.clone()));
        Self { desired, outcome, shutdown, task }
    }

    async fn next(&mut self) -> (Wake, u32) {
        let changed = time::timeout(2 * RESYNC, self.outcome.changed()).await;
        changed.expect("a pass within the resync").expect("the loop runs");
        self.outcome.borrow_and_update().expect("a pass was made")
    }
}

#[tokio::test(start_paused = true)]
async fn passes_follow_startup_changes_and_the_resync() {
    let mut control = Loop::start(1);
    assert_eq!(control.next().await, (Wake::Startup, 1));
    control.desired.send_replace(Arc::new(2));
    assert_eq!(control.next().await, (Wake::DesiredChanged, 2));
    assert_eq!(control.next().await, (Wake::Resync, 2));
}

#[tokio::test(start_paused = true)]
async fn the_resync_survives_wakes() {
    let started = Instant::now();
    let mut control = Loop::start(1);
    control.next().await;
    for desired in 2.. {
        time::advance(STEP).await;
        control.desired.send_replace(Arc::new(desired));
        if control.next().await.0 == Wake::Resync {
            break;
        }
    }
    assert!(started.elapsed() <= RESYNC + STEP, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn changes_before_a_pass_are_one_wake_with_the_latest_state() {
    let mut control = Loop::start(1);
    control.next().await;
    for desired in 2..=9 {
        control.desired.send_replace(Arc::new(desired));
    }
    assert_eq!(control.next().await, (Wake::DesiredChanged, 9));
    assert_eq!(control.next().await, (Wake::Resync, 9));
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_a_pass() {
    let control = Loop::start(0);
    tokio::task::yield_now().await;
    control.shutdown.cancel();
    time::timeout(STEP, control.task).await.expect("it ends").expect("without a panic");
    assert!(control.outcome.borrow().is_none());
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_nobody_can_change_what_is_desired() {
    let mut control = Loop::start(1);
    control.next().await;
    drop(control.desired);
    time::timeout(STEP, control.task).await.expect("it ends").expect("without a panic");
}
