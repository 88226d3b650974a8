//! What is shown of what an agent does not understand.

use tideline_common::Capability;
use tideline_common::rollup::Counts;

use super::*;
use crate::statuses::target_status;

#[test]
fn what_is_withheld_from_an_old_agent_says_so_and_what_to_do_until_it_is_upgraded() {
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    let object = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Placement", "metadata": {"name": "p"},
        "spec": {
            "targets": [{"matchLabels": {"tier": "shop"}}],
            "objects": [{"resources": ["configmaps"]}],
            "additions": {"labels": {"team": "checkout"}},
        },
    });
    let placement: Placement = tideline_api::decode(object).unwrap();
    let rule = PlacementRule::try_from(&placement.spec).unwrap();
    hub.engine.index.apply_placement(&space(), "p", "p".parse().unwrap(), Ok(rule));
    hub.persist();
    let without = Capabilities::all().without(Capability::Additions);
    let understands = |hub: &mut Hub, capabilities: &Capabilities| {
        let capabilities = capabilities.clone();
        hub.engine.execute(hub.now, link::Effect::Understands { target: target(), capabilities });
        hub.persist();
    };
    understands(&mut hub, &without);

    let outline = hub.outlines().remove(0);
    assert_eq!(outline.overview.counts, Counts::withheld());
    let what = "its agent is too old for additions: upgrade the agent to at least 0.1.0";
    let worst = &outline.overview.worst[0];
    assert_eq!((worst.reason, worst.message.as_str()), (Reason::AgentTooOld, what));
    let line = hub.lines().remove(0);
    let report = line.report.unwrap();
    assert_eq!((report.reason, report.message.as_str()), (Some(Reason::AgentTooOld), what));
    let condition = |hub: &Hub| {
        let (_, status) = target_status(&hub.engine, target()).unwrap();
        let conditions = status["conditions"].as_array().unwrap().clone();
        conditions.into_iter().find(|condition| condition["type"] == "AgentTooOld").map(|it| it["message"].clone())
    };
    assert_eq!(condition(&hub), Some(json!(format!("objects withheld, and left as they are: 1; {what}"))));

    understands(&mut hub, &Capabilities::all());
    assert_eq!(hub.outlines().remove(0).overview.counts.withheld, 0);
    assert_eq!(condition(&hub), None);
    assert!(hub.lines().remove(0).report.is_none());
}

#[test]
fn an_agent_too_old_to_be_handed_over_is_shown_where_it_is_waited_for() {
    let shown = |hub: &Hub| {
        let (_, status) = target_status(&hub.engine, heir()).unwrap();
        let conditions = status["conditions"].as_array().unwrap().clone();
        let too_old = conditions.into_iter().find(|condition| condition["type"] == "AgentTooOld");
        too_old.map(|it| it["message"].as_str().unwrap().to_owned())
    };
    let what = "its agent is too old for handover: upgrade the agent to at least 0.1.0";
    let cannot = format!("the adopted agent stays frozen until it is upgraded: {what}");
    let link::Request::Session(older, from) = asks(1) else { unreachable!("it is one") };
    let without = Capabilities::all().without(Capability::Handover);
    let older = Box::new(SessionRequest { capabilities: without, ..*older });
    let mut hub = recreated_after(link::Request::Session(older, from), None);
    assert_eq!(hub.engine.upgrade_before_handover(target()).as_deref(), Some(what));
    adopts(&mut hub, 1);
    assert_eq!(shown(&hub), Some(cannot.clone()));
    // It was upgraded, and comes.
    assert_eq!(handed(&mut hub, target(), target(), &[]), Ok(heir()));
    assert_eq!(handed(&mut hub, heir(), heir(), &[target()]), Err("session 2".to_owned()));
    let bodies = BodiesRequest { session: SessionName::new(2, 0), wanted: Vec::new() };
    let (_, _answer) = hub.engine.request(hub.now, heir(), link::Request::Bodies(bodies));
    hub.persist();
    assert_eq!(shown(&hub), None);

    // Nothing is known of its last session, and it asks.
    let mut hub = Hub::with(1);
    hub.engine.target_seen(hub.now, in_service(true), Some(agent(1)));
    hub.engine.target_gone(hub.now, target(), Deletion::default());
    hub.persist();
    adopts(&mut hub, 1);
    assert_eq!((shown(&hub), hub.engine.upgrade_before_handover(target())), (None, None));
    let asks = SessionRequest { asked_as: Some(target()), ..SessionRequest::default() };
    assert_eq!(answered(&mut hub, target(), asks, target()), Err("TargetGone".to_owned()));
    assert_eq!(shown(&hub), Some(cannot));
}
