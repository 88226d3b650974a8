//! A space may be a real API server: what it serves is read like any other and resolved by the same index.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{DeleteParams, PostParams};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Api, Client};
use tideline_api::{Allow, ObjectClause, PlacementSpec, TargetSelector};
use tideline_common::wire::v1::Decommission;
use tideline_common::{Monotonic, SpaceName};
use tideline_hub::clean;
use tideline_hub::placement::{Change, GroupResource, Index, Part, PlacementRule, SpaceRule, Target};
use tideline_hub::spaces::{ClusterSource, SourceEvent, SpaceSource};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::require_kubernetes;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(90);

fn labels(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

fn selector(name: &str, value: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(labels(name, value)), ..LabelSelector::default() }
}

/// An index that places what `objects` select in one space to one target.
fn index(space: &SpaceName, objects: Vec<ObjectClause>) -> Result<Index> {
    let shops = TargetSelector { labels: selector("tier", "shop"), ..TargetSelector::default() };
    let spec = PlacementSpec { targets: vec![shops], objects, ..PlacementSpec::default() };
    let mut index = Index::new(Duration::ZERO);
    let id = "00000000-0000-4000-8000-000000000001".parse()?;
    index.apply_target(
        0,
        Target {
            id,
            name: "shop".into(),
            labels: labels("tier", "shop"),
            unschedulable: false,
            decommission: Decommission::No,
        },
    );
    index.apply_space(space, SpaceRule::try_from(&Allow::everything())?);
    index.apply_placement(space, "all", "placement".parse()?, Ok(PlacementRule::try_from(&spec)?));
    for part in [Part::Targets, Part::Locations, Part::Spaces, Part::Placements(space)] {
        index.listed(part);
    }
    Ok(index)
}

/// Tells the index one thing that the source says.
async fn advance(source: &mut ClusterSource, index: &mut Index) -> Result<SourceEvent> {
    let event = source.next().await.context("the source goes on")?;
    match event.clone() {
        SourceEvent::Object { of, object } => {
            if let Ok(read) = clean::read(clean::SpaceServer::Assigning, &object) {
                index.apply(&of.space, &of.resource, read);
            }
        }
        SourceEvent::Unreadable { .. } => {}
        SourceEvent::Deleted { of, key, .. } => index.delete(&of.space, &of.resource, &key),
        SourceEvent::Listed(of) | SourceEvent::Gone(of) => index.listed(Part::Objects(&of.space, &of.resource)),
        SourceEvent::Unlisted(of) => index.unlisted(Part::Objects(&of.space, &of.resource)),
        SourceEvent::Lost { of, .. } => index.reset(Part::Objects(&of.space, &of.resource)),
    }
    Ok(event)
}

