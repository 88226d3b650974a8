use expect_test::{Expect, expect};

use super::*;

fn access(yaml: &str) -> Result<Access, Error> {
    Access::of("FILE".to_owned(), Kubeconfig::from_yaml(yaml).unwrap())
}

fn refused(yaml: &str, expected: &Expect) {
    expected.assert_eq(&access(yaml).unwrap_err().to_string());
}

#[test]
fn there_is_a_context_for_each_space() {
    expect![[r#"
        apiVersion: v1
        kind: Config
        current-context: "default"
        clusters:
        - name: "root"
          cluster:
            server: "https://hub:8443/spaces/root"
            certificate-authority-data: "UEVN"
        - name: "default"
          cluster:
            server: "https://hub:8443/spaces/default"
            certificate-authority-data: "UEVN"
        contexts:
        - name: "root"
          context:
            cluster: "root"
            user: "tideline-admin"
        - name: "default"
          context:
            cluster: "default"
            user: "tideline-admin"
        users:
        - name: "tideline-admin"
          user:
            token: "secret"
    "#]]
    .assert_eq(&text("https://hub:8443/", Some("PEM"), "secret", &["root", "default"]));
}

#[test]
fn names_that_look_like_other_yaml_stay_names() {
    let read = Kubeconfig::from_yaml(&text("https://hub", Some("PEM"), "123", &["null", "1e3", "no"])).unwrap();
    let names: Vec<_> = read.contexts.iter().map(|context| context.name.as_str()).collect();
    assert_eq!(names, ["null", "1e3", "no"]);
    assert_eq!(read.current_context.as_deref(), Some("null"));
}

#[test]
fn a_kubeconfig_of_one_space_is_made_from_that_of_the_administrator() {
    let admin = text("https://hub.example.com/tideline", Some("PEM"), "secret", &["root", "default"]);
    let retail = access(&admin).unwrap().kubeconfig(&"retail".parse().unwrap()).unwrap();
    assert_eq!(retail, text("https://hub.example.com/tideline", Some("PEM"), "secret", &["retail"]));
    let admin = text("https://hub.example.com", None, "secret", &["root"]);
    let retail = access(&admin).unwrap().kubeconfig(&"retail".parse().unwrap()).unwrap();
    assert!(!retail.contains("certificate-authority-data"), "the system's are trusted: {retail}");
}

#[tokio::test]
async fn any_space_is_found_beside_the_root_space() {
    // A context `default` that is somebody's cluster is never taken for the space.
    let admin = text("https://hub", None, "secret", &["root"])
        .replace("contexts:\n", "contexts:\n- name: default\n  context:\n    cluster: laptop\n    user: laptop\n");
    let access = access(&admin).unwrap();
    assert_eq!(access.url, "https://hub");
    assert_eq!(access.kubeconfig.clusters[access.cluster].name, "root");
}

#[test]
fn what_is_no_kubeconfig_of_a_hub_is_said() {
    refused(
        "{}",
        &expect![[
            r#"the kubeconfig FILE is not a hub's: it has no context, and needs a context "root" whose server ends in /spaces/root; use admin.kubeconfig of the hub's data directory"#
        ]],
    );
    refused(
        &text("https://hub", Some("PEM"), "secret", &["default", "retail"]),
        &expect![[
            r#"the kubeconfig FILE is not a hub's: it has the contexts default, retail, and needs a context "root" whose server ends in /spaces/root; use admin.kubeconfig of the hub's data directory"#
        ]],
    );
    refused(
        &text("https://hub", Some("PEM"), "secret", &["root"]).replace("/spaces/root", "/k8s"),
        &expect![[
            r#"the kubeconfig FILE is not a hub's: it has the contexts root, and needs a context "root" whose server ends in /spaces/root; use admin.kubeconfig of the hub's data directory"#
        ]],
    );
    let tokenless = text("https://hub", Some("PEM"), "secret", &["root"]).replace("token:", "username:");
    let error = access(&tokenless).unwrap().kubeconfig(&SpaceName::root()).unwrap_err();
    expect![[r#"the context "root" of FILE lacks a token, which a kubeconfig of a space is made from"#]]
        .assert_eq(&error.to_string());
    let missing = Access::read(Some(Path::new("/does/not/exist"))).unwrap_err();
    expect!["cannot read the kubeconfig /does/not/exist; give a readable one with --kubeconfig"]
        .assert_eq(&missing.to_string());
}

#[test]
fn a_file_that_is_something_else_is_not_quoted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "tideline1.secret").unwrap();
    let error = tideline_runtime::exit::chain(&Access::read(Some(file.path())).unwrap_err());
    assert!(error.ends_with("is no kubeconfig; use admin.kubeconfig of the hub's data directory"), "{error}");
}
