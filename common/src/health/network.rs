use super::status::{Object, Verdict};

pub(super) fn service(object: Object<'_>) -> Verdict {
    let balanced = object.status["loadBalancer"]["ingress"].as_array().is_some_and(|ingress| !ingress.is_empty());
    if object.spec["type"] == "LoadBalancer" && !balanced {
        Verdict::progressing("it has no load balancer address yet")
    } else {
        Verdict::READY
    }
}

/// Many ingress controllers write no address, so that waiting for one may be waiting for ever.
pub(super) fn ingress(_object: Object<'_>) -> Verdict {
    Verdict::READY
}
