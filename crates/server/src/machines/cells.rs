//! The cells of this server: one engine for each region, and the couriers between it and the
//! ledgers.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bursar_api::Code;
use bursar_core::cell::{Cell, Command, NodeKey};
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::CellNo;
use bursar_core::name::Region;
use bursar_engine::courier::{Courier, CourierError};
use bursar_engine::follower::Follower;
use bursar_engine::{
    CellCodec, CellToLedger, Engine, Handle, LedgerCodec, LedgerToCell, Stats, Status, Vital,
    cell_inbox, ledger_inbox,
};
use bursar_journal::Journal;
use tokio::sync::watch;

use crate::auth::Principal;
use crate::followers::cell_copy::CellCopy;
use crate::followers::error::FollowerError;
use crate::machines::gateway::Gateway;
use crate::machines::regions::LastMeasurement;
use crate::machines::started_cell::StartedCell;
use crate::net::turns::Turns;
use crate::net::waits::{Wait, Waits};
use crate::request::Failure;
use crate::store::restored_at;
use crate::telemetry::RegionCounts;

/// The most that ask at once what would become of a cell: each has a copy of it for a while, one after
/// the other. [`Waits`] shares them between tenants.
const MAX_QUESTIONS: usize = 64;
/// The most looks at the copy of a cell at once, each on a thread. One of each tenant.
const MAX_LOOKS: usize = 4;

/// What was last sent to a node: the incarnation of its agent, and a hash of the orders.
type SentDigest = (u32, u64);

/// The most nodes whose last orders are remembered. Another node may receive the same orders again
/// at once.
const MAX_REMEMBERED_NODES: usize = 1 << 16;

/// The orders last sent to each node, so that a long poll returns at once only with new ones.
#[derive(Default)]
struct SentOrders {
    nodes: Mutex<BTreeMap<NodeKey, SentDigest>>,
    /// Randomly seeded: orders name attempts of callers, and no caller can construct a collision.
    hasher: RandomState,
}

impl SentOrders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeKey, SentDigest>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the orders that are about to be sent to a node. Returns whether they are new to it.
    fn is_news(&self, node: &NodeKey, incarnation: u32, orders: &[String]) -> bool {
        let mut sent = self.lock();
        let now = (incarnation, self.hasher.hash_one(orders));
        let before = sent.get(node).copied();
        let news = before != Some(now);
        if orders.is_empty() {
            // A node without orders has the same state as one that was sent nothing.
            sent.remove(node);
            return false;
        }
        if before.is_none() && sent.len() >= MAX_REMEMBERED_NODES {
            sent.pop_first();
        }
        sent.insert(node.clone(), now);
        news
    }
}

/// One region's cell.
pub struct CellService {
    /// The region.
    pub region: Region,
    /// The ledger's number for the cell.
    pub number: CellNo,
    /// Commands and reads.
    pub gateway: Gateway<Cell>,
    /// The journal of the cell.
    pub journal: Arc<dyn Journal>,
    /// Changes after every durable write.
    moved: watch::Receiver<u64>,
    sent: SentOrders,
    /// The number that agents' incarnations are counted from: higher after each restore.
    incarnation_base: u32,
    /// The restore that the cell's journal does not record: the journal is newer than the restore,
    /// or an earlier build restored the store and changed only the manifest.
    unrecorded_restore: Option<Command>,
    engine: Engine<CellCodec>,
    copy: CellCopy,
    questions: Questions,
    /// Looks at the copy; each takes a thread.
    pub(crate) looks: Arc<Turns>,
    /// Counts that are answered without a key.
    pub(crate) measurement: LastMeasurement<RegionCounts>,
    _follower: Follower,
}

/// All cells, by the name of their region.
pub struct Cells {
    cells: Vec<CellService>,
    couriers: Mutex<Vec<JoinHandle<Result<(), CourierError>>>>,
}

