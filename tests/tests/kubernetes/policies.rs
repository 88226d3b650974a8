//! How objects are maintained at their target: fields, conflicts, immutable fields, and what a target assigns itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tideline_common::{MARK_ANNOTATION, MARK_LABEL};
use tideline_tests::kubernetes::{Audit, ClusterOptions};
use tideline_tests::{Scratch, eventually, require_kubernetes};
use tokio::task::AbortHandle;

use crate::histories::{ends, runs_out};
use crate::objects::{CONFIG, DEPLOYMENT, SOON, api, api_cluster, apply, config, deployment, shows, shows_cluster};
use crate::site::{CONFIG_MAPS, REPORT, Site, USER, namespace, placed, value};

const DEPLOYMENTS: &[(&str, &str)] = &[("apps", "deployments")];
const SET: (&str, &str) = ("apps/v1", "StatefulSet");
const SERVICE: (&str, &str) = ("v1", "Service");
const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");
const JOB: (&str, &str) = ("batch/v1", "Job");
const SECRET: (&str, &str) = ("v1", "Secret");
const QUOTA: (&str, &str) = ("v1", "ResourceQuota");
const CLUSTER_ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");

fn fields(policies: &[(&str, &str)]) -> Value {
    let fields: Vec<_> = policies.iter().map(|(path, mode)| json!({"path": path, "mode": mode})).collect();
    json!({"fields": fields})
}

fn image(object: &Value) -> &Value {
    &object["spec"]["template"]["spec"]["containers"][0]["image"]
}

fn with_image(mut object: Value, image: &str) -> Value {
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    object
}

/// Every number of replicas that a Deployment at the target was ever seen to ask for.
struct Replicas {
    deployments: Api<DynamicObject>,
    name: String,
    seen: Arc<Mutex<Seen>>,
    watch: AbortHandle,
}

#[derive(Default)]
struct Seen {
    replicas: BTreeSet<i64>,
    /// How far the watch has come.
    version: u64,
}

impl Replicas {
    async fn follow(site: &Site, name: &str) -> Result<Self> {
        let deployments = site.locals(DEPLOYMENT);
        let version = version(&deployments.get(name).await?)?;
        let seen = Arc::new(Mutex::new(Seen { version, ..Seen::default() }));
        let (from, into) = (deployments.clone(), Arc::clone(&seen));
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let watch = tokio::spawn(async move {
            let mut events = Box::pin(from.watch(&params, &version.to_string()).await?);
            while let Some(event) = events.try_next().await? {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.replicas.extend(object.data["spec"]["replicas"].as_i64());
                    seen.version = self::version(&object)?;
                }
            }
            anyhow::Ok(())
        });
        Ok(Self { deployments, name: name.to_owned(), seen, watch: watch.abort_handle() })
    }

    /// Up to how the Deployment is now.
    async fn seen(&self) -> Result<BTreeSet<i64>> {
        let now = version(&self.deployments.get(&self.name).await?)?;
        eventually(SOON, "the watch to come as far", async || {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.version >= now).then(|| seen.replicas.clone())
        })
        .await
    }
}

fn version(object: &DynamicObject) -> Result<u64> {
    Ok(object.metadata.resource_version.as_deref().context("a version")?.parse()?)
}

