use super::*;

#[test]
fn exactly_one_provider_is_accepted() {
    let kubeconfig = KubeconfigSpace { secret_ref: SecretReference { name: "edge".to_owned() } };
    let spec = |embedded, kubeconfig| SpaceSpec { embedded, kubeconfig, allow: Allow::default() };
    assert_eq!(spec(Some(EmbeddedSpace {}), None).provider(), Ok(SpaceProvider::Embedded));
    assert_eq!(spec(None, Some(kubeconfig.clone())).provider(), Ok(SpaceProvider::Kubeconfig(&kubeconfig)));
    assert_eq!(spec(None, None).provider(), Err(SpaceProviderError::Missing));
    assert_eq!(spec(Some(EmbeddedSpace {}), Some(kubeconfig)).provider(), Err(SpaceProviderError::Ambiguous));
}

#[test]
fn a_space_may_do_nothing_until_said() {
    let allow = Allow::default();
    assert!(allow.locations.is_empty() && allow.targets.is_empty() && allow.kinds.is_empty());
    assert!(!allow.annotation_assignment);
}

#[test]
fn kinds_match_by_group_and_kind() {
    let matches = |pattern: &str, group, kind| pattern.parse::<KindPattern>().unwrap().matches(group, kind);
    assert!(matches("*", "apps", "Deployment"));
    assert!(matches("*.apps", "apps", "Deployment"));
    assert!(!matches("*.apps", "", "ConfigMap"));
    assert!(matches("ConfigMap", "", "ConfigMap"));
    assert!(!matches("ConfigMap", "example.com", "ConfigMap"));
    assert!(matches("Widget.shop.example.com", "shop.example.com", "Widget"));
}

#[test]
fn what_names_no_kind_is_refused() {
    for text in ["", "deployments.apps", "Deployment.", ".apps", "Deployment/apps", "Deployment.Apps", "**"] {
        assert!(text.parse::<KindPattern>().is_err(), "{text}");
    }
}
