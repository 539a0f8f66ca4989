//! Statements on snapshots, which are stored in parts. Part 0 is written last: a snapshot without it is unfinished.

use super::schema::number;
use super::session::{Session, stored};
use crate::error::JournalError;
use crate::snapshot::SnapshotMark;

pub(super) async fn put_chunk(
    session: &Session,
    machine: &str,
    mark: SnapshotMark,
    chunk: usize,
    bytes: &[u8],
) -> Result<(), JournalError> {
    let chunk = i32::try_from(chunk).unwrap_or(i32::MAX);
    session
        .query(
            "writing a snapshot",
            "INSERT INTO bursar_snapshot VALUES ($1, $2, $3, $4)
             ON CONFLICT (machine, sequence, chunk) DO UPDATE SET bytes = excluded.bytes",
            &[&machine, &stored(mark.sequence), &chunk, &bytes],
        )
        .await
        .map(|_| ())
}

/// Deletes the parts of unfinished snapshots.
pub(super) async fn drop_unfinished_snapshots(
    session: &Session,
    machine: &str,
) -> Result<(), JournalError> {
    session
        .query(
            "forgetting unfinished snapshots",
            "DELETE FROM bursar_snapshot AS part WHERE machine = $1 AND NOT EXISTS (
               SELECT FROM bursar_snapshot AS first WHERE first.machine = part.machine
                 AND first.sequence = part.sequence AND first.chunk = 0)",
            &[&machine],
        )
        .await
        .map(drop)
}

/// Deletes all snapshots but the newest `kept`, and unfinished ones older than these.
pub(super) async fn keep_snapshots(
    session: &Session,
    machine: &str,
    kept: usize,
) -> Result<(), JournalError> {
    let kept = i64::try_from(kept).unwrap_or(i64::MAX);
    session
        .query(
            "forgetting old snapshots",
            "DELETE FROM bursar_snapshot WHERE machine = $1 AND sequence < (
               SELECT min(sequence) FROM (
                 SELECT sequence FROM bursar_snapshot WHERE machine = $1 AND chunk = 0
                 ORDER BY sequence DESC LIMIT $2) AS newest)",
            &[&machine, &kept],
        )
        .await
        .map(|_| ())
}

pub(super) async fn list_snapshots(
    session: &Session,
    machine: &str,
) -> Result<Vec<SnapshotMark>, JournalError> {
    let rows = session
        .query(
            "listing snapshots",
            "SELECT sequence FROM bursar_snapshot WHERE machine = $1 AND chunk = 0
             ORDER BY sequence DESC",
            &[&machine],
        )
        .await?;
    Ok(rows.iter().map(|row| SnapshotMark { sequence: number(row, 0) }).collect())
}

/// One part of a snapshot, if it exists.
pub(super) async fn get_chunk(
    session: &Session,
    machine: &str,
    mark: SnapshotMark,
    chunk: i32,
) -> Result<Option<Vec<u8>>, JournalError> {
    let rows = session
        .query(
            "reading a snapshot",
            "SELECT bytes FROM bursar_snapshot WHERE machine = $1 AND sequence = $2 AND chunk = $3",
            &[&machine, &stored(mark.sequence), &chunk],
        )
        .await?;
    Ok(rows.first().map(|row| row.get(0)))
}
