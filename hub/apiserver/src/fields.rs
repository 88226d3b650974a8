//! Which fields a field selector may name.

use crate::catalog::{Served, Source};
use crate::query::ListOptions;
use crate::status::ApiError;
use crate::virtual_resource::VirtualResource;

fn selectable(served: &Served) -> &'static [&'static str] {
    match (served.resource.group.as_str(), served.resource.plural.as_str()) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &[],
    }
}

/// The options with the fields of a computed kind by their paths.
pub(crate) fn located(source: &dyn VirtualResource, mut options: ListOptions) -> ListOptions {
    for (field, path) in source.selectable() {
        options.fields.locate(field, path);
    }
    options
}

/// Refuses a selector over a field that is not indexed for the kind, as a real server does.
pub(crate) fn check(served: &Served, options: &ListOptions) -> Result<(), ApiError> {
    for field in options.fields.fields() {
        let known = matches!(field, "metadata.name" | "metadata.namespace")
            || selectable(served).contains(&field)
            || match &served.source {
                Source::Custom(custom) => custom.selectable.iter().any(|own| own == field),
                Source::Virtual(source) => source.selectable().iter().any(|(own, _)| *own == field),
                Source::BuiltIn(_) | Source::Review => false,
            };
        if !known {
            return Err(ApiError::bad_request(format!(
                "Unable to find {:?} that match label selector {:?}, field selector {:?}: field label not supported: {field}",
                format!("{}, Resource={}", served.api_version, served.resource.plural),
                "",
                options.fields_text,
            )));
        }
    }
    Ok(())
}
