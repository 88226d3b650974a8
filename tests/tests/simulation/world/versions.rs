//! The agent is upgraded and downgraded, and what must hold of what older versions are sent and do.

use tideline_agent::core::Op;
use tideline_common::wire::v1::{Decommission, DesiredAnswer, DesiredPage, Refusal};
use tideline_common::{Capabilities, Capability, needs};
use tideline_hub::link::core as link;

use super::World;

impl World {
    /// The version that starts now, perhaps another than the one before. An older one does not read what a newer one wrote,
    /// and begins with its identity alone.
    pub(super) fn version_starts(&mut self) -> Capabilities {
        let former = self.agent.versions.installed.clone().unwrap_or_else(Capabilities::all);
        let installed = if self.scenario.versions && self.random.chance(500) {
            let share = self.random.below(1000);
            Capability::ALL.iter().copied().filter(|_| !self.random.chance(share)).collect()
        } else {
            former.clone()
        };
        let lacks = installed.missing();
        if lacks != former.missing() {
            self.note(|| format!("it is of ANOTHER VERSION, without {lacks:?}"));
        }
        if !lacks.is_subset(&former.missing()) && self.agent.versions.installed.is_some() {
            self.agent.journal.lose();
            self.lost_journal = true;
        }
        self.agent.versions.installed = Some(installed.clone());
        self.agent.versions.by_run.insert(self.agent.run, installed.clone());
        installed
    }

    /// The newest version is installed, and stays.
    pub(crate) fn upgrade(&mut self) {
        self.scenario.versions = false;
        self.agent.versions.installed = Some(Capabilities::all());
        self.agent_crashes();
    }

    /// An agent is sent nothing that it does not understand.
    pub(super) fn check_told(&self, run: u64, answer: &Result<link::Answer, Refusal>) {
        let Ok(link::Answer::Desired(answer)) = answer else { return };
        let mut known = std::iter::once(&self.agent).chain(self.other.as_deref());
        let understands = known.find_map(|agent| agent.versions.by_run.get(&run));
        let understands = understands.expect("the agent of this run was started");
        match answer {
            DesiredAnswer::Page(page) => check_page(page, understands),
            DesiredAnswer::Approved(_) => {
                assert!(understands.has(Capability::Approvals), "an agent that knows of no approvals is told of one");
            }
            DesiredAnswer::NothingNew
            | DesiredAnswer::SnapshotRequired { .. }
            | DesiredAnswer::Broken
            | DesiredAnswer::ReportAgain
            | DesiredAnswer::Unknown => {}
        }
    }

    /// Nor does it do any of it.
    pub(super) fn check_understood(&self, op: &Op) {
        if let Op::Create { entry, policy, .. } | Op::Apply { entry, policy, .. } = op {
            let understands = &self.agent.versions.by_run[&self.agent.run];
            let needed = needs(entry, policy);
            assert!(needed.iter().all(|it| understands.has(*it)), "{op:?} needs {needed:?}");
        }
    }
}

fn check_page(page: &DesiredPage, understands: &Capabilities) {
    for entry in &page.entries {
        let needed = needs(entry, &page.policies[&entry.policy]);
        assert!(needed.iter().all(|it| understands.has(*it)), "{entry:?} is told, and needs {needed:?}");
    }
    let leaves = page.decommission != Decommission::No;
    assert!(
        !leaves || understands.has(Capability::Decommission),
        "it is told to leave, and does not know what that is"
    );
    assert!(page.terminal.is_empty() || understands.has(Capability::RunOnce), "{:?} is told", page.terminal);
}
