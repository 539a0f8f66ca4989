//! The operations of a journal on a file.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bursar_core::time::Timestamp;

use super::database::DatabaseError;
use super::newest::Newest;
use super::rows::Rows;
use super::stored::{head_in_database, sealed, stored_head};
use super::{SqliteJournal, schema};
use crate::chain::{Epoch, Head, JournalId};
use crate::error::{AppendError, JournalError, LeaseError};
use crate::journal::{
    BatchReader, Journal, Lease, MaintenanceUrgency, Pending, checked_head, first_time,
};
use crate::record::Batch;
use crate::segment::{OpenSegment, Sealing, SegmentMark};
use crate::snapshot::{Snapshot, SnapshotMark};

impl Journal for SqliteJournal {
    fn id(&self) -> JournalId {
        self.id
    }

    fn head(&self) -> Result<Head, JournalError> {
        Ok(self.newest().head)
    }

    fn begin_append(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        Pending::Done(self.append_batch(epoch, expected, batch))
    }

    fn maintenance_urgency(&self) -> MaintenanceUrgency {
        match self.urgency.load(Ordering::Relaxed) {
            0 => MaintenanceUrgency::None,
            1 => MaintenanceUrgency::Soon,
            _ => MaintenanceUrgency::Now,
        }
    }

    fn compact(&self) -> Result<(), AppendError> {
        self.move_tail()
    }

    fn read(&self, after: Head) -> Result<BatchReader, JournalError> {
        let (until, waiting) = {
            let newest = self.newest();
            (newest.head, newest.behind(after.sequence))
        };
        let stored = waiting.front().map_or(until.sequence, |first| first.sequence - 1);
        let (readers, segments) = (Arc::clone(&self.readers), Arc::clone(&self.segments));
        let rows = Rows::new(readers, segments, after.sequence, stored, waiting);
        Ok(BatchReader::new(Box::new(rows), after, until))
    }

    fn head_at(&self, sequence: u64) -> Result<Head, JournalError> {
        // Separate, so that the lock is not held while the database is read.
        let waiting = self.newest().batch(sequence);
        match waiting {
            Some(batch) => checked_head(sequence, Some(Arc::unwrap_or_clone(batch))),
            None => self
                .segments
                .head_at(sequence, || head_in_database(&self.readers, self.id, sequence)),
        }
    }

    fn seal(
        &self,
        sealing: &Sealing,
        going: &dyn Fn() -> bool,
    ) -> Result<Option<SegmentMark>, JournalError> {
        self.seal_next(sealing, going)
    }

    fn sealed_segments(&self) -> Result<Vec<SegmentMark>, JournalError> {
        Ok(self.segments())
    }

    fn read_segment(&self, mark: &SegmentMark) -> Result<OpenSegment, JournalError> {
        self.segments.store().open(mark)
    }

    fn began_at(&self) -> Result<Option<Timestamp>, JournalError> {
        if let Some(first) = self.segments.first() {
            return Ok(Some(first.began_at));
        }
        let first = self.read(Head::genesis(self.id))?.next().transpose()?;
        Ok(first.as_ref().map(first_time).transpose()?)
    }

    fn reopen(&self) -> Result<(), JournalError> {
        let mut database = self.database();
        let writer = self.writer();
        self.check_running()?;
        database.reopen(|| {
            let connection = schema::open_writer(&self.path, &self.options)?;
            *self.interrupt.lock().unwrap_or_else(PoisonError::into_inner) =
                connection.get_interrupt_handle();
            Ok(connection)
        })?;
        self.readers.clear();
        let stored = stored_head(&self.readers, self.id)?;
        self.segments.replace(sealed(&self.readers, self.id, stored)?);
        *self.newest() = Newest::recover(&writer.tail, stored)?;
        Ok(())
    }

    fn acquire_lease(&self, holder: &str, ttl: Duration) -> Result<Lease, LeaseError> {
        // The lock file already keeps other processes out, so the lease is always granted.
        let mut database = self.database();
        let mut writer = self.writer();
        self.check_running()?;
        let taken = database.take_over(self.id, holder).map_err(|trouble| match trouble {
            DatabaseError::Failed(reason) => {
                database.close();
                // Only the reason is needed here, not the error for an append.
                let _ = self.stop(reason.clone());
                JournalError::Stopped(reason)
            }
            DatabaseError::Corrupt(error) => error,
            DatabaseError::Full(reason) => JournalError::full("taking the lease", reason),
            DatabaseError::Unknown(reason) => JournalError::storage("taking the lease", reason),
        })?;
        writer.epoch = taken;
        Ok(Lease { epoch: taken, holder: holder.to_owned(), ttl })
    }

    fn renew_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.check_running()?;
        if self.writer().epoch != lease.epoch {
            return Err(LeaseError::Lost { epoch: lease.epoch });
        }
        Ok(())
    }

    fn release_lease(&self, lease: &Lease) -> Result<(), LeaseError> {
        self.renew_lease(lease)
    }

    fn put_snapshot(&self, snapshot: &Snapshot) -> Result<(), JournalError> {
        self.snapshots.put(snapshot)
    }

    fn list_snapshots(&self) -> Result<Vec<SnapshotMark>, JournalError> {
        self.snapshots.list()
    }

    fn get_snapshot(&self, mark: SnapshotMark) -> Result<Snapshot, JournalError> {
        self.snapshots.get(mark)
    }
}
