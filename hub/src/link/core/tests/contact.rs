use tideline_common::wire::v1::Stands;

use super::*;

impl Script {
    /// A poll that says that this report stands, at a time.
    fn stands(&mut self, now: u64, session: u64, report: u64) -> String {
        self.now = now;
        self.polls += 1;
        self.stands_nth(session, Stands { report, nth: self.polls })
    }

    fn stands_nth(&mut self, session: u64, stands: Stands) -> String {
        let request = DesiredRequest { stands: Some(stands), ..Self::poll(session, Some(self.accepted()), 45) };
        self.request(Request::Desired(request))
    }

    fn is_fresh_at(&mut self, now: u64) -> bool {
        self.now = now;
        self.event(Event::Timer);
        self.core.freshness(target()) == Some(Freshness::Fresh)
    }
}

#[test]
fn a_poll_that_says_that_the_last_report_stands_is_as_good_as_another() {
    let mut script = Script::new();
    script.open(None);
    script.report(5, 1, true);
    check(&script.stands(100, 5, 1), &expect!["heard, in sync true"]);
    assert!(script.is_fresh_at(219));
    assert!(!script.is_fresh_at(220), "a poll that is open says nothing more");
    check(
        &script.stands(230, 5, 1),
        &expect![[r#"
            heard, in sync true
            timer 275"#]],
    );
    assert!(script.is_fresh_at(231));
}

#[test]
fn a_poll_that_was_kept_back_says_nothing_once_a_later_one_came() {
    let mut script = Script::new();
    script.open(None);
    script.report(5, 1, true);
    script.now = 50;
    script.stands_nth(5, Stands { report: 1, nth: 2 });
    script.now = 160;
    script.stands_nth(5, Stands { report: 1, nth: 1 });
    assert!(script.is_fresh_at(169) && !script.is_fresh_at(170));
}

#[test]
fn a_poll_that_was_overtaken_by_a_report_says_nothing() {
    let mut script = Script::new();
    script.open(None);
    script.report(5, 1, true);
    script.report(5, 2, false);
    script.stands(100, 5, 1);
    assert!(!script.is_fresh_at(121));
    script.stands(130, 5, 2);
    assert!(!script.is_fresh_at(131), "that one did not say that it is in sync");
}

#[test]
fn a_hub_that_does_not_know_the_report_asks_for_another() {
    let mut script = Script::new();
    script.open(None);
    script.report(5, 7, true);
    script.restart();
    check(&script.stands(10, 5, 7), &expect!["3: ReportAgain"]);
    assert!(!script.is_fresh_at(10));
    script.report(5, 8, true);
    check(
        &script.stands(20, 5, 8),
        &expect![[r#"
            heard, in sync true
            timer 65"#]],
    );
    script.open(None);
    script.desired(6, None, 0);
    check(&script.stands(30, 6, 8), &expect!["8: ReportAgain"]);
}
