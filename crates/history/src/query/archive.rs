//! Holds, charges, refunds and transfers, including those that the ledger has forgotten.

use bursar_core::ledger::holds::archive::ArchivedHold;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::refusal::Resource;
use bursar_journal::record::ledger::decode_archived;

use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::project::History;

/// A hold or charge in history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Its number in history, for its entries.
    pub hold: i64,
    /// The complete record.
    pub record: ArchivedHold,
}

/// The digest of a record: of the bytes that are stored, so that a record that was altered is noticed.
pub(crate) fn digest(stored: &[u8]) -> [u8; 32] {
    *blake3::hash(stored).as_bytes()
}

/// Reads a stored record.
///
/// # Errors
/// Also if the record does not match its digest.
pub(crate) fn read(
    stored: &[u8],
    expected: &[u8],
    name: impl FnOnce() -> String,
) -> Result<ArchivedHold, HistoryError> {
    if expected != digest(stored) {
        let what = format!("the record of {} does not match its digest", name());
        return Err(HistoryError::inconsistent(what));
    }
    decode_archived(stored).map_err(HistoryError::inconsistent)
}

impl<D: Database> History<D> {
    /// The newest hold or charge of a tenant with this name.
    ///
    /// # Errors
    /// Also if the record does not match its digest, because then it is not the ledger's record.
    pub fn archived(
        &self,
        tenant: u32,
        kind: HoldKind,
        name: &str,
    ) -> Result<Option<Archived>, HistoryError> {
        let rows = self.database.query(
            "SELECT hold, record, digest FROM holds WHERE tenant = ?1 AND kind = ?2 AND name = ?3
             ORDER BY hold DESC LIMIT 1",
            &[tenant.into(), (kind as u32).into(), name.into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let mut row = Columns::of(row);
        let hold = row.integer()?;
        let record = read(&row.bytes()?, &row.bytes()?, || format!("`{name}`"))?;
        Ok(Some(Archived { hold, record }))
    }

    /// The record of a tenant's newest refund or transfer with this name.
    pub fn movement_position(
        &self,
        tenant: u32,
        what: Resource,
        name: &str,
    ) -> Result<Option<u64>, HistoryError> {
        let rows = self.database.query(
            "SELECT position FROM movements WHERE tenant = ?1 AND what = ?2 AND name = ?3",
            &[tenant.into(), (what as u32).into(), name.into()],
        )?;
        let position = rows.into_iter().next().map(|row| Columns::of(row).integer()).transpose()?;
        Ok(position.map(i64::cast_unsigned))
    }
}
