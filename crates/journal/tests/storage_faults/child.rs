//! The process under test: appends batches and keeps its own log of acknowledged ones.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{
    AppendError, Batch, Epoch, Head, Journal, JournalError, MaintenanceUrgency, Sealing, Snapshot,
};

use super::support::{read_all, sample};

/// First argument of the child.
pub(crate) const MODE: &str = "append-under-strace";
/// Name of the journal in its directory.
pub(crate) const JOURNAL: &str = "journal.db";
/// Name of the child's own log.
pub(crate) const NOTES: &str = "notes";

/// When the tail is moved into the database, and its log into the file.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) enum Compaction {
    /// By the appending thread: after some appends each time, after others when half of the tail is
    /// full.
    Between,
    /// By another thread, while this one appends.
    Meanwhile,
    /// By the appending thread, which also makes snapshots and seals what is older.
    Sealing,
    /// There is no journal: an archive is written.
    Archiving,
}

impl Compaction {
    /// The argument of the child.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Compaction::Between => "between",
            Compaction::Meanwhile => "meanwhile",
            Compaction::Sealing => "sealing",
            Compaction::Archiving => "archiving",
        }
    }
}

/// The options of the journal, in the child and on every image.
pub(crate) fn options(sync: &str) -> SqliteOptions {
    // Few pages, so that a short run fills the tail and makes many checkpoints.
    SqliteOptions {
        tail_bytes: 16 * 4096,
        checkpoint_pages: 40,
        unsafe_normal_sync: sync == "normal",
    }
}

/// Appends `appends` batches, and retries while the disk is full.
pub(crate) fn run(directory: &str, sync: &str, compaction: &str, appends: &str) {
    let directory = Path::new(directory);
    let appends: u64 = appends.parse().expect("the parent gives a number");
    let mut notes = File::create(directory.join(NOTES)).expect("the directory is writable");
    // One write call for each note, so that the trace shows when it was made.
    let mut note =
        move |text: String| notes.write_all(text.as_bytes()).expect("notes can be written");
    if compaction == Compaction::Archiving.name() {
        return super::archive::run(directory, appends, note);
    }
    let journal = SqliteJournal::open(&directory.join(JOURNAL), options(sync)).expect("opens");
    let epoch = journal.acquire_lease("child", Duration::from_secs(60)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    note("ready\n".into());
    let mut child = Child { journal: &journal, epoch, genesis, note };
    if compaction == Compaction::Sealing.name() {
        let append = |head, batch| journal.append(epoch, head, batch);
        return child.append_all(appends, append, |number| match number % 10 {
            0 => journal.compact().map(|()| seal(&journal)),
            _ => Ok(()),
        });
    }
    if compaction == Compaction::Between.name() {
        let append = |head, batch| journal.append(epoch, head, batch);
        let compact = |number: u64| match number % 20 < 8
            || journal.maintenance_urgency() == MaintenanceUrgency::Now
        {
            true => journal.compact(),
            false => Ok(()),
        };
        return child.append_all(appends, append, compact);
    }
    // strace counts the calls of each thread. This thread compacts. Every append has its own
    // thread, so that a call with a high number is always one of the compaction.
    let append = |head, batch| {
        let alone = || journal.append(epoch, head, batch);
        std::thread::scope(|scope| scope.spawn(alone).join().expect("it does not panic"))
    };
    std::thread::scope(|scope| {
        let appending = scope.spawn(|| child.append_all(appends, append, |_| Ok(())));
        // The append returns the failure, too.
        while !appending.is_finished() && journal.compact().is_ok() {
            std::thread::yield_now();
        }
    });
}

/// Seals what is older than a new snapshot. If that fails, everything is where it was.
fn seal(journal: &SqliteJournal) {
    let head = journal.head().expect("the head can be read");
    let snapshot = Snapshot { head, state: Vec::new() };
    let sealing = Sealing { segment_bytes: 3_000, level: 3, signer: None };
    while journal.put_snapshot(&snapshot).is_ok()
        && journal.seal(&sealing, &|| true).is_ok_and(|sealed| sealed.is_some())
    {}
}

struct Child<'a, N> {
    journal: &'a SqliteJournal,
    epoch: Epoch,
    genesis: Head,
    note: N,
}

impl<N: FnMut(String)> Child<'_, N> {
    fn append_all(
        &mut self,
        appends: u64,
        append: impl Fn(Head, Batch) -> Result<Head, AppendError>,
        compact: impl Fn(u64) -> Result<(), AppendError>,
    ) {
        let mut head = self.genesis;
        while head.sequence < appends {
            let number = head.sequence + 1;
            (self.note)(format!("begin {number}\n"));
            match append(head, sample(number)) {
                Ok(next) => {
                    head = next;
                    (self.note)(format!("ack {number}\n"));
                }
                Err(AppendError::Full(_)) => {
                    assert_eq!(self.journal.head(), Ok(head), "nothing was written");
                    let batches = read_all(self.journal, self.genesis);
                    assert_eq!(batches.len(), usize::try_from(head.sequence).expect("small"));
                    (self.note)(format!("full {number}\n"));
                    continue;
                }
                Err(AppendError::Unknown(reason)) => return self.stopped(head, &reason),
                Err(other) => panic!("{other}"),
            }
            match compact(number) {
                Ok(()) | Err(AppendError::Full(_)) => {}
                Err(error) => return self.stopped(head, &error.to_string()),
            }
        }
        (self.note)("done\n".into());
    }

    /// After an error nothing may be written, not even by a retry.
    fn stopped(&mut self, head: Head, reason: &str) {
        (self.note)(format!("stopped {}\n", reason.replace('\n', " ")));
        let again = self.journal.append(self.epoch, head, sample(head.sequence + 1));
        assert!(matches!(again, Err(AppendError::Unknown(_))), "{again:?}");
        assert!(matches!(self.journal.reopen(), Err(JournalError::Stopped(_))));
        (self.note)("still stopped\n".into());
    }
}
