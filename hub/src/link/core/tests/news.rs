//! A change that concerns very many agents.

use uuid::Uuid;

use super::*;
use crate::link::core::news::TOLD_AT_ONCE;

const AGENTS: u128 = 5 * TOLD_AT_ONCE as u128;
const WAIT: u64 = 45;

/// All targets have the same set, which has this revision.
struct Alike(u64);

impl Sets for Alike {
    fn continuity(&self, _: TargetId, _: Option<Shown>) -> TargetContinuity {
        TargetContinuity::Whole { absence: Absence::TakenOut }
    }

    fn has_shown_later(&self, _: TargetId, _: Shown) -> bool {
        false
    }

    fn info(&self, _: TargetId) -> Option<SetInfo> {
        let version = Version { epoch: Epoch(1), revision: Revision(self.0) };
        Some(SetInfo { version, point: RevisionPoint::NOWHERE, digest: Digest::of(&self.0.to_be_bytes()), entries: 0 })
    }

    fn page(&self, _: TargetId, _: Option<Revision>, _: Option<&ObjectKey>, _: usize) -> Option<SetPage> {
        Some(SetPage::default())
    }

    fn is_told_to(&self, _: TargetId, _: &Capabilities) -> bool {
        true
    }

    fn names(&self, _: TargetId, _: &ObjectKey, _: Digest) -> bool {
        false
    }

    fn approved(&self, _: Monotonic, _: TargetId, _: &ApprovedHeld) -> Option<ApprovedPage> {
        None
    }
}

fn nth(number: u128) -> TargetId {
    TargetId::from_uuid(Uuid::from_u128(number + 1))
}

/// A core of which all agents wait for news since revision 1.
struct Crowd {
    core: Core,
    sets: Alike,
    requests: u64,
}

impl Crowd {
    fn waiting() -> Self {
        let mut crowd = Self { core: Core::new(Config::default()), sets: Alike(1), requests: 0 };
        for target in (0..AGENTS).map(nth) {
            let holder = Box::new(HolderRecord::held(SessionName::new(4, 1), Instance::default()));
            let decommission = Decommission::No;
            crowd.step(0, Event::TargetKnown { target, cluster: None, holder, decommission });
            let request = asks_from(SessionName::new(4, 1), 1);
            let from = Origin { id: SessionId(1), proof: Proof::OwnWord, ..Origin::default() };
            crowd.request(target, Request::Session(Box::new(request), from));
            crowd.stored(target);
            crowd.poll(target, 1);
        }
        crowd
    }

    fn step(&mut self, now: u64, event: Event) -> Effects {
        let mut out = Effects::new();
        self.core.step(at(now), &self.sets, event, &mut out);
        out
    }

    fn request(&mut self, target: TargetId, request: Request) -> Effects {
        self.requests += 1;
        self.step(0, Event::Requested { id: RequestId(self.requests), target, request })
    }

    fn stored(&mut self, target: TargetId) {
        let version = self.core.targets[&target].sessions.version();
        self.step(0, Event::HolderStored { target, version });
    }

    /// Polls as who has the set of this revision.
    fn poll(&mut self, target: TargetId, revision: u64) -> Effects {
        let SetInfo { version, digest, .. } = Alike(revision).info(target).expect("it is known");
        let request = Script::poll(5, Some(Accepted { version, digest }), WAIT);
        let mut out = self.request(target, Request::Desired(request));
        self.stored(target);
        out.retain(|effect| matches!(effect, Effect::Respond { .. }));
        out
    }

    fn commit(&mut self) -> Effects {
        self.sets.0 += 1;
        self.step(1, Event::Committed((0..AGENTS).map(nth).collect()))
    }
}

/// Agents that are given the new set, and those that are told that there is none.
fn told(out: &Effects) -> (usize, usize) {
    let given = |effect: &&Effect| {
        matches!(effect, Effect::Respond { answer: Ok(Answer::Desired(DesiredAnswer::Page(_))), .. })
    };
    let nothing = |effect: &&Effect| {
        matches!(effect, Effect::Respond { answer: Ok(Answer::Desired(DesiredAnswer::NothingNew)), .. })
    };
    (out.iter().filter(given).count(), out.iter().filter(nothing).count())
}

#[test]
fn they_are_told_some_at_a_time_and_at_once() {
    let mut crowd = Crowd::waiting();
    assert_eq!(told(&crowd.commit()), (TOLD_AT_ONCE, 0));
    for _ in 1..5 {
        assert!(crowd.core.is_telling());
        assert_eq!(told(&crowd.step(1, Event::TellMore)), (TOLD_AT_ONCE, 0));
    }
    assert!(!crowd.core.is_telling());
}

#[test]
fn whose_time_is_over_before_it_is_told_is_told_the_change() {
    let mut crowd = Crowd::waiting();
    crowd.commit();
    assert_eq!(told(&crowd.step(WAIT, Event::Timer)), (4 * TOLD_AT_ONCE, 0));
}

#[test]
fn who_is_told_again_and_again_delays_nobody_else() {
    let mut crowd = Crowd::waiting();
    crowd.commit();
    // The first ones come back at once, and there is another change each time.
    let mut given = TOLD_AT_ONCE;
    for revision in 2..6 {
        for target in (0..TOLD_AT_ONCE as u128).map(nth) {
            crowd.poll(target, revision);
        }
        given += told(&crowd.commit()).0;
    }
    assert_eq!(given, 5 * TOLD_AT_ONCE);
    let waits = |number: u128| crowd.core.targets[&nth(number)].waiting.as_ref();
    assert!((TOLD_AT_ONCE as u128..AGENTS).all(|number| waits(number).is_none()), "all others were told");
}
