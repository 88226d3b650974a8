//! The inputs of the rules, and their verdicts.

use serde_json::Value;

use super::Health;

pub(super) struct Verdict {
    pub(super) health: Health,
    pub(super) message: String,
}

impl Verdict {
    pub(super) const READY: Self = Self { health: Health::Ready, message: String::new() };

    pub(super) fn progressing(message: impl Into<String>) -> Self {
        Self { health: Health::Progressing, message: message.into() }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self { health: Health::Failed, message: message.into() }
    }

    /// Ready, and all the same there is something to know.
    pub(super) fn ready_but(message: impl Into<String>) -> Self {
        Self { health: Health::Ready, message: message.into() }
    }

    pub(super) fn unreadable(why: &str) -> Self {
        Self { health: Health::Unknown, message: why.to_owned() }
    }

    pub(super) fn silent() -> Self {
        Self { health: Health::Unknown, message: "it has no status yet".to_owned() }
    }

    /// How many of how many are what they should be; ready if all are.
    pub(super) fn counted(count: i64, wanted: i64, are: &str) -> Option<Self> {
        (count < wanted).then(|| Self::progressing(format!("{count} of {wanted} {are}")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    True,
    False,
    Unknown,
}

/// A condition that is about the object as it is now.
#[derive(Clone, Copy)]
pub(super) struct Condition<'a> {
    pub(super) truth: Truth,
    pub(super) reason: &'a str,
    kind: &'a str,
    message: &'a str,
}

impl Condition<'_> {
    pub(super) fn message(self) -> String {
        match (self.reason, self.message) {
            ("", "") => format!("its condition {} says so", self.kind),
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

/// An object, of whose spec and status there is what its rule reads.
#[derive(Clone, Copy)]
pub(super) struct Object<'a> {
    pub(super) generation: Option<i64>,
    pub(super) deleting: bool,
    pub(super) spec: &'a Value,
    pub(super) status: &'a Value,
    /// Its status says anything at all.
    pub(super) has_status: bool,
}

impl<'a> Object<'a> {
    pub(super) fn observed_generation(self) -> Option<i64> {
        self.status["observedGeneration"].as_i64()
    }

    pub(super) fn is_behind(self) -> bool {
        self.is_older(self.observed_generation())
    }

    fn is_older(self, observed: Option<i64>) -> bool {
        matches!((self.generation, observed), (Some(wanted), Some(seen)) if seen < wanted)
    }

    pub(super) fn count(self, field: &str) -> i64 {
        self.status[field].as_i64().unwrap_or(0)
    }

    /// `.spec.replicas`, one where it is left out.
    pub(super) fn wanted(self) -> i64 {
        self.spec["replicas"].as_i64().unwrap_or(1)
    }

    pub(super) fn condition(self, kind: &'a str) -> Option<Condition<'a>> {
        let condition = self.status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        // It may say of which generation it is (the API conventions' metav1.Condition); of an older one it says nothing.
        let truth = match text("status") {
            _ if self.is_older(condition["observedGeneration"].as_i64()) => Truth::Unknown,
            "True" => Truth::True,
            "False" => Truth::False,
            _ => Truth::Unknown,
        };
        Some(Condition { truth, reason: text("reason"), kind, message: text("message") })
    }

    /// A condition, if it is true.
    pub(super) fn holds(self, kind: &'a str) -> Option<Condition<'a>> {
        self.condition(kind).filter(|condition| condition.truth == Truth::True)
    }

    /// A condition, if it is false.
    pub(super) fn fails(self, kind: &'a str) -> Option<Condition<'a>> {
        self.condition(kind).filter(|condition| condition.truth == Truth::False)
    }

    /// Ready as one condition says.
    pub(super) fn ready_as(self, kind: &'a str) -> Verdict {
        match self.condition(kind) {
            None => Verdict::silent(),
            Some(Condition { truth: Truth::True, .. }) => Verdict::READY,
            Some(condition) => Verdict::progressing(condition.message()),
        }
    }

    /// Ready in some phases, failed in others.
    pub(super) fn ready_in(self, good: &[&str], bad: &[&str]) -> Verdict {
        let text = |field: &str| self.status[field].as_str().filter(|text| !text.is_empty());
        let why = |phase: &str| text("message").or(text("reason")).map(|why| format!("{phase}: {why}"));
        match text("phase") {
            None => Verdict::silent(),
            Some(phase) if good.contains(&phase) => Verdict::READY,
            Some(phase) if bad.contains(&phase) => Verdict::failed(why(phase).unwrap_or_else(|| phase.to_owned())),
            Some(phase) => Verdict::progressing(why(phase).unwrap_or_else(|| phase.to_owned())),
        }
    }
}
