//! What there is to disturb: every kind of effect that the cores have. A new one must be listed here, or this does not
//! compile; and some workload must bring it about, or the enumeration is found wanting.

use std::collections::BTreeSet;

use tideline_agent::core::{Effect, Op, Request, Timer, Write};
use tideline_hub::link::core as link;

/// Where an effect is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the enumeration.
    Here,
    /// Not in it, for this reason.
    Nowhere(&'static str),
}

use Place::{Here, Nowhere};

const ASSOCIATED: &str = "no workload asks for what is made of its objects";
const HOUR: &str = "no workload goes on for an hour after a deletion";
const SERVICE: &str = "no workload takes the cluster out of service; seeds do that";
const UNKNOWN: &str = "no workload has a hub that lost its directory; seeds do that";
const LAST: &str = "it ends the process: nothing comes after it";

/// Declares the kinds of effects with where they are disturbed.
macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($variant:ident: $place:expr),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name { $($variant),+ }

        impl $name {
            pub(crate) const ALL: &[(Self, Place)] = &[$((Self::$variant, $place)),+];
        }
    };
}

kinds!(
    /// What the agent's core asks for.
    AgentEffect {
        SendEnrol: Here,
        SendSession: Here,
        SendDesired: Here,
        SendBodies: Here,
        SendReported: Here,
        PersistEnrolled: Here,
        PersistBody: Here,
        PersistAccept: Here,
        PersistApplied: Here,
        PersistForgotten: Here,
        PersistRemoving: Here,
        PersistRemoved: Here,
        PersistPassed: Here,
        PersistLapsed: Nowhere(HOUR),
        PersistHeld: Here,
        PersistHistory: Nowhere("the hub lost history; seeds do that, for it is no small world any more"),
        PersistMode: Here,
        PersistDecommission: Nowhere(SERVICE),
        PersistUnsent: Here,
        PersistSent: Here,
        PersistCreating: Nowhere("no Job is placed here; seeds do that"),
        PersistCameBack: Here,
        PersistDropBodies: Here,
        ExecuteCreate: Here,
        ExecuteDryRunCreate: Nowhere("nothing that is placed here is immutable"),
        ExecuteApply: Here,
        ExecuteReMark: Here,
        ExecuteReTarget: Here,
        ExecuteDelete: Here,
        ExecuteOrphan: Here,
        ExecuteInspect: Here,
        ExecuteGet: Here,
        ExecuteCompare: Here,
        TimerLink: Here,
        TimerReport: Here,
        TimerRetry: Here,
        TimerPatrol: Here,
        Watch: Here,
        Relist: Here,
        ListMetadata: Here,
        Patrolled: Here,
        Decommissioned: Nowhere(SERVICE),
        Follow: Nowhere(ASSOCIATED),
        TimerAssociated: Nowhere(ASSOCIATED),
        RecordEvent: Nowhere("a notice for people: nothing is decided by it, and nobody is told of its end"),
        Stopped: Nowhere(LAST),
        Freeze: Here,
        UnknownToHub: Nowhere(UNKNOWN),
        Thaw: Here,
        KeepSession: Here,
        ReadStoredSession: Nowhere("no session is opened beside another: seeds do that"),
        Replaced: Nowhere("one process at a time has the store"),
    }
);

kinds!(
    /// The effects of the hub: of its link's core, and of its writer.
    HubEffect {
        RespondSession: Here,
        RespondDesired: Here,
        RespondReported: Here,
        Refuse: Here,
        StoreHolder: Here,
        Facts: Nowhere("a display, told with every offer"),
        Shown: Nowhere("the hub lost history; seeds do that, for it is no small world any more"),
        Understands: Nowhere("an agent of another version; seeds do that"),
        ReadBodies: Here,
        Report: Here,
        Heard: Here,
        Stale: Nowhere("half an hour of silence, and nothing is asked for but a display"),
        Quarantined: Nowhere("there is one cluster"),
        SetTimer: Here,
        WriteChunk: Here,
        WriteHolder: Here,
    }
);

