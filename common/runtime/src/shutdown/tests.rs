use std::convert::Infallible;

use super::Shutdown;

#[tokio::test(start_paused = true)]
async fn run_ends_when_asked_and_its_tasks_have_ended() {
    let run = Shutdown::new();
    let token = run.token().clone();
    run.spawn("patient", async move {
        token.cancelled().await;
        Ok::<_, Infallible>(())
    });
    run.begin();
    assert!(run.finished().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn task_that_fails_ends_the_run_with_its_name() {
    let run = Shutdown::new();
    run.spawn("fragile", async { Err("no disk") });
    let error = run.finished().await.expect_err("the task failed");
    assert_eq!(error.to_string(), "the task fragile ended: no disk");
}

#[tokio::test(start_paused = true)]
async fn task_that_just_returns_ends_the_run_too() {
    let run = Shutdown::new();
    run.spawn("brief", async { Ok::<_, Infallible>(()) });
    let error = run.finished().await.expect_err("the task returned");
    assert_eq!(error.to_string(), "the task brief ended: it returned");
}

#[tokio::test(start_paused = true)]
async fn task_that_does_not_stop_is_aborted_after_the_grace_period() {
    let run = Shutdown::new();
    run.spawn("deaf", std::future::pending::<Result<(), Infallible>>());
    run.begin();
    assert!(run.finished().await.is_ok());
}
