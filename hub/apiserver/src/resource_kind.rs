/// A resource as the store holds it: independent of the version it is served in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKind {
    /// Empty for the core group.
    pub group: String,
    /// The version that objects are stored in.
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
}

impl ResourceKind {
    /// `version` or `group/version`.
    pub fn api_version(&self) -> String {
        crate::schema::api_version(&self.group, &self.version)
    }
}
