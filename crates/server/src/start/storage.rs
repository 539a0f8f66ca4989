//! The files or the database of a server: opened, checked, and noted in the manifest.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bursar_core::directory::Directory;
use bursar_core::name::Region;
use bursar_engine::cut::{CutError, check_marks};
use bursar_engine::{DirectoryCodec, replay};
use bursar_journal::postgres::{PostgresJournal, PostgresOptions};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Journal, JournalError};
use ed25519_dalek::SigningKey;

use super::standby::StandbyMachines;
use super::{StartError, io};
use crate::config::Config;
use crate::followers::archive::ArchivePlace;
use crate::followers::checkpoint;
use crate::ids::{base32, random_bits};
use crate::machines::ledgers::ledger_name;
use crate::store;
use crate::store::database::{Database, HistoryFile, warn_of_cut_off_restore};
use crate::store::{Manifest, Store};

/// A folder that is removed when the server ends.
pub(super) struct Temporary(pub(super) PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The journals of cells, by the name of their region.
pub(crate) type CellJournals = Vec<(Region, Arc<dyn Journal>)>;

/// What a ledger is stored in.
pub(super) struct LedgerStorage {
    pub(super) journal: Arc<dyn Journal>,
    /// Where the archive of what it has closed is.
    pub(super) archive: ArchivePlace,
    /// Where its history is.
    pub(super) history: PathBuf,
}

/// The journals, and where files are kept.
pub(super) struct Storage {
    /// One for each shard, by number.
    pub(super) ledgers: Vec<LedgerStorage>,
    pub(super) directory: Arc<dyn Journal>,
    /// One for each region, with its name.
    pub(super) cells: CellJournals,
    pub(super) folder: PathBuf,
    /// Keeps other processes away from history.
    pub(super) _history: HistoryFile,
    /// The output of jobs.
    pub(super) logs: PathBuf,
    /// The data folder, if the journals are files.
    pub(super) store: Option<Arc<Store>>,
    /// The database, if it has the journals.
    pub(super) database: Option<Database>,
    pub(super) _temporary: Option<Temporary>,
}

impl Storage {
    pub(super) fn open(
        config: &mut Config,
        holder: &str,
        standby: &StandbyMachines,
    ) -> Result<Storage, StartError> {
        if let Some(url) = config.store.clone() {
            return Storage::open_postgres(&url, config, holder, standby);
        }
        let mut temporary = None;
        let folder = match &config.data {
            Some(folder) => folder.clone(),
            None => {
                let name = format!("bursar-{}", base32(random_bits().into(), 13));
                let folder = std::env::temp_dir().join(name);
                temporary = Some(Temporary(folder.clone()));
                folder
            }
        };
        let store = Store::open(&folder).map_err(StartError::Store)?;
        let key_file = checkpoint::key_file(config, &folder);
        let key = checkpoint::read_key(&key_file).map_err(io(key_file.display().to_string()))?;
        let public_key = key.as_ref().map(checkpoint::public_key);
        if public_key.is_some() || !config.new_checkpoint_key {
            let checked = store.check_signer(&key_file, public_key.as_deref());
            checked.map_err(StartError::Store)?;
        }
        let open = |machine: &str| {
            store.begin(machine).map_err(StartError::Store)?;
            let file = Manifest::file(&folder, machine);
            let journal = SqliteJournal::open(&file, SqliteOptions::default());
            let what = file.display().to_string();
            let journal = journal.map_err(|error| StartError::Journal { what, error })?;
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        };
        let history = HistoryFile::in_folder(&folder);
        let directory = open(store::DIRECTORY)?;
        let Known { shards, regions } = Known::read(&*directory, config)?;
        let ledgers = (0..shards).map(|shard| {
            let journal = open(&ledger_name(shard))?;
            let archive = ArchivePlace::File(folder.join(store::archive_file(shard)));
            Ok::<_, StartError>(LedgerStorage { journal, archive, history: history.path(shard) })
        });
        let ledgers = ledgers.collect::<Result<Vec<_>, _>>()?;
        let cells = open_cells(regions, open)?;
        if !store.was_clean {
            let cells: Vec<_> =
                cells.iter().map(|(region, journal)| (region.as_str(), &**journal)).collect();
            let ledgers: Vec<_> = ledgers.iter().map(|own| &*own.journal).collect();
            check_marks(&ledgers, &cells).map_err(|error| mixed(&folder, &error))?;
        }
        let logs = folder.join("logs");
        store::make_folder(&logs).map_err(StartError::Store)?;
        let (store, database) = (Some(Arc::new(store)), None);
        let storage = Storage {
            ledgers,
            directory,
            cells,
            folder,
            _history: history,
            logs,
            store,
            database,
            _temporary: temporary,
        };
        storage.note(false);
        Ok(storage)
    }

    /// Writes the heads of the journals to the manifest. In a database every renewal of a lease
    /// does so.
    pub(super) fn note(&self, clean: bool) {
        if let Some(store) = &self.store {
            note_heads(store, &self.machines(), clean);
        }
        if let Some(database) = self.database.as_ref().filter(|_| clean) {
            database.note(clean);
        }
    }

    /// The key that signs checkpoints, noted in the store so that verifiers can look it up.
    pub(super) fn signing_key(&self, config: &Config) -> Result<SigningKey, StartError> {
        let key_file = checkpoint::key_file(config, &self.folder);
        let signing =
            checkpoint::load_key(&key_file).map_err(io(key_file.display().to_string()))?;
        if let Some(store) = &self.store {
            note_signer(store, &key_file, &checkpoint::public_key(&signing));
        }
        if let Some(database) = &self.database {
            database.note_signer(&checkpoint::public_key(&signing))?;
        }
        Ok(signing)
    }

    /// The number that agents' incarnations are counted from.
    pub(super) fn incarnation_base(&self) -> u32 {
        let of_database = || self.database.as_ref().map(Database::incarnation_base);
        self.store.as_ref().map(|store| store.incarnation_base()).or_else(of_database).unwrap_or(0)
    }

    /// Every machine with its journal.
    pub(super) fn machines(&self) -> Vec<(String, Arc<dyn Journal>)> {
        let cells = self
            .cells
            .iter()
            .map(|(region, journal)| (format!("cell-{region}"), Arc::clone(journal)));
        let mut machines: Vec<_> = cells.collect();
        let ledgers = (0..).zip(&self.ledgers);
        machines.extend(ledgers.map(|(shard, own)| (ledger_name(shard), Arc::clone(&own.journal))));
        machines.push((store::DIRECTORY.to_owned(), Arc::clone(&self.directory)));
        machines
    }

    /// History is in a file beside what jobs print, where both outlive the process.
    pub(super) fn open_postgres(
        url: &str,
        config: &Config,
        holder: &str,
        standby: &StandbyMachines,
    ) -> Result<Storage, StartError> {
        let database = Database::look(postgres(url, "store", config), holder)?;
        database.check_signer(config)?;
        let open = |machine: &str| -> Result<Arc<dyn Journal>, StartError> {
            if let Some(followed) = standby.journal(machine) {
                return Ok(followed);
            }
            let journal = PostgresJournal::open(postgres(url, machine, config))
                .map_err(|error| StartError::Journal { what: machine.to_owned(), error })?;
            Ok(Arc::new(journal))
        };
        let directory = open(store::DIRECTORY)?;
        let followed = standby.directory.as_ref();
        let followed =
            followed.and_then(|own| own.look(&DirectoryCodec, |known, _| Known::of(known, config)));
        let read = || {
            // What was followed may be an old primary.
            let what = || store::DIRECTORY.to_owned();
            let opened = directory.reopen();
            opened.map_err(|error| StartError::Journal { what: what(), error })?;
            Known::read(&*directory, config)
        };
        let Known { shards, regions } = followed.unwrap_or_else(read)?;
        let names = (0..shards).map(ledger_name);
        let journals = names.map(|name| open(&name)).collect::<Result<Vec<_>, _>>()?;
        let cells = open_cells(regions, open)?;
        database.check_marks(&journals, &cells, || standby.compare_marks(shards, &cells))?;
        database.note(false);
        let name = format!("bursar-{}", base32(random_bits().into(), 13));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).map_err(io(folder.display().to_string()))?;
        let temporary = Some(Temporary(folder.clone()));
        let state = config.state_folder().unwrap_or_else(|| folder.clone());
        let logs = state.join("logs");
        warn_of_cut_off_restore(&logs);
        std::fs::create_dir_all(&logs).map_err(io(logs.display().to_string()))?;
        let history = HistoryFile::in_state(&state, &folder);
        let ledgers = (0..).zip(journals).map(|(shard, journal)| {
            let options = postgres(url, &ledger_name(shard), config);
            let archive = ArchivePlace::Tables(Box::new(options));
            LedgerStorage { journal, archive, history: history.path(shard) }
        });
        Ok(Storage {
            ledgers: ledgers.collect(),
            directory,
            cells,
            folder,
            _history: history,
            logs,
            store: None,
            database: Some(database),
            _temporary: temporary,
        })
    }
}

