//! Consistent cuts of a store: one batch boundary for each machine, such that every message that a
//! machine has received was sent before its sender's boundary.

use std::collections::BTreeMap;
use std::fmt;

use bursar_core::cell::Cell;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::region::CellBook;
use bursar_core::message::Mark;
use bursar_journal::{Head, Journal};

use crate::codec::Codec;
use crate::error::ReplayError;
use crate::replay::{Decoder, replay};
use crate::{CellCodec, LedgerCodec};

/// The journal of a region's cell.
pub type CellJournal<'a> = (&'a str, &'a dyn Journal);

/// Why the journals of a store do not belong together.
#[derive(Debug)]
pub enum CutError {
    /// A journal cannot be replayed.
    Replay(String, ReplayError),
    /// A machine has received a message that its sender's journal does not contain.
    Older {
        /// The machine that is ahead.
        receiver: String,
        /// The machine that is behind.
        sender: String,
        /// The last record of the sender that the receiver knows.
        received: u64,
        /// The last record of the sender's journal.
        end: u64,
    },
    /// The cell of this region is known to a ledger and has no journal.
    Missing(String),
    /// The ledger of this shard is known to the cell of a region and has no journal.
    NoLedger {
        /// The number of the shard.
        shard: u16,
        /// The region.
        region: String,
    },
}

impl CutError {
    /// The error as text. Journals are named by their machine and `ending`.
    pub fn describe(&self, ending: &str) -> String {
        match self {
            CutError::Replay(machine, error) => format!("{machine}: {error}"),
            CutError::Older { receiver, sender, received, end } => format!(
                "{receiver}{ending} has received record {received} of {sender}{ending}, which ends \
                 with record {end}: {sender}{ending} is an older copy than {receiver}{ending}"
            ),
            CutError::Missing(region) => format!(
                "cell-{region}{ending} is missing: the ledger has exchanged messages with the cell of \
                 that region"
            ),
            CutError::NoLedger { shard, region } => format!(
                "ledger-{shard}{ending} is missing: the cell of {region} has exchanged messages with \
                 that ledger"
            ),
        }
    }
}

/// Names journals as `.db` files.
impl fmt::Display for CutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(".db"))
    }
}

impl std::error::Error for CutError {}

/// The batch at which each machine's journal is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The batches of the ledgers, by number.
    pub ledgers: Vec<Head>,
    /// The cells' batches, in the order in which the cells were given.
    pub cells: Vec<Head>,
}

