//! The cells of this server: one engine for each region, and the couriers between it and the ledger.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bursar_api::Code;
use bursar_core::cell::{Cell, NodeKey};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{CellNo, Name};
use bursar_engine::courier::{Courier, CourierError};
use bursar_engine::follower::Follower;
use bursar_engine::{
    CellCodec, CellToLedger, Clock, Engine, EngineOptions, Handle, LedgerCodec, LedgerToCell,
    Stats, Status, Vital, cell_inbox, ledger_inbox,
};
use bursar_journal::Journal;
use tokio::sync::watch;

use crate::cell_copy::{CellCopy, NewCellCopy};
use crate::gateway::Gateway;
use crate::problem::Failure;

/// The shard that the only ledger is.
pub const SHARD: u16 = 0;

/// The most that ask at once what would become of a cell: each has a copy of it for a while, one after
/// the other.
const MAX_QUESTIONS: usize = 64;

/// What a node was told last: the number of its agent's start, and a print of the orders.
type Told = (u32, Vec<String>);

/// One region's cell.
pub struct CellService {
    /// The region.
    pub region: Name,
    /// The ledger's number for it.
    pub number: CellNo,
    /// Commands and reads.
    pub gateway: Gateway<Cell>,
    /// Everything that happened in it.
    pub journal: Arc<dyn Journal>,
    /// Changes whenever something became durable.
    moved: watch::Receiver<u64>,
    /// What each node was told last, so that a long poll answers at once only with news.
    told: Mutex<BTreeMap<NodeKey, Told>>,
    /// What the numbers of agents' starts are counted from: higher after each restore.
    incarnation_base: u32,
    engine: Engine<CellCodec>,
    copy: CellCopy,
    /// One question at a time may have a copy of its own.
    questions: Arc<tokio::sync::Semaphore>,
    /// How many of them there are.
    asked: Arc<AtomicUsize>,
    _follower: Follower,
}

/// The cells, by the name of their region.
pub struct Cells {
    cells: Vec<CellService>,
    couriers: Mutex<Vec<JoinHandle<Result<(), CourierError>>>>,
}

/// A cell whose writer runs and that the ledger does not know yet. Started by an ordinary thread: a
/// journal must not be opened or read inside the asynchronous runtime.
pub struct StartedCell {
    region: Name,
    journal: Arc<dyn Journal>,
    engine: Engine<CellCodec>,
    copy: CellCopy,
    follower: Follower,
}

impl StartedCell {
    /// Starts the writer of a cell, and a copy that follows it and puts snapshots away.
    pub fn start(
        region: Name,
        journal: Arc<dyn Journal>,
        clock: Arc<dyn Clock>,
        options: EngineOptions,
        snapshot_every: u64,
    ) -> Result<StartedCell, String> {
        // Before the writer takes the journal over: it reopens it.
        let copy =
            NewCellCopy::read(Arc::clone(&journal), snapshot_every, options.observer.clone())?;
        let engine = Engine::start(Arc::clone(&journal), Arc::new(CellCodec), clock, options);
        let (copy, follower) = copy.follow(engine.durable());
        Ok(StartedCell { region, journal, engine, copy, follower })
    }

    /// The region.
    pub fn region(&self) -> &Name {
        &self.region
    }
}

/// One of those that ask what would become of a cell.
struct Asked(Arc<AtomicUsize>);

