//! What the rows of an archive's tables hold.

use bursar_core::digest::Digest;
use tokio_postgres::Row;

use crate::archive::{ArchiveFamily, GroupPlace, SealedRun};
use crate::error::JournalError;

pub(super) const READING: &str = "reading the archive";

/// The bytes of a column.
pub(super) fn bytes_of(row: &Row, column: usize) -> Result<Vec<u8>, JournalError> {
    row.try_get(column).map_err(|error| JournalError::storage(READING, error))
}

/// A number of 32 bits as it is read from a wider column.
pub(super) fn narrow<T: TryFrom<i64>>(row: &Row, column: usize) -> Result<T, JournalError> {
    let number: i64 = row.try_get(column).map_err(|error| JournalError::storage(READING, error))?;
    let large = || JournalError::storage(READING, format!("{number} is not a number of a block"));
    T::try_from(number).map_err(|_| large())
}

/// The number of a family.
fn family_of(row: &Row, column: usize) -> Result<ArchiveFamily, JournalError> {
    ArchiveFamily::from_number(narrow::<i32>(row, column)?.into())
}

/// A batch of the journal: its number and its hash.
pub(super) fn batch_of(row: &Row, column: usize) -> Result<Option<(u64, Digest)>, JournalError> {
    let Some(number) = row.get::<_, Option<i64>>(column) else { return Ok(None) };
    let hash = bytes_of(row, column + 1)?;
    let hash = hash.try_into().map_err(|_| JournalError::storage(READING, "a hash is cut off"))?;
    Ok(Some((number.cast_unsigned(), Digest(hash))))
}

/// A run, from the columns that `contents` reads.
pub(super) fn to_run(row: &Row) -> Result<SealedRun, JournalError> {
    let group = match row.get::<_, Option<i64>>(5) {
        None => None,
        Some(_) => {
            let (number, column, cells) = (narrow(row, 5)?, narrow(row, 6)?, narrow(row, 7)?);
            Some(GroupPlace { number, column, cells })
        }
    };
    Ok(SealedRun {
        number: narrow(row, 0)?,
        family: family_of(row, 1)?,
        last_block: narrow(row, 2)?,
        newest_at: row.get(3),
        filter: bytes_of(row, 4)?,
        group,
    })
}
