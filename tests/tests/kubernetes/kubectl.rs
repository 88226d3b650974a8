//! What people do with kubectl works in a space, on built-in kinds as on custom resources.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tideline_tests::fleet::Hub;
use tideline_tests::kubernetes::{Assets, Kubectl};
use tideline_tests::{Finished, Process, Scratch, eventually_ok, require_kubernetes, run_to_end};

const SOON: Duration = Duration::from_secs(90);

/// A kind under test: one manifest, in which the word `first` may become another.
#[derive(Clone, Copy)]
struct Subject {
    /// As in `kubectl get`.
    resource: &'static str,
    /// As kubectl answers.
    shown: &'static str,
    manifest: fn(word: &str) -> Value,
    /// Where the word is.
    path: &'static str,
}

const SUBJECTS: [Subject; 2] = [
    Subject {
        resource: "deployments",
        shown: "deployment.apps/web",
        manifest: deployment,
        path: "{.spec.template.spec.containers[0].image}",
    },
    Subject { resource: "widgets", shown: "widget.example.com/web", manifest: widget, path: "{.spec.size}" },
];

fn deployment(word: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": word}]},
            },
        },
    })
}

fn widget(word: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "size": word},
    })
}

/// Widgets have a status, a scale, a short name and a column.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "properties": {
                                "replicas": {"type": "integer"},
                                "size": {"type": "string", "description": "How much fits in.", "maxLength": 9},
                            },
                        },
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    },
                }},
            }],
        },
    })
}

/// Somebody with kubectl at a space.
struct Desk {
    kubectl: Kubectl,
    _hub: Hub,
}

impl Desk {
    async fn start(assets: &Assets) -> Result<Self> {
        let hub = Hub::start().await?;
        let desk = Self { kubectl: assets.kubectl(&hub.kubeconfig())?.with_context("default"), _hub: hub };
        desk.does(&["create", "-f", "-"], &definition(), "created").await?;
        let crd = "customresourcedefinition/widgets.example.com";
        desk.does(&["wait", crd, "--for=condition=Established", "--timeout=20s"], &Value::Null, "met").await?;
        Ok(desk)
    }

    /// Runs what must succeed, and say `part`.
    async fn does(&self, arguments: &[&str], input: &Value, part: &str) -> Result<String> {
        let said = self.kubectl.run_with_input(arguments, &input.to_string()).await?;
        ensure!(said.contains(part), "kubectl {} should say {part:?}: {said}", arguments.join(" "));
        Ok(said)
    }

    /// Runs what must fail, and say `part` of it.
    async fn fails(&self, arguments: &[&str], input: &Value, part: &str) -> Result<()> {
        let Finished { status, stderr, .. } = self.kubectl.try_run(arguments, &input.to_string()).await?;
        ensure!(!status.success(), "kubectl {} succeeds", arguments.join(" "));
        ensure!(stderr.contains(part), "kubectl {} should say {part:?}: {stderr}", arguments.join(" "));
        Ok(())
    }

    async fn value(&self, subject: Subject, path: &str) -> Result<String> {
        self.kubectl.run(&["get", subject.resource, "web", "-o", &format!("jsonpath={path}")]).await
    }

    async fn holds(&self, subject: Subject, path: &str, expected: &str) -> Result<()> {
        let found = self.value(subject, path).await?;
        ensure!(found == expected, "{path} of {} should be {expected:?}: {found:?}", subject.shown);
        Ok(())
    }
}

