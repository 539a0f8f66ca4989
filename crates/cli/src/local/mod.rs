//! Commands that work on a store itself, beside or without a server.

pub(crate) mod admin;
pub(crate) mod audit;
mod backup;
mod cells;
mod database;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bursar_audit::Progress;
use bursar_audit::admin::Step;
use bursar_server::store::{MANIFEST, Manifest};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::Failure;

/// The ledger's journal in a data folder.
pub(crate) fn ledger_file(data: &Path) -> Result<PathBuf, Failure> {
    let file = data.join("ledger-0.db");
    if file.is_file() {
        Ok(file)
    } else if data.join(MANIFEST).is_file() {
        let next = "put it back as it was, or restore the last backup into an empty folder: bursar \
                    admin restore BACKUP --data DIR";
        Err(Failure::new(file.display(), "the file is missing").with_next(next))
    } else {
        let next = "give --data the folder that `bursar serve --data` was given";
        Err(Failure::new(data.display(), "there is no ledger in this folder").with_next(next))
    }
}

/// Refuses a folder whose files are not those that its manifest names, as a server would. One that is
/// in use is looked at again: it may have been written while it was read.
pub(crate) fn check_folder(data: &Path) -> Result<(), Failure> {
    let Some(first) = Manifest::read(data)? else { return Ok(()) };
    let mut outcome = first.check(data);
    for _ in 0..TRIES {
        if outcome.is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
        outcome = first.check(data);
    }
    outcome?;
    Ok(())
}

/// How often a folder in use is looked at.
const TRIES: u32 = 20;
/// How long to wait before that.
const PAUSE: Duration = Duration::from_millis(20);

/// A bar on standard error, where somebody looks; nothing elsewhere.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Bar {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:9} {bar:40} {pos}/{len} {per_sec}");
        Bar(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(crate) fn verified(&self, progress: Progress) {
        self.0.set_message("records");
        self.0.set_length(progress.of);
        self.0.set_position(progress.records);
    }

    pub(crate) fn step(&self, step: Step) {
        match step {
            Step::Copied { pages, of } => {
                self.0.set_message("pages");
                self.0.set_length(of);
                self.0.set_position(pages);
            }
            Step::Verified(progress) => self.verified(progress),
        }
    }

    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}
