//! Records collected for one durable write.

use bursar_core::time::Timestamp;

use super::frame::{
    Frames, MAX_BODY_BYTES, Record, RecordError, RecordKind, RecordTooLarge, frames, write_frame,
};

/// One or more records, ready to be appended in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    payload: Vec<u8>,
    records: u32,
    time: Timestamp,
}

impl Batch {
    /// A batch with only the barrier record that an owner writes when it takes over.
    pub fn barrier(time: Timestamp) -> Batch {
        let mut builder = BatchBuilder::new();
        builder.push(RecordKind::Barrier, time, |_| {});
        builder.finish().expect("one record was pushed")
    }

    /// The frames, one after the other.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// How many records there are; never zero.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// The time of the last record.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Returns the payload's memory, to be reused for the next batch.
    pub fn into_payload(self) -> Vec<u8> {
        self.payload
    }
}

/// A point in a [`BatchBuilder`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BuilderMark {
    bytes: usize,
    records: u32,
    time: Timestamp,
}

/// Collects records into a [`Batch`].
#[derive(Debug, Default)]
pub struct BatchBuilder {
    payload: Vec<u8>,
    records: u32,
    time: Timestamp,
}

impl BatchBuilder {
    /// An empty builder.
    pub fn new() -> BatchBuilder {
        BatchBuilder::default()
    }

    /// An empty builder that reuses memory.
    pub fn reusing(mut payload: Vec<u8>) -> BatchBuilder {
        payload.clear();
        BatchBuilder { payload, ..BatchBuilder::default() }
    }

    /// Adds one record. `body` writes its body in place, at most 64 MiB. For bodies of a known
    /// size. Others use [`BatchBuilder::try_push`].
    pub fn push(&mut self, kind: RecordKind, time: Timestamp, body: impl FnOnce(&mut Vec<u8>)) {
        self.try_push(kind, time, MAX_BODY_BYTES, body).expect("the caller knows the size");
    }

    /// Adds one record, unless its body is larger than `most` bytes: then nothing is added.
    pub fn try_push(
        &mut self,
        kind: RecordKind,
        time: Timestamp,
        most: usize,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), RecordTooLarge> {
        write_frame(&mut self.payload, kind, time, most, body)?;
        self.records += 1;
        self.time = time;
        Ok(())
    }

    /// The current point, for a rollback of later records.
    pub fn mark(&self) -> BuilderMark {
        BuilderMark { bytes: self.payload.len(), records: self.records, time: self.time }
    }

    /// Removes everything that was added since `mark`, including a partial record.
    pub fn rewind(&mut self, mark: BuilderMark) {
        self.payload.truncate(mark.bytes);
        (self.records, self.time) = (mark.records, mark.time);
    }

    /// How many records were added.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// The batch, or `None` if no record was added.
    pub fn finish(self) -> Option<Batch> {
        (self.records > 0).then_some(Batch {
            payload: self.payload,
            records: self.records,
            time: self.time,
        })
    }

    /// Decodes a payload into a batch. Rejects what [`BatchBuilder::push`] cannot have written.
    pub fn decode(payload: &[u8], first: u64, records: u32) -> Result<Batch, RecordError> {
        let mut time = Timestamp::default();
        for record in frames(payload, first, records) {
            time = record?.time;
        }
        if records == 0 {
            return Err(RecordError::WrongCount { first, announced: 0, found: 0 });
        }
        Ok(Batch { payload: payload.to_vec(), records, time })
    }
}

impl crate::chain::StoredBatch {
    /// The records of this batch.
    pub fn frames(&self) -> Frames<'_> {
        frames(&self.payload, self.first_position, self.records)
    }

    /// Checks that every record can be decoded.
    pub fn check_records(&self) -> Result<(), RecordError> {
        self.frames().try_for_each(|record: Result<Record<'_>, RecordError>| record.map(|_| ()))
    }
}
