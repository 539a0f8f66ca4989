//! Task-local data of the current request.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bursar_api::Code;

use super::MinPosition;
use crate::auth::Principal;
use crate::ids::RequestId;
use crate::net::bodies::Bodies;
use crate::net::limits::Priority;

/// The data of one request.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// Its id.
    pub request_id: RequestId,
    /// The URL under which clients reach this server.
    pub base_url: Arc<str>,
    /// The position to wait for before reading.
    pub min_position: Option<MinPosition>,
    /// How long the client may take to send its body.
    pub body_timeout: Duration,
    /// The priority of the request.
    pub priority: Priority,
    /// The incomplete bodies of the server.
    pub bodies: Option<Arc<Bodies>>,
}

tokio::task_local! {
    static META: Meta;
    static ENDED: Cell<Ended>;
    static SENDER: Cell<u64>;
    static CALLER: RefCell<Option<Principal>>;
}

/// What is known of a request once it has ended.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Ended {
    /// The code of the problem it ended with, if any.
    pub problem: Option<Code>,
    /// How long it waited on purpose: a long poll, or a read that waits for a position.
    pub waited: Duration,
}

/// Runs a request with its data. Also returns what is known of it afterwards.
pub(crate) async fn scope<T>(meta: Meta, work: impl Future<Output = T>) -> (T, Ended) {
    let inner = async {
        let result = work.await;
        (result, ENDED.with(Cell::get))
    };
    let inner = SENDER.scope(Cell::new(0), META.scope(meta, inner));
    let inner = CALLER.scope(RefCell::default(), inner);
    ENDED.scope(Cell::default(), inner).await
}

/// The data of a request, for work that continues after its answer has begun.
pub(crate) struct CarriedMeta(Option<Meta>);

impl CarriedMeta {
    /// The data of the current request.
    pub(crate) fn of_request() -> CarriedMeta {
        CarriedMeta(META.try_with(Meta::clone).ok())
    }

    /// Runs `work` with the data of the request.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> T {
        match self.0 {
            Some(meta) => META.sync_scope(meta, work),
            None => work(),
        }
    }
}

/// Passes the data on, if there is a current request.
pub(crate) fn with(use_it: impl FnOnce(&Meta)) {
    // Outside of a request there is no data.
    let _ = META.try_with(use_it);
}

/// The id of the current request as a number; zero outside of one.
pub(crate) fn request() -> u128 {
    META.try_with(|meta| meta.request_id.bits()).unwrap_or(0)
}

/// The position to wait for before reading.
pub(crate) fn min_position() -> Option<MinPosition> {
    META.try_with(|meta| meta.min_position.clone()).ok().flatten()
}

/// The position of the ledger of a shard to wait for.
pub(crate) fn min_position_of(shard: u16) -> Option<u64> {
    let own = |meta: &Meta| meta.min_position.as_ref()?.of(shard);
    META.try_with(own).ok().flatten()
}

/// How long the client may take to send its body.
pub(crate) fn body_timeout() -> Duration {
    META.try_with(|meta| meta.body_timeout).unwrap_or(Duration::MAX)
}

/// Numbers tenants in this process. Randomly seeded, so that no client can choose a number.
static SENDERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Records the tenant of the request: machines serve tenants in turns.
pub(crate) fn note_sender(tenant: &str) {
    let _ = SENDER.try_with(|sender| sender.set(SENDERS.hash_one(tenant)));
}

/// The number of the tenant; zero for the server itself.
pub(crate) fn sender() -> u64 {
    SENDER.try_with(Cell::get).unwrap_or(0)
}

/// The priority of the request.
pub(crate) fn priority() -> Priority {
    META.try_with(|meta| meta.priority).unwrap_or(Priority::Health)
}

/// The incomplete bodies of the server; `None` outside of a request.
pub(crate) fn bodies() -> Option<Arc<Bodies>> {
    META.try_with(|meta| meta.bodies.clone()).ok().flatten()
}

/// Records the caller, if the request may have to wait.
pub(crate) fn note_caller(principal: &Principal) {
    if min_position().is_some() {
        let _ = CALLER.try_with(|caller| *caller.borrow_mut() = Some(principal.clone()));
    }
}

/// The caller, if the request may have to wait.
pub(crate) fn caller() -> Option<Principal> {
    CALLER.try_with(|caller| caller.borrow().clone()).ok().flatten()
}

/// Records the problem that the request ends with, for the metrics.
pub(crate) fn note_problem(code: Code) {
    let problem = Some(code);
    let _ = ENDED.try_with(|ended| ended.set(Ended { problem, ..ended.get() }));
}

/// Takes back what was recorded: the request ended well.
pub(crate) fn forget_problem() {
    let _ = ENDED.try_with(|ended| ended.set(Ended { problem: None, ..ended.get() }));
}

/// Adds to the time that the request waited on purpose.
pub(crate) fn note_waited(length: Duration) {
    // A stream waits after its answer has begun, outside of the request.
    let _ = ENDED.try_with(|ended| {
        let Ended { problem, waited } = ended.get();
        ended.set(Ended { problem, waited: waited.saturating_add(length) });
    });
}
