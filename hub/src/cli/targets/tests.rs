use expect_test::expect;

use super::*;

#[test]
fn no_agent_writes_to_the_terminal_of_who_chooses_it() {
    let instance = |id: &str| AgentInstance {
        id: id.to_owned(),
        host: "a\u{1b}[2J\u{202e}\nb".to_owned(),
        address: None,
        since: None,
        holds: false,
    };
    let accepted = Accepted { target: "store".to_owned(), instance: instance("1"), others: vec![instance("2")] };
    let text = accepted_text(&accepted);
    assert!(text.starts_with("1 on a [2J  b is to keep") && text.ends_with(": 2 on a [2J  b\n"), "{text:?}");
}

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
        reported: false,
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
