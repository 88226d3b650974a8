use std::cell::Cell;

use prometheus_client::registry::Registry;

use super::*;

fn newer() -> Error {
    Error::Newer { reference: "there".to_owned(), found: 9, by: "9.0.0".to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_newer_identity_freezes_the_agent_until_it_can_be_read() {
    let (health, mut registry) = (Health::new(), Registry::default());
    let metrics = Metrics::register(&mut registry);
    let frozen = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.lines().any(|line| !line.starts_with('#') && line.ends_with("frozen 1"))
    };
    let loads = Cell::new(0);
    let found = when_readable(&health, &metrics, || {
        loads.set(loads.get() + 1);
        if loads.get() > 1 {
            assert!(frozen(&registry), "it says so meanwhile");
            assert_eq!(health.waiting_for(), ["frozen"]);
        }
        std::future::ready(if loads.get() < 200 { Err(newer()) } else { Ok("who it is") })
    });
    assert_eq!(found.await.unwrap(), "who it is");
    assert!(!frozen(&registry) && health.waiting_for().is_empty(), "it goes on by itself");
}

#[tokio::test(start_paused = true)]
async fn only_a_newer_identity_is_retried() {
    let (health, mut registry) = (Health::new(), Registry::default());
    let metrics = Metrics::register(&mut registry);
    let outcome = when_readable(&health, &metrics, || std::future::ready(Err::<(), _>(Error::Random))).await;
    assert!(matches!(outcome, Err(Error::Random)));
}
