//! What is known about the request being handled, wherever it is needed.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bursar_api::Code;

use crate::auth::Principal;
use crate::ids::RequestId;
use crate::net::limits::Priority;

/// About one request.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// Its id.
    pub request_id: RequestId,
    /// The address under which this server is reached.
    pub base_url: Arc<str>,
    /// Wait for this position before reading.
    pub min_position: Option<u64>,
    /// How long the client may take to send its body.
    pub body_patience: Duration,
    /// What the request is for.
    pub priority: Priority,
}

tokio::task_local! {
    static META: Meta;
    static PROBLEM: Cell<Option<Code>>;
    static SENDER: Cell<u64>;
    static CALLER: RefCell<Option<Principal>>;
}

/// Runs a request with what is known about it; also says with which problem it ended, if any.
pub(crate) async fn scope<T>(meta: Meta, work: impl Future<Output = T>) -> (T, Option<Code>) {
    let inner = async {
        let result = work.await;
        (result, PROBLEM.with(Cell::get))
    };
    let inner = SENDER.scope(Cell::new(0), META.scope(meta, inner));
    let inner = CALLER.scope(RefCell::default(), inner);
    PROBLEM.scope(Cell::new(None), inner).await
}

/// What is known about a request, for what goes on after its answer has begun.
pub(crate) struct Carried(Option<Meta>);

impl Carried {
    /// Of the request being handled.
    pub(crate) fn of_request() -> Carried {
        Carried(META.try_with(Meta::clone).ok())
    }

    /// Does something as if the request were still being handled.
    pub(crate) fn during<T>(self, work: impl FnOnce() -> T) -> T {
        match self.0 {
            Some(meta) => META.sync_scope(meta, work),
            None => work(),
        }
    }
}

/// Uses what is known, if a request is being handled.
pub(crate) fn with(use_it: impl FnOnce(&Meta)) {
    // Outside of a request there is nothing to know.
    let _ = META.try_with(use_it);
}

/// The id of the request as a number, zero outside of one.
pub(crate) fn request() -> u128 {
    META.try_with(|meta| meta.request_id.bits()).unwrap_or(0)
}

/// The position to wait for before reading.
pub(crate) fn min_position() -> Option<u64> {
    META.try_with(|meta| meta.min_position).ok().flatten()
}

/// How long the client may take to send its body.
pub(crate) fn body_patience() -> Duration {
    META.try_with(|meta| meta.body_patience).unwrap_or(Duration::MAX)
}

/// Names tenants in this process: numbers cannot be chosen from outside.
static SENDERS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Notes the tenant that asks: tenants take turns.
pub(crate) fn note_sender(tenant: &str) {
    let _ = SENDER.try_with(|sender| sender.set(SENDERS.hash_one(tenant)));
}

/// The tenant that asks, as a number; zero for the server itself.
pub(crate) fn sender() -> u64 {
    SENDER.try_with(Cell::get).unwrap_or(0)
}

/// What the request is for.
pub(crate) fn priority() -> Priority {
    META.try_with(|meta| meta.priority).unwrap_or(Priority::Health)
}

/// Notes who asks, if the request may have to wait.
pub(crate) fn note_caller(principal: &Principal) {
    if min_position().is_some() {
        let _ = CALLER.try_with(|caller| *caller.borrow_mut() = Some(principal.clone()));
    }
}

/// Who asks, if the request may have to wait.
pub(crate) fn caller() -> Option<Principal> {
    CALLER.try_with(|caller| caller.borrow().clone()).ok().flatten()
}

/// Notes the problem with which the request ends, for the metrics.
pub(crate) fn note_problem(code: Code) {
    let _ = PROBLEM.try_with(|problem| problem.set(Some(code)));
}