#[tokio::test]
async fn kubectl_creates_applies_and_shows_differences() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    for subject @ Subject { resource, shown, manifest, path } in SUBJECTS {
        let (first, second) = (manifest("first"), manifest("second"));
        desk.does(&["create", "--save-config", "-f", "-"], &first, &format!("{shown} created")).await?;
        desk.fails(&["create", "-f", "-"], &first, "AlreadyExists").await?;
        desk.does(&["diff", "-f", "-"], &first, "").await?;
        let differs = desk.kubectl.try_run(&["diff", "-f", "-"], &second.to_string()).await?;
        ensure!(differs.code()? == 1, "a difference is exit code 1: {}", differs.stderr);
        let changed: Vec<_> = differs.stdout.lines().filter(|line| line.starts_with(['+', '-'])).collect();
        ensure!(changed.iter().any(|line| line.starts_with('+') && line.contains("second")), "{changed:?}");
        // Two names of files, the generation, and the word.
        ensure!(changed.len() == 6, "only the change differs: {changed:?}");
        desk.does(&["apply", "-f", "-"], &second, &format!("{shown} configured")).await?;
        desk.does(&["apply", "-f", "-"], &second, &format!("{shown} unchanged")).await?;
        desk.holds(subject, path, "second").await?;

        // Fields that an apply does not mention any more are removed, and those that others set stay.
        desk.does(&["label", resource, "web", "by=hand"], &Value::Null, "labeled").await?;
        let mut fewer = second;
        fewer["spec"].as_object_mut().context("a spec")?.remove("replicas");
        desk.does(&["apply", "-f", "-"], &fewer, "configured").await?;
        let replicas = if resource == "deployments" { "1" } else { "" };
        desk.holds(subject, "{.spec.replicas}", replicas).await?;
        desk.holds(subject, "{.metadata.labels.by}", "hand").await?;

        let mut wrong = first;
        wrong["spec"]["replicaz"] = json!(3);
        desk.fails(&["apply", "-f", "-"], &wrong, "unknown field \"spec.replicaz\"").await?;
        wrong["spec"] = json!({"replicas": "many"});
        desk.fails(&["apply", "-f", "-"], &wrong, "replicas").await?;
        desk.holds(subject, path, "second").await?;
    }
    Ok(())
}

/// It is checked by the OpenAPI v2 document, which kubectl reads as protobuf.
#[tokio::test]
async fn kubectl_applies_a_list() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    let list = |word: &str| {
        let items = SUBJECTS.map(|subject| (subject.manifest)(word));
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    };
    for (word, said) in [("first", "created"), ("first", "unchanged"), ("second", "configured")] {
        let told = desk.does(&["apply", "-f", "-"], &list(word), said).await?;
        for Subject { shown, .. } in SUBJECTS {
            ensure!(told.contains(&format!("{shown} {said}")), "{shown} should be {said}: {told}");
        }
    }
    let mut wrong = list("second");
    for item in wrong["items"].as_array_mut().context("items")? {
        item["spec"]["replicaz"] = json!(3);
    }
    for of in ["io.k8s.api.apps.v1.DeploymentSpec", "com.example.v1.Widget.spec"] {
        desk.fails(&["apply", "-f", "-"], &wrong, &format!("unknown field \"replicaz\" in {of}")).await?;
    }
    Ok(())
}

#[tokio::test]
async fn kubectl_applies_server_side_and_is_told_of_conflicts() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    for subject @ Subject { shown, manifest, path, .. } in SUBJECTS {
        let applied = format!("{shown} serverside-applied");
        let apply = ["apply", "--server-side", "-f", "-"];
        let other = ["apply", "--server-side", "-f", "-", "--field-manager=other"];
        desk.does(&apply, &manifest("first"), &applied).await?;
        desk.does(&[&other[..], &["--dry-run=server", "--force-conflicts"]].concat(), &manifest("second"), &applied)
            .await?;
        desk.holds(subject, path, "first").await?;
        desk.does(&other, &manifest("first"), &applied).await?;
        desk.fails(&other, &manifest("second"), "conflict with \"kubectl\"").await?;
        desk.does(&[&other[..], &["--force-conflicts"]].concat(), &manifest("second"), &applied).await?;
        desk.holds(subject, path, "second").await?;
        let managers = desk.value(subject, "{.metadata.managedFields[*].manager}").await?;
        assert_eq!(managers, "kubectl other");
    }
    Ok(())
}

