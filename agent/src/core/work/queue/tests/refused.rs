//! Kinds that are refused in many namespaces.

use super::*;

/// As a RoleBinding does, which gives a right in one namespace.
#[test]
fn a_right_that_is_granted_in_one_namespace_of_many_is_found_out_about_soon() {
    const NAMESPACES: usize = 640;
    const GRANTED: &str = "n300";
    let place = |nth| ObjectKey { namespace: format!("n{nth:03}").into(), ..key("", "ConfigMap", "c") };
    let mut offline = Offline::new((0..NAMESPACES).map(|nth| entry(&place(nth), 1, 1)).collect());
    let refuse = |offline: &mut Offline, until: Monotonic| loop {
        while let Some(at) = offline.begun.iter().position(|(_, key)| &*key.namespace != GRANTED) {
            let (id, _) = offline.begun.remove(at);
            let result = OpResult::Create(Err(Failure::new(Reason::Forbidden, "no")));
            offline.step(Event::Executed { id, result });
        }
        let next = offline.core.work.next_retry().expect("all are tried again");
        if !offline.begun.is_empty() || next > until {
            return;
        }
        offline.now = offline.now.max(next);
        offline.step(Event::Timer(Timer::Retry));
    };
    let until = Monotonic::START + Duration::from_mins(30);
    while offline.now < until {
        refuse(&mut offline, until);
        if offline.begun.is_empty() {
            break;
        }
        offline.fail(Reason::Forbidden);
    }
    // From now on it is let through there.
    offline.now = until;
    refuse(&mut offline, until + Duration::from_hours(10));
    assert_eq!(offline.begun.first().map(|(_, key)| &*key.namespace), Some(GRANTED));
    let after = offline.now.since(until);
    assert!(after <= RETRY.1, "after {after:?}");
}