/// Questions about what would become of a cell: so many at once, and one at a time has a copy.
struct Questions {
    /// Tenants take turns: of each, one question waits for the turn of all.
    turns: Arc<Turns>,
    /// Places of those that wait for their turn or have it. A tenant has a quarter of them.
    places: Arc<Waits>,
}

impl Questions {
    fn new() -> Questions {
        let turns = Turns::new("quotes for this region", 1);
        Questions { turns, places: Waits::bounded(MAX_QUESTIONS) }
    }

    /// Runs `work` when it is the request's turn and `ready` has completed. The place is freed when
    /// the work is done, or earlier if the caller goes away before the work begins.
    async fn answer<A: Send + 'static>(
        &self,
        principal: &Principal,
        ready: impl Future<Output = Result<(), Failure>>,
        work: impl FnOnce() -> A + Send + 'static,
    ) -> Result<A, Failure> {
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        let place = self.places.enter(principal, Wait::Poll)?;
        let turn = self.turns.take().await?;
        ready.await?;
        let work = move || {
            // Kept until the work is done, even if the caller goes away meanwhile.
            let _kept = (place, turn);
            work()
        };
        let answer = tokio::task::spawn_blocking(work).await;
        answer.map_err(|error| internal(error.to_string()))
    }
}

impl CellService {
    /// Creates the service of a cell with its number in the ledger. The generation of the store is
    /// the highest one known to its journal, the manifest or another cell.
    pub fn new(
        started: StartedCell,
        number: CellNo,
        known_generation: u32,
    ) -> Result<CellService, FollowerError> {
        let StartedCell { region, journal, engine, copy, generation, last_at, follower, .. } =
            started;
        let incarnation_base = generation.max(known_generation);
        // A new region loses nothing by this command, and its nodes may have belonged to another
        // region.
        let unrecorded_restore = (incarnation_base > generation).then(|| Command::Rewind {
            generation: incarnation_base,
            served: last_at > restored_at(incarnation_base),
        });
        let (sender, moved) = watch::channel(0);
        let durable = engine.durable();
        let watching = move || {
            let _vital = Vital::new("the cell watcher");
            let mut seen = 0;
            while durable.wait_beyond(seen) {
                seen = durable.head().map_or(seen, |head| head.sequence);
                sender.send_replace(seen);
            }
        };
        // The thread ends with the writer and is not joined.
        let _unjoined =
            std::thread::Builder::new().name("bursar-cell-watch".into()).spawn(watching)?;
        Ok(CellService {
            region,
            number,
            gateway: Gateway::new(engine.handle()),
            journal,
            moved,
            sent: SentOrders::default(),
            incarnation_base,
            unrecorded_restore,
            engine,
            copy,
            questions: Questions::new(),
            looks: Turns::new("looks at this region", MAX_LOOKS),
            measurement: LastMeasurement::default(),
            _follower: follower,
        })
    }

    /// Evaluates hypothetical questions on copies of the cell. `ask` may change its copy; each
    /// question gets a fresh one. One caller at a time, without using the writer's time.
    pub async fn evaluate<Q: Send + 'static, A: Send + 'static>(
        &self,
        principal: &Principal,
        mut questions: Vec<Q>,
        ask: impl Fn(&mut Cell, Q) -> A + Send + 'static,
    ) -> Result<Vec<A>, Failure> {
        let ready = async {
            let position = self.gateway.read(|_| ()).await?.position;
            self.copy.reach(position).await
        };
        let copy = self.copy.clone();
        let work = move || {
            let (mut copy, last) = (copy.taken(), questions.pop());
            let others = questions.into_iter().map(|question| ask(&mut copy.clone(), question));
            let mut answers: Vec<A> = others.collect();
            answers.extend(last.map(|question| ask(&mut copy, question)));
            answers
        };
        self.questions.answer(principal, ready, work).await
    }

    /// The command that records a restore in the cell's journal. It must come before any other.
    pub fn unannounced_restore(&self) -> Option<Command> {
        self.unrecorded_restore.clone()
    }