/// Writes the heads of the journals to the manifest. A failed write is retried later: the heads in
/// the manifest are lower bounds.
pub(super) fn note_heads(store: &Store, machines: &[(String, Arc<dyn Journal>)], clean: bool) {
    let head = |(name, journal): &(String, Arc<dyn Journal>)| {
        journal.head().map(|head| (name.clone(), journal.id(), head))
    };
    let heads: Result<Vec<_>, JournalError> = machines.iter().map(head).collect();
    if let Err(error) = heads.and_then(|heads| store.note(&heads, clean)) {
        tracing::warn!(%error, "the manifest could not be written; trying again later");
    }
}

/// Stores the public key that signs checkpoints. If it replaces another one, the log says so,
/// because verifiers must have the new one.
pub(super) fn note_signer(store: &Store, file: &Path, public_key: &str) {
    if let Some(before) = store.signer().filter(|before| before != public_key) {
        tracing::error!(
            file = %file.display(), before, public_key,
            "a new key that signs checkpoints was made, as --new-checkpoint-key says: give outsiders \
             its public key"
        );
    }
    if let Err(error) = store.note_signer(public_key) {
        tracing::warn!(%error, "the manifest could not be written; trying again at the next start");
    }
}

/// How often the heads of the journals are written to the manifest.
pub(super) const MANIFEST_INTERVAL: Duration = Duration::from_secs(30);

