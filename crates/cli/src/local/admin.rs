//! `bursar admin`: copies, restores, checks and exports the journals of a store, also while a server
//! has it open.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use bursar_audit::export::JournalKind;
use bursar_audit::{Report, SqliteSource, check};
use bursar_client::api::Time;
use bursar_client::api::words::counted;
use bursar_core::time::Timestamp;
use bursar_journal::JournalError;
use bursar_journal::postgres::PostgresOptions;
use bursar_server::backup::cells::{self, cell_files};
use bursar_server::backup::postgres::{self, LocalFiles};
use bursar_server::backup::{
    BackupError, archive, archive_database, backup, check_directory, ledgers, restore, say_ledger,
};
use bursar_server::machines::ledgers::ledger_name;
use bursar_server::store::{DIRECTORY, Manifest, adopt, adopt_not_moved};
use clap::{Args, Subcommand};

use super::migrate::MigrateArguments;
use super::store_test::StoreTestArguments;
use super::{TerminalProgress, check_folder, failed, ledger_file};
use crate::arguments::instant;
use crate::command::Remote;
use crate::command::system::clock::ClockCommand;
use crate::exit::{Exit, Failure};
use crate::render::format::{Format, is_terminal, print};
use crate::render::output::ProtectedTerminal;
use crate::session::connection::ConnectionArguments;