impl Drop for Replicas {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

/// As the autoscaler's controller and `kubectl scale` do.
async fn scale(site: &Site, name: &str, replicas: i64, manager: &str) -> Result<()> {
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    site.locals(DEPLOYMENT).patch_scale(name, &params, &Patch::Merge(json!({"spec": {"replicas": replicas}}))).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_of_a_field_policy_changes_hands_and_no_value() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let web = |replicas, image: &str| with_image(deployment("web", replicas), image);
    site.place("web", DEPLOYMENTS, json!({})).await?;
    apply(&site.space, web(2, "web:1")).await?;
    shows(&site.local, DEPLOYMENT, "web", "two replicas", |it| it["spec"]["replicas"] == 2).await?;
    let created = site.local_uid(DEPLOYMENT, "web").await?;
    let replicas = Replicas::follow(&site, "web").await?;

    // Continuous to Initial: the value that is there stays, and is the target's.
    site.place("web", DEPLOYMENTS, fields(&[("/spec/replicas", "Initial")])).await?;
    apply(&site.space, web(4, "web:2")).await?;
    shows(&site.local, DEPLOYMENT, "web", "the image alone", |it| image(it) == "web:2" && it["spec"]["replicas"] == 2)
        .await?;
    scale(&site, "web", 7, "helper").await?;
    apply(&site.space, web(4, "web:3")).await?;
    shows(&site.local, DEPLOYMENT, "web", "the image alone, again", |it| {
        image(it) == "web:3" && it["spec"]["replicas"] == 7
    })
    .await?;

    // Initial to Ignored, and a field of a list, by a filter.
    let web_image = "$.spec.template.spec.containers[?(@.name=='web')].image";
    site.place("web", DEPLOYMENTS, fields(&[("/spec/replicas", "Ignored"), (web_image, "Initial")])).await?;
    let mut noted = web(4, "web:4");
    noted["metadata"]["annotations"] = json!({"note": "1"});
    apply(&site.space, noted).await?;
    shows(&site.local, DEPLOYMENT, "web", "the annotation alone", |it| {
        it["metadata"]["annotations"]["note"] == "1" && image(it) == "web:3" && it["spec"]["replicas"] == 7
    })
    .await?;
    assert_eq!(replicas.seen().await?, BTreeSet::from([2, 7]));

    // And back.
    site.place("web", DEPLOYMENTS, json!({})).await?;
    shows(&site.local, DEPLOYMENT, "web", "what the source says", |it| {
        image(it) == "web:4" && it["spec"]["replicas"] == 4
    })
    .await?;
    assert_eq!(replicas.seen().await?, BTreeSet::from([2, 4, 7]));
    assert_eq!(site.local_uid(DEPLOYMENT, "web").await?, created);
    let managers = site.local(DEPLOYMENT, "web").await?;
    let managers: Vec<_> = managers.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
    assert!(!managers.contains(&"tideline-initial"), "{managers:?}");
    site.reported("deployment.apps.web", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_the_source_drops_is_removed_however_it_was_set() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    apply(&site.local, namespace()).await?;
    let with = |name: &str| {
        let mut object = config(name, "1");
        object["data"]["dropped"] = json!("1");
        object
    };
    let initial = fields(&[("/data/dropped", "Initial")]);
    // Created and never applied again; applied; adopted; set once and left; and followed again after that.
    site.preexisting(with("adopted")).await?;
    for name in ["created", "applied", "adopted", "initial", "back"] {
        let policy = if matches!(name, "initial" | "back") { initial.clone() } else { json!({}) };
        site.place(name, CONFIG_MAPS, policy).await?;
        apply(&site.space, with(name)).await?;
        shows(&site.local, CONFIG, name, "it, ours", |it| {
            it["data"]["dropped"] == "1" && !it["metadata"]["annotations"][MARK_ANNOTATION].is_null()
        })
        .await?;
    }
    for name in ["applied", "initial", "back"] {
        let mut changed = with(name);
        changed["data"]["value"] = json!("2");
        apply(&site.space, changed).await?;
        shows(&site.local, CONFIG, name, "the change", |it| it["data"]["value"] == "2").await?;
    }
    site.place("back", CONFIG_MAPS, json!({})).await?;
    site.pass_along("witness").await?;

    for name in ["created", "applied", "adopted", "initial", "back"] {
        apply(&site.space, config(name, "3")).await?;
        shows(&site.local, CONFIG, name, "the rest alone", |it| it["data"] == json!({"value": "3"})).await?;
    }

    // So is what a Placement adds, and does no more.
    let mut placement = placed("applied", "applied", CONFIG_MAPS, &json!({}));
    placement["spec"]["additions"] =
        json!({"labels": {"team": "retail", "app": "other"}, "annotations": {"note": "added"}});
    apply(&site.space, placement).await?;
    shows(&site.local, CONFIG, "applied", "what the Placement adds", |it| {
        let (labels, annotations) = (&it["metadata"]["labels"], &it["metadata"]["annotations"]);
        labels["team"] == "retail" && labels["app"] == "applied" && annotations["note"] == "added"
    })
    .await?;
    site.place("applied", CONFIG_MAPS, json!({"conflicts": "Report"})).await?;
    shows(&site.local, CONFIG, "applied", "nothing added", |it| {
        it["metadata"]["labels"].get("team").is_none() && it["metadata"]["annotations"].get("note").is_none()
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_of_another_manager_is_named_and_left_or_taken() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({"conflicts": "Report"})).await?;
    apply(&site.space, config("web", "1")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap", |it| it["data"]["value"] == "1").await?;
    rival(&site, json!({"value": "theirs"})).await?;
    let mut changed = config("web", "2");
    changed["data"]["more"] = json!("2");
    apply(&site.space, changed).await?;

    shows(&site.local, CONFIG, "web", "the rest", |it| it["data"] == json!({"value": "theirs", "more": "2"})).await?;
    site.reported("configmap.web", "Applied", Some("FieldConflict")).await?;
    shows(&site.space, REPORT, "configmap.web.east", "manager and field by name", |report| {
        report["message"].as_str().is_some_and(|text| text.contains(".data.value (rival)"))
    })
    .await?;

    site.place("web", CONFIG_MAPS, json!({"conflicts": "Force"})).await?;
    shows(&site.local, CONFIG, "web", "the field, taken", |it| it["data"] == json!({"value": "2", "more": "2"}))
        .await?;
    site.reported("configmap.web", "Applied", None).await
}

/// Another manager applies just this data to the ConfigMap `web`.
async fn rival(site: &Site, data: Value) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    site.locals(CONFIG).patch("web", &PatchParams::apply("rival").force(), &Patch::Apply(&object)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_left_to_another_manager_is_reported_until_it_is_released() -> Result<()> {
    let assets = require_kubernetes!();
    let directory = Scratch::new("left")?;
    let audit = Audit::new(&directory)?;
    let options = ClusterOptions { apiserver_arguments: audit.arguments(), ..ClusterOptions::default() };
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let mut site = Site::kept_short(&assets, options, all).await?;
    site.place("web", CONFIG_MAPS, json!({"conflicts": "Report"})).await?;
    apply(&site.space, config("web", "1")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap", |it| it["data"]["value"] == "1").await?;
    rival(&site, json!({"value": "theirs", "other": "theirs"})).await?;
    let mut changed = config("web", "2");
    changed["data"]["more"] = json!("2");
    apply(&site.space, changed).await?;
    let data = json!({"value": "theirs", "other": "theirs", "more": "2"});
    shows(&site.local, CONFIG, "web", "the rest", |it| it["data"] == data).await?;
    site.reported("configmap.web", "Applied", Some("FieldConflict")).await?;

    // Neither forgotten over a restart, nor tried again for it.
    let patches = || -> Result<usize> {
        let requests = audit.requests(USER)?;
        Ok(requests.values().filter(|it| it.verb == "patch" && it.resource == "configmaps").count())
    };
    site.agent.stop().await?;
    let before = patches()?;
    site.agent.resume();
    site.pass_along("witness").await?;
    site.reported("configmap.witness", "Applied", None).await?;
    let reports = api(&site.space, REPORT.0, REPORT.1, Some("shop"));
    let report = reports.get("configmap.web.east").await?;
    assert_eq!(report.data["reason"], "FieldConflict", "{report:?}");
    assert_eq!(report.data["message"], "left to others: .data.value (rival)");
    assert_eq!(patches()?, before);

    // The other has no more use for it.
    rival(&site, json!({"other": "theirs"})).await?;
    let data = json!({"value": "2", "other": "theirs", "more": "2"});
    shows(&site.local, CONFIG, "web", "the field, as its source says", |it| it["data"] == data).await?;
    site.reported("configmap.web", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_an_autoscalers_where_there_is_one() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let autoscaler = |name: &str| {
        json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1, "maxReplicas": 10,
                "metrics": [{"type": "Resource", "resource":
                    {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}],
            },
        })
    };
    let scaled = [("apps", "deployments"), ("autoscaling", "horizontalpodautoscalers")];
    for name in ["placed", "local", "plain"] {
        site.place(name, &scaled, json!({})).await?;
        apply(&site.space, deployment(name, 2)).await?;
        shows(&site.local, DEPLOYMENT, name, "two replicas", |it| it["spec"]["replicas"] == 2).await?;
    }
    // One comes with the set, one is somebody else's, one is none.
    apply(&site.space, autoscaler("placed")).await?;
    apply(&site.local, autoscaler("local")).await?;
    shows(&site.local, ("autoscaling/v2", "HorizontalPodAutoscaler"), "placed", "the autoscaler", |_| true).await?;

    let follow = [Replicas::follow(&site, "placed").await?, Replicas::follow(&site, "local").await?];
    for name in ["placed", "local", "plain"] {
        scale(&site, name, 6, "kube-controller-manager").await?;
    }
    shows(&site.local, DEPLOYMENT, "plain", "what nobody scales to be as its source", |it| it["spec"]["replicas"] == 2)
        .await?;
    for name in ["placed", "local"] {
        apply(&site.space, with_image(deployment(name, 3), "web:2")).await?;
        shows(&site.local, DEPLOYMENT, name, "the image alone", |it| {
            image(it) == "web:2" && it["spec"]["replicas"] == 6
        })
        .await?;
        scale(&site, name, 8, "kube-controller-manager").await?;
    }
    site.pass_along("witness").await?;
    for (name, replicas) in ["placed", "local"].into_iter().zip(&follow) {
        site.reported(&format!("deployment.apps.{name}"), "Applied", None).await?;
        shows(&site.local, DEPLOYMENT, name, "eight replicas", |it| it["spec"]["replicas"] == 8).await?;
        assert_eq!(replicas.seen().await?, BTreeSet::from([6, 8]), "{name}");
    }

    // Unless another policy is set.
    let mut policy = fields(&[("/spec/replicas", "Continuous")]);
    policy["prune"] = json!("Orphan");
    site.place("local", &scaled, policy).await?;
    shows(&site.local, DEPLOYMENT, "local", "what the source says", |it| it["spec"]["replicas"] == 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_immutable_change_is_reported_or_the_object_recreated() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let claim = |class: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "shop", "labels": {"app": "data"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    };
    let claims = [("", "persistentvolumeclaims")];
    let sets = [("apps", "statefulsets")];
    let set = |service: &str| {
        let mut set = deployment("web", 1);
        set["kind"] = json!("StatefulSet");
        set["spec"]["serviceName"] = json!(service);
        set
    };
    site.place("web", &sets, json!({})).await?;
    site.place("data", &claims, json!({"recreate": "OnImmutable"})).await?;
    apply(&site.space, set("old")).await?;
    apply(&site.space, claim("slow")).await?;
    shows(&site.local, SET, "web", "the StatefulSet", |_| true).await?;
    shows(&site.local, CLAIM, "data", "the claim", |_| true).await?;
    let (web, data) = (site.local_uid(SET, "web").await?, site.local_uid(CLAIM, "data").await?);

    apply(&site.space, set("new")).await?;
    apply(&site.space, claim("fast")).await?;
    site.reported("statefulset.apps.web", "Failed", Some("Immutable")).await?;
    shows(&site.space, REPORT, "statefulset.apps.web.east", "what to set", |report| {
        let says = |text| report["message"].as_str().is_some_and(|message| message.contains(text));
        says("apply.recreate to OnImmutable") && says("updates to statefulset spec")
    })
    .await?;
    site.reported("persistentvolumeclaim.data", "Failed", Some("Immutable")).await?;
    assert_eq!(site.local_uid(SET, "web").await?, web);

    // A second one is refused for the quota that the first one holds, so the first one stays.
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": "shop"},
        "spec": {"hard": {"count/statefulsets.apps": "1"}},
    });
    apply(&site.local, quota).await?;
    site.place("web", &sets, json!({"recreate": "OnImmutable"})).await?;
    shows(&site.space, REPORT, "statefulset.apps.web.east", "why it is not replaced", |report| {
        let says = |text| report["message"].as_str().is_some_and(|message| message.contains(text));
        says("the dry-run create was refused") && says("quota")
    })
    .await?;
    assert_eq!(site.local_uid(SET, "web").await?, web);
    site.locals(QUOTA).delete("one", &DeleteParams::default()).await?;
    shows(&site.local, SET, "web", "another StatefulSet", |it| {
        it["metadata"]["uid"] != *web && it["spec"]["serviceName"] == "new"
    })
    .await?;
    site.reported("statefulset.apps.web", "Applied", None).await?;
    let kept = site.local(CLAIM, "data").await?;
    ensure!(kept.uid().as_deref() == Some(data.as_str()) && kept.metadata.deletion_timestamp.is_none(), "{kept:?}");
    assert_eq!(kept.data["spec"]["storageClassName"], "slow");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strings_of_a_secret_are_kept_as_the_data_that_they_become() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let secret = |strings: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
            "data": {"user": "YWRtaW4="}, "stringData": strings,
        })
    };
    site.place("web", &[("", "secrets")], json!({})).await?;
    apply(&site.space, secret(json!({"password": "1", "dropped": "1"}))).await?;
    let data = json!({"user": "YWRtaW4=", "password": "MQ==", "dropped": "MQ=="});
    shows(&site.local, SECRET, "web", "the Secret", |it| it["data"] == data).await?;

    // As applied, not as created: from now on only applied fields are ours.
    apply(&site.space, secret(json!({"password": "2", "dropped": "2"}))).await?;
    let data = json!({"user": "YWRtaW4=", "password": "Mg==", "dropped": "Mg=="});
    shows(&site.local, SECRET, "web", "the change", |it| it["data"] == data).await?;
    site.edit(SECRET, "web", json!({"stringData": {"password": "theirs"}})).await?;
    shows(&site.local, SECRET, "web", "the edit reverted", |it| it["data"] == data).await?;
    site.edit(SECRET, "web", json!({"data": {"dropped": null}})).await?;
    shows(&site.local, SECRET, "web", "what was taken out put back", |it| it["data"] == data).await?;

    // An applier owns its strings, and nobody what they became: what it leaves out stays until somebody takes it out.
    apply(&site.space, secret(json!({"password": "3"}))).await?;
    let data = json!({"user": "YWRtaW4=", "password": "Mw==", "dropped": "Mg=="});
    shows(&site.local, SECRET, "web", "what is left out to stay", |it| it["data"] == data).await?;
    let drops = Patch::Merge(json!({"data": {"dropped": null}}));
    let secrets = api(&site.space, SECRET.0, SECRET.1, Some("shop"));
    secrets.patch("web", &PatchParams::default(), &drops).await?;
    shows(&site.local, SECRET, "web", "the dropped key to go", |it| {
        it["data"] == json!({"user": "YWRtaW4=", "password": "Mw=="})
    })
    .await?;
    site.reported("secret.web", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_of_an_aggregated_role_are_its_controllers() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let rule = |resource: &str| json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
    let role = |name: &str, labels: &[&str], rest: Value| {
        let mut role = json!({"apiVersion": CLUSTER_ROLE.0, "kind": CLUSTER_ROLE.1, "metadata": {"name": name}});
        role["metadata"]["labels"] = labels.iter().map(|label| ((*label).to_owned(), json!("web"))).collect();
        for (field, value) in rest.as_object().into_iter().flatten() {
            role[field] = value.clone();
        }
        role
    };
    let gathering = json!({"clusterRoleSelectors": [{"matchLabels": {"gathered": "web"}}]});
    apply(&site.local, role("part", &["gathered"], json!({"rules": rule("pods")}))).await?;
    site.place("web", &[("rbac.authorization.k8s.io", "clusterroles")], json!({})).await?;
    apply(&site.space, role("web", &["app"], json!({"rules": rule("secrets")}))).await?;
    let local = api_cluster(&site.local, CLUSTER_ROLE.0, CLUSTER_ROLE.1);
    let shows = async |what: &str, check: &(dyn Fn(&Value) -> bool + Sync)| {
        shows_cluster(&site.local, CLUSTER_ROLE, "web", what, check).await
    };
    let managers = async || {
        let role = local.get("web").await?;
        let tree = |entry: &ManagedFieldsEntry| entry.fields_v1.clone().is_some_and(|f| f.0.get("f:rules").is_some());
        let of_rules = role.managed_fields().iter().filter(|entry| tree(entry));
        anyhow::Ok(of_rules.filter_map(|entry| entry.manager.clone()).collect::<Vec<_>>())
    };
    shows("its own rules", &|it| it["rules"] == rule("secrets")).await?;
    assert_eq!(managers().await?, ["tideline"]);

    // It becomes one that others make up, with rules that its source has from its own cluster, or still has.
    apply(&site.space, role("web", &["app"], json!({"aggregationRule": gathering, "rules": rule("secrets")}))).await?;
    shows("the gathered rules", &|it| it["rules"] == rule("pods")).await?;
    assert_eq!(managers().await?, ["clusterrole-aggregation-controller"]);
    apply(&site.local, role("part", &["gathered"], json!({"rules": rule("nodes")}))).await?;
    shows("what is gathered now", &|it| it["rules"] == rule("nodes")).await?;
    let version = local.get("web").await?.resource_version();
    site.pass_along("witness").await?;
    let after = local.get("web").await?;
    ensure!(after.resource_version() == version, "it is fought over: {after:?}");

    // And back.
    apply(&site.space, role("web", &["app"], json!({"rules": rule("secrets")}))).await?;
    shows("its own rules again", &|it| it["rules"] == rule("secrets") && it["aggregationRule"].is_null()).await
}

fn service(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}}, "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_has_the_addresses_that_its_author_chose_and_else_its_targets() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    let spec = |more: &Value| {
        let mut spec = json!({"type": "NodePort", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80}]});
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let chosen = json!({
        "ports": [{"name": "http", "port": 80, "nodePort": 30_500}], "clusterIP": "10.96.7.7", "clusterIPs": ["10.96.7.7"]
    });
    let headless =
        service("headless", &json!({"clusterIP": "None", "ports": [{"port": 80}], "selector": {"app": "web"}}));
    let mut kept = service("kept", &spec(&json!({"ports": [{"port": 80, "nodePort": 30_501}]})));
    kept["metadata"]["annotations"] = json!({"tideline.dev/keep-fields": "[\"$.spec.ports[*].nodePort\"]"});
    site.place("web", &[("", "services")], json!({})).await?;
    let assigned = |more: &Value| service("assigned", &spec(more));
    for object in [assigned(&json!({})), service("chosen", &spec(&chosen)), headless, kept] {
        apply(&site.space, object).await?;
    }

    for name in ["assigned", "chosen", "headless", "kept"] {
        site.reported(&format!("service.{name}"), "Applied", None).await?;
    }
    assert_eq!(site.local(SERVICE, "headless").await?.data["spec"]["clusterIP"], "None");
    let kept = site.local(SERVICE, "kept").await?;
    assert_eq!(kept.data["spec"]["ports"][0]["nodePort"], 30_501);
    assert!(kept.annotations().keys().all(|name| name == MARK_ANNOTATION), "{:?}", kept.annotations());
    let there = site.local(SERVICE, "chosen").await?.data["spec"].clone();
    assert_eq!((&there["clusterIP"], &there["ports"][0]["nodePort"]), (&json!("10.96.7.7"), &json!(30_500)));

    // What the target assigned it keeps where it can be set only once, whatever the author chooses later, and follows in the rest.
    let before = site.local(SERVICE, "assigned").await?.data["spec"].clone();
    assert!(before["clusterIP"].is_string() && before["clusterIP"] != "None", "{before}");
    let later = json!({"ports": [{"name": "http", "port": 80, "nodePort": 30_502}, {"name": "admin", "port": 81}],
        "clusterIP": "10.96.7.8", "clusterIPs": ["10.96.7.8"], "ipFamilies": ["IPv4"]});
    apply(&site.space, assigned(&later)).await?;
    shows(&site.local, SERVICE, "assigned", "another port", |it| {
        it["spec"]["ports"].as_array().is_some_and(|p| p.len() == 2)
    })
    .await?;
    let after = site.local(SERVICE, "assigned").await?.data["spec"].clone();
    assert_eq!((&after["clusterIP"], &after["ports"][0]["nodePort"]), (&before["clusterIP"], &json!(30_502)));
    site.reported("service.assigned", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_runs_once_under_a_selector_of_the_targets_own() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    // As copied from another cluster, whose controller had labelled it.
    let foreign = json!({"batch.kubernetes.io/controller-uid": "another", "batch.kubernetes.io/job-name": "once"});
    let job = |backoff: i64| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "once", "namespace": "shop", "labels": {"app": "once"}},
            "spec": {
                "activeDeadlineSeconds": backoff, "ttlSecondsAfterFinished": 1,
                "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "another"}},
                "template": {"metadata": {"labels": foreign}, "spec": {
                    "restartPolicy": "Never", "containers": [{"name": "once", "image": "registry.example/once:1"}]}},
            },
        })
    };
    site.place("once", &[("batch", "jobs")], json!({})).await?;
    apply(&site.space, job(1_000)).await?;
    shows(&site.local, JOB, "once", "the Job", |_| true).await?;
    apply(&site.space, job(2_000)).await?;
    shows(&site.local, JOB, "once", "a change that conflicts with nothing", |it| {
        it["spec"]["activeDeadlineSeconds"] == 2_000
    })
    .await?;
    let local = site.local(JOB, "once").await?;
    assert_eq!(
        local.data["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"],
        json!(local.uid().context("a UID")?)
    );

    ends(&site).await?;
    // Neither another policy nor the agent's restart runs it again.
    site.place("once", &[("batch", "jobs")], json!({"prune": "Orphan"})).await?;
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "it runs again");
    site.reported("job.batch.once", "Applied", None).await?;
    // Nor does an agent without a journal, which only the hub can tell: also a hub that was restarted since it heard.
    site.agent.stop().await?;
    site.hub.stop().await?;
    site.resume_hub().await?;
    site.agent.resume_elsewhere()?;
    site.pass_along("elsewhere").await?;
    site.settle("elsewhere").await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "it runs again without its journal");
    site.reported("job.batch.once", "Applied", None).await
}

