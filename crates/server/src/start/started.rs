//! Everything that runs behind the listener: started step by step, ended in order.

use std::sync::Arc;
use std::time::Duration;

use bursar_engine::Durable;
use bursar_journal::Sealing;
use bursar_journal::archive::Archive;
use ed25519_dalek::SigningKey;
use tokio::sync::watch;

use super::background::start_tasks;
use super::followers::Followers;
use super::leading::{Identity, end_streams};
use super::machines::{
    Clocks, LedgerWriter, Machines, Writers, clocks, configure_cells, start_cells, until_serving,
};
use super::sealing::Sealer;
use super::standby::StandbyMachines;
use super::stopping::follow_stop;
use super::storage::Storage;
use super::{StartError, io};
use crate::app::{App, EndsOf, SharedState, StatusOf, end_of};
use crate::auth::last_used::LastUses;
use crate::auth::oidc::Provider;
use crate::auth::sessions::Sessions;
use crate::auth::sessions::cookie::Cookies;
use crate::auth::sessions::device::Devices;
use crate::auth::sessions::failures::FailedSignIns;
use crate::auth::sessions::handoff::Handoffs;
use crate::auth::{self, root_key};
use crate::config::Config;
use crate::ids::IdMaker;
use crate::logs::{LogStore, set_aside_lost};
use crate::machines::ledgers::{LedgerService, ledger_name};
use crate::machines::losses::DurableHeads;
use crate::machines::wall_time::{self, NotAccepted};
use crate::net::bodies::Bodies;
use crate::net::counting::CountPlaces;
use crate::net::limits::{Limits, Load};
use crate::net::shed::Shed;
use crate::net::waits::Waits;
use crate::store;
use crate::telemetry::{DIRECTORY, metric_name};

/// Everything that runs behind the listener, in the order in which it ends.
pub(super) struct Started {
    pub(super) app: Arc<App>,
    pub(super) root_key: Option<String>,
    writers: Writers,
    sealer: Option<Sealer>,
    storage: Storage,
    /// Its connections, if it has any, must not end inside the asynchronous runtime.
    _archives: Vec<Arc<Archive>>,
}

impl Started {
    /// Opens the journals, takes over the machines and waits until they serve. Called on a plain
    /// thread: journals must not be used inside the asynchronous runtime.
    pub(super) fn start(
        config: &mut Config,
        identity: &Identity,
        runtime: &tokio::runtime::Runtime,
        (base_url, stopped): (Arc<str>, watch::Receiver<bool>),
        mut standby: StandbyMachines,
    ) -> Result<Started, StartError> {
        let storage = Storage::open(config, &identity.holder, &standby)?;
        let is_new = storage.ledgers[0].journal.head().is_ok_and(|head| head.sequence == 0);
        let root = root_key::load(config, is_new).map_err(io("the root key"))?;
        let clocks = clocks(config, &storage, &standby)?;
        let writers = Writers::start(&storage, &clocks.0, identity, &mut standby);
        let every = config.snapshot_every;
        let cells = start_cells(&storage, &clocks.0, identity, every, &mut standby)?;
        standby.may_be_owned();
        for cell in &cells {
            until_serving(cell.engine(), &stopped)?;
            let name = format!("cell-{}", cell.region());
            let is_continued = cell.is_continued();
            if !is_continued.map_err(|error| StartError::Journal { what: name.clone(), error })? {
                return Err(StartError::Other(format!(
                    "the database has lost a batch of {name} that this server had seen: start it again"
                )));
            }
        }
        let mut followers = Vec::new();
        for (shard, (own, writer)) in (0..).zip(storage.ledgers.iter().zip(&writers.ledgers)) {
            until_serving(&writer.engine, &stopped)?;
            followers.push(Followers::start(config, identity, (shard, own), writer)?);
        }
        let closed = followers.iter().map(|own| Arc::clone(&own.closed)).collect();
        let secrets = Secrets {
            signing: storage.signing_key(config)?,
            root: auth::hash(&root.key),
            provider: provider(config, &base_url)?,
        };
        let sealing = Sealing {
            segment_bytes: config.journal.segment_bytes,
            level: config.journal.compression,
            signer: Some(secrets.signing.clone()),
        };
        let app = runtime.block_on(async {
            let machines = Machines::connect(config, &storage, &writers, cells, &stopped).await?;
            let logs = open_logs(config, &storage, &machines).await?;
            let ended = ends_of_streams(identity, stopped.clone());
            let parts = Parts { machines, followers, secrets, clocks, logs, ended, base_url };
            let shared = assemble(config, identity, &storage, &writers, parts);
            let app = Arc::new(App::of_first(Arc::new(shared)));
            if let Some(leader) = &identity.leader {
                leader.losses().remember(durable_heads(&writers, &app));
            }
            configure_cells(&app.cells, config, &stopped).await?;
            catch_up(&app, config).await?;
            start_tasks(&app, &storage);
            Ok::<_, StartError>(app)
        })?;
        // From here on every machine has a batch, and so has its tail.
        storage.note(false);
        let sealer = match config.journal.seal {
            true => Some(Sealer::start(storage.machines(), sealing).map_err(io("the sealer"))?),
            false => None,
        };
        let root_key = root.show.then_some(root.key);
        Ok(Started { app, root_key, writers, sealer, storage, _archives: closed })
    }