pub(crate) fn of_agent(effect: &Effect) -> Vec<AgentEffect> {
    let one = match effect {
        Effect::Send { request, .. } => match request {
            Request::Enrol(_) => AgentEffect::SendEnrol,
            Request::Session(_) => AgentEffect::SendSession,
            Request::Desired(_) => AgentEffect::SendDesired,
            Request::Bodies(_) => AgentEffect::SendBodies,
            Request::Reported(_) => AgentEffect::SendReported,
        },
        Effect::Persist { writes, .. } => return writes.iter().map(of_write).collect(),
        Effect::Execute { op, .. } => match op {
            Op::Create { .. } => AgentEffect::ExecuteCreate,
            Op::DryRunCreate { .. } => AgentEffect::ExecuteDryRunCreate,
            Op::Apply { .. } => AgentEffect::ExecuteApply,
            Op::TransferOwnership { .. } => AgentEffect::ExecuteReMark,
            Op::ReTarget { .. } => AgentEffect::ExecuteReTarget,
            Op::Delete { .. } => AgentEffect::ExecuteDelete,
            Op::Orphan { .. } => AgentEffect::ExecuteOrphan,
            Op::Inspect { .. } => AgentEffect::ExecuteInspect,
            Op::Get { .. } => AgentEffect::ExecuteGet,
            Op::Compare { .. } => AgentEffect::ExecuteCompare,
        },
        Effect::SetTimer { timer, .. } => match timer {
            Timer::Link => AgentEffect::TimerLink,
            Timer::Report => AgentEffect::TimerReport,
            Timer::Retry => AgentEffect::TimerRetry,
            Timer::Patrol => AgentEffect::TimerPatrol,
            Timer::Associated => AgentEffect::TimerAssociated,
        },
        Effect::Watch(_) => AgentEffect::Watch,
        Effect::Relist(_) => AgentEffect::Relist,
        Effect::ListMetadata { .. } => AgentEffect::ListMetadata,
        Effect::Patrolled(_) => AgentEffect::Patrolled,
        Effect::Decommissioned(_) => AgentEffect::Decommissioned,
        Effect::Follow(_) => AgentEffect::Follow,
        Effect::RecordEvent(_) => AgentEffect::RecordEvent,
        Effect::Stopped => AgentEffect::Stopped,
        Effect::Freeze(_) => AgentEffect::Freeze,
        Effect::UnknownToHub => AgentEffect::UnknownToHub,
        Effect::Thaw => AgentEffect::Thaw,
        Effect::KeepSession { .. } => AgentEffect::KeepSession,
        Effect::ReadStoredSession => AgentEffect::ReadStoredSession,
        Effect::Replaced { .. } => AgentEffect::Replaced,
    };
    vec![one]
}

fn of_write(write: &Write) -> AgentEffect {
    match write {
        Write::Enrolled(_) => AgentEffect::PersistEnrolled,
        Write::Body { .. } => AgentEffect::PersistBody,
        Write::Accept { .. } => AgentEffect::PersistAccept,
        Write::Applied { .. } => AgentEffect::PersistApplied,
        Write::Forgotten { .. } => AgentEffect::PersistForgotten,
        Write::Removing { .. } => AgentEffect::PersistRemoving,
        Write::Removed(_) => AgentEffect::PersistRemoved,
        Write::Passed { .. } => AgentEffect::PersistPassed,
        Write::Lapsed { .. } => AgentEffect::PersistLapsed,
        Write::Held(_) | Write::Unheld(_) => AgentEffect::PersistHeld,
        Write::History(_) => AgentEffect::PersistHistory,
        Write::Mode(_) => AgentEffect::PersistMode,
        Write::Decommission(_) => AgentEffect::PersistDecommission,
        Write::Unsent(_) | Write::Ran { .. } => AgentEffect::PersistUnsent,
        Write::Sent { .. } | Write::RanForgotten { .. } => AgentEffect::PersistSent,
        Write::Creating(_) | Write::CreationKnown(_) => AgentEffect::PersistCreating,
        Write::Kind { .. } | Write::RestoredObject(_) | Write::RestoredGone { .. } => AgentEffect::PersistCameBack,
        Write::DropBodies(_) | Write::DropPolicies(_) => AgentEffect::PersistDropBodies,
    }
}

