//! Which sets this agent has accepted, and what it shows the hub of them.

use tideline_common::wire::v1::{Accepted, Attested};

#[derive(Debug)]
pub(in crate::core) struct AcceptedSets {
    /// The one that holds; none before the first, and since the agent became another target.
    current: Option<Accepted>,
    /// The newest set that was ever accepted, as far as is known here, with the hub's word of it.
    newest: Option<Attested>,
    /// The newest set that this agent accepted as one of its former targets. It is shown to the hub, and no set is compared
    /// with it.
    inherited: Option<Attested>,
}

impl AcceptedSets {
    /// Those of the journal. `floor` is known from elsewhere, whether or not the journal has it.
    pub(in crate::core) fn new(
        current: Option<Attested>,
        floor: Option<Attested>,
        inherited: Option<Attested>,
    ) -> Self {
        let newest = [current, floor].into_iter().flatten().max_by_key(|known| known.set.version);
        Self { current: current.map(|current| current.set), newest, inherited }
    }

    pub(in crate::core) const fn current(&self) -> Option<Accepted> {
        self.current
    }

    /// Nothing older than this is accepted.
    pub(in crate::core) const fn newest(&self) -> Option<Attested> {
        self.newest
    }

    /// What the hub is told was accepted here.
    pub(in crate::core) fn shown(&self) -> Option<Attested> {
        self.newest.or(self.inherited)
    }

    pub(in crate::core) fn accept(&mut self, set: Attested) {
        self.current = Some(set.set);
        self.newest = Some(set);
    }

    /// The agent is another target now, of which it has accepted nothing.
    pub(in crate::core) fn leave(&mut self) {
        self.inherited = self.newest.take().or(self.inherited);
        self.current = None;
    }
}

#[cfg(test)]
mod tests;
