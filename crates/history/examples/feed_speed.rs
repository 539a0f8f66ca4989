//! Measures the processor time that history takes to apply an existing journal.
//!
//! `cargo run --release -p bursar-history --example feed_speed -- LEDGER.db [SLICE] [SLICES]
//! [BEFORE]`
//!
//! SLICE is the number of records applied at once, SLICES the number of slices per commit, and
//! BEFORE the number of records (accounts and grants, for example) to apply before the measurement
//! starts. The journal must not be in use.

use std::error::Error;
use std::path::Path;

use bursar_history::{History, Sqlite};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, StoredBatch};

/// Seconds for which the first thread has run.
fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    let times = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(times.split_whitespace().next().unwrap_or("0").parse::<f64>()? / 1e9)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give the path of a ledger's journal file")?;
    let slice: u64 = arguments.next().map_or(Ok(2_400), |text| text.parse())?;
    let slices: usize = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let before: u64 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let journal = SqliteJournal::open(Path::new(&path), SqliteOptions::default())?;
    let batches: Vec<StoredBatch> =
        journal.read(Head::genesis(journal.id()))?.collect::<Result<_, _>>()?;
    let file = std::env::temp_dir().join(format!("feed-speed-{}.db", std::process::id()));
    let mut history = History::new(Sqlite::open(&file)?);
    let (mut begun, mut counted_from) = (processor_seconds()?, 0);
    let (mut taken, mut records) = (0, 0);
    let mut waiting = Vec::new();
    for batch in batches {
        records += u64::from(batch.records);
        waiting.push(batch);
        if records >= slice {
            history.take_in_batches(&waiting)?;
            waiting.clear();
            records = 0;
            taken += 1;
            if taken % slices == 0 {
                let kept = history.keep()?;
                if counted_from == 0 && before > 0 && kept >= before {
                    (begun, counted_from) = (processor_seconds()?, kept);
                }
            }
        }
    }
    history.take_in_batches(&waiting)?;
    let all = history.keep()?;
    let took = processor_seconds()? - begun;
    drop(history);
    println!(
        "{} records, {:.2} µs each; the file has {:.1} MB",
        all - counted_from,
        took * 1e6 / (all - counted_from) as f64,
        std::fs::metadata(&file)?.len() as f64 / 1e6
    );
    for end in ["", "-wal", "-shm"] {
        // A missing file need not be removed.
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
    Ok(())
}
