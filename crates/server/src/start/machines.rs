//! The machines of a server: their writers are started, and then made known to each other.

use std::sync::Arc;
use std::time::Duration;

use bursar_core::ledger::Ledger;
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{
    CellCodec, Clock, DirectoryCodec, Engine, LedgerCodec, ManualClock, Stats, Status, replay,
};
use bursar_journal::{Journal, Recent};
use tokio::sync::watch;

use super::StartError;
use super::leading::Identity;
use super::regions::{
    add_regions, add_shards, attempt_ids, configure, open_everywhere, open_region, rewind,
};
use super::standby::{StandbyMachine, StandbyMachines};
use super::storage::Storage;
use crate::config::{ClockKind, Config};
use crate::ids::attempt::AttemptIds;
use crate::machines::cells::{CellService, Cells};
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::machines::started_cell::StartedCell;
use crate::request::Failure;
use crate::telemetry::monotonic::Stopwatch;
use crate::telemetry::{DIRECTORY, metric_name};

/// The first instant of a new store with a manual clock: 2020-01-01T00:00:00.000Z.
const MANUAL_START: i64 = 1_577_836_800_000;

/// The clock, and the same clock if it is manual.
pub(super) type Clocks = (Arc<dyn Clock>, Option<Arc<ManualClock>>);

pub(super) fn clocks(
    config: &Config,
    storage: &Storage,
    standby: &StandbyMachines,
) -> Result<Clocks, StartError> {
    match config.clock {
        ClockKind::Wall => Ok((standby.restarted_clock(), None)),
        ClockKind::Manual => {
            let directory = replay(&*storage.directory, &DirectoryCodec)?;
            let start = Timestamp::from_millis(MANUAL_START);
            let mut latest = start.max(directory.machine.now());
            for own in &storage.ledgers {
                latest = latest.max(replay(&*own.journal, &LedgerCodec)?.machine.now());
            }
            for (_, journal) in &storage.cells {
                latest = latest.max(replay(&**journal, &CellCodec)?.machine.now());
            }
            let manual = ManualClock::new(latest);
            let manual = Arc::new(manual);
            Ok((Arc::clone(&manual) as Arc<dyn Clock>, Some(manual)))
        }
    }
}

/// The writer of a ledger.
#[derive(Clone)]
pub(super) struct LedgerWriter {
    pub(super) engine: Arc<Engine<LedgerCodec>>,
    /// The journal of the ledger for its followers: they share the batches that its writer has just
    /// written. Readers that prove the journal read what is stored.
    pub(super) followed: Arc<dyn Journal>,
}

/// The writers of the ledgers and the directory.
#[derive(Clone)]
pub(super) struct Writers {
    /// Those of the ledgers, by number.
    pub(super) ledgers: Vec<LedgerWriter>,
    pub(super) directory: Arc<Engine<DirectoryCodec>>,
}

impl Writers {
    /// Starts the writers. Those of machines that are followed have been started before.
    pub(super) fn start(
        storage: &Storage,
        clock: &Arc<dyn Clock>,
        identity: &Identity,
        standby: &mut StandbyMachines,
    ) -> Writers {
        let ledgers = (0..).zip(&storage.ledgers).map(|(shard, own)| {
            if let Some((_, writer)) = standby.ledgers.remove(&shard) {
                return writer;
            }
            let followed: Arc<dyn Journal> = Arc::new(Recent::new(Arc::clone(&own.journal)));
            let engine = Engine::start(
                Arc::clone(&followed),
                Arc::new(LedgerCodec),
                Arc::clone(clock),
                identity.options(&metric_name(shard)),
            );
            LedgerWriter { engine: Arc::new(engine), followed }
        });
        let ledgers = ledgers.collect();
        let directory = match standby.directory.take() {
            Some(followed) => followed.engine,
            None => Engine::start(
                Arc::clone(&storage.directory),
                Arc::new(DirectoryCodec),
                Arc::clone(clock),
                identity.options(DIRECTORY),
            ),
        };
        Writers { ledgers, directory: Arc::new(directory) }
    }
}