impl Asked {
    fn enter(asked: &Arc<AtomicUsize>) -> Result<Asked, Failure> {
        let entered = Asked(Arc::clone(asked));
        if asked.fetch_add(1, Ordering::Relaxed) < MAX_QUESTIONS {
            return Ok(entered);
        }
        let detail = "too many ask for quotes in this region at once; try again";
        Err(Failure::new(Code::Unavailable, detail))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl CellService {
    /// The cell under the number that the ledger gave it.
    pub fn new(
        started: StartedCell,
        number: CellNo,
        incarnation_base: u32,
    ) -> Result<CellService, String> {
        let StartedCell { region, journal, engine, copy, follower } = started;
        let (sender, moved) = watch::channel(0);
        let durable = engine.durable();
        let watching = move || {
            let _vital = Vital::new("the watcher of a cell");
            let mut seen = 0;
            while durable.wait_beyond(seen) {
                seen = durable.head().map_or(seen, |head| head.sequence);
                sender.send_replace(seen);
            }
        };
        // It ends with the writer; there is nothing to join it for.
        let _unjoined = std::thread::Builder::new()
            .name("bursar-cell-watch".into())
            .spawn(watching)
            .map_err(|error| error.to_string())?;
        Ok(CellService {
            region,
            number,
            gateway: Gateway::new(engine.handle()),
            journal,
            moved,
            told: Mutex::default(),
            incarnation_base,
            engine,
            copy,
            questions: Arc::new(tokio::sync::Semaphore::new(1)),
            asked: Arc::default(),
            _follower: follower,
        })
    }

    /// Asks what would become of the cell, on copies of it. `ask` may change the copy that it gets; each
    /// of its questions gets another. One caller at a time, and never the writer's time.
    pub async fn suppose<Q: Send + 'static, A: Send + 'static>(
        &self,
        questions: Vec<Q>,
        ask: impl Fn(&mut Cell, Q) -> A + Send + 'static,
    ) -> Result<Vec<A>, Failure> {
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        let asked = Asked::enter(&self.asked)?;
        let position = self.gateway.read(|_| ()).await?.position;
        let turn = Arc::clone(&self.questions).acquire_owned().await;
        let turn = turn.map_err(|error| internal(error.to_string()))?;
        self.copy.reach(position).await?;
        let copy = self.copy.clone();
        let work = move || {
            // The place is kept until the work is done, even if the caller goes away meanwhile.
            let _kept = (asked, turn);
            let copy = copy.taken();
            let answers = questions.into_iter().map(|question| ask(&mut copy.clone(), question));
            answers.collect()
        };
        let answers = tokio::task::spawn_blocking(work).await;
        answers.map_err(|error| internal(error.to_string()))
    }

    /// The number of an agent's start as the agent is told it. After a restore none is told a number
    /// that an agent of the lost future may have.
    pub fn shown_incarnation(&self, incarnation: u32) -> u32 {
        self.incarnation_base.saturating_add(incarnation)
    }

    /// The number that the cell knows of one that an agent says; 0, which is none, if it is from
    /// before a restore.
    pub fn known_incarnation(&self, said: u32) -> u32 {
        said.saturating_sub(self.incarnation_base)
    }

    /// What agents keep their state under: after a restore another, because ids of attempts repeat.
    pub fn store_id(&self) -> String {
        match self.incarnation_base {
            0 => self.journal.id().to_string(),
            base => format!("{}-{base}", self.journal.id()),
        }
    }

    /// Its writer.
    pub fn engine(&self) -> &Engine<CellCodec> {
        &self.engine
    }

    /// What its writer is doing.
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// What its writer has done.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Changes whenever something became durable.
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.moved.clone()
    }

    /// Notes what a node is about to be told; says whether that is news to it.
    pub fn is_news(&self, node: &NodeKey, incarnation: u32, orders: &[String]) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (incarnation, orders.to_vec());
        let news = told.get(node).map_or(!orders.is_empty(), |before| *before != now);
        told.insert(node.clone(), now);
        news && !orders.is_empty()
    }

    /// Forgets what a node was told that is gone.
    pub fn forget_told(&self, node: &NodeKey) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// Starts the couriers between this cell and the ledger.
    fn start_couriers(
        &self,
        ledger: &Arc<dyn Journal>,
        handle: &Handle<Ledger>,
        durable: Arc<bursar_engine::Durable>,
    ) -> [JoinHandle<Result<(), CourierError>>; 2] {
        let to_cell = Courier::new(
            Arc::clone(ledger),
            Arc::new(LedgerCodec),
            LedgerToCell { cell: self.number },
            cell_inbox(self.engine.handle(), SHARD),
        );
        let from_cell = Courier::new(
            Arc::clone(&self.journal),
            Arc::new(CellCodec),
            CellToLedger { shard: SHARD },
            ledger_inbox(handle.clone(), self.number, self.region.clone()),
        );
        [to_cell.start(durable), from_cell.start(self.engine.durable())]
    }
}

impl Cells {
    /// The cells, with couriers to and from the ledger.
    pub fn start(
        cells: Vec<CellService>,
        ledger: &Engine<LedgerCodec>,
        journal: &Arc<dyn Journal>,
    ) -> Cells {
        let couriers = cells
            .iter()
            .flat_map(|cell| cell.start_couriers(journal, &ledger.handle(), ledger.durable()))
            .collect();
        Cells { cells, couriers: Mutex::new(couriers) }
    }

    /// All of them, by region.
    pub fn iter(&self) -> impl Iterator<Item = &CellService> {
        self.cells.iter()
    }

    /// The cell of a region.
    pub fn of_region(&self, region: &str) -> Option<&CellService> {
        self.cells.iter().find(|cell| cell.region == region)
    }

    /// The cell with this number.
    pub fn numbered(&self, number: CellNo) -> Option<&CellService> {
        self.cells.iter().find(|cell| cell.number == number)
    }

    /// Why messages do not arrive, if a courier gave up. It never does while journals are sound.
    pub fn courier_failure(&self) -> Option<String> {
        let mut couriers = self.couriers.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = couriers.iter().position(JoinHandle::is_finished)?;
        Some(match couriers.swap_remove(ended).join() {
            Ok(Ok(())) => "a courier ended with its writer".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "a courier panicked".to_owned(),
        })
    }
}
