//! Commands that work on a store, with or without a running server.

pub(crate) mod admin;
pub(crate) mod audit;
pub(crate) mod losses;
mod migrate;
mod store_test;

use std::path::{Path, PathBuf};

use bursar_audit::Progress;
use bursar_server::backup::{self, BackupError, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::{Exit, Failure};
use crate::render::format::print;

/// The ledger's journal in a data folder.
pub(crate) fn ledger_file(data: &Path) -> Result<PathBuf, Failure> {
    backup::ledger_file(data).map_err(failed)
}

/// Rejects a folder whose files differ from its manifest, as a server does.
pub(crate) fn check_folder(data: &Path) -> Result<(), Failure> {
    backup::check_folder(data).map_err(failed)
}

/// Why a store was not read, copied or restored, with the next step.
pub(crate) fn failed(error: BackupError) -> Failure {
    let exit = if error.is_misuse() { Exit::Usage } else { Exit::Failed };
    let failure = Failure::because(exit, error.to_string());
    match error.next() {
        Some(next) => failure.with_next(next),
        None => failure,
    }
}

/// A progress bar on standard error if that is a terminal; nothing elsewhere.
pub(crate) struct TerminalProgress(ProgressBar);

impl TerminalProgress {
    pub(crate) fn new() -> TerminalProgress {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg:9} {bar:40} {pos}/{len} {per_sec}");
        TerminalProgress(bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    pub(crate) fn verified(&self, progress: Progress) {
        self.0.set_message("records");
        self.0.set_length(progress.of);
        self.0.set_position(progress.records);
    }

    pub(crate) fn finish(self) {
        self.0.finish_and_clear();
    }
}

impl Watch for TerminalProgress {
    fn verified(&self, progress: Progress) {
        TerminalProgress::verified(self, progress);
    }

    fn say(&self, line: &str) -> Result<(), BackupError> {
        Streams.say(line)
    }

    fn note(&self, line: &str) {
        Streams.note(line);
    }
}

/// Lines on the standard streams, without a bar.
struct Streams;

impl Watch for Streams {
    fn verified(&self, _: Progress) {}

    fn say(&self, line: &str) -> Result<(), BackupError> {
        print(&format!("{line}\n")).map_err(|failure| BackupError::because(failure.why()))
    }

    fn note(&self, line: &str) {
        eprintln!("{line}");
    }
}