/// Writes the heads of the journals to the manifest periodically.
pub(super) async fn write_manifest_periodically(
    store: Arc<Store>,
    machines: Vec<(String, Arc<dyn Journal>)>,
) {
    let machines = Arc::new(machines);
    loop {
        tokio::time::sleep(MANIFEST_INTERVAL).await;
        let (store, machines) = (Arc::clone(&store), Arc::clone(&machines));
        // An error here is a panic, which the panic hook has reported.
        let _ = tokio::task::spawn_blocking(move || note_heads(&store, &machines, false)).await;
    }
}

/// The error for a folder whose files do not belong to one store at one time.
pub(super) fn mixed(folder: &Path, error: &CutError) -> StartError {
    StartError::Other(format!(
        "{}: {error}. No record was written. Put back the files as they were, or restore the last \
         backup into an empty folder: bursar admin restore BACKUP --data DIR",
        folder.display()
    ))
}

/// The options of a machine's journal in PostgreSQL.
pub(super) fn postgres(url: &str, machine: &str, config: &Config) -> PostgresOptions {
    let mut options = PostgresOptions::new(url, machine);
    options.unsafe_single = config.unsafe_single_postgres;
    options.unsafe_plaintext = config.unsafe_plaintext_postgres;
    let newest = options.newest_form;
    options.newest_form = config.unsafe_store_form.map_or(newest, |form| form.min(newest));
    options
}

/// The machines of a store beside its directory.
struct Known {
    /// The number of ledgers.
    shards: u16,
    /// The regions that are configured now or were configured before.
    regions: Vec<Region>,
}

impl Known {
    /// Reads the journal of the directory.
    fn read(directory: &dyn Journal, config: &Config) -> Result<Known, StartError> {
        Known::of(&replay(directory, &DirectoryCodec)?.machine, config)
    }

    fn of(known: &Directory, config: &Config) -> Result<Known, StartError> {
        let mut regions = config.region_names()?;
        regions.extend(known.regions().cloned());
        regions.sort();
        regions.dedup();
        Ok(Known { shards: shards_of(known, config), regions })
    }
}

/// The number of ledgers of a store: what the configuration says until the store has a region, which is added last.
pub(super) fn shards_of(directory: &Directory, config: &Config) -> u16 {
    let known = u16::try_from(directory.shards().count()).unwrap_or(u16::MAX);
    let Some(wanted) = config.shards else { return known };
    // A new store has no region.
    if directory.regions().next().is_none() {
        return known.max(wanted);
    }
    if wanted != known {
        tracing::warn!(
            wanted,
            shards = known,
            "--shards counts at the first start of a store only; add shards with `bursar shard add`"
        );
    }
    known
}

/// Opens the journals of regions.
pub(super) fn open_cells(
    regions: Vec<Region>,
    open: impl Fn(&str) -> Result<Arc<dyn Journal>, StartError>,
) -> Result<CellJournals, StartError> {
    let opened = regions.into_iter().map(|region| {
        let journal = open(&format!("cell-{region}"))?;
        Ok((region, journal))
    });
    opened.collect()
}
