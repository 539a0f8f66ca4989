//! Messages between ledgers and cells: delivered late, repeatedly or too early.

use bursar_core::ledger::id::CellNo;
use bursar_engine::{to_cell, to_ledger};

use super::{REGIONS, World};

/// The index of the message with this number.
fn index_of(number: u64) -> usize {
    usize::try_from(number - 1).expect("few messages")
}

/// Whether a receiver moved its mark as it must. If it died before it answered, it may have taken the
/// message or not.
fn is_taken_once(answered: bool, number: u64, (before, after): (u64, u64)) -> bool {
    let taken = before + u64::from(number == before + 1);
    after == taken || (!answered && after == before)
}

impl World {
    pub(super) fn deliver_some_message(&mut self) {
        if self.dice.below(12) == 0 {
            return self.deliver_everything();
        }
        let (ledger, cell) = (self.dice.below(self.ledgers.len()), self.dice.below(REGIONS.len()));
        let several = 1 + self.dice.below(4);
        if self.dice.below(2) == 0 {
            (0..several).for_each(|_| self.deliver_to_cell(ledger, cell));
        } else {
            (0..several).for_each(|_| self.deliver_to_ledger(cell, ledger));
        }
    }

    /// The number of the message to deliver: the next one, one of the last that were taken, or one
    /// that is too early.
    fn pick_number(&mut self, mark: u64) -> u64 {
        if self.one_in(20) {
            self.repeated += 1;
            return (mark + self.dice.below(6) as u64).saturating_sub(3).max(1);
        }
        mark + 1
    }

    pub(super) fn deliver_to_cell(&mut self, ledger: usize, cell: usize) {
        let shard = u16::try_from(ledger).expect("few ledgers");
        let mark = self.cells[cell].machine.mark(shard).number;
        let number = self.pick_number(mark);
        let messages = &self.to_cells[&(ledger, cell)].messages;
        let Some(sent) = messages.get(index_of(number)).cloned() else { return };
        let (origin, command) = to_cell(shard, sent);
        let answer = self.ask_cell(cell, &origin, &command);
        let after = self.cells[cell].machine.mark(shard).number;
        if !is_taken_once(answer.is_some(), number, (mark, after)) {
            self.broken = Some(format!("L5: message {number} moved the mark {mark} to {after}"));
        }
    }

    pub(super) fn deliver_to_ledger(&mut self, cell: usize, ledger: usize) {
        let no = CellNo(u16::try_from(cell).expect("few cells"));
        let mark = |world: &World| {
            world.ledgers[ledger].machine.cell(no).map_or(0, |book| book.mark.number)
        };
        let before = mark(self);
        let number = self.pick_number(before);
        let messages = &self.to_ledgers[&(cell, ledger)].messages;
        let Some(sent) = messages.get(index_of(number)).cloned() else { return };
        let (envelope, command) = to_ledger(no, REGIONS[cell].into(), sent);
        let answer = self.ask_ledger(ledger, &envelope, &command);
        let after = mark(self);
        if !is_taken_once(answer.is_some(), number, (before, after)) {
            self.broken = Some(format!("L5: message {number} moved the mark {before} to {after}"));
        }
    }
}
