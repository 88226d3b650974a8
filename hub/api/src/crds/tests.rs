use expect_test::expect_file;

use super::*;
use crate::{CATEGORY, GROUP, VERSION};

/// Visits every field of every CRD with its path.
fn for_each_field(mut visit: impl FnMut(&str, &JSONSchemaProps)) {
    fn walk(path: &str, schema: &JSONSchemaProps, visit: &mut dyn FnMut(&str, &JSONSchemaProps)) {
        visit(path, schema);
        for (name, property) in schema.properties.iter().flatten() {
            walk(&format!("{path}.{name}"), property, visit);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
            walk(&format!("{path}[]"), items, visit);
        }
        if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
            walk(&format!("{path}{{}}"), values, visit);
        }
    }
    for crd in &mut crds() {
        let kind = crd.spec.names.kind.clone();
        for root in schemas(crd) {
            walk(&kind, root, &mut visit);
        }
    }
}

#[test]
fn crds_are_the_golden_ones() {
    for crd in crds() {
        let text = serde_json::to_string_pretty(&crd).unwrap() + "\n";
        match crd.spec.names.plural.as_str() {
            "deletionapprovals" => expect_file!["../../crds/deletionapprovals.json"].assert_eq(&text),
            "enrolmenttokens" => expect_file!["../../crds/enrolmenttokens.json"].assert_eq(&text),
            "historyacceptances" => expect_file!["../../crds/historyacceptances.json"].assert_eq(&text),
            "locations" => expect_file!["../../crds/locations.json"].assert_eq(&text),
            "placements" => expect_file!["../../crds/placements.json"].assert_eq(&text),
            "spaces" => expect_file!["../../crds/spaces.json"].assert_eq(&text),
            "synctargets" => expect_file!["../../crds/synctargets.json"].assert_eq(&text),
            "unassignmentapprovals" => expect_file!["../../crds/unassignmentapprovals.json"].assert_eq(&text),
            other => panic!("no golden file for {other}"),
        }
    }
}

#[test]
fn every_kind_has_columns_status_category_and_short_name() {
    for crd in crds() {
        let kind = &crd.spec.names.kind;
        assert_eq!(crd.spec.group, GROUP, "{kind}");
        assert_eq!(crd.spec.scope, "Cluster", "{kind}");
        assert_eq!(crd.spec.names.categories.as_deref(), Some([CATEGORY.to_owned()].as_slice()), "{kind}");
        assert!(crd.spec.names.short_names.as_ref().is_some_and(|names| !names.is_empty()), "{kind}");
        let [version] = crd.spec.versions.as_slice() else { panic!("{kind} has one version") };
        assert_eq!(version.name, VERSION);
        // An approval has nothing to tell, and neither has an acceptance.
        let status = version.subresources.as_ref().is_some_and(|subresources| subresources.status.is_some());
        assert_eq!(status, !kind.ends_with("Approval") && kind != "HistoryAcceptance", "{kind}");
        assert!(version.additional_printer_columns.as_ref().is_some_and(|columns| columns.len() >= 2), "{kind}");
    }
}

#[test]
fn every_named_field_is_described() {
    let mut bare = Vec::new();
    for_each_field(|path, schema| {
        if !path.ends_with("[]") && !path.ends_with("{}") && schema.description.is_none() {
            bare.push(path.to_owned());
        }
    });
    assert_eq!(bare, Vec::<String>::new());
}

#[test]
fn every_field_is_structural_and_in_formats_that_kubernetes_knows() {
    for_each_field(|path, schema| {
        assert!(schema.type_.is_some(), "{path} has no type");
        assert_eq!(schema.nullable, None, "{path}");
        let by_criteria = path == "Placement.spec.objects[]";
        assert_eq!(schema.any_of.is_some(), by_criteria, "{path}");
        assert!(schema.all_of.is_none() && schema.ref_path.is_none(), "{path}");
        if let Some(format) = &schema.format {
            assert!(["int32", "int64", "date-time"].contains(&format.as_str()), "{path} has the format {format}");
        }
    });
}

#[test]
fn every_list_is_bounded_or_a_map_and_says_how_it_merges() {
    for_each_field(|path, schema| {
        if schema.type_.as_deref() == Some("array") {
            assert!(schema.x_kubernetes_list_type.is_some(), "{path} says nothing about merging");
            assert!(schema.max_items.is_some() || schema.x_kubernetes_list_map_keys.is_some(), "{path} is unbounded");
        }
    });
}

#[test]
fn every_optional_scalar_of_a_spec_has_its_default_or_means_something_when_absent() {
    const MEANINGFUL_WHEN_ABSENT: &[&str] = &[
        "DeletionApproval.spec.deletions[].apiGroup",
        "DeletionApproval.spec.deletions[].namespace",
        "DeletionApproval.spec.releases[].apiGroup",
        "DeletionApproval.spec.releases[].namespace",
        "EnrolmentToken.spec.publicKey",
        "HistoryAcceptance.spec.restored",
        "Placement.spec.numberOfTargets",
        "Placement.spec.objects[].apiGroup",
        "Placement.spec.objects[].name",
        "SyncTarget.spec.decommission",
    ];
    let mut silent = Vec::new();
    for_each_field(|path, schema| {
        if !path.contains(".spec")
            || path.contains("elector")
            || path.contains("locations[]")
            || path.contains("targets[]")
        {
            return;
        }
        for (name, property) in schema.properties.iter().flatten() {
            let scalar = matches!(property.type_.as_deref(), Some("string" | "boolean" | "integer"));
            let required = schema.required.iter().flatten().any(|required| required == name);
            let told = property.description.as_ref().is_some_and(|description| description.contains(" Default: "));
            if scalar && !required && property.default.is_none() && !told {
                silent.push(format!("{path}.{name}"));
            }
        }
    });
    assert_eq!(silent, MEANINGFUL_WHEN_ABSENT);
}

#[test]
fn nothing_is_filled_into_a_list() {
    for_each_field(|path, schema| {
        assert!(!path.contains("[]") || schema.default.is_none(), "kubectl apply would find {path} changed each time");
    });
}

#[test]
fn status_has_no_defaults() {
    for_each_field(|path, schema| {
        if path.contains(".status") && !path.contains(".spec") {
            assert!(schema.default.is_none(), "{path}");
        }
    });
}