/// Manages a store.
#[derive(Subcommand)]
pub(crate) enum AdminCommand {
    /// Copy a store into a new folder, at one consistent cut, and verify the copy: the journals of all machines, the
    /// signing key, and with --logs the output of jobs. The server may run meanwhile.
    #[command(after_help = "Examples:\n  bursar admin backup --data /var/lib/bursar \
        /backup/$(date +%F)\n  bursar admin backup --store postgres://db/bursar --checkpoint-key \
        /etc/bursar/checkpoint.key /backup/$(date +%F)\n\nThe copy is as secret as the store. The \
        root key is not in it.")]
    Backup(BackupArguments),
    /// Restore a backup into an empty folder or an empty PostgreSQL database, and verify it. Agents must register again
    /// before their reports count.
    #[command(after_help = "Examples:\n  bursar admin restore /backup/2026-01-31 --data \
            /var/lib/restored\n  bursar admin restore /backup/2026-01-31 --store \
            postgres://db/restored --checkpoint-key /etc/bursar/checkpoint.key\n  bursar admin restore \
            /backup/2026-01-31 --until 2026-01-30T08:00:00Z --data /var/lib/restored\n\nAgents register \
            again by themselves. Attempts that ran at the time of the backup are lost, and their jobs are \
            queued again. Nothing is placed on a node for one node lease after it registers, because its \
            agent may still have to end what it ran.")]
    Restore(RestoreArguments),
    /// Prepare an upgrade: back the store up and rehearse its restore with this build. Run it with the new build. The
    /// server of the old build may run meanwhile.
    #[command(
        name = "prepare-upgrade",
        after_help = "Example:\n  ./bursar-new admin prepare-upgrade --data /var/lib/bursar \
            /backup/$(date +%F)\n\nThe rehearsal verifies every journal and replays all machines in a folder \
            beside the backup, which it removes. Afterwards install the new build and restart the server."
    )]
    PrepareUpgrade {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The new folder for the backup.
        target: PathBuf,
    },
    /// Accept the clock of a running server after it jumped or was far ahead at a start. Grants whose expiry was
    /// delayed then expire. Check the server's clock first.
    #[command(after_help = "Example:\n  bursar admin accept-clock --server \
        https://bursar.example\n\nRefused (409, exit code 3) while the clock is behind the time of the \
        records: they were stamped by a clock that was ahead. Wait until it has caught up, or go back to \
        before it was wrong: bursar admin restore BACKUP --until INSTANT --data DIR")]
    AcceptClock,
    /// Check the database files of a store and every record in them.
    #[command(after_help = "Example:\n  bursar admin check --data /var/lib/bursar")]
    Check {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Make the manifest of a store that has lost it, or that an early build made without one. The files are checked
    /// first. If you have the original manifest, put it back instead.
    #[command(
        after_help = "Example:\n  bursar admin adopt --data /var/lib/bursar\n\nA new manifest \
        does not know how far the journals had come, so an older copy of a file is not noticed. \
        `bursar audit verify --data DIR` checks the journals as they are."
    )]
    Adopt {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Allow to serve the folder again after a move to PostgreSQL that failed. Only if no server will ever use that
        /// database.
        #[arg(long)]
        not_moved: bool,
    },
    /// Move sealed segments of the journals to another folder, for example on another disk or in a
    /// mounted bucket, and remember where they are. The server may run.
    #[command(after_help = "Examples:\n  bursar admin archive --data /var/lib/bursar --to \
        /mnt/archive\n  bursar admin archive --store postgres://bursar@db.example/bursar --to \
        /mnt/archive\n\nSegments are copied, read again, and then removed from the store. The newest \
        one stays. Keep the folder mounted: a start does not need it, but old events, proofs, \
        verification and backups read from it. With --store every server of the store needs it under \
        the same path.")]
    Archive(ArchiveArguments),
    /// Move the store of a folder into an empty PostgreSQL database: the journals of all machines, with every record at
    /// its position; with --checkpoint-key the key that signs checkpoints; with --state the output of jobs. Stop the
    /// server first.
    #[command(after_help = "Example:\n  bursar admin migrate --data /var/lib/bursar --to \
        postgres://bursar@db.example/bursar --checkpoint-key /etc/bursar/checkpoint.key --state \
        /var/lib/bursar-state\n\n\
        At the end the digests of all machines are compared. Agents continue their jobs when they \
        reach the new server. The archive and history are built again at its first start.")]
    Migrate(MigrateArguments),
    /// Test whether a PostgreSQL keeps the laws that the journals rely on: settings, rights, the clock,
    /// atomic appends, epochs and leases.
    #[command(
        name = "store-test",
        after_help = "Example:\n  bursar admin store-test postgres://bursar@db.example/bursar\n\nIt works in a \
            schema of its own and removes it. A store in the same database may be in use. The test does not \
            cause a failover. Exit code 0: every law holds."
    )]
    StoreTest(StoreTestArguments),
    /// Export every record of a ledger, or of a region's cell, as a line of JSON.
    #[command(
        after_help = "Example:\n  bursar admin export --data /var/lib/bursar > ledger.jsonl\n  \
            bursar admin export --data /var/lib/bursar --region default > cell.jsonl"
    )]
    Export {
        /// The folder of the store.
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The region whose cell is exported; a ledger if none is given.
        #[arg(long, value_name = "NAME")]
        region: Option<String>,
        /// The number of the ledger shard that is exported.
        #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "region")]
        shard: u16,
        /// The file to write; standard output if none is given.
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

pub(crate) fn run(
    command: AdminCommand,
    connection: &ConnectionArguments,
    format: Format,
) -> Result<(), Failure> {
    let bar = TerminalProgress::new();
    match command {
        AdminCommand::AcceptClock => {
            crate::command::run(Remote::Clock(ClockCommand::Accept), connection, format)
        }
        AdminCommand::Backup(arguments) => {
            let report = arguments.run(&bar)?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Restore(arguments) => {
            let report = arguments.run(&bar)?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::PrepareUpgrade { data, target } => prepare_upgrade(&data, &target, bar),
        AdminCommand::Check { data } => {
            check_folder(&data)?;
            let directory = Manifest::file(&data, DIRECTORY);
            let source = SqliteSource::open(&directory)
                .map_err(|reason| Failure::new(directory.display(), reason))?;
            check_directory(&source, &bar).map_err(failed)?;
            for (region, file) in cell_files(&data).map_err(failed)? {
                let report = check::check_cell(&file, |progress| bar.verified(progress))?;
                cells::say(&region, &report, &bar).map_err(failed)?;
            }
            for machine in (1..ledgers(&data).map_err(failed)?).map(ledger_name) {
                let file = Manifest::file(&data, &machine);
                let report = check::check(&file, |progress| bar.verified(progress))?;
                say_ledger(&machine, &report, &bar).map_err(failed)?;
            }
            let report = check::check(&ledger_file(&data)?, |progress| bar.verified(progress))?;
            bar.finish();
            conclude(&report)
        }
        AdminCommand::Adopt { data, not_moved } => {
            let refused = |error: JournalError| Failure::because(Exit::Failed, error.to_string());
            if not_moved {
                adopt_not_moved(&data).map_err(refused)?;
                return print(&format!("adopted {}: it is served again\n", data.display()));
            }
            let machines = adopt(&data).map_err(refused)?;
            print(&format!("adopted {}: {}\n", data.display(), machines.join(", ")))
        }
        AdminCommand::Archive(arguments) => {
            let moved = arguments.run(&bar).map_err(failed);
            bar.finish();
            moved
        }
        AdminCommand::Migrate(arguments) => arguments.run(bar),
        AdminCommand::StoreTest(arguments) => arguments.run(),
        AdminCommand::Export { data, region, shard, to } => {
            let (journal, of) = match region {
                Some(region) => {
                    (cells::cell_file(&data, &region).map_err(failed)?, JournalKind::Cell)
                }
                None => (ledger_of(&data, shard)?, JournalKind::Ledger),
            };
            let mut out: Box<dyn Write> = match &to {
                Some(path) => Box::new(BufWriter::new(File::create_new(path)?)),
                None if is_terminal() => {
                    let terminal = ProtectedTerminal::new(std::io::stdout().lock());
                    Box::new(BufWriter::new(terminal))
                }
                None => Box::new(BufWriter::new(std::io::stdout().lock())),
            };
            let records = check::export(&journal, of, &mut out, |progress| bar.verified(progress))?;
            out.flush()?;
            bar.finish();
            eprintln!("{}", counted(records, "record"));
            Ok(())
        }
    }
}

/// The journal of a ledger shard.
fn ledger_of(data: &Path, shard: u16) -> Result<PathBuf, Failure> {
    ledger_file(data)?;
    let count = ledgers(data).map_err(failed)?;
    if shard < count {
        return Ok(Manifest::file(data, &ledger_name(shard)));
    }
    let why = format!("--shard {shard}: there is no such ledger shard");
    let next = format!("give a number below {count}");
    Err(Failure::because(Exit::Usage, why).with_next(next))
}

/// Backs a store up and rehearses its restore.
fn prepare_upgrade(data: &Path, target: &Path, bar: TerminalProgress) -> Result<(), Failure> {
    let report = backup(data, target, false, &bar).map_err(failed)?;
    if report.problem.is_some() {
        bar.finish();
        return conclude(&report);
    }
    let mut rehearsal = target.as_os_str().to_owned();
    rehearsal.push(".rehearsal");
    let rehearsal = PathBuf::from(rehearsal);
    let restored = restore(target, &rehearsal, None, &bar).map_err(failed);
    bar.finish();
    // The rehearsal made the folder, unless another one was there; then it failed and left it alone.
    if restored.is_ok() {
        std::fs::remove_dir_all(&rehearsal)?;
    }
    conclude(&restored?)?;
    print(&format!(
        "{} is a backup, and this build ({}) reads all of it\nnext: install this build and restart the \
         server; wait until /readyz answers 200",
        target.display(),
        env!("CARGO_PKG_VERSION"),
    ))
}

/// The store that is read.
#[derive(Args)]
struct SourceArguments {
    /// The folder of a SQLite store.
    #[arg(long, value_name = "DIR", required_unless_present = "store")]
    data: Option<PathBuf>,
    /// The address of a PostgreSQL store.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    store: Option<String>,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long, requires = "store")]
    unsafe_plaintext_postgres: bool,
}

impl SourceArguments {
    /// How each machine of a PostgreSQL store is opened.
    fn options(&self) -> impl Fn(&str) -> PostgresOptions {
        let url = self.store.clone().unwrap_or_default();
        let unsafe_plaintext = self.unsafe_plaintext_postgres;
        move |machine| PostgresOptions {
            // A backup writes nothing. What an archive removes from a server that is lost is in its folder.
            unsafe_single: true,
            unsafe_plaintext,
            ..PostgresOptions::new(url.clone(), machine)
        }
    }
}

/// Arguments of a backup.
#[derive(Args)]
pub(crate) struct BackupArguments {
    #[command(flatten)]
    from: SourceArguments,
    /// With --store: the key that signs checkpoints, a file beside the root key.
    #[arg(long, value_name = "FILE", requires = "store", conflicts_with = "without_key")]
    checkpoint_key: Option<PathBuf>,
    /// With --store: leave out the key that signs checkpoints, because it is kept elsewhere.
    #[arg(long, requires = "store")]
    without_key: bool,
    /// Also copy the output of jobs.
    #[arg(long, conflicts_with = "store")]
    logs: bool,
    /// With --store: also copy the output of jobs, from the folder of `bursar serve --state`.
    #[arg(long, value_name = "DIR", requires = "store")]
    state: Option<PathBuf>,
    /// The new folder.
    target: PathBuf,
}

impl BackupArguments {
    fn run(&self, bar: &TerminalProgress) -> Result<Report, Failure> {
        if let Some(data) = &self.from.data {
            return backup(data, &self.target, self.logs, bar).map_err(failed);
        }
        if self.checkpoint_key.is_none() && !self.without_key {
            let reason = "the key that signs checkpoints would not be in this backup";
            return Err(Failure::because(Exit::Usage, reason).with_next(
                "give --checkpoint-key FILE, the file beside the root key, or --without-key if it is \
                 kept elsewhere",
            ));
        }
        let (key, state) = (self.checkpoint_key.as_deref(), self.state.as_deref());
        postgres::backup(&self.from.options(), &LocalFiles { key, state }, &self.target, bar)
            .map_err(failed)
    }
}

/// Arguments of `bursar admin archive`.
#[derive(Args)]
pub(crate) struct ArchiveArguments {
    #[command(flatten)]
    from: SourceArguments,
    /// The folder to move them to.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

impl ArchiveArguments {
    fn run(&self, bar: &TerminalProgress) -> Result<(), BackupError> {
        if let Some(data) = &self.from.data {
            return archive(data, &self.to, bar);
        }
        archive_database(&self.from.options(), &self.to, bar)
    }
}

/// Arguments of a restore.
#[derive(Args)]
pub(crate) struct RestoreArguments {
    /// The backup.
    backup: PathBuf,
    /// The empty folder.
    #[arg(long, value_name = "DIR", required_unless_present = "store")]
    data: Option<PathBuf>,
    /// Leave out later records, for example after a wrong clock or a mistake. Instants are those of the
    /// records.
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    until: Option<Time>,
    /// The URL of an empty PostgreSQL database instead.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    store: Option<String>,
    /// Accept a PostgreSQL without a synchronous standby: its loss loses the restored data.
    #[arg(long, requires = "store")]
    unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long, requires = "store")]
    unsafe_plaintext_postgres: bool,
    /// With --store: where to write the key that signs checkpoints, a file beside the root key.
    #[arg(long, value_name = "FILE", requires = "store")]
    checkpoint_key: Option<PathBuf>,
    /// With --store: the folder for the output of jobs, as of `bursar serve --state`.
    #[arg(long, value_name = "DIR", requires = "store")]
    state: Option<PathBuf>,
}

impl RestoreArguments {
    fn run(&self, bar: &TerminalProgress) -> Result<Report, Failure> {
        let until = self.until.map(|until| Timestamp::from_millis(until.millis()));
        if let Some(data) = &self.data {
            return restore(&self.backup, data, until, bar).map_err(failed);
        }
        let url = self.store.clone().unwrap_or_default();
        let options = |machine: &str| {
            let mut options = PostgresOptions::new(url.clone(), machine);
            options.unsafe_single = self.unsafe_single_postgres;
            options.unsafe_plaintext = self.unsafe_plaintext_postgres;
            options
        };
        let (key, state) = (self.checkpoint_key.as_deref(), self.state.as_deref());
        postgres::restore(&self.backup, &options, until, &LocalFiles { key, state }, bar)
            .map_err(failed)
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