pub(crate) fn of_hub(effect: &link::Effect) -> HubEffect {
    match effect {
        link::Effect::Respond { answer, .. } => match answer {
            Ok(link::Answer::Session(_)) => HubEffect::RespondSession,
            Ok(link::Answer::Desired(_)) => HubEffect::RespondDesired,
            Ok(link::Answer::Reported(_)) => HubEffect::RespondReported,
            Err(_) => HubEffect::Refuse,
        },
        link::Effect::StoreHolder { .. } => HubEffect::StoreHolder,
        link::Effect::Facts { .. } => HubEffect::Facts,
        link::Effect::Shown { .. } => HubEffect::Shown,
        link::Effect::Understands { .. } => HubEffect::Understands,
        link::Effect::ReadBodies { .. } => HubEffect::ReadBodies,
        link::Effect::Report { .. } => HubEffect::Report,
        link::Effect::Heard { .. } => HubEffect::Heard,
        link::Effect::Stale(_) => HubEffect::Stale,
        link::Effect::Quarantined { .. } => HubEffect::Quarantined,
        link::Effect::SetTimer(_) => HubEffect::SetTimer,
    }
}

/// A batch in the order in which the journal writes it: bodies before everything else, and dropped after it, one by one,
/// unless they come again.
pub(crate) fn as_written(writes: &[Write]) -> Vec<Write> {
    let (mut written, mut others, mut going) = (Vec::new(), Vec::new(), BTreeSet::new());
    for write in writes {
        match write {
            Write::Body { input, .. } => {
                going.remove(input);
                written.push(write.clone());
            }
            Write::DropBodies(inputs) => going.extend(inputs),
            other => others.push(other.clone()),
        }
    }
    written.append(&mut others);
    written.extend(going.into_iter().map(|input| Write::DropBodies(vec![input])));
    written
}

/// After how many writes of a batch, [`as_written`], a crash may cut it: behind a write that is complete by itself, or before
/// a body is dropped. Everything else is atomic.
pub(crate) fn cuts(effect: &Effect) -> Vec<usize> {
    let Effect::Persist { writes, .. } = effect else { return Vec::new() };
    let written = as_written(writes);
    let is_body = |write: &Write| matches!(write, Write::Body { .. } | Write::DropBodies(_));
    let stands_alone = |write: &Write| match write {
        Write::Applied { .. } | Write::Passed { .. } | Write::Kind { .. } => true,
        Write::Body { .. }
        | Write::Enrolled(_)
        | Write::Accept { .. }
        | Write::Forgotten { .. }
        | Write::Removing { .. }
        | Write::Removed(_)
        | Write::Lapsed { .. }
        | Write::Held(_)
        | Write::Unheld(_)
        | Write::History(_)
        | Write::Mode(_)
        | Write::Decommission(_)
        | Write::Unsent(_)
        | Write::Ran { .. }
        | Write::RanForgotten { .. }
        | Write::Creating(_)
        | Write::CreationKnown(_)
        | Write::RestoredObject(_)
        | Write::RestoredGone { .. }
        | Write::Sent { .. }
        | Write::DropBodies(_)
        | Write::DropPolicies(_) => false,
    };
    let loose = written.iter().filter(|write| !is_body(write)).all(stands_alone);
    let may_cut = |pair: &[Write]| loose || pair.iter().any(is_body);
    (1..written.len()).filter(|cut| may_cut(&written[cut - 1..=*cut])).collect()
}
