//! What is shown of a target whose agent has a wrong clock.

use tideline_common::Reason;

use super::*;
use crate::limits::CLOCK_SHOWN;
use crate::statuses::target_status;

impl Hub {
    fn shows_a_wrong_clock(&self) -> bool {
        let (_, status) = target_status(&self.engine, target()).unwrap();
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        conditions.any(|it| it["type"] == "ClockImplausible" && it["message"].as_str().unwrap().contains("set the one"))
    }
}

#[test]
fn a_clock_that_is_far_off_is_shown_until_it_is_right_for_ten_minutes() {
    let mut hub = Hub::with_agent();
    assert!(!hub.shows_a_wrong_clock());
    for _ in 0..3 {
        hub.engine.clock_differs(hub.now, target());
        hub.pass(CLOCK_SHOWN * 3 / 4);
        assert!(hub.shows_a_wrong_clock());
    }
    assert!(hub.engine.targets.get(target()).unwrap().problems.contains(&Reason::ClockImplausible));
    hub.pass(CLOCK_SHOWN);
    assert!(!hub.shows_a_wrong_clock());
}
