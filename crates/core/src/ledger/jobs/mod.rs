//! Jobs: admitted and ended by the ledger, placed by the cells.
//!
//! The ledger is the linearization point of a job: a cell proposes a placement, the ledger confirms
//! it once, and the reports of the cells change the job's hold. [`submit`] places the first hold,
//! [`start`] answers proposals, [`meter`] turns usage into captures, [`fund`] pays for more time,
//! [`warn`] warns before the paid time ends, [`end`] closes holds and places the next ones,
//! [`wait`] reviews blocked jobs, [`external`] takes usage measured outside Bursar, [`table`] keeps
//! the indexes, [`view`] answers queries, and `invariant` checks the invariants.

pub mod apply;
mod attempt;
pub mod end;
pub mod external;
pub mod fund;
pub(super) mod invariant;
pub mod meter;
pub mod money;
pub mod start;
pub mod submit;
pub mod table;
mod terms;
pub mod view;
pub mod wait;
pub mod warn;

use std::sync::Arc;

use smallvec::SmallVec;

use super::command::Context;
use super::id::{AccountNo, CellNo, HoldNo, JobNo};
use crate::cell::command::JobSpec;
use crate::cell::ids::{AttemptId, JobId};
use crate::credits::Credits;
use crate::name::{AccountPath, GpuModel, HoldId, JobName};
use crate::opaque::Opaque;
use crate::time::Timestamp;
pub use attempt::{Attempt, AttemptEnd, EndReason};
pub use terms::{JobTerms, Offer, OnExhausted, ROLLING_WINDOW_MS, Reserve, WARN_AHEAD_MS};

/// The state of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// It waits for a placement, for credits, or for another job.
    Queued,
    /// Its placement is confirmed; no node has reported it yet.
    Starting,
    /// It runs and is metered.
    Running,
    /// Its stop was ordered; metering has stopped.
    Stopping,
    /// Its command succeeded.
    Succeeded,
    /// Its command failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// Its node or region stopped reporting, and it may not be requeued.
    Lost,
    /// The credits were exhausted.
    OutOfCredits,
    /// It reached its longest runtime.
    TimedOut,
}

impl JobState {
    /// Whether the state is final.
    pub fn is_ended(self) -> bool {
        match self {
            JobState::Queued | JobState::Starting | JobState::Running | JobState::Stopping => false,
            JobState::Succeeded
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Lost
            | JobState::OutOfCredits
            | JobState::TimedOut => true,
        }
    }
}

/// A job as it was submitted. Never changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobOrder {
    /// Its name.
    pub id: JobName,
    /// The account that pays.
    pub account: AccountNo,
    /// Its terms for credits and placement.
    pub terms: JobTerms,
    /// Its price for each GPU type and region.
    pub offers: Vec<Offer>,
    /// What the agent needs to start it.
    pub payload: Opaque,
    /// The job as it was submitted, for queries.
    pub submitted: Opaque,
    /// The name of its first hold.
    pub hold: HoldId,
    /// The hash of the request that submitted it.
    pub fingerprint: u128,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// What was submitted.
    pub order: Arc<JobOrder>,
    /// Its state.
    pub state: JobState,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The amount of its first hold.
    pub reserved: Credits,
    /// Its open hold; `None` if it has ended, costs nothing, or waits for credits.
    pub hold: Option<HoldNo>,
    /// The name of its current or last hold.
    pub hold_name: Option<HoldId>,
    /// How many holds it has had.
    pub holds: u32,
    /// Jobs that must succeed first and have not yet.
    pub after: Vec<JobNo>,
    /// The cells where it is admitted.
    pub standings: SmallVec<[Standing; 1]>,
    /// Its attempts, in order; the last one may be live.
    pub attempts: Vec<Attempt>,
    /// The highest attempt number that any cell has proposed or was sent as a starting point. No
    /// cell has proposed more than the next one.
    pub highest: u32,
    /// Whether its cancellation was requested.
    pub cancel_asked: bool,
}

/// The last state of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArchivedJob {
    /// Its number.
    pub number: JobNo,
    /// The job.
    pub job: Job,
}