/// Rejects journals of which one is older than another: every received message must have been sent. The ledgers are
/// given by number.
pub fn check_marks(ledgers: &[&dyn Journal], cells: &[CellJournal<'_>]) -> Result<(), CutError> {
    let failed = |name: String| move |error| CutError::Replay(name, error);
    let ledgers = (0..).zip(ledgers).map(|(shard, journal): (usize, _)| {
        let books = replay(*journal, &LedgerCodec).map_err(failed(format!("ledger-{shard}")))?;
        Ok(LedgerMarks::of(&books.machine, books.head))
    });
    let ledgers = ledgers.collect::<Result<Vec<_>, _>>()?;
    let cells = cells.iter().map(|(region, journal)| {
        let cell = replay(*journal, &CellCodec).map_err(failed(format!("cell-{region}")))?;
        Ok(((*region).to_owned(), CellMarks::of(&cell.machine, cell.head)))
    });
    compare_marks(ledgers, &cells.collect::<Result<Vec<_>, _>>()?)
}

/// What a ledger has sent to cells and received from them.
pub struct LedgerMarks {
    end: Head,
    books: Vec<CellBook>,
}

impl LedgerMarks {
    /// Those of a ledger whose last batch is `end`.
    pub fn of(ledger: &Ledger, end: Head) -> LedgerMarks {
        LedgerMarks { end, books: ledger.cells().map(|(_, book)| book.clone()).collect() }
    }
}

/// What a cell has received from ledgers, and the last message to each, by their numbers.
pub struct CellMarks {
    end: Head,
    known: BTreeMap<u16, (Mark, u64)>,
}

impl CellMarks {
    /// Those of a cell whose last batch is `end`.
    pub fn of(cell: &Cell, end: Head) -> CellMarks {
        let shards = cell.ledgers().into_iter();
        let known = shards.map(|shard| (shard, (cell.mark(shard), cell.last_message_to(shard))));
        CellMarks { end, known: known.collect() }
    }
}

/// The same for machines that were read: the ledgers by number, the cells by region.
pub fn compare_marks(
    ledgers: Vec<LedgerMarks>,
    cells: &[(String, CellMarks)],
) -> Result<(), CutError> {
    let mut senders = Vec::new();
    for (shard, LedgerMarks { end, books: known }) in ledgers.into_iter().enumerate() {
        let own = format!("ledger-{shard}");
        for book in &known {
            let there = cells.iter().any(|(region, _)| *region == book.region.as_str());
            if !there && (book.sent > 0 || book.mark.number > 0) {
                return Err(CutError::Missing(book.region.to_string()));
            }
        }
        senders.push((own, end, known));
    }
    for (region, cell) in cells {
        let name = format!("cell-{region}");
        let without = |shard: &&u16| usize::from(**shard) >= senders.len();
        if let Some(shard) = cell.known.keys().find(without) {
            return Err(CutError::NoLedger { shard: *shard, region: region.clone() });
        }
        for (own, end, books) in &senders {
            let Some(book) = books.iter().find(|book| book.region == region.as_str()) else {
                continue;
            };
            let older = |receiver: &str, sender: &str, received, end| CutError::Older {
                receiver: receiver.to_owned(),
                sender: sender.to_owned(),
                received,
                end,
            };
            let (heard, sent) = cell.known.get(&book.shard).copied().unwrap_or_default();
            if heard.position > end.position || heard.number > book.sent {
                return Err(older(&name, own, heard.position, end.position));
            }
            let taken = book.mark;
            if taken.position > cell.end.position || taken.number > sent {
                return Err(older(own, &name, taken.position, cell.end.position));
            }
        }
    }
    Ok(())
}

/// The largest consistent cut of journals that were copied one after the other. The ledgers are given by number.
/// Changes nothing.
pub fn largest_cut(
    ledgers: &[&dyn Journal],
    cells: &[CellJournal<'_>],
) -> Result<Cut, ReplayError> {
    let mut cut = Cut { ledgers: Vec::new(), cells: Vec::new() };
    for ledger in ledgers {
        cut.ledgers.push(ledger.head()?);
    }
    for (_, journal) in cells {
        cut.cells.push(journal.head()?);
    }
    loop {
        let before = cut.clone();
        for (ledger, own) in ledgers.iter().zip(&mut cut.ledgers) {
            *own = last_where(*ledger, &LedgerCodec, *own, |ledger: &Ledger| {
                cells.iter().zip(&cut.cells).all(|((region, _), end)| {
                    let cell = ledger.find_cell(region).and_then(|cell| ledger.cell(cell));
                    cell.is_none_or(|book| book.mark.position <= end.position)
                })
            })?;
        }
        let ends: Vec<u64> = cut.ledgers.iter().map(|end| end.position).collect();
        for ((_, journal), own) in cells.iter().zip(&mut cut.cells) {
            *own = last_where(*journal, &CellCodec, *own, |cell: &Cell| {
                cell.ledgers().into_iter().all(|shard| {
                    ends.get(usize::from(shard))
                        .is_some_and(|end| cell.mark(shard).position <= *end)
                })
            })?;
        }
        if cut == before {
            return Ok(cut);
        }
    }
}

/// The last batch up to `end` after which the state satisfies the condition. Marks only rise, so
/// the first batch that fails it ends the search.
fn last_where<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    end: Head,
    is_wanted: impl Fn(&C::Machine) -> bool,
) -> Result<Head, ReplayError> {
    let mut last = Head::genesis(journal.id());
    let mut machine = codec.genesis();
    let mut decoder = Decoder::new();
    for batch in journal.read(last)? {
        let batch = batch?;
        if batch.sequence > end.sequence {
            break;
        }
        decoder.batch(codec, &batch, |record, events| {
            for event in events {
                bursar_core::machine::Machine::apply(&mut machine, record.time, event);
            }
        })?;
        if !is_wanted(&machine) {
            break;
        }
        last = batch.head();
    }
    Ok(last)
}
