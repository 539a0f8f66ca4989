//! The state that all handlers share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, Method};
use bursar_api::Code;
use bursar_core::ledger::Ledger;
use bursar_core::name::{AccountPath, Region};
use bursar_engine::{Clock, Codec, Engine, ManualClock, Seen, Stats, Status, vital_failure};
use bursar_journal::Journal;

use crate::auth::last_used::LastUses;
use crate::auth::oidc::Provider;
use crate::auth::sessions::Sessions;
use crate::auth::sessions::cookie::Cookies;
use crate::auth::sessions::device::Devices;
use crate::auth::sessions::failures::FailedSignIns;
use crate::auth::sessions::handoff::Handoffs;
use crate::auth::{self, Principal};
use crate::change::OLD_PLATFORM;
use crate::followers::archive::{ArchiveService, JobRefunds};
use crate::followers::feed::Feed;
use crate::followers::history::HistoryService;
use crate::ids::IdMaker;
use crate::ids::attempt::AttemptIds;
use crate::logs::LogStore;
use crate::machines::cells::Cells;
use crate::machines::directory::DirectoryService;
use crate::machines::gateway::Gateway;
use crate::machines::leader::Leader;
use crate::machines::ledgers::{LedgerService, shard_named};
use crate::net::answers::LargeAnswers;
use crate::net::bodies::Bodies;
use crate::net::counting::CountPlaces;
use crate::net::limits::{Limits, Load, PausedRequest};
use crate::net::shed::Shed;
use crate::net::waits::{Wait, WaitPlace, Waits};
use crate::request::meta;
use crate::request::{Caller, Failure};
use crate::telemetry::Metrics;

/// How long a read waits for a position that the ledger has not reached.
const POSITION_TIMEOUT: Duration = Duration::from_secs(5);
/// A requested position further ahead of the ledger than this was never in an answer; it is
/// refused.
const MAX_POSITION_AHEAD: u64 = 1_000;
const POSITION_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long an unauthenticated status request waits for a machine.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a waiting request checks whether its key has expired or its session has ended. Only for keys with an
/// expiry, and for sessions.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_millis(200);

const LACKS_SHARD: &str = "another server has added a ledger shard since this one was started; it ends, and must be started again";

/// A machine: its name, the status of its writer, and the writer's counters.
pub type MachineStatus = (String, Status, Stats);

/// The end of a machine's journal: its name, the epoch of its owner and the last record.
pub type MachineEnd = (String, u64, u64);

/// Returns the ends of journals.
pub type EndsOf = Box<dyn Fn() -> Vec<MachineEnd> + Send + Sync>;

/// The end of the journal of an engine's machine.
pub(crate) fn end_of<C: Codec>(name: impl Into<String>, engine: &Engine<C>) -> MachineEnd {
    let epoch = engine.tenure().map_or(0, |tenure| tenure.lease().epoch.0);
    (name.into(), epoch, engine.durable().head().map_or(0, |head| head.position))
}

/// Returns the status of the writers.
pub type StatusOf = Box<dyn Fn() -> Vec<MachineStatus> + Send + Sync>;

/// The state that handlers of one shard share: its ledger, and through it what all shards share.
#[derive(Clone)]
pub struct App {
    /// What all shards share.
    pub(crate) shared: Arc<SharedState>,
    /// The number of the shard.
    pub shard: u16,
    /// The ledger.
    pub ledger: Gateway<Ledger>,
    /// The journal of the ledger.
    pub ledger_journal: Arc<dyn Journal>,
    /// The archive of what the ledger has forgotten.
    pub archive: Arc<ArchiveService>,
    /// The history follower, for queries about the past.
    pub history: Arc<HistoryService>,
    /// The event feed.
    pub feed: Arc<Feed>,
    /// Generates ids.
    pub ids: Arc<IdMaker>,
}

impl Deref for App {
    type Target = SharedState;

    fn deref(&self) -> &SharedState {
        &self.shared
    }
}

