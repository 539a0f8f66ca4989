//! Startup and shutdown of a server.

mod leading;
mod regions;
mod sealing;
mod stopping;
mod storage;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{
    CellCodec, Clock, DirectoryCodec, Engine, LedgerCodec, ManualClock, ReplayError, Stats, Status,
    WallClock, replay,
};
use bursar_journal::archive::Archive;
use bursar_journal::{Journal, JournalError, Recent, Sealing};
use thiserror::Error;
use tokio::sync::watch;

use crate::app::{App, end_of};
use crate::auth::last_used::LastUses;
use crate::auth::oidc::Provider;
use crate::auth::sessions::Sessions;
use crate::auth::sessions::cookie::Cookies;
use crate::auth::sessions::device::Devices;
use crate::auth::sessions::failures::FailedSignIns;
use crate::auth::sessions::handoff::Handoffs;
use crate::auth::{self, root_key};
use crate::config::{ClockKind, Config, ConfigError};
use crate::followers::archive::{self, ArchiveService};
use crate::followers::error::FollowerError;
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::followers::{checkpoint, selfcheck};
use crate::http::dashboard;
use crate::http::dispatch::Dispatcher;
use crate::http::entry::RequestEntry;
use crate::http::forward::Forwarder;
use crate::ids::{IdMaker, base32, random_bits};
use crate::logs::{LogStore, set_aside_lost};
use crate::machines::cells::{CellService, Cells, StartedCell};
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::machines::wall_time::{self, NotAccepted};
use crate::net::bodies::Bodies;
use crate::net::counting::CountPlaces;
use crate::net::limits::{Limits, Load};
use crate::net::notify::ServiceManager;
use crate::net::serve;
use crate::net::shed::Shed;
use crate::net::waits::Waits;
use crate::request::Failure;
use crate::store;
use crate::store::database::check_signer_at;
use crate::telemetry::monotonic::Stopwatch;
use crate::telemetry::{DIRECTORY, LEDGER, Metrics};
use leading::{Identity, Listening, campaign, end_streams, host_name, until_leading};
use regions::{add_regions, attempt_ids, configure, open_region, rewind};
use sealing::Sealer;
pub use sealing::SegmentOptions;
use stopping::{follow_stop, spawn_vital, stop_at_the_end, stop_on_signal};
pub(crate) use storage::CellJournals;
use storage::{Storage, keep_noting, naming_folder, note_signer, postgres};

