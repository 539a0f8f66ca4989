//! Helpers shared by the tests of this crate.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "every test binary uses another part"
)]

pub mod postgres;
mod temp_dir;

use bursar_core::time::Timestamp;
use bursar_journal::{Batch, BatchBuilder, Head, Journal, RecordKind, StoredBatch};
pub use temp_dir::TempDir;

/// A batch whose content is determined by `number`: several records of odd sizes.
pub fn sample(number: u64) -> Batch {
    let mut builder = BatchBuilder::new();
    for record in 0..=number % 3 {
        let time =
            Timestamp::from_millis(1_577_836_800_000 + i64::try_from(number).expect("small"));
        builder.push(RecordKind::Decision, time, |out| {
            let length = (number * 131 + record * 17) % 700;
            out.extend((0..length).map(|i| (number * 7 + record + i).to_le_bytes()[0]));
        });
    }
    builder.finish().expect("at least one record was pushed")
}

/// All batches after `after`.
pub fn read_all(journal: &dyn Journal, after: Head) -> Vec<StoredBatch> {
    let reader = journal.read(after).expect("the journal can be read");
    reader.map(|batch| batch.expect("the journal is whole")).collect()
}