/// The state that the handlers of all shards share.
pub struct SharedState {
    /// The ledgers of all shards, by number.
    pub ledgers: Vec<LedgerService>,
    /// Keys, prices, classes, regions.
    pub directory: DirectoryService,
    /// The cells, one for each region.
    pub cells: Cells,
    /// The journal of the directory.
    pub directory_journal: Arc<dyn Journal>,
    /// The output of jobs.
    pub logs: LogStore,
    /// Held while the manual clock is moved.
    pub moving: tokio::sync::Mutex<()>,
    /// Notified when a price was set.
    pub prices_set: tokio::sync::Notify,
    /// The key that signs checkpoints.
    pub signing: ed25519_dalek::SigningKey,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The same clock, if it is manual.
    pub manual: Option<Arc<ManualClock>>,
    /// Encodes and decodes attempt ids.
    pub attempt_ids: AttemptIds,
    /// Rate limits.
    pub limits: Limits,
    /// Requests in flight, for load shedding.
    pub load: Arc<Load>,
    /// Incomplete bodies.
    pub bodies: Arc<Bodies>,
    /// Large answers that are not read yet.
    pub answers: Arc<LargeAnswers>,
    /// Waiting requests: long polls, streams, reads that wait for a position.
    pub waits: Arc<Waits>,
    /// The prepared response to shed requests.
    pub shed: Shed,
    /// Places for counts of what new budgets use.
    pub counting: CountPlaces,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The hash of the root key.
    pub root: [u8; 32],
    /// The sessions of people.
    pub sessions: Sessions,
    /// The names and attributes of cookies.
    pub cookies: Cookies,
    /// Failed sign-ins.
    pub failed_sign_ins: FailedSignIns,
    /// Sessions that are handed to the command line.
    pub handoffs: Handoffs,
    /// Command lines of other machines that wait for approval.
    pub devices: Devices,
    /// When keys were last used.
    pub last_uses: LastUses,
    /// The identity provider of people, if there is one.
    pub provider: Option<Provider>,
    /// How long a client may take to send a request body.
    pub body_timeout: Duration,
    /// How long a write of a response may make no progress.
    pub write_timeout: Duration,
    /// The URL under which clients reach this server.
    pub base_url: Arc<str>,
    /// Whether requests may come through a proxy, so that their addresses are those of the proxy.
    pub may_be_proxied: bool,
    /// Which keys refund the jobs that a region ran.
    pub job_refunds: JobRefunds,
    /// Returns the status of the writers.
    pub status: StatusOf,
    /// Returns the ends of the journals of the directory and the ledger.
    pub ends: EndsOf,
    /// Updates the metrics of the writers.
    pub measure: Box<dyn Fn(&App) + Send + Sync>,
    /// Claims and renews leadership, where several servers share a store.
    pub(crate) leader: Option<Arc<Leader>>,
    /// True once the server is shutting down.
    pub stopped: tokio::sync::watch::Receiver<bool>,
}

impl SharedState {
    /// All machines with the status and counters of their writers.
    pub fn machines(&self) -> Vec<MachineStatus> {
        let mut all = (self.status)();
        let name = |region: &Region| format!("cell-{region}");
        let cells = self.cells.iter();
        all.extend(cells.map(|cell| (name(&cell.region), cell.status(), cell.stats())));
        all
    }

    /// The ends of the journals of all machines, by name.
    pub fn machine_ends(&self) -> Vec<MachineEnd> {
        let mut all = (self.ends)();
        let cells = self.cells.iter();
        all.extend(cells.map(|cell| end_of(format!("cell-{}", cell.region), cell.engine())));
        all.sort();
        all
    }

    /// The kinds of timers and messages that a machine has set aside; empty if it does not answer.
    /// Accounts are not named: this is public.
    pub async fn set_aside_kinds(&self, machine: &str) -> Vec<&'static str> {
        let region = machine.strip_prefix("cell-");
        let mut kinds: Vec<&'static str> = match region.and_then(|name| self.cells.of_region(name))
        {
            Some(cell) => cell.measured().await.map(|counts| counts.set_aside).unwrap_or_default(),
            None => {
                let own =
                    shard_named(machine).and_then(|shard| self.ledgers.get(usize::from(shard)));
                let look = |ledger: &Ledger| ledger.set_aside().map(|thing| thing.kind()).collect();
                own.map(|own| own.feed.look(look).value).unwrap_or_default()
            }
        };
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// The reason why the process must restart: a machine stopped, or a thread beside the machines
    /// ended.
    pub fn ended(&self) -> Option<String> {
        let stopped = self.machines().into_iter().find_map(|(machine, status, _)| match status {
            Status::Stopped(reason) => Some(format!("{machine} stopped: {reason}")),
            Status::Starting | Status::Serving | Status::ReadOnly | Status::Waiting(_) => None,
        });
        let lacks = || self.lacks_shard().then(|| LACKS_SHARD.to_owned());
        let outlived = || self.leader.as_ref().and_then(|leader| leader.losses().ended());
        stopped.or_else(vital_failure).or_else(outlived).or_else(lacks)
    }

    /// Whether the store has a ledger that this process did not start: another server made it while it led.
    fn lacks_shard(&self) -> bool {
        usize::from(self.directory.current().last_made_shard()) >= self.ledgers.len()
    }

    /// Refuses to answer without a ledger that the store has.
    pub(crate) fn require_all_shards(&self) -> Result<(), Failure> {
        if self.lacks_shard() { Err(Failure::new(Code::Unavailable, LACKS_SHARD)) } else { Ok(()) }
    }

    /// Takes a place among the waiting requests and gives up the one among requests in flight.
    pub fn wait_aside(
        &self,
        principal: &Principal,
    ) -> Result<(WaitPlace, PausedRequest<'_>), Failure> {
        let place = self.waits.enter(principal, Wait::Poll)?;
        Ok((place, self.load.aside(meta::priority())))
    }

