//! The process under test: appends batches and keeps its own log of what was acknowledged.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{AppendError, Head, Journal, JournalError};

use super::support::{read_all, sample};

/// First argument of the child.
pub(crate) const MODE: &str = "append-under-strace";
/// Name of the journal in its directory.
pub(crate) const JOURNAL: &str = "journal.db";
/// Name of the child's own log.
pub(crate) const NOTES: &str = "notes";

/// How the journal is opened, in the child and on every image.
pub(crate) fn options(sync: &str) -> SqliteOptions {
    // Few pages, so that a short run goes through many checkpoints.
    SqliteOptions { checkpoint_pages: 40, unsafe_normal_sync: sync == "normal" }
}

/// Appends `appends` batches, and tries again while the disk is full.
pub(crate) fn run(directory: &str, sync: &str, appends: &str) {
    let directory = Path::new(directory);
    let appends: u64 = appends.parse().expect("the parent gives a number");
    let mut notes = File::create(directory.join(NOTES)).expect("the directory is writable");
    // One write call for each note, so that the trace shows when it was made.
    let mut note = |text: String| notes.write_all(text.as_bytes()).expect("notes can be written");
    let journal = SqliteJournal::open(&directory.join(JOURNAL), options(sync)).expect("opens");
    let epoch = journal.acquire_lease("child", Duration::from_secs(60)).expect("alone").epoch;
    let genesis = journal.head().expect("the head can be read");
    note("ready\n".into());
    let mut head = genesis;
    while head.sequence < appends {
        let number = head.sequence + 1;
        note(format!("begin {number}\n"));
        match journal.append(epoch, head, sample(number)) {
            Ok(next) => {
                head = next;
                note(format!("ack {number}\n"));
            }
            Err(AppendError::Full(_)) => {
                assert_eq!(journal.head(), Ok(head), "nothing was written");
                let batches = read_all(&journal, genesis);
                assert_eq!(batches.len(), usize::try_from(head.sequence).expect("small"));
                note(format!("full {number}\n"));
                continue;
            }
            Err(AppendError::Unknown(reason)) => {
                return stopped(&journal, epoch, head, note, &reason);
            }
            Err(other) => panic!("{other}"),
        }
        if let Err(error) = journal.tidy() {
            return stopped(&journal, epoch, head, note, &error.to_string());
        }
    }
    note("done\n".into());
}

/// After an error nothing may be written any more, not even by trying again.
fn stopped(
    journal: &SqliteJournal,
    epoch: bursar_journal::Epoch,
    head: Head,
    mut note: impl FnMut(String),
    reason: &str,
) {
    note(format!("stopped {}\n", reason.replace('\n', " ")));
    let again = journal.append(epoch, head, sample(head.sequence + 1));
    assert!(matches!(again, Err(AppendError::Unknown(_))), "{again:?}");
    assert!(matches!(journal.reopen(), Err(JournalError::Stopped(_))));
    note("still stopped\n".into());
}