    /// Ends the writers, and notes that the store was closed in order, unless a machine ended.
    pub(super) fn end(self, ended: Option<&String>) -> Result<(), StartError> {
        let Started { app, writers, sealer, storage, .. } = self;
        // The writers end first, so that their last writes are in the manifest.
        drop((app, writers, sealer));
        match ended {
            None => {
                storage.note(true);
                Ok(())
            }
            Some(reason) => Err(StartError::Other(reason.clone())),
        }
    }
}

/// Keys of the server and of its identity provider.
struct Secrets {
    signing: SigningKey,
    /// The hash of the root key.
    root: [u8; 32],
    provider: Option<Provider>,
}

fn provider(config: &Config, base_url: &str) -> Result<Option<Provider>, StartError> {
    let provider = config.oidc.clone().map(|options| Provider::new(options, base_url));
    provider.transpose().map_err(io("[oidc] client_secret_file"))
}

/// Opens the output of jobs. Output of jobs that the ledger does not know is set aside.
async fn open_logs(
    config: &Config,
    storage: &Storage,
    machines: &Machines,
) -> Result<LogStore, StartError> {
    set_aside_lost(&storage.logs, machines.incarnation_base, &machines.ledgers).await?;
    LogStore::start(storage.logs.clone(), config.logs).map_err(io("the output of jobs"))
}

/// Becomes true when streams end: the server stops, or another server leads.
fn ends_of_streams(identity: &Identity, stopped: watch::Receiver<bool>) -> watch::Receiver<bool> {
    let streams = Arc::new(watch::Sender::new(false));
    let ended = streams.subscribe();
    tokio::spawn(follow_stop(stopped, Arc::clone(&streams)));
    if let Some(leader) = &identity.leader {
        tokio::spawn(end_streams(leader.role(), streams));
    }
    ended
}

/// What was started before the handlers can be.
struct Parts {
    machines: Machines,
    followers: Vec<Followers>,
    secrets: Secrets,
    clocks: Clocks,
    logs: LogStore,
    ended: watch::Receiver<bool>,
    base_url: Arc<str>,
}