/// The first instant of a new store with a manual clock: 2020-01-01T00:00:00.000Z.
const MANUAL_START: i64 = 1_577_836_800_000;

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
    /// A follower of a journal cannot start.
    #[error(transparent)]
    Follower(#[from] FollowerError),
    /// The state of a machine cannot be rebuilt.
    #[error(transparent)]
    Replay(#[from] ReplayError),
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

/// The clock, and the same clock if it is manual.
type Clocks = (Arc<dyn Clock>, Option<Arc<ManualClock>>);

fn clocks(config: &Config, storage: &Storage) -> Result<Clocks, StartError> {
    match config.clock {
        ClockKind::Wall => Ok((Arc::new(WallClock::new()), None)),
        ClockKind::Manual => {
            let ledger = replay(&*storage.ledger, &LedgerCodec)?.machine.now();
            let directory = replay(&*storage.directory, &DirectoryCodec)?;
            let start = Timestamp::from_millis(MANUAL_START);
            let mut latest = start.max(ledger).max(directory.machine.now());
            for (_, journal) in &storage.cells {
                latest = latest.max(replay(&**journal, &CellCodec)?.machine.now());
            }
            let manual = ManualClock::new(latest);
            let manual = Arc::new(manual);
            Ok((Arc::clone(&manual) as Arc<dyn Clock>, Some(manual)))
        }
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
    let leader = campaign(&config, &holder, &listening, &metrics)?;
    let gap = Duration::from_secs(config.max_clock_gap_seconds);
    let max_gap = if config.accept_clock { Duration::MAX } else { gap };
    let identity =
        Identity { holder, leader: leader.clone(), metrics: Arc::clone(&metrics), max_gap };
    let Listening { listener, address, url, base_url } = listening;
    let forwarder =
        leader.clone().map(|leader| Forwarder::new(&config, leader, Arc::clone(&metrics)));
    let forwarder = forwarder.transpose().map_err(io("requests between members"))?;
    let entry =
        Arc::new(RequestEntry::new(leader.clone().zip(forwarder), metrics, Arc::clone(&base_url)));
    let manager = Arc::new(ServiceManager::from_environment());
    let alive = Arc::clone(&manager);
    runtime.spawn(async move { alive.keep_alive().await });
    let (stopping, stopped) = watch::channel(false);
    let stopping = Arc::new(stopping);
    runtime.spawn(stop_on_signal(Arc::clone(&stopping)));
    let mut asked = stopped.clone();
    let stop = async move {
        // A dropped sender counts as a request to stop.
        let _ = asked.wait_for(|stopped| *stopped).await;
    };
    let serving =
        runtime.spawn(serve::serve(listener, tls, Arc::clone(&entry), config.timeouts, stop));
    let ended: Arc<OnceLock<String>> = Arc::new(OnceLock::new());
    let started = (|| {
        if let Some(leader) = &leader {
            let standing_by = |found: &Standby| {
                manager.ready("standby");
                standby(found);
            };
            runtime.block_on(until_leading(leader, &url, &stopped, standing_by))?;
        }
        let started =
            Started::start(&mut config, &identity, &runtime, (base_url, stopped.clone()))?;
        runtime.spawn_blocking(dashboard::prepare);
        entry.open(Dispatcher::new(Arc::clone(&started.app)));
        let root_key = started.root_key.clone();
        let (app, why) = (Arc::clone(&started.app), Arc::clone(&ended));
        runtime.spawn(stop_at_the_end(app, why, stopping));
        manager.ready(&format!("listening on {url}"));
        ready(&ServerReady { address, url, root_key });
        // The panic hook has reported a panic of this task.
        let _ = runtime.block_on(serving);
        Ok(started)
    })();
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(entry);
    let outcome = match started {
        Ok(started) => {
            let Started { app, engines, sealer, storage, .. } = started;
            // The writers end first, so that their last writes are in the manifest.
            drop((app, engines, sealer));
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
    sealer: Option<Sealer>,
    storage: Storage,
    /// Its connections, if it has any, must not end inside the asynchronous runtime.
    _archive: Arc<Archive>,
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
            cells.push(cell?);
        }
        // Followers share the connections of the ledger's journal, and the writer must open them
        // first.
        until_serving(&ledger, &stopped)?;
        // There is a record, because the writer serves.
        let began_at =
            storage.ledger.began_at().map_err(|error| StartError::Other(error.to_string()))?;
        let began_at = began_at.ok_or_else(|| StartError::Other("the journal is empty".into()))?;
        let closed = archive::open(&storage.archive, &*storage.ledger);
        let closed = Arc::new(closed.map_err(StartError::Store)?);
        let archive = ArchiveService::start(
            Arc::clone(&closed),
            (Arc::clone(&storage.ledger), ledger.durable()),
            &ledger,
            config.ledger,
        );
        let history = HistoryService::start(
            (Arc::clone(&storage.ledger), Arc::clone(&followed)),
            ledger.durable(),
            storage.history.path(),
        )?;
        let observer = identity.observer(LEDGER);
        let every = config.snapshot_every;
        let feed = Feed::start(Arc::clone(&followed), ledger.durable(), every, observer)?;
        let key_file = checkpoint::key_file(config, &storage.folder);
        let signing =
            checkpoint::load_key(&key_file).map_err(io(key_file.display().to_string()))?;
        if let Some(store) = &storage.store {
            note_signer(store, &key_file, &checkpoint::public_key(&signing));
        }
        if let Some(database) = &storage.database {
            database.note_signer(&checkpoint::public_key(&signing))?;
        }
        let sealing = Sealing {
            segment_bytes: config.journal.segment_bytes,
            level: config.journal.compression,
            signer: Some(signing.clone()),
        };
        let root_key = root.show.then(|| root.key.clone());
        let provider = config.oidc.clone().map(|options| Provider::new(options, &base_url));
        let provider = provider.transpose().map_err(io("[oidc] client_secret_file"))?;
        let load = Arc::new(Load::new(config.limits));
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
                services.push(CellService::new(cell, number, base)?);
            }
            let cells = Cells::start(services, &ledger, &followed);
            let (ledger_status, directory_status) = (Arc::clone(&ledger), Arc::clone(&directory));
            let (ledger_stats, directory_stats) = (Arc::clone(&ledger), Arc::clone(&directory));
            let (ledger_end, directory_end) = (Arc::clone(&ledger), Arc::clone(&directory));
            let streams = Arc::new(watch::Sender::new(false));
            let ended = streams.subscribe();
            tokio::spawn(follow_stop(stopped.clone(), Arc::clone(&streams)));
            if let Some(leader) = &identity.leader {
                tokio::spawn(end_streams(leader.role(), streams));
            }
            let failed = |failure: Failure| StartError::Other(failure.problem.detail.clone());
            set_aside_lost(&storage.logs, base, &ledger_gateway).await.map_err(failed)?;
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
                archive,
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
                bodies: Arc::new(Bodies::new(Arc::clone(&load))),
                load,
                waits: Waits::new(config.limits),
                shed: Shed::new(&base_url),
                counting: CountPlaces::default(),
                metrics: Arc::clone(&identity.metrics),
                root: auth::hash(&root.key),
                sessions: Sessions::new(config.sessions),
                cookies: Cookies::new(&base_url),
                failed_sign_ins: FailedSignIns::default(),
                handoffs: Handoffs::default(),
                devices: Devices::default(),
                last_uses: LastUses::default(),
                provider,
                body_timeout: Duration::from_millis(config.timeouts.body_ms.get()),
                write_timeout: Duration::from_millis(config.timeouts.write_ms.get()),
                base_url,
                may_be_proxied: config.may_be_proxied(),
                status: Box::new(move || {
                    let (ledger, directory) = (&ledger_status, &directory_status);
                    vec![
                        ("ledger".to_owned(), ledger.status(), ledger.stats()),
                        ("directory".to_owned(), directory.status(), directory.stats()),
                    ]
                }),
                ends: Box::new(move || {
                    vec![
                        end_of(store::DIRECTORY, &directory_end),
                        end_of(store::LEDGER, &ledger_end),
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
            app.quiesce_if_manual().await.map_err(failed)?;
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
            spawn_vital("the cleanup of rate limits", remove_idle_limits(Arc::clone(&app)));
            spawn_vital("the directory follower", follow_directory(Arc::clone(&app)));
            if app.manual.is_none() {
                let app = Arc::clone(&app);
                spawn_vital("the price follower", async move { app.follow_prices().await });
            }
            Ok::<_, StartError>(app)
        })?;
        // From here on every machine has a batch, and so has its tail.
        storage.note(false);
        let sealer = match config.journal.seal {
            true => Some(Sealer::start(storage.machines(), sealing).map_err(io("the sealer"))?),
            false => None,
        };
        let engines = (ledger, directory);
        Ok(Started { app, root_key, engines, sealer, storage, _archive: closed })
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
        let noted = async {
            app.tell_prices().await?;
            app.tell_classes().await
        };
        if let Err(failure) = noted.await {
            tracing::warn!(detail = %failure.problem.detail, "prices and classes were not sent to the cells");
        }
    }
}

/// The host name and a random id of this start.
fn holder() -> String {
    format!("{}-{}", host_name(), base32(random_bits().into(), 13))
}

/// Waits until a writer has taken over its journal. Fails only if the writer has stopped or the
/// server is asked to stop.
fn until_serving<C: bursar_engine::Codec>(
    engine: &Engine<C>,
    stopped: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    let watch = Stopwatch::start();
    let mut logged = Duration::ZERO;
    loop {
        match engine.status() {
            Status::Serving | Status::ReadOnly => return Ok(()),
            Status::Stopped(reason) => return Err(StartError::Other(reason)),
            _ if *stopped.borrow() => return Err(StartError::Interrupted),
            Status::Starting | Status::Waiting(_) => {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if watch.elapsed() >= logged + Duration::from_secs(1) {
            logged = watch.elapsed();
            let Stats { replayed, replay_until, .. } = engine.stats();
            tracing::info!(replayed, replay_until, "reading the journal");
        }
    }
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

/// Drops the state of rate limits whose buckets are full again, sessions that have ended and the
/// last uses of keys that were revoked.
async fn remove_idle_limits(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.limits.remove_idle();
        app.sessions.remove_ended(app.clock.now());
        let current = app.directory.current();
        let kept: HashSet<[u8; 32]> = current.keys().map(|(_, key)| key.secret_hash).collect();
        app.last_uses.retain(|secret_hash| kept.contains(secret_hash));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bursar_engine::EngineError;

    use super::leading::at_port_in_use;
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
