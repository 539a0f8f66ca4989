//! `bursar admin`: copies, restores, checks and exports the ledger's journal, also while a server
//! has it open.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use bursar_audit::{Report, admin};
use clap::Subcommand;

use super::{Bar, ledger_file};
use crate::exit::{Exit, Failure};
use crate::render::format::print;

/// Keeps a store safe.
#[derive(Subcommand)]
pub(crate) enum AdminCommand {
    /// Copy the ledger into one file, consistent as of one instant, and verify the copy.
    #[command(
        after_help = "Example:\n  bursar admin backup --data /var/lib/bursar ledger-$(date +%F).db"
    )]
    Backup {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The new file.
        target: PathBuf,
    },
    /// Put a backup into an empty folder and verify it there.
    #[command(
        after_help = "Example:\n  bursar admin restore ledger-2026-01-31.db --data /var/lib/restored"
    )]
    Restore {
        /// The backup.
        backup: PathBuf,
        /// The empty folder.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Check the database file and every record in it.
    #[command(after_help = "Example:\n  bursar admin check --data /var/lib/bursar")]
    Check {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Write every record as a line of JSON.
    #[command(
        after_help = "Example:\n  bursar admin export --data /var/lib/bursar > records.jsonl"
    )]
    Export {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The file to write; standard output if none is given.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

pub(crate) fn run(command: AdminCommand) -> Result<(), Failure> {
    let bar = Bar::new();
    match command {
        AdminCommand::Backup { data, target } => {
            let journal = ledger_file(&data)?;
            let report = admin::backup(&journal, &target, |step| bar.step(step))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Restore { backup, data } => {
            let name = "ledger-0.db";
            let report = admin::restore(&backup, &data, name, |step| bar.step(step))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Check { data } => {
            let report = admin::check(&ledger_file(&data)?, |step| bar.step(step))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Export { data, to } => {
            let journal = ledger_file(&data)?;
            let mut out: Box<dyn Write> = match &to {
                Some(path) => Box::new(BufWriter::new(File::create_new(path)?)),
                None => Box::new(BufWriter::new(std::io::stdout().lock())),
            };
            let records = admin::export(&journal, &mut out, |step| bar.step(step))?;
            out.flush()?;
            bar.finish();
            eprintln!("{records} records");
            Ok(())
        }
    }
}

fn conclude(report: &Report) -> Result<(), Failure> {
    print(&report.to_string())?;
    match &report.problem {
        None => Ok(()),
        Some(problem) => Err(Failure::because(Exit::Failed, problem.to_string())
            .with_next("keep this file as it is and use an older backup")),
    }
}
