use serde::{Deserialize, Serialize};

use super::{HubAddresses, Refusal, RefusalKind};
use crate::ids::SessionName;

/// Refuses a request whose number is not free in the present run of the hub. Every agent gets one at its first request to
/// each run, so it says what an agent must know of a run: sessions go on over a restart, and say it only when they begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Fields")]
pub struct NumberRefused {
    #[serde(flatten)]
    pub refusal: Refusal,
    #[serde(default)]
    pub addresses: HubAddresses,
}

/// The same as it is read: see [`keyed`](crate::object::keyed).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    refusal: RefusalKind,
    message: String,
    #[serde(default)]
    retry_after_seconds: Option<u64>,
    #[serde(default)]
    fenced_by: Option<SessionName>,
    #[serde(default)]
    addresses: HubAddresses,
}

impl From<Fields> for NumberRefused {
    fn from(fields: Fields) -> Self {
        let Fields { refusal, message, retry_after_seconds, fenced_by, addresses } = fields;
        Self { refusal: Refusal { refusal, message, retry_after_seconds, fenced_by }, addresses }
    }
}
