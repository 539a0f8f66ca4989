//! Startup and shutdown of a server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bursar_core::cell::{self, CellConfig, Origin};
use bursar_core::directory::{Command, Secret};
use bursar_core::ledger::command as ledger;
use bursar_core::ledger::id::{CellNo, Name};
use bursar_core::ledger::reply::Reply;
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::cut::{CutError, check_marks};
use bursar_engine::{
    CellCodec, Clock, DirectoryCodec, Engine, EngineOptions, LedgerCodec, ManualClock, Observer,
    Stats, Status, Vital, WallClock, replay,
};
use bursar_journal::postgres::{PostgresJournal, PostgresLeader, PostgresOptions};
use bursar_journal::sqlite::{SqliteJournal, SqliteOptions};
use bursar_journal::{Head, Journal, JournalError, Recent};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::App;
use crate::auth::{self, root_key};
use crate::config::{ClockKind, Config, ConfigError};
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::followers::{checkpoint, selfcheck};
use crate::http::door::Door;
use crate::http::front::Front;
use crate::ids::attempt::AttemptIds;
use crate::ids::{IdMaker, base32, random_bits};
use crate::logs::{LogStore, set_aside_lost};
use crate::machines::cells::{CellService, Cells, SHARD, StartedCell};
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::machines::leader::{Candidate, Leader, Role};
use crate::machines::wall_time::{self, NotAccepted};
use crate::net::counting::CountPlaces;

use crate::net::limits::{Limits, Load};
use crate::net::serve;
use crate::net::shed::Shed;
use crate::net::waits::Waits;
use crate::request::Failure;
use crate::store::database::{Database, HistoryFile, check_signer_at, warn_of_cut_off_restore};
use crate::store::{self, Manifest, Store};
use crate::telemetry::monotonic::Stopwatch;
use crate::telemetry::{DIRECTORY, LEDGER, Metrics};

/// The first instant of a new store with a manual clock: 2020-01-01T00:00:00.000Z.
const MANUAL_START: i64 = 1_577_836_800_000;

/// How often the heads of the journals are written to the manifest.
const MANIFEST_EVERY: Duration = Duration::from_secs(30);

/// Why a server did not start. Each says what is wrong with what.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A journal cannot be opened.
    #[error("{what}: {error}")]
    Journal {
        /// Which.
        what: String,
        /// Why.
        error: JournalError,
    },
    /// The data folder cannot be used.
    #[error(transparent)]
    Store(JournalError),
    /// A file or socket cannot be used.
    #[error("{what}: {error}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        error: std::io::Error,
    },
    /// Something else.
    #[error("{0}")]
    Other(String),
    /// The process was asked to stop before it was ready.
    #[error("stopped before it was ready")]
    Interrupted,
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Io { what, error }
}

/// What is known once the server is ready.
pub struct ServerReady {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The same as a URL for clients.
    pub url: String,
    /// The root key, if it is to be printed.
    pub root_key: Option<String>,
}

/// A server that waits for leadership.
pub struct Standby {
    /// The URL that it listens on.
    pub url: String,
    /// The URL of the leader, if known.
    pub owner: Option<String>,
    /// Why it does not lead.
    pub reason: String,
}

/// A folder that is removed when the server ends.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // A folder that cannot be removed stays in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The journals of cells, by the name of their region.
pub(crate) type CellJournals = Vec<(Name, Arc<dyn Journal>)>;

/// The journals, and where files are kept.
struct Storage {
    ledger: Arc<dyn Journal>,
    directory: Arc<dyn Journal>,
    /// One for each region, with its name.
    cells: CellJournals,
    folder: PathBuf,
    /// Where history is.
    history: HistoryFile,
    /// The output of jobs.
    logs: PathBuf,
    /// The data folder, if the journals are files.
    store: Option<Arc<Store>>,
    /// The database, if it has the journals.
    database: Option<Database>,
    _temporary: Option<Temporary>,
}

