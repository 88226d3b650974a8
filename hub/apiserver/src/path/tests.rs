use super::*;

fn resource(path: &str) -> (Option<String>, String, Option<String>, Option<String>) {
    match Path::parse(path).expect(path) {
        Path::Resource(found) => (found.namespace, found.plural, found.name, found.subresource),
        other => panic!("{path} is {other:?}"),
    }
}

#[test]
fn resource_paths_split_as_in_kubernetes() {
    assert_eq!(resource("/api/v1/namespaces"), (None, "namespaces".into(), None, None));
    assert_eq!(resource("/api/v1/namespaces/a"), (None, "namespaces".into(), Some("a".to_owned()), None));
    assert_eq!(
        resource("/api/v1/namespaces/a/finalize"),
        (None, "namespaces".into(), Some("a".to_owned()), Some("finalize".to_owned()))
    );
    assert_eq!(resource("/api/v1/namespaces/a/pods"), (Some("a".to_owned()), "pods".into(), None, None));
    assert_eq!(
        resource("/api/v1/namespaces/a/pods/b/log"),
        (Some("a".to_owned()), "pods".into(), Some("b".to_owned()), Some("log".to_owned()))
    );
    assert_eq!(resource("/apis/apps/v1/deployments"), (None, "deployments".into(), None, None));
    let role = resource("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode");
    assert_eq!(role, (None, "clusterroles".into(), Some("system:node".to_owned()), None));
}

#[test]
fn a_name_cannot_escape_its_key() {
    assert!(Path::parse("/api/v1/namespaces/a/pods/..%2Fb").is_err());
    assert!(Path::parse("/api/v1/namespaces/a%2Fb/pods/c").is_err());
    assert!(Path::parse("/api/v1/namespaces/-/pods/c").is_err());
}
