//! Members: the servers of a cluster. Each machine has one owner among them, and each member has a
//! clock of its own.

use bursar_core::cell::NodeKey;
use bursar_core::cell::command::{Command as CellCommand, Origin};
use bursar_core::ledger::Command;
use bursar_core::time::Timestamp;

use super::World;
use super::client::tenants;
use super::host::LastBatch;
use crate::auditor::AuditFinding;
use crate::random::Dice;

/// How many members there are.
const MEMBERS: usize = 3;
/// The largest error of a clock.
const MAX_SKEW_MS: usize = 2_000;

/// The members of a cluster.
pub(super) struct Members {
    /// The error of each clock.
    skews: Vec<i64>,
}

impl Members {
    pub(super) fn new(dice: &mut Dice) -> Members {
        let skew = |dice: &mut Dice| dice.below(2 * MAX_SKEW_MS) as i64 - MAX_SKEW_MS as i64;
        Members { skews: (0..MEMBERS).map(|_| skew(dice)).collect() }
    }

    /// The first owner of a machine.
    pub(super) fn first_owner(&self, machine: usize) -> usize {
        machine % self.skews.len()
    }

    /// What the clock of a member shows.
    pub(super) fn clock(&self, member: usize, now: Timestamp) -> Timestamp {
        now.plus_millis(self.skews[member])
    }
}

impl World {
    /// A fault of an append whose writer dies.
    pub(super) fn some_last_batch(&mut self) -> LastBatch {
        LastBatch::ALL[self.dice.below(LastBatch::ALL.len())]
    }

    pub(super) fn some_machine_crashes(&mut self) {
        self.crashes += 1;
        let machine = self.dice.below(self.ledgers.len() + self.cells.len());
        let now = self.at();
        let crashed = match machine.checked_sub(self.ledgers.len()) {
            None => {
                let host = &mut self.ledgers[machine];
                host.crash(self.members.clock(host.owner, now))
            }
            Some(cell) => {
                let host = &mut self.cells[cell];
                host.crash(self.members.clock(host.owner, now))
            }
        };
        self.note(crashed);
    }

    pub(super) fn some_machine_is_saved(&mut self) {
        let machine = self.dice.below(self.ledgers.len() + self.cells.len());
        match machine.checked_sub(self.ledgers.len()) {
            None => self.ledgers[machine].put_snapshot(),
            Some(cell) => self.cells[cell].put_snapshot(),
        }
    }

    /// All machines of one member move to others. It dies, or it is paused and wakes later, or one
    /// of its appends arrives after its lease has ended.
    pub(super) fn some_member_fails(&mut self) {
        self.takeovers += 1;
        let from = self.dice.below(MEMBERS);
        let to = (from + 1 + self.dice.below(MEMBERS - 1)) % MEMBERS;
        let appends = self.dice.below(2) == 0;
        let now = self.at();
        for ledger in 0..self.ledgers.len() {
            let envelope = self.envelope();
            let command = Command::IssueGrant(self.some_grant(&tenants(ledger)[0], 1_000, false));
            let host = &mut self.ledgers[ledger];
            if host.owner == from {
                let append = appends.then_some((&envelope, &command));
                let moved = host.move_to(&self.members, to, now, append);
                self.note(moved);
            }
        }
        for cell in 0..self.cells.len() {
            let drain = self.some_drain(cell);
            let origin = Origin::component("operator");
            let host = &mut self.cells[cell];
            if host.owner == from {
                let append = drain.as_ref().filter(|_| appends).map(|drain| (&origin, drain));
                let moved = host.move_to(&self.members, to, now, append);
                self.note(moved);
            }
        }
        self.collect();
    }

    /// Deposed owners wake, decide a command and append it.
    pub(super) fn deposed_owners_wake(&mut self) {
        let now = self.at();
        for ledger in 0..self.ledgers.len() {
            let envelope = self.envelope();
            let command = Command::IssueGrant(self.some_grant(&tenants(ledger)[0], 1_000, false));
            let woken = self.ledgers[ledger].wake_deposed(now, &envelope, &command);
            self.note(woken);
        }
        for cell in 0..self.cells.len() {
            if let Some(drain) = self.some_drain(cell) {
                let origin = Origin::component("operator");
                let woken = self.cells[cell].wake_deposed(now, &origin, &drain);
                self.note(woken);
            }
        }
    }

    fn some_drain(&self, cell: usize) -> Option<CellCommand> {
        let agent = self.agents.iter().find(|agent| agent.cell == cell)?;
        Some(CellCommand::DrainNode { node: NodeKey::of(&agent.offer), force: false })
    }

    pub(super) fn note(&mut self, result: Result<(), AuditFinding>) {
        super::note(&mut self.broken, result);
    }
}