#[tokio::test]
async fn kubectl_patches_edits_labels_annotates_and_scales() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    for subject @ Subject { resource, shown, manifest, path } in SUBJECTS {
        let none = Value::Null;
        desk.does(&["create", "-f", "-"], &manifest("first"), "created").await?;
        let of = |verb: &'static str, rest: &[&'static str]| [&[verb, resource, "web"], rest].concat();

        let merge = of("patch", &["--type=merge", "-p", r#"{"spec":{"replicas":3}}"#]);
        desk.does(&merge, &none, &format!("{shown} patched")).await?;
        desk.does(&merge, &none, "(no change)").await?;
        let json =
            r#"[{"op":"test","path":"/spec/replicas","value":3},{"op":"replace","path":"/spec/replicas","value":4}]"#;
        desk.does(&of("patch", &["--type=json", "-p", json]), &none, "patched").await?;
        desk.fails(&of("patch", &["--type=json", "-p", json]), &none, "test").await?;
        desk.holds(subject, "{.spec.replicas}", "4").await?;
        let status = of("patch", &["--subresource=status", "--type=merge", "-p", r#"{"status":{"replicas":4}}"#]);
        desk.does(&status, &none, "patched").await?;
        desk.holds(subject, "{.status.replicas}", "4").await?;

        let mut edit = desk.kubectl.command(&of("edit", &[]));
        let edited = run_to_end(edit.env("KUBE_EDITOR", "sed -i s/first/edited/"), "", SOON).await?;
        ensure!(edited.stdout.contains(&format!("{shown} edited")), "{edited:?}");
        desk.holds(subject, path, "edited").await?;

        desk.does(&of("label", &["tier=shop"]), &none, "labeled").await?;
        desk.fails(&of("label", &["tier=back"]), &none, "--overwrite").await?;
        desk.does(&of("label", &["tier=back", "--overwrite"]), &none, "labeled").await?;
        desk.does(&["get", resource, "-l", "tier=back", "-o", "name"], &none, shown).await?;
        desk.does(&of("label", &["tier-"]), &none, "unlabeled").await?;
        desk.does(&of("annotate", &["example.com/note=a b"]), &none, "annotated").await?;
        desk.holds(subject, r"{.metadata.annotations.example\.com/note}", "a b").await?;

        desk.does(&of("scale", &["--replicas=7", "--current-replicas=4"]), &none, "scaled").await?;
        desk.fails(&of("scale", &["--replicas=8", "--current-replicas=4"]), &none, "Expected replicas to be 4, was 7")
            .await?;
        desk.holds(subject, "{.spec.replicas}", "7").await?;
    }
    // Strategic merge knows lists of built-in kinds; there is none for custom resources.
    let container = r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","workingDir":"/srv"}]}}}}"#;
    desk.does(&["patch", "deployment", "web", "-p", container], &Value::Null, "patched").await?;
    desk.holds(SUBJECTS[0], "{.spec.template.spec.containers[*].image}", "edited").await?;
    desk.fails(&["patch", "widget", "web", "-p", "{}"], &Value::Null, "application/strategic-merge-patch+json").await
}

#[tokio::test]
async fn kubectl_follows_waits_and_deletes() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    let logs = Scratch::new("kubectl-watches")?;
    for subject @ Subject { resource, shown, manifest, .. } in SUBJECTS {
        let none = Value::Null;
        let mut get = desk.kubectl.command(&["get", resource, "--watch", "--output-watch-events"]);
        let watch = Process::spawn("kubectl get --watch", &mut get, &logs.join(resource))?;
        let tells = async |event: &str| {
            eventually_ok(SOON, &format!("{event} of {shown}"), async || {
                let log = watch.log();
                let said = log.lines().any(|line| line.split_whitespace().take(2).eq([event, "web"]));
                ensure!(said, "it says: {log}");
                Ok(())
            })
            .await
        };
        let first = manifest("first");
        let mut wait = desk.kubectl.command(&["wait", &format!("{resource}/web"), "--for=create", "--timeout=20s"]);
        let (created, made) =
            tokio::join!(run_to_end(&mut wait, "", SOON), desk.does(&["create", "-f", "-"], &first, "created"),);
        made?;
        assert_eq!(created?.code()?, 0, "what is waited for is there");
        tells("ADDED").await?;
        desk.does(&["scale", resource, "web", "--replicas=5"], &none, "scaled").await?;
        tells("MODIFIED").await?;
        let five = "--for=jsonpath={.spec.replicas}=5";
        desk.does(&["wait", resource, "web", five, "--timeout=20s"], &none, "condition met").await?;
        desk.fails(&["wait", resource, "web", "--for=condition=Ready", "--timeout=1s"], &none, "timed out").await?;
        let ready = r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#;
        let status = ["patch", resource, "web", "--subresource=status", "--type=merge", "-p", ready];
        desk.does(&status, &none, "patched").await?;
        desk.does(&["wait", resource, "web", "--for=condition=Ready", "--timeout=20s"], &none, "met").await?;

        // What holds it is waited for.
        let finalizer = |list: &str| format!(r#"{{"metadata":{{"finalizers":{list}}}}}"#);
        let hold = finalizer(r#"["example.com/hold"]"#);
        desk.does(&["patch", resource, "web", "--type=merge", "-p", &hold], &none, "patched").await?;
        desk.does(&["delete", resource, "web", "--wait=false"], &none, "deleted").await?;
        ensure!(!desk.value(subject, "{.metadata.deletionTimestamp}").await?.is_empty(), "it is held");
        desk.does(&["patch", resource, "web", "--type=merge", "-p", &finalizer("[]")], &none, "patched").await?;
        desk.does(&["wait", resource, "web", "--for=delete", "--timeout=20s"], &none, "").await?;
        tells("DELETED").await?;
        desk.fails(&["get", resource, "web"], &none, "NotFound").await?;
        desk.fails(&["delete", resource, "web"], &none, "NotFound").await?;
    }
    Ok(())
}

#[tokio::test]
async fn kubectl_is_told_what_there_is() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    let none = Value::Null;
    let resources = desk.does(&["api-resources", "--no-headers"], &none, "").await?;
    for expected in [
        "configmaps cm v1 true ConfigMap",
        "deployments deploy apps/v1 true Deployment",
        "namespaces ns v1 false Namespace",
        "widgets wd example.com/v1 true Widget",
        "placements pl tideline.dev/v1alpha1 false Placement",
        "rollups summary.tideline.dev/v1alpha1 true Rollup",
    ] {
        let there = resources.lines().any(|line| line.split_whitespace().eq(expected.split_whitespace()));
        ensure!(there, "{expected} is not among: {resources}");
    }
    desk.does(&["explain", "deployment.spec.template.spec.containers.image"], &none, "FIELD: image <string>").await?;
    desk.does(&["explain", "deployment.spec.strategy.type"], &none, "RollingUpdate").await?;
    desk.does(&["explain", "widget.spec.size"], &none, "How much fits in.").await?;
    desk.fails(&["explain", "widget.spec.colour"], &none, "field \"colour\" does not exist").await?;

    desk.does(&["create", "-f", "-"], &widget("first"), "created").await?;
    let table = desk.does(&["get", "wd"], &none, "").await?;
    let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["NAME", "SIZE"], ["web", "first"]]);
    desk.does(&["get", "deployments,widgets", "-A"], &none, "widget.example.com/web").await?;
    desk.fails(&["get", "gadgets"], &none, "doesn't have a resource type \"gadgets\"").await
}