    /// The caller of a request with a session's cookie and without a key; `None` without either.
    pub(crate) fn of_session(
        &self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Option<Result<Principal, Failure>> {
        let now = self.clock.now();
        let found = self.sessions.authenticate((method, headers), &self.cookies.session, now)?;
        Some(found.and_then(|principal| self.working(principal)))
    }

    /// The caller with a session's secret as its bearer token.
    pub(crate) fn of_session_token(&self, secret: &str) -> Result<Principal, Failure> {
        let principal = self.sessions.of_token(secret, self.clock.now())?;
        self.working(principal)
    }

    /// The caller of a session whose key is valid. Otherwise the session ends.
    fn working(&self, principal: Principal) -> Result<Principal, Failure> {
        if self.still_works(&principal) {
            return Ok(principal);
        }
        if let Some(session) = principal.session {
            self.sessions.end(session);
        }
        Err(auth::no_longer_works())
    }

    /// Whether the key of a caller is valid and its session has not ended.
    pub(crate) fn still_works(&self, principal: &Principal) -> bool {
        let now = self.clock.now();
        let lasts = |session| self.sessions.is_live(session, now);
        principal.works(&self.directory.current(), now) && principal.session.is_none_or(lasts)
    }

    /// Returns once the key was revoked or has expired, or the session has ended. Never returns for
    /// the root key as a bearer token.
    pub async fn until_key_ends(&self, principal: &Principal) {
        let mut changes = self.directory.changes();
        loop {
            changes.mark_unchanged();
            if !self.still_works(principal) {
                return;
            }
            let look_again = async {
                match (principal.expires_at, principal.session) {
                    (None, None) => std::future::pending().await,
                    (Some(_), _) | (_, Some(_)) => tokio::time::sleep(EXPIRY_CHECK_INTERVAL).await,
                }
            };
            tokio::select! {
                // The sender is dropped only at shutdown.
                changed = changes.changed() => if changed.is_err() { return },
                () = look_again => {}
            }
        }
    }
}

impl App {
    /// What all shards share.
    pub(crate) fn shared(&self) -> &Arc<SharedState> {
        &self.shared
    }

    /// Whether a tenant has the name that earlier releases used for the platform.
    pub async fn has_tenant_platform(&self) -> Result<bool, Failure> {
        for app in self.every_shard() {
            if app.ledger.peek(|ledger| ledger.find_account(OLD_PLATFORM).is_some()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the ledger, at the requested minimum position or later.
    pub async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Ledger) -> T + Send + 'static,
    ) -> Result<Seen<T>, Failure> {
        self.reach_position().await?;
        self.ledger.read(read).await
    }

    /// Reads the follower's copy of the ledger, at the requested minimum position or later. It
    /// costs the writer nothing, but may lack the newest decisions.
    pub async fn read_copy<T>(&self, read: impl FnOnce(&Ledger) -> T) -> Result<Seen<T>, Failure> {
        let wanted = meta::min_position_of(self.shard).unwrap_or(0);
        let mut reached = self.feed.reached();
        let mut waits = None;
        if *reached.borrow() < wanted {
            waits = meta::caller().map(|caller| self.wait_aside(&caller)).transpose()?;
        }
        let arrived = reached.wait_for(|position| *position >= wanted);
        match tokio::time::timeout(POSITION_TIMEOUT, arrived).await {
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
        let Some(wanted) = meta::min_position_of(self.shard) else { return Ok(()) };
        let mut waits = None;
        let reached = async {
            loop {
                let position = self.ledger.read(|_| ()).await?.position;
                if position >= wanted {
                    return Ok(());
                }
                if position.saturating_add(MAX_POSITION_AHEAD) < wanted {
                    let reason = format!(
                        "the ledger is at {position}; no answer had a position so far ahead"
                    );
                    return Err(Failure::invalid("min_position", reason));
                }
                if waits.is_none() {
                    waits = meta::caller().map(|caller| self.wait_aside(&caller)).transpose()?;
                }
                tokio::time::sleep(POSITION_POLL_INTERVAL).await;
            }
        };
        match tokio::time::timeout(POSITION_TIMEOUT, reached).await {
            Ok(reached) => reached,
            Err(_) => {
                let detail = format!("the ledger has not reached position {wanted}");
                Err(Failure::new(Code::Unavailable, detail))
            }
        }
    }

    /// The account that a list is limited to. An account that the caller cannot see is not found.
    pub async fn listed_account(
        &self,
        caller: &Caller,
        account: Option<String>,
    ) -> Result<Option<AccountPath>, Failure> {
        let Some(account) = account else { return Ok(None) };
        let missing = || Failure::not_found("account", &account);
        if !AccountPath::is_valid(&account) || !caller.principal.sees(&account) {
            return Err(missing());
        }
        let wanted = AccountPath::unchecked(account.as_str());
        let path = wanted.clone();
        let known = self.read(move |ledger| ledger.find_account(&path).is_some()).await?;
        if known.value { Ok(Some(wanted)) } else { Err(missing()) }
    }
}
