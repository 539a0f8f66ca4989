//! The post between the ledgers and the cells: which events are letters to whom, and how a letter
//! becomes a command.

use bursar_core::cell::{self, Cell};
use bursar_core::ledger::command::Envelope;
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::{self, Ledger};
use bursar_core::message::{ToCell, ToLedger};

use crate::courier::{Addressed, EngineInbox, Inbox, Letter, Mark, Outbox};
use crate::handle::Handle;

/// What a cell tells one ledger.
#[derive(Copy, Clone, Debug)]
pub struct CellToLedger {
    /// The shard of the ledger.
    pub shard: u16,
}

impl Outbox<Cell> for CellToLedger {
    type Message = ToLedger;

    fn letter(&self, event: &cell::Event) -> Option<(u64, ToLedger)> {
        match event {
            cell::Event::LedgerTold { shard, number, message } if *shard == self.shard => {
                Some((*number, ToLedger::clone(message)))
            }
            _ => None,
        }
    }
}

/// The command that a letter from a ledger is to a cell.
pub fn to_cell(shard: u16, letter: Letter<ToCell>) -> Addressed<Cell> {
    let Letter { number, position, message } = letter;
    (cell::Origin::Ledger { shard, number, position }, message.into())
}

/// The receiving end of what one ledger tells a cell.
pub fn cell_inbox(handle: Handle<Cell>, shard: u16) -> impl Inbox<ToCell> {
    EngineInbox::new(
        handle,
        move |letter| to_cell(shard, letter),
        move |cell: &Cell| {
            let cell::Mark { number, position } = cell.mark(shard);
            Mark { number, position }
        },
    )
}

/// What a ledger tells one cell.
#[derive(Copy, Clone, Debug)]
pub struct LedgerToCell {
    /// The ledger's number for the cell.
    pub cell: CellNo,
}

impl Outbox<Ledger> for LedgerToCell {
    type Message = ToCell;

    fn letter(&self, event: &ledger::Event) -> Option<(u64, ToCell)> {
        match event {
            ledger::Event::CellTold { cell, number, message } if *cell == self.cell => {
                Some((*number, ToCell::clone(message)))
            }
            _ => None,
        }
    }
}

/// The command that a letter from a cell is to a ledger.
pub fn to_ledger(cell: CellNo, letter: Letter<ToLedger>) -> Addressed<Ledger> {
    let Letter { number, position, message } = letter;
    let envelope = Envelope { actor: "cell".into(), ..Envelope::default() };
    let message = Box::new(message);
    (envelope, ledger::Command::Receive { cell, number, position, message })
}

/// The receiving end of what one cell tells a ledger.
pub fn ledger_inbox(handle: Handle<Ledger>, cell: CellNo) -> impl Inbox<ToLedger> {
    EngineInbox::new(
        handle,
        move |letter| to_ledger(cell, letter),
        move |ledger: &Ledger| {
            let mark = ledger.cell(cell).map(|book| book.mark).unwrap_or_default();
            Mark { number: mark.number, position: mark.position }
        },
    )
}