    /// The incarnation as it is sent to the agent. After a restore, no agent receives a number that
    /// an agent of the discarded journal may have.
    pub fn shown_incarnation(&self, incarnation: u32) -> u32 {
        self.incarnation_base.saturating_add(incarnation)
    }

    /// The cell's incarnation for the number that an agent sent; 0, which is never valid, if the
    /// number is from before a restore.
    pub fn known_incarnation(&self, said: u32) -> u32 {
        said.saturating_sub(self.incarnation_base)
    }

    /// The id under which agents keep their state. It changes with a restore, because ids of
    /// attempts repeat.
    pub fn store_id(&self) -> String {
        match self.incarnation_base {
            0 => self.journal.id().to_string(),
            base => format!("{}-{base}", self.journal.id()),
        }
    }

    /// The copy that follows it.
    pub(crate) fn copy(&self) -> &CellCopy {
        &self.copy
    }

    /// Its writer.
    pub fn engine(&self) -> &Engine<CellCodec> {
        &self.engine
    }

    /// The status of its writer.
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// The counters of its writer.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }

    /// Changes after every durable write.
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.moved.clone()
    }

    /// Whether nothing after a record is durable yet.
    pub fn is_durable_only_to(&self, position: u64) -> bool {
        self.engine.durable().head().is_some_and(|head| head.position <= position)
    }

    /// Records the orders that are about to be sent to a node. Returns whether they are new to it.
    pub fn is_news(&self, node: &NodeKey, incarnation: u32, orders: &[String]) -> bool {
        self.sent.is_news(node, incarnation, orders)
    }

    /// Drops the last orders of a removed node.
    pub fn forget_last_orders(&self, node: &NodeKey) {
        self.sent.lock().remove(node);
    }

    /// Starts the couriers between this cell and the ledger of a shard.
    fn start_couriers(
        &self,
        (shard, ledger): (u16, &Arc<dyn Journal>),
        handle: &Handle<Ledger>,
        durable: Arc<bursar_engine::Durable>,
    ) -> [JoinHandle<Result<(), CourierError>>; 2] {
        let to_cell = Courier::new(
            Arc::clone(ledger),
            Arc::new(LedgerCodec),
            LedgerToCell { cell: self.number },
            cell_inbox(self.engine.handle(), shard),
        );
        let from_cell = Courier::new(
            Arc::clone(&self.journal),
            Arc::new(CellCodec),
            CellToLedger { shard },
            ledger_inbox(handle.clone(), self.number, self.region.clone()),
        );
        [to_cell.start(durable), from_cell.start(self.engine.durable())]
    }
}