/// The state that all handlers share.
fn assemble(
    config: &Config,
    identity: &Identity,
    storage: &Storage,
    writers: &Writers,
    parts: Parts,
) -> SharedState {
    let Parts { machines, followers, secrets, clocks, logs, ended, base_url } = parts;
    let (clock, manual) = clocks;
    let load = Arc::new(Load::new(config.limits));
    let ledgers = (0..).zip(machines.ledgers).zip(&storage.ledgers).zip(followers);
    let ledgers = ledgers.map(|(((shard, gateway), own), followers)| LedgerService {
        gateway,
        journal: Arc::clone(&own.journal),
        archive: Arc::new(followers.archive),
        history: Arc::new(followers.history),
        feed: Arc::new(followers.feed),
        ids: Arc::new(IdMaker::new(shard)),
    });
    SharedState {
        ledgers: ledgers.collect(),
        cells: machines.cells,
        directory_journal: Arc::clone(&storage.directory),
        logs,
        attempt_ids: machines.attempt_ids,
        moving: tokio::sync::Mutex::new(()),
        prices_set: tokio::sync::Notify::new(),
        directory: machines.directory,
        signing: secrets.signing,
        clock,
        manual,
        limits: Limits::new(config.limits),
        bodies: Arc::new(Bodies::new(Arc::clone(&load))),
        answers: Arc::default(),
        load,
        waits: Waits::new(config.limits),
        shed: Shed::new(&base_url),
        counting: CountPlaces::default(),
        metrics: Arc::clone(&identity.metrics),
        root: secrets.root,
        sessions: Sessions::new(config.sessions),
        cookies: Cookies::new(&base_url),
        failed_sign_ins: FailedSignIns::default(),
        handoffs: Handoffs::default(),
        devices: Devices::default(),
        last_uses: LastUses::default(),
        provider: secrets.provider,
        body_timeout: Duration::from_millis(config.timeouts.body_ms.get()),
        write_timeout: Duration::from_millis(config.timeouts.write_ms.get()),
        base_url,
        may_be_proxied: config.may_be_proxied(),
        job_refunds: config.ledger.job_refunds,
        status: status_of(writers),
        ends: ends_of(writers),
        measure: measure_of(writers),
        leader: identity.leader.clone(),
        stopped: ended,
    }
}

fn status_of(writers: &Writers) -> StatusOf {
    let Writers { ledgers, directory } = writers.clone();
    Box::new(move || {
        let status = |(shard, own): (u16, &LedgerWriter)| {
            (ledger_name(shard), own.engine.status(), own.engine.stats())
        };
        let mut all: Vec<_> = (0..).zip(&ledgers).map(status).collect();
        all.push(("directory".to_owned(), directory.status(), directory.stats()));
        all
    })
}

/// Reads which batches this process knows to be durable.
fn durable_heads(writers: &Writers, app: &App) -> DurableHeads {
    let mut machines: Vec<(String, Arc<Durable>)> =
        vec![(store::DIRECTORY.to_owned(), writers.directory.durable())];
    let ledgers = (0..).zip(&writers.ledgers);
    machines.extend(ledgers.map(|(shard, own)| (ledger_name(shard), own.engine.durable())));
    let cells = app.cells.iter();
    machines.extend(cells.map(|cell| (format!("cell-{}", cell.region), cell.engine().durable())));
    Box::new(move || {
        let heads = machines.iter().filter_map(|(name, known)| Some((name.clone(), known.head()?)));
        heads.collect()
    })
}

fn ends_of(writers: &Writers) -> EndsOf {
    let Writers { ledgers, directory } = writers.clone();
    Box::new(move || {
        let mut all = vec![end_of(store::DIRECTORY, &directory)];
        let ledgers = (0..).zip(&ledgers);
        all.extend(ledgers.map(|(shard, own)| end_of(ledger_name(shard), &own.engine)));
        all
    })
}

fn measure_of(writers: &Writers) -> Box<dyn Fn(&App) + Send + Sync> {
    let Writers { ledgers, directory } = writers.clone();
    Box::new(move |app| {
        for (shard, (own, service)) in (0..).zip(ledgers.iter().zip(&app.ledgers)) {
            let (stats, status) = (own.engine.stats(), own.engine.status());
            let waiting = service.gateway.waiting();
            app.metrics.machine(&metric_name(shard), waiting, &stats, &status);
        }
        let (stats, status) = (directory.stats(), directory.status());
        app.metrics.machine(DIRECTORY, app.directory.waiting(), &stats, &status);
    })
}

/// Sends the cells what they may have missed while no server ran, and takes over the clock if the
/// configuration says so.
async fn catch_up(app: &App, config: &Config) -> Result<(), StartError> {
    app.send_prices().await?;
    app.send_classes().await?;
    app.quiesce_if_manual().await?;
    if config.accept_clock {
        match app.accept_clock("start").await {
            Ok(_) => {}
            Err(NotAccepted::Behind(millis)) => {
                let refused = wall_time::behind(millis);
                tracing::error!("--accept-clock: {}", refused.problem.detail);
            }
            Err(NotAccepted::Failed(failure)) => return Err(failure.into()),
        }
    }
    Ok(())
}
