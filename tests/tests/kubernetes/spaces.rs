//! A space may be a real API server: what it serves is read like any other and resolved by the same index.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use tideline_api::{Allow, ObjectClause, PlacementSpec};
use tideline_common::{Monotonic, SpaceName};
use tideline_hub::clean;
use tideline_hub::placement::{Change, GroupResource, Index, Part, PlacementRule, SpaceRule, Target};
use tideline_hub::spaces::{ClusterSource, SourceEvent, SpaceSource};
use tideline_tests::kubernetes::{Cluster, ClusterOptions};
use tideline_tests::require_kubernetes;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

/// An index that places every ConfigMap labelled `placed` of one space to one target.
fn index(space: &SpaceName) -> Result<Index> {
    let labels = |pair: (&str, &str)| BTreeMap::from([(pair.0.to_owned(), pair.1.to_owned())]);
    let selector = |pair| LabelSelector { match_labels: Some(labels(pair)), ..LabelSelector::default() };
    let spec = PlacementSpec {
        targets: vec![selector(("tier", "shop"))],
        objects: vec![ObjectClause {
            resources: vec!["configmaps".to_owned()],
            object_selectors: vec![selector(("placed", "yes"))],
            ..ObjectClause::default()
        }],
        ..PlacementSpec::default()
    };
    let mut index = Index::new(Duration::ZERO);
    let id = "00000000-0000-4000-8000-000000000001".parse()?;
    index.apply_target(0, Target { id, labels: labels(("tier", "shop")), unschedulable: false });
    index.apply_space(space, SpaceRule::try_from(&Allow::everything())?);
    index.apply_placement(space, "all", "placement".parse()?, Ok(PlacementRule::try_from(&spec)?));
    for part in [Part::Targets, Part::Locations, Part::Spaces, Part::Placements(space)] {
        index.listed(part);
    }
    Ok(index)
}

/// Reads until the index says something that `look` wants.
async fn until<T>(source: &mut ClusterSource, index: &mut Index, look: impl Fn(&Change) -> Option<T>) -> Result<T> {
    let reading = async {
        loop {
            match source.next().await.context("the source goes on")? {
                SourceEvent::Object { of, object } => {
                    if let Ok(read) = clean::read(&object) {
                        index.apply(&of.space, &of.resource, read);
                    }
                }
                SourceEvent::Deleted { of, key, .. } => index.delete(&of.space, &of.resource, &key),
                SourceEvent::Listed(of) | SourceEvent::Gone(of) => index.listed(Part::Objects(&of.space, &of.resource)),
                SourceEvent::Lost { of, .. } => index.reset(Part::Objects(&of.space, &of.resource)),
            }
            if let Some(found) = index.drain(Monotonic::START).iter().find_map(&look) {
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
    object.metadata.labels = Some(BTreeMap::from([("placed".to_owned(), "yes".to_owned())]));
    let created = api.create(&PostParams::default(), &object).await?;

    let space: SpaceName = "elsewhere".parse()?;
    let mut source = ClusterSource::new(space.clone(), cluster.client()).await?;
    let mut index = index(&space)?;
    let configmaps = GroupResource::new("", "configmaps");
    let assigned = until(&mut source, &mut index, |change| match change {
        Change::Assign(assignment) if assignment.id.resource == configmaps => Some(assignment.as_ref().clone()),
        _ => None,
    })
    .await?;
    assert_eq!(&*assigned.key.name, "web");
    assert_eq!(Some(assigned.id.uid.as_str()), created.metadata.uid.as_deref());
    assert!(!assigned.variants[0].input.text.contains("managedFields"));

    api.delete("web", &DeleteParams::default()).await?;
    let removed = until(&mut source, &mut index, |change| match change {
        Change::Remove(id) => Some(id.clone()),
        _ => None,
    });
    assert_eq!(removed.await?, assigned.id);
    Ok(())
}
