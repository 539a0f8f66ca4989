//! Follows a journal, batch by batch.

use bursar_core::digest::Digest;
use bursar_journal::record::ledger::decode_record;
use bursar_journal::{Head, Journal, StoredBatch};

use super::{FedRecord, History};
use crate::database::{Columns, Database};
use crate::error::HistoryError;

/// Records per transaction: enough to share its cost, few enough that readers see them soon.
const RECORDS_AT_ONCE: u64 = 4096;

impl<D: Database> History<D> {
    /// The last journal batch whose records are all applied; the genesis of `journal` before the
    /// first.
    pub fn followed(&self, journal: &dyn Journal) -> Result<Head, HistoryError> {
        let rows = self
            .database
            .query("SELECT sequence, position, hash FROM followed WHERE only = 1", &[])?;
        let Some(row) = rows.into_iter().next() else {
            return Ok(Head::genesis(journal.id()));
        };
        let mut row = Columns::of(row);
        let (sequence, position) = (row.integer()?.cast_unsigned(), row.integer()?.cast_unsigned());
        let wrong = |_| HistoryError::inconsistent("a hash has 32 bytes");
        let hash = row.bytes()?.try_into().map(Digest).map_err(wrong)?;
        Ok(Head { sequence, position, hash })
    }

    /// Applies all batches up to `until`, which must be durable, and returns the last applied
    /// batch. Call it again when more batches are durable.
    ///
    /// # Errors
    /// Records applied before an error are kept.
    pub fn follow(&mut self, journal: &dyn Journal, until: Head) -> Result<Head, HistoryError> {
        let mut batches: Vec<StoredBatch> = Vec::new();
        let mut records = 0;
        for batch in journal.read(self.followed(journal)?)? {
            let batch = batch?;
            if batch.sequence > until.sequence {
                break;
            }
            records += u64::from(batch.records);
            batches.push(batch);
            if records >= RECORDS_AT_ONCE {
                self.apply_batches(&batches)?;
                batches.clear();
                records = 0;
            }
        }
        self.apply_batches(&batches)?;
        self.followed(journal)
    }

    /// Applies the records of journal batches in one transaction.
    pub fn apply_batches(&mut self, batches: &[StoredBatch]) -> Result<u64, HistoryError> {
        self.take_in_batches(batches)?;
        self.keep()
    }

    /// Applies the records of journal batches without a commit. Returns the last position.
    ///
    /// # Errors
    /// After any error, everything since the last [`keep`](Self::keep) must be fed again.
    pub fn take_in_batches(&mut self, batches: &[StoredBatch]) -> Result<u64, HistoryError> {
        let last = batches.last().map(StoredBatch::head);
        self.take_in(|history| {
            // Each record is decoded when it is applied, so that its memory can be reused for the
            // next.
            for record in batches.iter().flat_map(StoredBatch::frames) {
                let record = record?;
                let position = record.position;
                let bodies = decode_record(record.kind, record.body)
                    .map_err(|error| HistoryError::Record { position, error })?;
                history.apply_record(&FedRecord { position, at: record.time, bodies: &bodies })?;
            }
            let position = history.cache.progress.position;
            match last.filter(|head| head.position == position) {
                Some(head) => history.note_followed(head),
                None => Ok(()),
            }
        })
    }

    fn note_followed(&self, head: Head) -> Result<(), HistoryError> {
        self.database.execute(
            "INSERT INTO followed VALUES (1, ?1, ?2, ?3)
             ON CONFLICT (only) DO UPDATE SET sequence = excluded.sequence,
             position = excluded.position, hash = excluded.hash",
            &[
                head.sequence.cast_signed().into(),
                head.position.cast_signed().into(),
                head.hash.0.to_vec().into(),
            ],
        )
    }
}
