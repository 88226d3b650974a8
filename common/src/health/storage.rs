use super::status::{Object, Verdict};

pub(super) fn claim(object: Object<'_>) -> Verdict {
    object.ready_in(&["Bound"], &["Lost"])
}

/// A volume that nobody claims any more is as good as it will get.
pub(super) fn volume(object: Object<'_>) -> Verdict {
    object.ready_in(&["Available", "Bound", "Released"], &["Failed"])
}
