//! What every handler can reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{Name, is_valid_path};
use bursar_core::time::Timestamp;
use bursar_engine::{Clock, ManualClock, Seen, Stats, Status, vital_failure};
use bursar_journal::Journal;

use crate::auth::Principal;
use crate::change::OLD_PLATFORM;
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::http::extract::Caller;
use crate::http::meta;
use crate::http::problem::Failure;
use crate::ids::IdMaker;
use crate::ids::attempt::AttemptIds;
use crate::logs::LogStore;
use crate::machines::cells::Cells;
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::machines::leader::Leader;
use crate::net::counting::CountPlaces;
use crate::net::limits::{Aside, Limits, Load};
use crate::net::shed::Shed;
use crate::net::waits::{Wait, WaitPlace, Waits};
use crate::telemetry::Metrics;

/// How long a read waits for a position that the ledger has not reached.
const POSITION_PATIENCE: Duration = Duration::from_secs(5);
/// No answer has carried a position this far ahead of the ledger.
const POSITION_AHEAD: u64 = 1_000;
const POSITION_STEP: Duration = Duration::from_millis(20);
/// How long what is told without a key waits for a machine.
pub(crate) const LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// How often a request that waits looks whether its key has expired: only a key that can.
const EXPIRY_STEP: Duration = Duration::from_millis(200);

/// A machine: its name, what its writer is doing, and what it has done.
pub type MachineStatus = (String, Status, Stats);

/// Says what the writers are doing.
pub type StatusOf = Box<dyn Fn() -> Vec<MachineStatus> + Send + Sync>;

/// What every handler can reach.
pub struct App {
    /// The ledger.
    pub ledger: Gateway<Ledger>,
    /// Keys, prices, classes, regions.
    pub directory: DirectoryService,
    /// The cells, one for each region.
    pub cells: Cells,
    /// What the ledger has decided.
    pub ledger_journal: Arc<dyn Journal>,
    /// What jobs print.
    pub logs: LogStore,
    /// One move of the manual clock at a time.
    pub moving: tokio::sync::Mutex<()>,
    /// Rung when a price was set.
    pub prices_set: tokio::sync::Notify,
    /// What was, for queries.
    pub history: HistoryService,
    /// When the ledger's journal began.
    pub began_at: Timestamp,
    /// How long the ledger remembers what is closed.
    pub retention_ms: i64,
    /// Whether the ledger was found to have forgotten something, also if it should not have yet: less was kept before.
    pub has_forgotten: AtomicBool,
    /// What happens, as it happens.
    pub feed: Feed,
    /// Signs checkpoints.
    pub signing: ed25519_dalek::SigningKey,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The same, if only requests move it.
    pub manual: Option<Arc<ManualClock>>,
    /// Makes ids.
    pub ids: IdMaker,
    /// Writes and reads ids of attempts.
    pub attempt_ids: AttemptIds,
    /// Rate limits.
    pub limits: Limits,
    /// What is being handled, for shedding.
    pub load: Load,
    /// Requests that only wait.
    pub waits: Arc<Waits>,
    /// The answer to whatever is too much.
    pub shed: Shed,
    /// Places for counts of what new budgets use.
    pub counting: CountPlaces,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The hash of the root key.
    pub root: [u8; 32],
    /// How long a client may take to send its body.
    pub body_patience: Duration,
    /// How long a client may take to take any part of an answer.
    pub write_patience: Duration,
    /// The address under which this server is reached.
    pub base_url: Arc<str>,
    /// What the writers are doing.
    pub status: StatusOf,
    /// Brings the counters of the writers up to date.
    pub measure: Box<dyn Fn(&App) + Send + Sync>,
    /// Claims and renews the lead, where several servers share a store.
    pub(crate) leader: Option<Arc<Leader>>,
    /// True once the server is to end.
    pub stopped: tokio::sync::watch::Receiver<bool>,
}

impl App {
    /// All machines, and what their writers are doing.
    pub fn machines(&self) -> Vec<MachineStatus> {
        let mut all = (self.status)();
        let name = |region: &Name| format!("cell-{region}");
        let cells = self.cells.iter();
        all.extend(cells.map(|cell| (name(&cell.region), cell.status(), cell.stats())));
        all
    }

