//! The post between the ledgers and the cells: which events are letters to whom, and how a letter
//! becomes a command.

use bursar_core::cell::{self, Cell};
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