impl Storage {
    fn open(config: &mut Config, holder: &str) -> Result<Storage, StartError> {
        if let Some(url) = config.store.clone() {
            return Storage::open_postgres(&url, config, holder);
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
        let refused = |error| StartError::Store(at_full_disk(&folder, error));
        let store = Store::open(&folder).map_err(refused)?;
        let key_file = checkpoint::key_file(config, &folder);
        let key = checkpoint::read_key(&key_file).map_err(io(key_file.display().to_string()))?;
        if let Some(key) = key {
            let public_key = checkpoint::public_key(&key);
            store.check_signer(&key_file, &public_key).map_err(StartError::Store)?;
        }
        let open = |machine: &str| {
            store.begin(machine).map_err(refused)?;
            let file = Manifest::file(&folder, machine);
            let journal = SqliteJournal::open(&file, SqliteOptions::default());
            let what = file.display().to_string();
            let journal = journal.map_err(|error| StartError::Journal {
                what,
                error: at_full_disk(&folder, error),
            })?;
            Ok(Arc::new(journal) as Arc<dyn Journal>)
        };
        let (ledger, directory) = (open(store::LEDGER)?, open(store::DIRECTORY)?);
        let cells = open_cells(&*directory, config, open)?;
        if !store.was_clean {
            let cells: Vec<_> =
                cells.iter().map(|(region, journal)| (region.as_str(), &**journal)).collect();
            check_marks(&*ledger, &cells).map_err(|error| mixed(&folder, &error))?;
        }
        let logs = folder.join("logs");
        store::make_folder(&logs).map_err(refused)?;
        let (store, database) = (Some(Arc::new(store)), None);
        let history = HistoryFile::in_folder(&folder);
        let storage = Storage {
            ledger,
            directory,
            cells,
            folder,
            history,
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
    fn note(&self, clean: bool) {
        if let Some(store) = &self.store {
            note_heads(store, &self.machines(), clean);
        }
        if let Some(database) = self.database.as_ref().filter(|_| clean) {
            database.note(clean);
        }
    }

    /// The number that agents' incarnations are counted from.
    fn incarnation_base(&self) -> u32 {
        let of_database = || self.database.as_ref().map(Database::incarnation_base);
        self.store.as_ref().map(|store| store.incarnation_base()).or_else(of_database).unwrap_or(0)
    }

    /// Every machine with its journal.
    fn machines(&self) -> Vec<(String, Arc<dyn Journal>)> {
        let cells = self
            .cells
            .iter()
            .map(|(region, journal)| (format!("cell-{region}"), Arc::clone(journal)));
        let mut machines: Vec<_> = cells.collect();
        machines.push((store::LEDGER.to_owned(), Arc::clone(&self.ledger)));
        machines.push((store::DIRECTORY.to_owned(), Arc::clone(&self.directory)));
        machines
    }

    /// History is in a file beside what jobs print, where both outlive the process.
    fn open_postgres(url: &str, config: &Config, holder: &str) -> Result<Storage, StartError> {
        let database = Database::look(postgres(url, "store", config), holder)?;
        database.check_signer(config)?;
        let open = |machine: &str| -> Result<Arc<dyn Journal>, StartError> {
            let journal = PostgresJournal::open(postgres(url, machine, config))
                .map_err(|error| StartError::Journal { what: machine.to_owned(), error })?;
            Ok(Arc::new(journal))
        };
        let (ledger, directory) = (open("ledger-0")?, open("directory")?);
        let cells = open_cells(&*directory, config, open)?;
        database.check_marks(&*ledger, &cells)?;
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
        Ok(Storage {
            ledger,
            directory,
            cells,
            folder,
            history,
            logs,
            store: None,
            database: Some(database),
            _temporary: temporary,
        })
    }
}

/// Writes the heads of the journals to the manifest. A failed write is retried later: the heads in
/// the manifest are lower bounds.
fn note_heads(store: &Store, machines: &[(String, Arc<dyn Journal>)], clean: bool) {
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
fn note_signer(store: &Store, file: &Path, public_key: &str) {
    if let Some(before) = store.signer().filter(|before| before != public_key) {
        tracing::error!(
            file = %file.display(), before, public_key,
            "the key that signs checkpoints was missing and a new one was made: give outsiders its \
             public key, or put back the file as it was"
        );
    }
    if let Err(error) = store.note_signer(public_key) {
        tracing::warn!(%error, "the manifest could not be written; trying again at the next start");
    }
}

/// Writes the heads of the journals to the manifest periodically.
async fn keep_noting(store: Arc<Store>, machines: Vec<(String, Arc<dyn Journal>)>) {
    let machines = Arc::new(machines);
    loop {
        tokio::time::sleep(MANIFEST_EVERY).await;
        let (store, machines) = (Arc::clone(&store), Arc::clone(&machines));
        // An error here is a panic, which the panic hook has reported.
        let _ = tokio::task::spawn_blocking(move || note_heads(&store, &machines, false)).await;
    }
}

/// Explains a full disk and how to fix it.
fn at_full_disk(folder: &Path, error: JournalError) -> JournalError {
    let words = error.to_string();
    let is_full = words.contains("os error 28") || words.contains("disk is full");
    if !is_full {
        return error;
    }
    let folder = folder.display();
    JournalError::Refused(format!(
        "{folder}: the disk is full, so the store cannot be opened ({words}). Nothing was lost. Free \
         some space and start again"
    ))
}

/// Names the folder in the error of a server that could not start because the disk is full.
fn naming_folder(folder: Option<&Path>, error: StartError) -> StartError {
    match (folder, error) {
        (Some(folder), StartError::Other(words)) if words.contains("disk is full") => {
            StartError::Other(format!(
                "{}: the disk is full, so the server cannot start. Nothing was lost. Free some space \
                 and start again",
                folder.display()
            ))
        }
        (_, error) => error,
    }
}

/// The error for a folder whose files do not belong to one store at one time.
fn mixed(folder: &Path, error: &CutError) -> StartError {
    StartError::Other(format!(
        "{}: {error}. No record was written. Put back the files as they were, or restore the last \
         backup into an empty folder: bursar admin restore BACKUP --data DIR",
        folder.display()
    ))
}

/// The options of a machine's journal in PostgreSQL.
fn postgres(url: &str, machine: &str, config: &Config) -> PostgresOptions {
    let mut options = PostgresOptions::new(url, machine);
    options.unsafe_single = config.unsafe_single_postgres;
    options.unsafe_plaintext = config.unsafe_plaintext_postgres;
    options
}

/// Opens the journals of all regions that are configured now or were configured before.
fn open_cells(
    directory: &dyn Journal,
    config: &Config,
    open: impl Fn(&str) -> Result<Arc<dyn Journal>, StartError>,
) -> Result<CellJournals, StartError> {
    let known = replay(directory, &DirectoryCodec).map_err(wrong)?.machine;
    let mut regions: Vec<Name> = config.region_names().into_iter().map(Name::from).collect();
    regions.extend(known.regions().cloned());
    regions.sort();
    regions.dedup();
    let opened = regions.into_iter().map(|region| {
        let journal = open(&format!("cell-{region}"))?;
        Ok((region, journal))
    });
    opened.collect()
}

fn wrong(error: bursar_engine::ReplayError) -> StartError {
    StartError::Other(error.to_string())
}

/// The clock, and the same clock if it is manual.
type Clocks = (Arc<dyn Clock>, Option<Arc<ManualClock>>);

fn clocks(config: &Config, storage: &Storage) -> Result<Clocks, StartError> {
    match config.clock {
        ClockKind::Wall => Ok((Arc::new(WallClock::new()), None)),
        ClockKind::Manual => {
            let ledger = replay(&*storage.ledger, &LedgerCodec).map_err(wrong)?.machine.now();
            let directory = replay(&*storage.directory, &DirectoryCodec).map_err(wrong)?;
            let start = Timestamp::from_millis(MANUAL_START);
            let mut latest = start.max(ledger).max(directory.machine.now());
            for (_, journal) in &storage.cells {
                latest = latest.max(replay(&**journal, &CellCodec).map_err(wrong)?.machine.now());
            }
            let manual = ManualClock::new(latest);
            let manual = Arc::new(manual);
            Ok((Arc::clone(&manual) as Arc<dyn Clock>, Some(manual)))
        }
    }
}

/// The identity of this server among those that share the store.
struct Identity {
    /// The host name and the random id of this start.
    holder: String,
    leader: Option<Arc<Leader>>,
    metrics: Arc<Metrics>,
    /// The largest accepted distance of the clock ahead of the last record.
    max_gap: Duration,
}

impl Identity {
    /// The engine options of one machine.
    fn options(&self, machine: &str) -> EngineOptions {
        let permit = self.leader.as_ref().map(|leader| leader.permit()).unwrap_or_default();
        let (holder, observer) = (self.holder.clone(), self.observer(machine));
        let max_gap = self.max_gap;
        EngineOptions { holder, observer, permit, max_gap, ..EngineOptions::default() }
    }

    fn observer(&self, machine: &str) -> Observer {
        let (metrics, name) = (Arc::clone(&self.metrics), machine.to_owned());
        let (counters, named) = (Arc::clone(&self.metrics), machine.to_owned());
        Observer::new(move |written| metrics.append(&name, written))
            .with_trouble(move |trouble| counters.trouble(&named, &trouble))
    }
}

/// Explains a port that is in use and how to fix it.
fn at_port_in_use(listen: SocketAddr, error: std::io::Error) -> StartError {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return StartError::Io { what: listen.to_string(), error };
    }
    StartError::Other(format!(
        "{listen}: another process listens there. Stop it, or choose another port: --listen {}:PORT (0 \
         takes a free one)",
        listen.ip()
    ))
}

/// A bound listener and the URL of the server behind it.
struct Listening {
    listener: TcpListener,
    address: SocketAddr,
    url: String,
    base_url: Arc<str>,
}

impl Listening {
    async fn bind(config: &Config, encrypted: bool) -> Result<Listening, StartError> {
        let listener = TcpListener::bind(config.listen).await;
        let listener = listener.map_err(|error| at_port_in_use(config.listen, error))?;
        let address = listener.local_addr().map_err(io("the listener"))?;
        let scheme = if encrypted { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let base_url = config.public_url.clone().unwrap_or_else(|| url.clone());
        let base_url: Arc<str> = base_url.trim_end_matches('/').into();
        Ok(Listening { listener, address, url, base_url })
    }
}

/// Starts to claim leadership of a store that several servers share.
fn campaign(
    config: &Config,
    holder: &str,
    base_url: &str,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<Leader>>, StartError> {
    let Some(url) = &config.store else { return Ok(None) };
    let store = PostgresLeader::open(postgres(url, "leader", config))
        .map_err(|error| StartError::Journal { what: "the store".into(), error })?;
    let candidate = Candidate {
        holder: holder.to_owned(),
        url: base_url.to_owned(),
        by_wall_clock: config.clock == ClockKind::Wall,
        metrics: Arc::clone(metrics),
    };
    Leader::start(store, candidate).map(|leader| Some(Arc::new(leader))).map_err(io("the leader"))
}

/// Waits until this server leads. Calls `standby` once if another server leads first.
async fn until_leading(
    leader: &Leader,
    url: &str,
    stopped: &watch::Receiver<bool>,
    standby: impl FnOnce(&Standby),
) -> Result<(), StartError> {
    let (mut role, mut stopped) = (leader.role(), stopped.clone());
    // The sender lives as long as the leader does.
    let known = role.wait_for(|role| *role != Role::Unknown).await.map(|role| role.clone());
    if let Ok(Role::Standby { owner, reason }) = known {
        standby(&Standby { url: url.to_owned(), owner, reason });
    }
    tokio::select! {
        led = role.wait_for(|role| *role == Role::Leader) => {
            led.map(drop).map_err(|_| StartError::Other("the leader thread ended".into()))
        }
        _ = stopped.wait_for(|stopped| *stopped) => Err(StartError::Interrupted),
    }
}

/// Ends streams and long polls when another server leads, because its events are not seen here.
async fn end_streams(mut role: watch::Receiver<Role>, streams: Arc<watch::Sender<bool>>) {
    while role.changed().await.is_ok() {
        let leads = *role.borrow_and_update() == Role::Leader;
        streams.send_replace(!leads);
    }
}

/// Starts a server, calls `ready` when it serves, and returns after a request to stop, once the
/// requests in flight are finished. Calls `standby` first if another server leads the store.
pub fn run(
    mut config: Config,
    standby: impl FnOnce(&Standby),
    ready: impl FnOnce(&ServerReady),
) -> Result<(), StartError> {
    config.check()?;
    root_key::check(&config).map_err(io("the root key"))?;
    if let Some(url) = &config.store {
        check_signer_at(&config, &postgres(url, "store", &config))?;
    }
    let tls = serve::tls(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(io("the runtime"))?;
    let listening = runtime.block_on(Listening::bind(&config, tls.is_some()))?;
    let holder = holder();
    let metrics = Arc::new(Metrics::new());
    let leader = campaign(&config, &holder, &listening.base_url, &metrics)?;
    let gap = Duration::from_secs(config.max_clock_gap_seconds);
    let max_gap = if config.accept_clock { Duration::MAX } else { gap };
    let identity =
        Identity { holder, leader: leader.clone(), metrics: Arc::clone(&metrics), max_gap };
    let Listening { listener, address, url, base_url } = listening;
    let door = Arc::new(Door::new(leader.clone(), metrics, Arc::clone(&base_url)));
    let (stopping, stopped) = watch::channel(false);
    let stopping = Arc::new(stopping);
    runtime.spawn(stop_on_signal(Arc::clone(&stopping)));
    let mut asked = stopped.clone();
    let stop = async move {
        // A dropped sender counts as a request to stop.
        let _ = asked.wait_for(|stopped| *stopped).await;
    };
    let serving =
        runtime.spawn(serve::serve(listener, tls, Arc::clone(&door), config.timeouts, stop));
    let ended: Arc<OnceLock<String>> = Arc::new(OnceLock::new());
    let started = (|| {
        if let Some(leader) = &leader {
            runtime.block_on(until_leading(leader, &url, &stopped, standby))?;
        }
        let started =
            Started::start(&mut config, &identity, &runtime, (base_url, stopped.clone()))?;
        door.open(Front::new(Arc::clone(&started.app)));
        let root_key = started.root_key.clone();
        let (app, why) = (Arc::clone(&started.app), Arc::clone(&ended));
        runtime.spawn(stop_at_the_end(app, why, stopping));
        ready(&ServerReady { address, url, root_key });
        // The panic hook has reported a panic of this task.
        let _ = runtime.block_on(serving);
        Ok(started)
    })();
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(door);
    let outcome = match started {
        Ok(started) => {
            let Started { app, engines, storage, .. } = started;
            // The writers end first, so that their last writes are in the manifest.
            drop((app, engines));
            let outcome = match ended.get() {
                None => Ok(()),
                Some(reason) => Err(StartError::Other(reason.clone())),
            };
            if outcome.is_ok() {
                storage.note(true);
            }
            outcome
        }
        Err(StartError::Interrupted) => Ok(()),
        Err(error) => Err(naming_folder(config.data.as_deref(), error)),
    };
    // Last, so that the next leader finds every machine free.
    if let Some(leader) = leader {
        leader.stop();
    }
    outcome
}

/// Everything that runs behind the listener, in the order in which it ends.
struct Started {
    app: Arc<App>,
    root_key: Option<String>,
    engines: (Arc<Engine<LedgerCodec>>, Arc<Engine<DirectoryCodec>>),
    storage: Storage,
}

impl Started {
    /// Opens the journals, takes over the machines and waits until they serve. Called on a plain
    /// thread: journals must not be used inside the asynchronous runtime.
    fn start(
        config: &mut Config,
        identity: &Identity,
        runtime: &tokio::runtime::Runtime,
        (base_url, stopped): (Arc<str>, watch::Receiver<bool>),
    ) -> Result<Started, StartError> {
        let storage = Storage::open(config, &identity.holder)?;
        let head = storage.ledger.head();
        let is_new = head.is_ok_and(|head| head.sequence == 0);
        let root = root_key::load(config, is_new).map_err(io("the root key"))?;
        let (clock, manual) = clocks(config, &storage)?;
        // Followers of the ledger share the batches that its writer has just written. Readers that
        // prove the journal read what is stored.
        let followed: Arc<dyn Journal> = Arc::new(Recent::new(Arc::clone(&storage.ledger)));
        let ledger = Arc::new(Engine::start(
            Arc::clone(&followed),
            Arc::new(LedgerCodec),
            Arc::clone(&clock),
            identity.options(LEDGER),
        ));
        let directory = Arc::new(Engine::start(
            Arc::clone(&storage.directory),
            Arc::new(DirectoryCodec),
            Arc::clone(&clock),
            identity.options(DIRECTORY),
        ));
        let mut cells = Vec::new();
        for (region, journal) in &storage.cells {
            let options = identity.options(&format!("cell-{region}"));
            let (journal, clock) = (Arc::clone(journal), Arc::clone(&clock));
            let cell =
                StartedCell::start(region.clone(), journal, clock, options, config.snapshot_every);
            cells.push(cell.map_err(StartError::Other)?);
        }
        // Followers share the connections of the ledger's journal, and the writer must open them
        // first.
        until_serving(&ledger, &stopped)?;
        let began_at = first_record(&*storage.ledger).map_err(StartError::Other)?;
        let history = HistoryService::start(
            (Arc::clone(&storage.ledger), Arc::clone(&followed)),
            ledger.durable(),
            storage.history.path(),
        )
        .map_err(StartError::Other)?;
        let observer = identity.observer(LEDGER);
        let every = config.snapshot_every;
        let feed = Feed::start(Arc::clone(&followed), ledger.durable(), every, observer)
            .map_err(StartError::Other)?;
        let key_file = checkpoint::key_file(config, &storage.folder);
        let signing =
            checkpoint::load_key(&key_file).map_err(io(key_file.display().to_string()))?;
        if let Some(store) = &storage.store {
            note_signer(store, &key_file, &checkpoint::public_key(&signing));
        }
        if let Some(database) = &storage.database {
            database.note_signer(&checkpoint::public_key(&signing))?;
        }
        let root_key = root.show.then(|| root.key.clone());
        let app = runtime.block_on(async {
            let tenure = {
                let directory = Arc::clone(&directory);
                move || directory.tenure()
            };
            let gateway = Gateway::new(directory.handle());
            let new = || DirectoryService::new(gateway.clone(), Box::new(tenure.clone()));
            let service = until_ready(new, &directory, &stopped).await?;
            add_regions(&service, config).await?;
            let attempt_ids = attempt_ids(&service).await?;
            let ledger_gateway = Gateway::new(ledger.handle());
            let read = || ledger_gateway.read(|ledger| ledger.policy().retention_ms);
            let retention_ms = until_ready(read, &ledger, &stopped).await?.value;
            let mut services = Vec::new();
            let generations = cells.iter().map(StartedCell::generation);
            let base = generations.fold(storage.incarnation_base(), u32::max);
            for cell in cells {
                let number = open_region(&ledger_gateway, cell.region()).await?;
                services.push(CellService::new(cell, number, base).map_err(StartError::Other)?);
            }
            let cells = Cells::start(services, &ledger, &followed);
            let (ledger_status, directory_status) = (Arc::clone(&ledger), Arc::clone(&directory));
            let (ledger_stats, directory_stats) = (Arc::clone(&ledger), Arc::clone(&directory));
            let streams = Arc::new(watch::Sender::new(false));
            let ended = streams.subscribe();
            tokio::spawn(follow_stop(stopped.clone(), Arc::clone(&streams)));
            if let Some(leader) = &identity.leader {
                tokio::spawn(end_streams(leader.role(), streams));
            }
            let told = |failure: Failure| StartError::Other(failure.problem.detail.clone());
            set_aside_lost(&storage.logs, base, &ledger_gateway).await.map_err(told)?;
            let logs = LogStore::start(storage.logs.clone(), config.logs);
            let logs = logs.map_err(|error| StartError::Other(error.to_string()))?;
            let app = Arc::new(App {
                ledger: ledger_gateway,
                cells,
                ledger_journal: Arc::clone(&storage.ledger),
                logs,
                attempt_ids,
                moving: tokio::sync::Mutex::new(()),
                prices_set: tokio::sync::Notify::new(),
                directory: service,
                history,
                began_at,
                retention_ms,
                has_forgotten: AtomicBool::new(false),
                feed,
                signing,
                clock,
                manual,
                ids: IdMaker::new(0),
                limits: Limits::new(config.limits),
                load: Load::new(config.limits),
                waits: Waits::new(config.limits),
                shed: Shed::new(&base_url),
                counting: CountPlaces::default(),
                metrics: Arc::clone(&identity.metrics),
                root: auth::hash(&root.key),
                body_patience: Duration::from_millis(config.timeouts.body_ms.get()),
                write_patience: Duration::from_millis(config.timeouts.write_ms.get()),
                base_url,
                status: Box::new(move || {
                    let (ledger, directory) = (&ledger_status, &directory_status);
                    vec![
                        ("ledger".to_owned(), ledger.status(), ledger.stats()),
                        ("directory".to_owned(), directory.status(), directory.stats()),
                    ]
                }),
                measure: Box::new(move |app| {
                    let (stats, status) = (ledger_stats.stats(), ledger_stats.status());
                    app.metrics.machine(LEDGER, app.ledger.waiting(), &stats, &status);
                    let (stats, status) = (directory_stats.stats(), directory_stats.status());
                    let waiting = app.directory.waiting();
                    app.metrics.machine(DIRECTORY, waiting, &stats, &status);
                }),
                leader: identity.leader.clone(),
                stopped: ended,
            });
            for cell in app.cells.iter() {
                let read = || cell.gateway.read(|cell| cell.config().clone());
                let known = until_ready(read, cell.engine(), &stopped).await?.value;
                // First: any other record would be taken as a sign that the cell was served after
                // the restore.
                rewind(cell).await?;
                configure(cell, known, config).await?;
            }
            let failed = |failure: Failure| StartError::Other(failure.problem.detail.clone());
            app.tell_prices().await.map_err(failed)?;
            app.tell_classes().await.map_err(failed)?;
            app.settle_if_manual().await.map_err(failed)?;
            if config.accept_clock {
                match app.accept_clock("start").await {
                    Ok(_) => {}
                    Err(NotAccepted::Behind(millis)) => {
                        let refused = wall_time::behind(millis);
                        tracing::error!("--accept-clock: {}", refused.problem.detail);
                    }
                    Err(NotAccepted::Failed(failure)) => return Err(failed(failure)),
                }
            }
            if let Some(store) = &storage.store {
                let noting = keep_noting(Arc::clone(store), storage.machines());
                spawn_vital("the manifest writer", noting);
            }
            spawn_vital("the clock watcher", wall_time::watch(Arc::clone(&app)));
            spawn_vital("the self-check", selfcheck::run(Arc::clone(&app)));
            spawn_vital("the cleanup of rate limits", tidy(Arc::clone(&app)));
            spawn_vital("the directory follower", follow_directory(Arc::clone(&app)));
            if app.manual.is_none() {
                let app = Arc::clone(&app);
                spawn_vital("the price follower", async move { app.follow_prices().await });
            }
            Ok::<_, StartError>(app)
        })?;
        // From here on every machine has a batch, and so has its tail.
        storage.note(false);
        Ok(Started { app, root_key, engines: (ledger, directory), storage })
    }
}

/// Stops the server on a signal of the system.
async fn stop_on_signal(stopping: Arc<watch::Sender<bool>>) {
    signal().await;
    stopping.send_replace(true);
}

/// Stops the server when the process must restart.
async fn stop_at_the_end(
    app: Arc<App>,
    why: Arc<OnceLock<String>>,
    stopping: Arc<watch::Sender<bool>>,
) {
    // Set only here.
    let _ = why.set(until_ended(&app).await);
    stopping.send_replace(true);
}

/// Ends streams when the server stops.
async fn follow_stop(mut stopped: watch::Receiver<bool>, streams: Arc<watch::Sender<bool>>) {
    if stopped.wait_for(|stopped| *stopped).await.is_ok() {
        streams.send_replace(true);
    }
}

/// Reads the directory again after a takeover, and sends the cells the prices and classes that
/// another server may not have sent.
async fn follow_directory(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if app.directory.is_present() || app.directory.follow().await.is_err() {
            continue;
        }
        let told = async {
            app.tell_prices().await?;
            app.tell_classes().await
        };
        if let Err(failure) = told.await {
            tracing::warn!(detail = %failure.problem.detail, "prices and classes were not sent to the cells");
        }
    }
}

/// The host name and a random id of this start.
fn holder() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = if name.trim().is_empty() { "bursar" } else { name.trim() };
    format!("{name}-{}", base32(random_bits().into(), 13))
}

/// Waits until a writer has taken over its journal. Fails only if the writer has stopped or the
/// server is asked to stop.
fn until_serving<C: bursar_engine::Codec>(
    engine: &Engine<C>,
    stopped: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    let watch = Stopwatch::start();
    let mut told = Duration::ZERO;
    loop {
        match engine.status() {
            Status::Serving | Status::ReadOnly => return Ok(()),
            Status::Stopped(reason) => return Err(StartError::Other(reason)),
            _ if *stopped.borrow() => return Err(StartError::Interrupted),
            Status::Starting | Status::Waiting(_) => {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if watch.elapsed() >= told + Duration::from_secs(1) {
            told = watch.elapsed();
            let Stats { replayed, replay_until, .. } = engine.stats();
            tracing::info!(replayed, replay_until, "reading the journal");
        }
    }
}

/// When the first record was made. There is one, because the writer serves.
fn first_record(journal: &dyn Journal) -> Result<Timestamp, String> {
    let mut batches =
        journal.read(Head::genesis(journal.id())).map_err(|error| error.to_string())?;
    let first = batches.next().ok_or("the journal is empty")?.map_err(|error| error.to_string())?;
    let record = first.frames().next().ok_or("the first batch is empty")?;
    record.map(|record| record.time).map_err(|error| error.to_string())
}

/// Repeats a request until it is answered. Fails only if the writer has stopped or the server is
/// asked to stop.
async fn until_ready<C: bursar_engine::Codec, T, F>(
    ask: impl Fn() -> F,
    engine: &Engine<C>,
    stopped: &watch::Receiver<bool>,
) -> Result<T, StartError>
where
    F: Future<Output = Result<T, Failure>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(failure) => {
                if let Status::Stopped(reason) = engine.status() {
                    return Err(StartError::Other(reason));
                }
                if *stopped.borrow() {
                    return Err(StartError::Interrupted);
                }
                tracing::info!(detail = %failure.problem.detail, "not ready yet");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn add_regions(directory: &DirectoryService, config: &Config) -> Result<(), StartError> {
    for region in config.region_names() {
        let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
        let command = Command::AddRegion { region: region.into() };
        directory
            .submit(envelope, command)
            .await
            .map_err(|failure| StartError::Other(failure.problem.detail.clone()))?;
    }
    Ok(())
}

/// The encoder of attempt ids, under the secret of the store. A store without a secret gets one.
async fn attempt_ids(directory: &DirectoryService) -> Result<AttemptIds, StartError> {
    let other = |detail: String| StartError::Other(detail);
    if directory.current().attempt_secret().is_none() {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| other(error.to_string()))?;
        let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
        let command = Command::SetAttemptSecret { secret: Secret(secret) };
        let set = directory.submit(envelope, command).await;
        set.map_err(|failure| other(failure.problem.detail.clone()))?;
    }
    let known = AttemptIds::of(&directory.current());
    known.ok_or_else(|| other("the directory has no secret for ids of attempts".to_owned()))
}

/// Makes a region known to the ledger and returns the number of its cell.
async fn open_region(ledger: &Gateway<Ledger>, region: &Name) -> Result<CellNo, StartError> {
    let envelope = Envelope { actor: "start".into(), ..Envelope::default() };
    let command = ledger::Command::OpenRegion { region: region.clone(), shard: SHARD };
    let failed = |failure: Failure| StartError::Other(failure.problem.detail.clone());
    let seen = ledger.post(envelope, command).answer().await.map_err(failed)?;
    match seen.value.map_err(|refused| failed(refused.into()))?.reply {
        Reply::Region(cell) => Ok(cell),
        other => Err(StartError::Other(format!("the region was answered with {other:?}"))),
    }
}

/// Sets the heartbeat interval and node lease of a region, if the configuration differs from the
/// cell's.
async fn configure(
    cell: &CellService,
    known: CellConfig,
    config: &Config,
) -> Result<(), StartError> {
    let millis = |seconds: Option<u32>, known| seconds.map_or(known, |all| i64::from(all) * 1000);
    let wanted = CellConfig {
        heartbeat_ms: millis(config.heartbeat_seconds, known.heartbeat_ms),
        node_lease_ms: millis(config.node_lease_seconds, known.node_lease_ms),
        ..known.clone()
    };
    if wanted == known {
        return Ok(());
    }
    let origin = Origin::component("start");
    let posted = cell.gateway.post(origin, cell::Command::Configure(wanted)).answer().await;
    let seen = posted.map_err(|failure| StartError::Other(failure.problem.detail.clone()))?;
    match seen.value {
        Ok(_) => Ok(()),
        Err(refusal) => {
            Err(StartError::Other(format!("the cell refused its configuration: {refusal:?}")))
        }
    }
}

/// Records in a cell that its store was restored. Unless the cell was served since, agents must
/// register again before their reports are accepted.
async fn rewind(cell: &CellService) -> Result<(), StartError> {
    let Some(command) = cell.unannounced_restore() else { return Ok(()) };
    let posted = cell.gateway.post(Origin::component("start"), command).answer().await;
    let seen = posted.map_err(|failure| StartError::Other(failure.problem.detail.clone()))?;
    seen.value
        .map(drop)
        .map_err(|refusal| StartError::Other(format!("the cell refused the restore: {refusal:?}")))
}

/// How often to check whether a machine has ended.
const WATCH_STEP: Duration = Duration::from_millis(100);

/// Waits until the process must restart, and returns the reason.
async fn until_ended(app: &App) -> String {
    let mut known = 0;
    loop {
        let aside: u64 = app.machines().iter().map(|(_, _, stats)| stats.set_aside).sum();
        if aside > known {
            known = aside;
            tracing::error!(set_aside = aside, "a timer or message was set aside; see /readyz");
        }
        if let Some(reason) = app.ended() {
            tracing::error!(%reason, "this process cannot continue and ends");
            return reason;
        }
        tokio::time::sleep(WATCH_STEP).await;
    }
}

/// Starts a task that must not end silently: a panic ends the process.
fn spawn_vital(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        let _vital = Vital::new(name);
        work.await;
    });
}

/// Drops the state of rate limits whose buckets are full again.
async fn tidy(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.limits.tidy();
    }
}

async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without signal handlers only the end of the process ends the server.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use bursar_engine::EngineError;

    use super::*;

    #[test]
    fn a_start_on_a_full_disk_or_a_port_in_use_says_what_to_do() {
        let folder = Path::new("/srv/bursar");
        let full = StartError::Other(EngineError::StorageFull.to_string());
        let said = naming_folder(Some(folder), full).to_string();
        assert!(said.starts_with("/srv/bursar: the disk is full"), "{said}");
        let used = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let said = at_port_in_use(SocketAddr::from(([127, 0, 0, 1], 7070)), used).to_string();
        assert!(
            said.contains("127.0.0.1:7070") && said.contains("--listen 127.0.0.1:PORT"),
            "{said}"
        );
        let other = StartError::Other("the cell refused its configuration".into());
        assert_eq!(
            naming_folder(Some(folder), other).to_string(),
            "the cell refused its configuration"
        );
    }
}
