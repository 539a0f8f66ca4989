//! `bursar admin`: copies, restores, checks and exports the journals of a store, also while a server
//! has it open.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bursar_audit::export::Of;
use bursar_audit::{Report, admin};
use clap::Subcommand;

use super::cells::{self, cell_files};
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
    /// Write every record of the ledger, or of a region's cell, as a line of JSON.
    #[command(
        after_help = "Example:\n  bursar admin export --data /var/lib/bursar > ledger.jsonl\n  \
            bursar admin export --data /var/lib/bursar --region default > cell.jsonl"
    )]
    Export {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The region whose cell is exported; the ledger if none is given.
        #[arg(long, value_name = "NAME")]
        region: Option<String>,
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
            // The cells first: whatever they have received, the ledger's copy has sent.
            for (region, file) in cell_files(&data)? {
                let copy = cell_backup(&target, &region);
                let report = admin::backup_cell(&file, &copy, |step| bar.step(step))?;
                cells::told(&region, &report)?;
            }
            let report = admin::backup(&journal, &target, |step| bar.step(step))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Restore { backup, data } => {
            let name = "ledger-0.db";
            let report = admin::restore(&backup, &data, name, |step| bar.step(step))?;
            for (region, file) in cell_backups(&backup)? {
                let target = data.join(format!("cell-{region}.db"));
                let report = admin::backup_cell(&file, &target, |step| bar.step(step))?;
                cells::told(&region, &report)?;
            }
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Check { data } => {
            for (region, file) in cell_files(&data)? {
                let report = admin::check_cell(&file, |step| bar.step(step))?;
                cells::told(&region, &report)?;
            }
            let report = admin::check(&ledger_file(&data)?, |step| bar.step(step))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Export { data, region, to } => {
            let (journal, of) = match region {
                Some(region) => (cells::cell_file(&data, &region)?, Of::Cell),
                None => (ledger_file(&data)?, Of::Ledger),
            };
            let mut out: Box<dyn Write> = match &to {
                Some(path) => Box::new(BufWriter::new(File::create_new(path)?)),
                None => Box::new(BufWriter::new(std::io::stdout().lock())),
            };
            let records = admin::export(&journal, of, &mut out, |step| bar.step(step))?;
            out.flush()?;
            bar.finish();
            eprintln!("{records} records");
            Ok(())
        }
    }
}

/// Where the copy of a cell goes: beside the ledger's, with the region behind its name.
fn cell_backup(target: &Path, region: &str) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(format!(".cell-{region}"));
    name.into()
}

/// The copies of cells beside a backup: the region and the file, by name.
fn cell_backups(backup: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let folder = match backup.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let own = backup.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let start = format!("{own}.cell-");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(region) = name.strip_prefix(&start) {
            found.push((region.to_owned(), path.clone()));
        }
    }
    found.sort();
    Ok(found)
}

fn conclude(report: &Report) -> Result<(), Failure> {
    print(&report.to_string())?;
    match &report.problem {
        None => Ok(()),
        Some(problem) => Err(Failure::because(Exit::Failed, problem.to_string())
            .with_next("keep this file as it is and use an older backup")),
    }
}