/// Reads until a change of the index satisfies `check`.
async fn until<T>(source: &mut ClusterSource, index: &mut Index, check: impl Fn(&Change) -> Option<T>) -> Result<T> {
    let reading = async {
        loop {
            advance(source, index).await?;
            if let Some(found) = index.drain(Monotonic::START).iter().find_map(&check) {
                return anyhow::Ok(found);
            }
        }
    };
    timeout(SOON, reading).await.context("waited 30s for the index to say so")?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_on_a_real_api_server_is_resolved_like_any_other() -> Result<()> {
    let assets = require_kubernetes!();
    let cluster = Cluster::start(&assets, ClusterOptions::default()).await?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let mut object = ConfigMap::default();
    object.metadata.name = Some("web".to_owned());
    object.metadata.labels = Some(labels("placed", "yes"));
    let created = api.create(&PostParams::default(), &object).await?;

    let space: SpaceName = "elsewhere".parse()?;
    let mut source = ClusterSource::new(space.clone(), cluster.client()).await?;
    let labelled = ObjectClause {
        resources: vec!["configmaps".to_owned()],
        object_selectors: vec![selector("placed", "yes")],
        ..ObjectClause::default()
    };
    let mut index = index(&space, vec![labelled])?;
    let configmaps = GroupResource::new("", "configmaps");
    let assigned = until(&mut source, &mut index, |change| match change {
        Change::Assign(assignment) if assignment.id.resource == configmaps => Some(assignment.as_ref().clone()),
        _ => None,
    })
    .await?;
    assert_eq!(&*assigned.key.name, "web");
    assert_eq!(Some(&*assigned.id.uid.text()), created.metadata.uid.as_deref());
    assert!(!assigned.variants[0].input.text.contains("managedFields"));

    api.delete("web", &DeleteParams::default()).await?;
    let removed = until(&mut source, &mut index, |change| match change {
        Change::Remove(id) => Some(id.clone()),
        _ => None,
    });
    assert_eq!(removed.await?, assigned.id);
    Ok(())
}

/// Clauses that select all resources of every group that the server serves, and those of them that can be watched.
async fn everything(client: Client) -> Result<(Vec<ObjectClause>, BTreeSet<GroupResource>)> {
    let discovery = Discovery::new(client).run().await?;
    let all = |group: &ApiGroup| ObjectClause {
        api_group: Some(group.name().to_owned()),
        resources: vec!["*".to_owned()],
        ..ObjectClause::default()
    };
    let watched = discovery.groups().flat_map(ApiGroup::recommended_resources).filter(|(_, capabilities)| {
        capabilities.supports_operation(verbs::LIST) && capabilities.supports_operation(verbs::WATCH)
    });
    let watched = watched.map(|(resource, _)| GroupResource::new(resource.group.as_str(), resource.plural.as_str()));
    Ok((discovery.groups().map(all).collect(), watched.collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_a_real_api_server_is_only_what_somebody_put_there() -> Result<()> {
    let assets = require_kubernetes!();
    let options = ClusterOptions {
        controller_manager: true,
        // As most clusters run it: each controller has an account of its own.
        controller_manager_arguments: vec!["--use-service-account-credentials=true".to_owned()],
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(&assets, options).await?;
    let kubectl = cluster.kubectl();
    // Somebody's own: an add-on among the system's, and an application whose controllers have done their part.
    for arguments in [
        &["create", "serviceaccount", "addon", "--namespace=kube-system"][..],
        &["create", "namespace", "shop"],
        &["create", "deployment", "web", "--namespace=shop", "--image=registry.example/web:1", "--replicas=2"],
        &["create", "service", "clusterip", "web", "--namespace=shop", "--tcp=80"],
        &["create", "secret", "generic", "web", "--namespace=shop"],
        &["create", "role", "web", "--namespace=shop", "--verb=get", "--resource=pods"],
        &["create", "clusterrole", "web", "--verb=get", "--resource=pods"],
        &["wait", "deployment/web", "--namespace=shop", "--for=jsonpath={.status.replicas}=2", "--timeout=30s"],
        // The last that the controllers make in a new namespace.
        &["wait", "configmap/kube-root-ca.crt", "--namespace=shop", "--for=create", "--timeout=30s"],
        &["wait", "serviceaccount/default", "--namespace=shop", "--for=create", "--timeout=30s"],
    ] {
        kubectl.run(arguments).await?;
    }

    let space: SpaceName = "elsewhere".parse()?;
    let mut source = ClusterSource::new(space.clone(), cluster.client()).await?;
    let (clauses, mut unlisted) = everything(cluster.client()).await?;
    let mut index = index(&space, clauses)?;
    let reading = async {
        while !unlisted.is_empty() {
            if let SourceEvent::Listed(of) = advance(&mut source, &mut index).await? {
                unlisted.remove(&of.resource);
            }
        }
        anyhow::Ok(())
    };
    timeout(SOON, reading).await.context("waited 30s for everything to be listed")??;
    let placed: BTreeSet<String> = index
        .drain(Monotonic::START)
        .into_iter()
        .filter_map(|change| match change {
            Change::Assign(assignment) => Some(assignment.key.to_string()),
            _ => None,
        })
        .collect();
    let own = [
        "ClusterRole.rbac.authorization.k8s.io web",
        "Deployment.apps shop/web",
        "Namespace shop",
        "Role.rbac.authorization.k8s.io shop/web",
        "Secret shop/web",
        "Service shop/web",
        "ServiceAccount kube-system/addon",
    ];
    assert_eq!(placed, own.map(str::to_owned).into());
    Ok(())
}
