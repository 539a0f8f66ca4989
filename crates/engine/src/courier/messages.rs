//! The messages between ledgers and cells: which events are messages to which receiver, and how a
//! message becomes a command.

use bursar_core::cell::{self, Cell};
use bursar_core::ledger::command::Envelope;
use bursar_core::ledger::id::CellNo;
use bursar_core::ledger::{self, Ledger};
use bursar_core::message::{Mark, ToCell, ToLedger};
use bursar_core::name::Region;

use crate::courier::{Addressed, EngineInbox, Inbox, Outbox, SentMessage};
use crate::writer::handle::Handle;

/// The messages of a cell to one ledger.
#[derive(Copy, Clone, Debug)]
pub struct CellToLedger {
    /// The shard of the ledger.
    pub shard: u16,
}

impl Outbox<Cell> for CellToLedger {
    type Message = ToLedger;

    fn message(&self, event: &cell::Event) -> Option<(u64, ToLedger)> {
        match event {
            cell::Event::LedgerMessageSent { shard, number, message } if *shard == self.shard => {
                Some((*number, ToLedger::clone(message)))
            }
            _ => None,
        }
    }
}

/// The command to a cell that delivers a message of a ledger.
pub fn to_cell(shard: u16, sent: SentMessage<ToCell>) -> Addressed<Cell> {
    let SentMessage { number, position, message } = sent;
    (cell::Origin::Ledger { shard, number, position }, message.into())
}

/// The inbox of a cell for the messages of one ledger.
pub fn cell_inbox(handle: Handle<Cell>, shard: u16) -> impl Inbox<ToCell> {
    EngineInbox::new(handle, move |sent| to_cell(shard, sent), move |cell: &Cell| cell.mark(shard))
}

/// The messages of a ledger to one cell.
#[derive(Copy, Clone, Debug)]
pub struct LedgerToCell {
    /// The ledger's number for the cell.
    pub cell: CellNo,
}

impl Outbox<Ledger> for LedgerToCell {
    type Message = ToCell;

    fn message(&self, event: &ledger::Event) -> Option<(u64, ToCell)> {
        match event {
            ledger::Event::CellMessageSent { cell, number, message } if *cell == self.cell => {
                Some((*number, ToCell::clone(message)))
            }
            _ => None,
        }
    }
}

/// The command to a ledger that delivers a message of a cell. The region is its author.
pub fn to_ledger(cell: CellNo, region: Region, sent: SentMessage<ToLedger>) -> Addressed<Ledger> {
    let SentMessage { number, position, message } = sent;
    let envelope = Envelope { actor: region.into_text(), ..Envelope::default() };
    let message = Box::new(message);
    (envelope, ledger::Command::Receive { cell, number, position, message })
}

/// The inbox of a ledger for the messages of the cell of a region.
pub fn ledger_inbox(handle: Handle<Ledger>, cell: CellNo, region: Region) -> impl Inbox<ToLedger> {
    EngineInbox::new(
        handle,
        move |sent| to_ledger(cell, region.clone(), sent),
        move |ledger: &Ledger| ledger.cell(cell).map_or(Mark::default(), |book| book.mark),
    )
}

#[cfg(test)]
mod tests {
    use bursar_core::cell::ids::{AttemptId, JobId};

    use super::*;

    #[test]
    fn a_message_from_a_cell_is_recorded_under_its_region() {
        let attempt = AttemptId { job: JobId::new(0, 7), number: 1 };
        let message = ToLedger::AttemptStarted { attempt };
        let sent = SentMessage { number: 3, position: 9, message: message.clone() };
        let (envelope, command) = to_ledger(CellNo(1), "eu".into(), sent);
        assert_eq!(envelope, Envelope { actor: "eu".into(), ..Envelope::default() });
        let message = Box::new(message);
        let receive = ledger::Command::Receive { cell: CellNo(1), number: 3, position: 9, message };
        assert_eq!(command, receive);
    }
}