/// Starts the writer of each cell.
pub(super) fn start_cells(
    storage: &Storage,
    clock: &Arc<dyn Clock>,
    identity: &Identity,
    snapshot_every: u64,
    standby: &mut StandbyMachines,
) -> Result<Vec<StartedCell>, StartError> {
    let started = storage.cells.iter().map(|(region, journal)| {
        let options = identity.options(&format!("cell-{region}"));
        if let Some(StandbyMachine { journal, engine }) = standby.cells.remove(region) {
            let region = region.clone();
            let observer = options.observer;
            return Ok(StartedCell::continued(region, journal, engine, observer, snapshot_every)?);
        }
        let (journal, clock) = (Arc::clone(journal), Arc::clone(clock));
        Ok(StartedCell::start(region.clone(), journal, clock, options, snapshot_every)?)
    });
    started.collect()
}

/// The machines once they know each other: what requests use.
pub(super) struct Machines {
    /// Those of the ledgers, by number.
    pub(super) ledgers: Vec<Gateway<Ledger>>,
    pub(super) directory: DirectoryService,
    pub(super) cells: Cells,
    pub(super) attempt_ids: AttemptIds,
    /// The number that agents' incarnations are counted from.
    pub(super) incarnation_base: u32,
}

impl Machines {
    /// Reads the directory, adds the shards and regions of the configuration to it, makes the regions known to the
    /// ledgers, and starts the couriers between the ledgers and the cells.
    pub(super) async fn connect(
        config: &Config,
        storage: &Storage,
        writers: &Writers,
        started: Vec<StartedCell>,
        stopped: &watch::Receiver<bool>,
    ) -> Result<Machines, StartError> {
        let tenure = {
            let directory = Arc::clone(&writers.directory);
            move || directory.tenure()
        };
        let gateway = Gateway::new(writers.directory.handle());
        let new = || DirectoryService::new(gateway.clone(), Box::new(tenure.clone()));
        let directory = until_ready(new, &writers.directory, stopped).await?;
        // Before the regions: a store with a region has all shards of its first start.
        add_shards(&directory, writers.ledgers.len()).await?;
        add_regions(&directory, config).await?;
        let attempt_ids = attempt_ids(&directory).await?;
        let mut ledgers = Vec::new();
        for LedgerWriter { engine, .. } in &writers.ledgers {
            let ledger = Gateway::new(engine.handle());
            until_ready(|| ledger.read(|_| ()), engine, stopped).await?;
            ledgers.push(ledger);
        }
        let generations = started.iter().map(StartedCell::generation);
        let incarnation_base = generations.fold(storage.incarnation_base(), u32::max);
        let mut cells = Vec::new();
        for cell in started {
            let number = open_region(&ledgers[0], 0, cell.region()).await?;
            cells.push(CellService::new(cell, number, incarnation_base)?);
        }
        open_everywhere(&ledgers, &cells).await?;
        let senders = writers.ledgers.iter().map(|own| (&*own.engine, &own.followed));
        let cells = Cells::start(cells, senders);
        Ok(Machines { ledgers, directory, cells, attempt_ids, incarnation_base })
    }
}

/// Brings each cell to the configuration of this start, once it serves.
pub(super) async fn configure_cells(
    cells: &Cells,
    config: &Config,
    stopped: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    for cell in cells.iter() {
        let read = || cell.gateway.read(|cell| cell.config().clone());
        let known = until_ready(read, cell.engine(), stopped).await?.value;
        // First: any other record would be taken as a sign that the cell was served after the
        // restore.
        rewind(cell).await?;
        configure(cell, known, config).await?;
    }
    Ok(())
}

/// Waits until a writer has taken over its journal. Fails only if the writer has stopped or the
/// server is asked to stop.
pub(super) fn until_serving<C: bursar_engine::Codec>(
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
