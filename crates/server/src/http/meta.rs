//! What is known about the request being handled, wherever it is needed.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bursar_api::Code;

use crate::ids::RequestId;

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
}

tokio::task_local! {
    static META: Meta;
    static PROBLEM: Cell<Option<Code>>;
    static SENDER: Cell<u64>;
}

/// Runs a request with what is known about it; also says with which problem it ended, if any.
pub(crate) async fn scope<T>(meta: Meta, work: impl Future<Output = T>) -> (T, Option<Code>) {
    let inner = async {
        let result = work.await;
        (result, PROBLEM.with(Cell::get))
    };
    let inner = SENDER.scope(Cell::new(0), META.scope(meta, inner));
    PROBLEM.scope(Cell::new(None), inner).await
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

/// Notes the problem with which the request ends, for the metrics.
pub(crate) fn note_problem(code: Code) {
    let _ = PROBLEM.try_with(|problem| problem.set(Some(code)));
}
