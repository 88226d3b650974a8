use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// All that the last acknowledged report of the session said of the target as a whole is so still. A hub that knows a later
/// report, or a later poll, makes nothing of it: whatever is kept back on its way says nothing once another came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stands {
    /// The number of the report.
    pub report: u64,
    /// Which poll that says so this is: one for the first after the report.
    pub nth: u64,
}

impl fmt::Display for Stands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.report, self.nth)
    }
}

impl FromStr for Stands {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (report, nth) = text.split_once('.').ok_or("it has no point")?;
        let number = |text: &str| text.parse().map_err(|error| format!("{error}"));
        Ok(Self { report: number(report)?, nth: number(nth)? })
    }
}