/// The admission of a job to a cell.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The cell.
    pub cell: CellNo,
    /// Only attempts with a higher number belong to this admission.
    pub after: u32,
    /// Whether the cell must wait until the job is admitted again.
    pub waits: bool,
}

impl JobOrder {
    /// The highest price of its offers.
    pub fn costliest(&self) -> Credits {
        self.offers.iter().map(|offer| offer.per_gpu_hour).max().unwrap_or(Credits::ZERO)
    }

    /// The amount of its first hold and of each later one.
    pub fn need(&self) -> Credits {
        let need = self.terms.hold_at(self.costliest(), self.terms.first_window());
        // Checked at submission.
        need.unwrap_or(Credits::MAX)
    }

    /// The context of its holds: every acceptable GPU type and region.
    pub fn context(&self) -> Context {
        context(&self.terms, &self.offers)
    }

    /// The offer for a GPU type in a region. A job without GPUs takes any offer.
    pub(super) fn offer(&self, gpu_type: Option<&str>, region: &str) -> Option<&Offer> {
        let mut here = self.offers.iter().filter(|offer| offer.region == region);
        here.find(|offer| gpu_type.is_none_or(|gpu_type| offer.gpu_type == gpu_type))
    }

    /// The GPU types that have a price in a region, the most preferred first.
    fn models_in(&self, region: &str) -> SmallVec<[GpuModel; 2]> {
        let mut models: SmallVec<[GpuModel; 2]> = SmallVec::new();
        let wanted = self.terms.gpu_types.iter();
        for model in wanted.chain(self.offers.iter().map(|offer| &offer.gpu_type)) {
            if !models.contains(model) && self.offer(Some(model), region).is_some() {
                models.push(model.clone());
            }
        }
        models
    }

    /// The specification that the cell of a region receives.
    pub(super) fn spec(
        &self,
        id: JobId,
        region: &str,
        account: &AccountPath,
        submitted_at: Timestamp,
        attempts_before: u32,
    ) -> JobSpec {
        JobSpec {
            models: self.models_in(region),
            submitted_at,
            attempts_before,
            payload: self.payload.clone(),
            ..self.terms.spec(id, account.clone())
        }
    }
}

/// Everything that the offers allow, sorted.
pub(super) fn context(terms: &JobTerms, offers: &[Offer]) -> Context {
    Context {
        gpu_types: Some(sorted(offers.iter().map(|offer| offer.gpu_type.clone()).collect())),
        regions: Some(sorted(offers.iter().map(|offer| offer.region.clone()).collect())),
        class: Some(terms.class.clone()),
    }
}

fn sorted<T: Ord>(mut list: Vec<T>) -> Vec<T> {
    list.sort_unstable();
    list.dedup();
    list
}

impl Job {
    /// The attempt that has not ended.
    pub fn live_attempt(&self) -> Option<&Attempt> {
        self.attempts.last().filter(|attempt| attempt.end.is_none())
    }

    /// The attempt that a cell reports on, unless it has ended.
    pub(super) fn attempt_of(&self, cell: CellNo, attempt: AttemptId) -> Option<&Attempt> {
        self.live_attempt().filter(|live| live.cell == Some(cell) && live.number == attempt.number)
    }

    /// Whether it waits for a hold.
    pub fn is_unfunded(&self) -> bool {
        !self.state.is_ended() && self.hold.is_none() && !self.order.need().is_zero()
    }

    /// Whether it is blocked: it waits for credits, a cell waits for its admission, or it runs on
    /// less than a full window.
    pub(super) fn is_held_up(&self) -> bool {
        let waits = self.standings.iter().any(|standing| standing.waits);
        self.state == JobState::Queued && (self.is_unfunded() || waits) || self.is_short()
    }

    /// Whether it runs and its last window was not filled.
    pub(super) fn is_short(&self) -> bool {
        let runs = self.state == JobState::Starting || self.state == JobState::Running;
        runs && self.live_attempt().is_some_and(|live| live.short)
    }

    /// The charges of its ended attempts.
    pub fn charged(&self) -> u128 {
        let ends = self.attempts.iter().filter_map(|attempt| attempt.end);
        ends.map(|end| u128::from(end.charged)).sum()
    }
}