impl Cells {
    /// Starts the couriers between the ledgers, given by number, and all cells.
    pub fn start<'a>(
        cells: Vec<CellService>,
        ledgers: impl Iterator<Item = (&'a Engine<LedgerCodec>, &'a Arc<dyn Journal>)>,
    ) -> Cells {
        let mut couriers = Vec::new();
        for (shard, (ledger, journal)) in (0..).zip(ledgers) {
            for cell in &cells {
                let sender = (shard, journal);
                couriers.extend(cell.start_couriers(sender, &ledger.handle(), ledger.durable()));
            }
        }
        Cells { cells, couriers: Mutex::new(couriers) }
    }

    /// All cells, by region.
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

    /// Why a courier has ended, if one has. Couriers do not end while the journals are intact.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::task::{Context, Poll};

    use super::*;

    #[tokio::test]
    async fn an_abandoned_question_frees_its_place_unless_work_has_begun() {
        let questions = Arc::new(Questions::new());
        let count = || questions.places.count();
        let root = Principal::root();
        let ready = || std::future::ready(Ok(()));
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (go, may_end) = channel::<()>();
        let first = tokio::spawn({
            let questions = Arc::clone(&questions);
            async move {
                let work = move || {
                    begun.send(()).expect("it is waited for");
                    may_end.recv().expect("it is let go");
                };
                questions.answer(&Principal::root(), std::future::ready(Ok(())), work).await
            }
        });
        has_begun.await.expect("it works");
        // As many as may wait for their turn, and one more.
        let mut waiting: Vec<_> =
            (1..MAX_QUESTIONS).map(|_| Box::pin(questions.answer(&root, ready(), || ()))).collect();
        for one in &mut waiting {
            let look = |context: &mut Context<'_>| Poll::Ready(one.as_mut().poll(context));
            assert!(std::future::poll_fn(look).await.is_pending());
        }
        assert_eq!(count(), MAX_QUESTIONS);
        let refused = questions.answer(&root, ready(), || ()).await;
        assert_eq!(refused.err().map(|failure| failure.problem.code), Some(Code::Unavailable));
        assert_eq!(count(), MAX_QUESTIONS, "one that is refused has no place");
        drop(waiting);
        assert_eq!(count(), 1, "those that only waited have left");
        // Work in progress keeps its place. Otherwise callers that go away could start work without
        // limit.
        first.abort();
        assert!(first.await.is_err_and(|end| end.is_cancelled()));
        assert_eq!(count(), 1);
        go.send(()).expect("it listens");
        questions.answer(&root, ready(), || ()).await.expect("its turn comes");
        assert_eq!(count(), 0);
    }

    #[tokio::test]
    async fn questions_of_one_tenant_leave_places_for_others() {
        let of = |id: &str, scope: &str| Principal {
            id: id.into(),
            scope: Some(scope.into()),
            ..Principal::root()
        };
        let questions = Questions::new();
        let ready = || std::future::ready(Ok(()));
        let turn = questions.turns.take().await.map_err(|_| ()).expect("it is free");
        let acme = of("k", "acme:nlp");
        let mut waiting: Vec<_> =
            (0..MAX_QUESTIONS).map(|_| Box::pin(questions.answer(&acme, ready(), || ()))).collect();
        let mut refused = 0;
        for one in &mut waiting {
            let look = |context: &mut Context<'_>| Poll::Ready(one.as_mut().poll(context));
            if let Poll::Ready(Err(failure)) = std::future::poll_fn(look).await {
                assert_eq!(failure.problem.code, Code::RateLimited);
                refused += 1;
            }
        }
        assert_eq!(refused, MAX_QUESTIONS - MAX_QUESTIONS / 4);
        let (sibling, zeta) = (of("l", "acme"), of("k", "zeta"));
        assert!(questions.answer(&sibling, ready(), || ()).await.is_err(), "the same tenant");
        let mut other = Box::pin(questions.answer(&zeta, ready(), || ()));
        let look = |context: &mut Context<'_>| Poll::Ready(other.as_mut().poll(context));
        assert!(std::future::poll_fn(look).await.is_pending(), "another tenant has a place");
        drop((turn, waiting));
        other.await.expect("its turn comes");
    }

    #[test]
    fn only_changed_orders_are_new_and_a_node_without_orders_is_not_remembered() {
        let sent = SentOrders::default();
        let node = NodeKey::from("n1");
        let orders = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (one, two) = (orders(&["start a"]), orders(&["start a", "stop b"]));
        assert!(!sent.is_news(&node, 1, &[]));
        assert!(sent.is_news(&node, 1, &one));
        assert!(!sent.is_news(&node, 1, &one));
        assert!(sent.is_news(&node, 1, &two));
        assert!(sent.is_news(&node, 2, &two), "another start of the agent knows nothing");
        assert!(!sent.is_news(&node, 2, &[]));
        assert!(sent.lock().is_empty());
        assert!(sent.is_news(&node, 2, &two), "they are there again");
    }

    #[test]
    fn remembered_orders_are_bounded() {
        let sent = SentOrders::default();
        let orders = ["start a".to_owned()];
        for number in 0..MAX_REMEMBERED_NODES + 100 {
            assert!(sent.is_news(&NodeKey::from(format!("n{number:06}")), 1, &orders));
        }
        assert_eq!(sent.lock().len(), MAX_REMEMBERED_NODES);
    }
}