    /// What kinds of things a machine goes on without, as far as it answers. They are named without
    /// whose they are: this is for everybody.
    pub async fn set_aside_kinds(&self, machine: &str) -> Vec<&'static str> {
        let region = machine.strip_prefix("cell-");
        let mut kinds: Vec<&'static str> = match region.and_then(|name| self.cells.of_region(name))
        {
            Some(cell) => cell.measured().await.map(|counts| counts.set_aside).unwrap_or_default(),
            None if machine == "ledger" => {
                self.feed
                    .look(|ledger| ledger.set_aside().map(|thing| thing.kind()).collect())
                    .value
            }
            None => Vec::new(),
        };
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// What has ended that only a new process can bring back: a machine, or a thread beside them.
    pub fn ended(&self) -> Option<String> {
        let stopped = self.machines().into_iter().find_map(|(machine, status, _)| match status {
            Status::Stopped(reason) => Some(format!("{machine} stopped: {reason}")),
            Status::Starting | Status::Serving | Status::ReadOnly | Status::Waiting(_) => None,
        });
        stopped.or_else(vital_failure)
    }

    /// Whether a tenant has the name that stood for the platform in earlier releases.
    pub async fn has_tenant_platform(&self) -> Result<bool, Failure> {
        self.ledger.peek(|ledger| ledger.find_account(OLD_PLATFORM).is_some()).await
    }

    /// Whether there is anything that only history knows.
    pub fn may_have_forgotten(&self) -> bool {
        self.has_forgotten.load(Ordering::Relaxed)
            || self.clock.now() >= self.began_at.plus_millis(self.retention_ms)
    }

    /// Takes a place to wait, and gives up the place among those that are worked on.
    pub fn wait_aside(&self, principal: &Principal) -> Result<(WaitPlace, Aside<'_>), Failure> {
        let place = self.waits.enter(principal, Wait::Poll)?;
        Ok((place, self.load.aside(meta::priority())))
    }

    /// Returns once a key was revoked or has expired; never if it is the root key.
    pub async fn until_key_ends(&self, principal: &Principal) {
        let mut changes = self.directory.changes();
        loop {
            changes.mark_unchanged();
            if !principal.works(&self.directory.current(), self.clock.now()) {
                return;
            }
            let look_again = async {
                match principal.expires_at {
                    Some(_) => tokio::time::sleep(EXPIRY_STEP).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The directory goes only when the server does.
                changed = changes.changed() => if changed.is_err() { return },
                () = look_again => {}
            }
        }
    }

    /// Looks at the ledger, not before the position that the request asks for.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Ledger) -> T + Send + 'static,
    ) -> Result<Seen<T>, Failure> {
        self.reach_position().await?;
        self.ledger.read(read).await
    }

    /// Looks at the copy of the ledger that follows the journal, not before the position that the
    /// request asks for. Costs the writer nothing; what was decided just now may not be in it.
    pub async fn read_copy<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Result<Seen<T>, Failure> {
        let wanted = meta::min_position().unwrap_or(0);
        let mut reached = self.feed.reached();
        let mut waits = None;
        if *reached.borrow() < wanted {
            waits = meta::caller().map(|caller| self.wait_aside(&caller)).transpose()?;
        }
        let arrived = reached.wait_for(|position| *position >= wanted);
        match tokio::time::timeout(POSITION_PATIENCE, arrived).await {
            Ok(Ok(_)) => {
                drop(waits);
                Ok(self.feed.look(read))
            }
            Ok(Err(_)) | Err(_) => {
                let detail = format!("the copy has not reached position {wanted}; try again");
                Err(Failure::new(Code::Unavailable, detail))
            }
        }
    }

    async fn reach_position(&self) -> Result<(), Failure> {
        let Some(wanted) = meta::min_position() else { return Ok(()) };
        let mut waits = None;
        let reached = async {
            loop {
                let position = self.ledger.read(|_| ()).await?.position;
                if position >= wanted {
                    return Ok(());
                }
                if position.saturating_add(POSITION_AHEAD) < wanted {
                    let reason = format!("the ledger is at {position}; no answer was so far ahead");
                    return Err(Failure::invalid("min_position", reason));
                }
                if waits.is_none() {
                    waits = meta::caller().map(|caller| self.wait_aside(&caller)).transpose()?;
                }
                tokio::time::sleep(POSITION_STEP).await;
            }
        };
        match tokio::time::timeout(POSITION_PATIENCE, reached).await {
            Ok(reached) => reached,
            Err(_) => {
                let detail = format!("the ledger has not reached position {wanted}");
                Err(Failure::new(Code::Unavailable, detail))
            }
        }
    }

    /// The account that a list is limited to; one that the caller cannot see is not found.
    pub async fn listed_account(
        &self,
        caller: &Caller,
        account: Option<String>,
    ) -> Result<Option<Name>, Failure> {
        let Some(account) = account else { return Ok(None) };
        let missing = || Failure::not_found("account", &account);
        if !is_valid_path(&account) || !caller.principal.sees(&account) {
            return Err(missing());
        }
        let wanted = Name::from(account.as_str());
        let path = wanted.clone();
        let known = self.read(move |ledger| ledger.find_account(&path).is_some()).await?;
        if known.value { Ok(Some(wanted)) } else { Err(missing()) }
    }
}
