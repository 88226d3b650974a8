use expect_test::expect;

use super::*;

#[test]
fn who_an_agent_is_and_what_became_of_its_target_is_shown() {
    let agent = Agent {
        name: "store-0042".to_owned(),
        target: "11111111-1111-4111-8111-111111111111".parse().unwrap(),
        state: AgentState::Deleted,
        fingerprint: "0123456789abcdef0123456789abcdef".to_owned(),
        key: Some("a2V5".to_owned()),
        former_keys: Vec::new(),
        cluster: Some("c1".to_owned()),
        last_contact: Some("2026-11-23T03:00:00Z".parse().unwrap()),
        deleted_at: Some("2026-11-22T03:00:00Z".parse().unwrap()),
        deleted_by: Some("admin".to_owned()),
        adopted_by: None,
        upgrade: None,
    };
    let revoked = Agent {
        state: AgentState::Revoked,
        cluster: None,
        last_contact: None,
        deleted_at: None,
        deleted_by: None,
        ..agent.clone()
    };
    expect![[r#"
        SYNCTARGET   UID                                    STATE                                      FINGERPRINT                        CLUSTER   LAST CONTACT
        store-0042   11111111-1111-4111-8111-111111111111   Deleted by admin at 2026-11-22T03:00:00Z   0123456789abcdef0123456789abcdef   c1        2026-11-23T03:00:00Z
        store-0042   11111111-1111-4111-8111-111111111111   Revoked                                    0123456789abcdef0123456789abcdef   -         -
    "#]]
    .assert_eq(&table(&[agent, revoked]));
}
