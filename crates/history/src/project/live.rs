//! Open holds, found by their number in the ledger. The ledger reuses these numbers.

use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::Hold;
use bursar_journal::record::ledger::encode_archived;
use smallvec::SmallVec;

use super::History;
use crate::database::{Columns, Database, Value};
use crate::error::HistoryError;
use crate::lists::{ListOf, decode_from_nothing, encode_from_nothing};
use crate::query::archive::{self, digest};

/// The maximum number of entries stored with the hold itself. Nearly all holds have fewer. Further
/// entries go into a list, so that the written amount does not grow with the number of earlier
/// entries.
const MAX_IN_HOLD: usize = 32;

/// Numbers of the ledger in one row of `live_holds`. The ledger assigns them in sequence, so most
/// rows are written once for all their numbers.
const NUMBERS_IN_A_ROW: u32 = 64;
/// Bytes of one number in such a row.
const WIDTH: usize = 8;

/// The numbers of one hold.
#[derive(Copy, Clone)]
pub(super) struct HoldNumbers {
    /// In the ledger, until the ledger forgets the hold.
    pub(super) ledger: u32,
    /// In history; never reused.
    pub(super) here: i64,
}

pub(super) struct LiveHold {
    /// Its number in history.
    pub(super) hold: i64,
    pub(super) record: Hold,
    /// Its first entries.
    pub(super) entries: SmallVec<[i64; 4]>,
    /// The tenant, if the row is not inserted yet.
    pub(super) new_of: Option<u32>,
    pub(super) dirty: bool,
}

impl LiveHold {
    /// The hold that has this number in the ledger now.
    fn load(database: &impl Database, number: u32) -> Result<LiveHold, HistoryError> {
        let missing = || HistoryError::inconsistent(format!("there is no hold {number}"));
        let row = live_row(database, number / NUMBERS_IN_A_ROW)?;
        let hold = row[place(number)].try_into().map_or(0, i64::from_be_bytes);
        let sql = "SELECT record, digest, entries FROM holds WHERE hold = ?1";
        let rows = database.query(sql, &[hold.into()])?;
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(missing)?);
        // Checked before it is changed and gets a new digest.
        let record = archive::read(&row.bytes()?, &row.bytes()?, || format!("hold {number}"))?.hold;
        let entries = decode_from_nothing(&row.bytes()?).into();
        Ok(LiveHold { hold, record, entries, new_of: None, dirty: false })
    }
}

impl<D: Database> History<D> {
    pub(super) fn live_hold(&mut self, number: u32) -> Result<&mut LiveHold, HistoryError> {
        self.cache.holds.touch(number, || LiveHold::load(&self.database, number))
    }

    /// Records an entry of a hold.
    pub(super) fn note_entry(&mut self, hold: HoldNumbers, entry: i64) -> Result<(), HistoryError> {
        let live = self.live_hold(hold.ledger)?;
        if live.entries.len() < MAX_IN_HOLD {
            live.entries.push(entry);
            live.dirty = true;
        } else {
            self.cache.lists.push(ListOf::Hold(hold.here), entry);
        }
        Ok(())
    }

    /// Writes the holds that changed.
    pub(super) fn flush_holds(&mut self) -> Result<(), HistoryError> {
        let (mut added, mut changed, mut named) = (Vec::new(), Vec::new(), Vec::new());
        let holds = &mut self.cache.holds;
        for number in holds.take_touched() {
            let live = holds.get_mut(number).filter(|live| live.dirty);
            let Some(live) = live else { continue };
            live.dirty = false;
            let (hold, new_of) = (live.hold, live.new_of.take());
            let entries = encode_from_nothing(&live.entries);
            let open = live.record.is_open().then(|| live.record.clone());
            // A closed hold rarely changes again, so it is not kept.
            let record = open.or_else(|| Some(holds.remove(number)?.record));
            let Some(record) = record else { continue };
            match new_of {
                None => changed.push(changed_hold(hold, entries, record)),
                Some(tenant) => {
                    added.push(new_hold(hold, tenant, entries, record));
                    named.push((number, hold));
                }
            }
        }
        self.database.execute_each(
            "UPDATE holds SET record = ?2, digest = ?3, entries = ?4 WHERE hold = ?1",
            &changed,
        )?;
        self.database
            .execute_each("INSERT INTO holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)", &added)?;
        self.name_live(&named)
    }

    /// Drops all holds from the cache, because the ledger may reuse their numbers from now on.
    pub(super) fn drop_holds(&mut self) -> Result<(), HistoryError> {
        self.flush_holds()?;
        self.cache.holds.clear();
        Ok(())
    }

    /// Records the ledger numbers of holds. `named` must be sorted by ledger number.
    pub(super) fn name_live(&self, named: &[(u32, i64)]) -> Result<(), HistoryError> {
        let row_of = |number: u32| number / NUMBERS_IN_A_ROW;
        let mut rows = Vec::new();
        for some in named.chunk_by(|one, next| row_of(one.0) == row_of(next.0)) {
            let row = row_of(some[0].0);
            let mut holds = live_row(&self.database, row)?;
            for (number, hold) in some {
                holds[place(*number)].copy_from_slice(&hold.to_be_bytes());
            }
            rows.push([row.into(), holds.into()]);
        }
        self.database.execute_each(
            "INSERT INTO live_holds VALUES (?1, ?2)
             ON CONFLICT (numbers) DO UPDATE SET holds = excluded.holds",
            &rows,
        )
    }
}

fn live_row(database: &impl Database, row: u32) -> Result<Vec<u8>, HistoryError> {
    let found = database.query("SELECT holds FROM live_holds WHERE numbers = ?1", &[row.into()])?;
    let mut holds = match found.into_iter().next() {
        Some(row) => Columns::of(row).bytes()?,
        None => Vec::new(),
    };
    holds.resize(NUMBERS_IN_A_ROW as usize * WIDTH, 0);
    Ok(holds)
}

/// The bytes of a number in its row.
fn place(number: u32) -> std::ops::Range<usize> {
    let start = (number % NUMBERS_IN_A_ROW) as usize * WIDTH;
    start..start + WIDTH
}

/// The row of a new hold.
fn new_hold(hold: i64, tenant: u32, entries: Vec<u8>, record: Hold) -> [Value; 8] {
    let archived = ArchivedHold { hold: record, counted: false };
    let record = &archived.hold;
    let stored = encode_archived(&archived);
    let digest = digest(&stored).to_vec();
    [
        hold.into(),
        tenant.into(),
        (record.kind as u32).into(),
        record.id.as_str().into(),
        record.job().map(|job| job.0.cast_signed()).into(),
        stored.into(),
        digest.into(),
        entries.into(),
    ]
}

/// The changed columns of a hold.
fn changed_hold(hold: i64, entries: Vec<u8>, record: Hold) -> [Value; 4] {
    let archived = ArchivedHold { hold: record, counted: false };
    let stored = encode_archived(&archived);
    let digest = digest(&stored).to_vec();
    [hold.into(), stored.into(), digest.into(), entries.into()]
}