#[tokio::test]
async fn a_space_says_whether_the_hub_serves_it() -> Result<()> {
    let assets = require_kubernetes!();
    let hub = Hub::start().await?;
    let kubectl = assets.kubectl(&hub.kubeconfig())?.with_context("root");
    let space = json!({
        "apiVersion": "tideline.dev/v1alpha1", "kind": "Space", "metadata": {"name": "plant"},
        "spec": {"kubeconfig": {"secretRef": {"name": "plant"}}, "allow": {"kinds": ["*"]}},
    });
    kubectl.run_with_input(&["apply", "-f", "-"], &space.to_string()).await?;
    kubectl.run(&["wait", "space/plant", "--for=condition=Ready=False", "--timeout=20s"]).await?;
    let said = kubectl.run(&["get", "space", "plant", "-o", "jsonpath={.status.conditions[0].message}"]).await?;
    ensure!(said == "this hub serves the spaces default and root alone; nothing is read from this one", "{said:?}");
    kubectl.run(&["wait", "space/default", "--for=condition=Ready", "--timeout=20s"]).await.map(drop)
}

#[tokio::test]
async fn a_space_that_is_in_use_is_not_deleted_by_a_slip() -> Result<()> {
    let assets = require_kubernetes!();
    let desk = Desk::start(&assets).await?;
    desk.does(&["create", "configmap", "menu"], &Value::Null, "created").await?;
    let root = desk.kubectl.with_context("root");
    // The hub sees what is written a moment later.
    eventually_ok(SOON, "the refusal", async || {
        let refused = root.try_run(&["delete", "spaces", "--all", "--dry-run=server"], "").await?;
        ensure!(!refused.status.success() && refused.stderr.contains("is in use: it holds"), "{}", refused.stderr);
        Ok(())
    })
    .await?;
    let refused = root.try_run(&["delete", "spaces", "--all"], "").await?;
    ensure!(!refused.status.success(), "{}", refused.stdout);
    root.run(&["get", "space", "default"]).await?;

    // What it says to type.
    let uid = root.run(&["get", "space", "default", "-o", "jsonpath={.metadata.uid}"]).await?;
    root.run(&["annotate", "space", "default", &format!("tideline.dev/remove={uid}")]).await?;
    root.run(&["delete", "space", "default"]).await?;
    Ok(())
}