/// While its agent is away, which finds it gone.
async fn runs_out_unseen(site: &mut Site) -> Result<()> {
    site.agent.stop().await?;
    runs_out(site).await?;
    site.agent.resume();
    site.reported("job.batch.once", "Withheld", Some("Vanished")).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_ends_and_is_collected_while_its_agent_is_away_runs_again_as_another_alone() -> Result<()> {
    let assets = require_kubernetes!();
    let mut site = Site::with_own_namespace(&assets).await?;
    let job = |label: &str, image: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "once", "namespace": "shop", "labels": {"app": "once", "label": label}},
            "spec": {"ttlSecondsAfterFinished": 1, "template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "once", "image": format!("registry.example/once:{image}")}]}}},
        })
    };
    site.place("once", &[("batch", "jobs")], json!({"recreate": "OnImmutable"})).await?;
    apply(&site.space, job("a", "1")).await?;
    shows(&site.local, JOB, "once", "the Job", |_| true).await?;
    site.reported("job.batch.once", "Applied", None).await?;
    runs_out_unseen(&mut site).await?;

    // The hub knows what was lost with the journal, also one that was restarted since it heard.
    site.agent.stop().await?;
    site.hub.stop().await?;
    site.resume_hub().await?;
    site.agent.resume_elsewhere()?;
    site.reported("job.batch.once", "Withheld", Some("Vanished")).await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "it runs again without its journal");

    // Made again in the space it is another Job. That one runs again with another Pod template, and not with another label.
    api(&site.space, JOB.0, JOB.1, Some("shop")).delete("once", &DeleteParams::default()).await?;
    apply(&site.space, job("a", "1")).await?;
    shows(&site.local, JOB, "once", "the other Job", |_| true).await?;
    site.reported("job.batch.once", "Applied", None).await?;
    runs_out_unseen(&mut site).await?;
    apply(&site.space, job("b", "1")).await?;
    site.pass_along("witness").await?;
    site.settle("witness").await?;
    ensure!(site.locals(JOB).get_opt("once").await?.is_none(), "it runs again for a label");
    apply(&site.space, job("b", "2")).await?;
    shows(&site.local, JOB, "once", "what is new", |it| image(it) == "registry.example/once:2").await?;
    site.reported("job.batch.once", "Applied", None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_only_object_is_pruned_by_its_last_policy() -> Result<()> {
    let assets = require_kubernetes!();
    let site = Site::start(&assets).await?;
    site.place("web", CONFIG_MAPS, json!({"mode": "CreateOnly"})).await?;
    apply(&site.space, config("web", "1")).await?;
    shows(&site.local, CONFIG, "web", "the ConfigMap", |_| true).await?;
    site.place("web", CONFIG_MAPS, json!({"mode": "CreateOnly", "prune": "Orphan"})).await?;
    apply(&site.space, config("web", "2")).await?;
    site.pass_along("witness").await?;
    assert_eq!(value(&site.local(CONFIG, "web").await?), "1");

    // And follows its source once it is to.
    apply(&site.space, config("follow", "1")).await?;
    site.place("follow", CONFIG_MAPS, json!({"mode": "CreateOnly"})).await?;
    shows(&site.local, CONFIG, "follow", "the ConfigMap", |_| true).await?;
    let created = site.local_uid(CONFIG, "follow").await?;
    site.place("follow", CONFIG_MAPS, json!({})).await?;
    apply(&site.space, config("follow", "2")).await?;
    shows(&site.local, CONFIG, "follow", "the change", |it| it["data"]["value"] == "2").await?;
    assert_eq!(site.local_uid(CONFIG, "follow").await?, created);

    site.displace("web").await?;
    shows(&site.local, CONFIG, "web", "the mark to go", |it| it["metadata"]["labels"].get(MARK_LABEL).is_none())
        .await?;
    assert_eq!(value(&api(&site.local, CONFIG.0, CONFIG.1, Some("shop")).get("web").await?), "1");
    Ok(())
}
