//! The events of a ledger. Only events are stored.
//!
//! An event records what changed, not the rule behind it. Replay never draws, prices or attributes
//! again, so rules can change while old journals stay valid.

mod details;
mod pieces;
pub mod subject;

use std::sync::Arc;

use smallvec::SmallVec;

pub use details::{
    AttemptConfirmed, Charged, Forgetting, GrantIssued, GrantOrigin, HoldPlaced, NamedMovement,
};
pub use pieces::{Piece, Pieces, SliceAmount, credits_of, total};

use super::accounts::quota::Quota;
use super::command::{
    AccountKind, AccountSettings, BudgetTerms, Cause, ClearedSettings, MovementNote, Policy,
};
use super::credits::price::Rate;
use super::holds::archive::ArchivedHold;
use super::holds::hold::HoldState;
use super::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo};
use super::index::aside::LedgerAside;
use super::jobs::table::Review;
use super::jobs::{AttemptEnd, JobOrder, JobState, OnExhausted};
use super::refusal::Refusal;
use super::reply::LedgerAnswer;
use crate::credits::Credits;
use crate::message::ToCell;
use crate::name::{AccountPath, BudgetName, Region};
use crate::time::Timestamp;

/// An event of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Retention times and other platform-wide terms were set.
    PolicySet(Policy),
    /// An account was opened.
    AccountOpened {
        /// Its number.
        account: AccountNo,
        /// Its path.
        path: AccountPath,
        /// What it represents.
        kind: AccountKind,
        /// Its settings.
        settings: AccountSettings,
        /// The hash of the request that opened it.
        fingerprint: u128,
    },
    /// Settings of an account were changed.
    AccountChanged {
        /// The account.
        account: AccountNo,
        /// What was changed.
        settings: AccountSettings,
        /// The settings that were reset.
        cleared: ClearedSettings,
    },
    /// New spending at and below an account was stopped.
    AccountFrozen {
        /// The account.
        account: AccountNo,
        /// Whether the platform did it.
        by_platform: bool,
    },
    /// Spending was allowed again.
    AccountUnfrozen {
        /// The account.
        account: AccountNo,
    },
    /// Credits were put into an account.
    GrantIssued(Box<GrantIssued>),
    /// A grant became spendable.
    GrantActivated {
        /// The grant.
        grant: GrantNo,
    },
    /// A grant was revoked, with its free units.
    GrantRevoked {
        /// The grant.
        grant: GrantNo,
        /// How much was taken back at once.
        amount: u64,
    },
    /// A bucket expired, with its free units.
    BucketExpired {
        /// The bucket.
        bucket: BucketNo,
        /// How much expired.
        amount: u64,
    },
    /// The expiry of units was reversed, because usage from before the expiry was reported.
    ExpiryReversed {
        /// The units.
        pieces: Pieces,
    },
    /// Units that were just returned have expired.
    ReturnExpired {
        /// The hold or charge that returned them.
        hold: HoldNo,
        /// The units.
        pieces: Pieces,
    },
    /// Units that were just returned belong to revoked grants.
    ReturnRevoked {
        /// The hold or charge that returned them.
        hold: HoldNo,
        /// The units.
        pieces: Pieces,
    },
    /// Credits were reserved.
    HoldPlaced(Box<HoldPlaced>),
    /// More was reserved, or for longer.
    HoldExtended {
        /// The hold.
        hold: HoldNo,
        /// What was drawn in addition.
        pieces: Pieces,
        /// The GPU time that this stands for, in GPU-milliseconds.
        gpu_ms: u64,
        /// When it lapses now.
        expires_at: Option<Timestamp>,
    },
    /// Usage was spent.
    HoldCaptured {
        /// The hold.
        hold: HoldNo,
        /// The number of the report.
        seq: Option<u64>,
        /// The cumulative usage in credits.
        total: Credits,
        /// The cumulative GPU time, if the hold has a rate.
        gpu_ms: u64,
        /// What was taken from each slice.
        taken: SmallVec<[SliceAmount; 2]>,
        /// Usage for which no credits were found.
        uncollected: u64,
    },
    /// Held units of a strict hold were cut off because their bucket expired.
    HoldCut {
        /// The hold.
        hold: HoldNo,
        /// What was cut off each slice.
        cut: SmallVec<[SliceAmount; 2]>,
    },
    /// A hold ended, and all that it still held was returned.
    HoldClosed {
        /// The hold.
        hold: HoldNo,
        /// How it ended.
        state: HoldState,
        /// Who ended it.
        cause: Cause,
        /// How much was returned.
        returned: u64,
    },
    /// Credits were spent in one step.
    Charged(Box<Charged>),
    /// Spent credits were returned.
    Refunded {
        /// The refund: its name and the returned units, last drawn first.
        movement: NamedMovement,
        /// The hold or charge.
        hold: HoldNo,
        /// Reason and reference; stored with the first part only.
        note: Option<Box<MovementNote>>,
    },
    /// Credits were transferred to another account; the new grants follow as separate events.
    CreditsMoved {
        /// The transfer: its name and the units that left.
        movement: NamedMovement,
        /// Where they came from.
        from: AccountNo,
        /// Where they went.
        to: AccountNo,
        /// Reason and reference.
        note: Option<Box<MovementNote>>,
    },
    /// Uncollected usage was repaid.
    DebtRepaid {
        /// The repayment: its name and the units that were spent on it.
        movement: NamedMovement,
        /// The account.
        account: AccountNo,
    },
    /// A budget was set or replaced.
    BudgetSet {
        /// The account.
        account: AccountNo,
        /// Its name there.
        budget: BudgetName,
        /// Its terms.
        terms: BudgetTerms,
        /// When the current period began.
        period_start: Timestamp,
        /// What is spent in the current period.
        spent: i128,
        /// What is held in the current period.
        held: i128,
    },
    /// A budget was removed.
    BudgetRemoved {
        /// The account.
        account: AccountNo,
        /// The budget's name there.
        budget: BudgetName,
    },
    /// A budget reached one of its thresholds, for the first time in its period.
    BudgetThresholdReached {
        /// The account.
        account: AccountNo,
        /// The budget's name there.
        budget: BudgetName,
        /// The threshold, in percent.
        percent: u16,
        /// What is used.
        used: i128,
    },
    /// An answer was kept for its idempotency key, in the same commit as its effect.
    Answered {
        /// The hash of tenant and key.
        key: u128,
        /// The hash of the request.
        fingerprint: u128,
        /// The answer.
        answer: Arc<LedgerAnswer>,
        /// The id of the request that was refused; zero if it was not.
        request: u128,
    },
    /// A request for credits was denied.
    CreditsDenied {
        /// The account of the request.
        account: AccountNo,
        /// Why they were denied.
        refusal: Box<Refusal>,
    },
    /// Entries whose retention has ended were forgotten.
    Forgotten {
        /// How many answers, oldest first.
        answers: u32,
        /// How many closed holds and charges were examined, oldest first.
        holds: u32,
        /// How many named movements, oldest first.
        movements: u32,
        /// How many expired buckets late usage can no longer reach, oldest first.
        buckets: u32,
        /// How many ended jobs by their age alone, oldest first.
        jobs: u32,
        /// What else was forgotten because the archive has it; absent if all of it was forgotten by its age alone.
        archived: Option<Box<Forgetting>>,
    },
    /// A forgotten hold or charge was restored.
    HoldRestored {
        /// Its number from now on.
        hold: HoldNo,
        /// Its archived record.
        record: Box<ArchivedHold>,
    },
    /// The cell of a region was registered.
    RegionOpened {
        /// Its number.
        cell: CellNo,
        /// The region.
        region: Region,
        /// The shard number of this ledger, as it appears in the job ids of the cell.
        shard: u16,
    },
    /// Policies of accounts were sent to a new cell, up to one account or all.
    RegionPoliciesSent {
        /// The cell.
        cell: CellNo,
        /// The first account that remains; `None` if all were sent.
        next: Option<AccountNo>,
    },
    /// A timer or message failed repeatedly and is skipped from now on.
    SetAside {
        /// The timer or message.
        what: LedgerAside,
        /// A hash of its content.
        digest: u128,
    },
    /// A quota was set or replaced.
    QuotaSet {
        /// The account.
        account: AccountNo,
        /// The region; all regions if absent.
        region: Option<Region>,
        /// Its limits.
        quota: Quota,
    },
    /// A quota was removed.
    QuotaRemoved {
        /// The account.
        account: AccountNo,
        /// The region; all regions if absent.
        region: Option<Region>,
    },
    /// A job was submitted. Its hold and the messages to cells follow.
    JobSubmitted {
        /// Its number.
        job: JobNo,
        /// What was submitted.
        order: Arc<JobOrder>,
        /// Jobs that must succeed first and have not yet.
        after: Vec<JobNo>,
    },
    /// The price of a hold was pinned, and the surplus was returned.
    HoldPinned {
        /// The hold.
        hold: HoldNo,
        /// The price and the most GPU time that is ever charged.
        rate: Rate,
        /// The amount returned from the end of each slice. Empty slices are removed.
        returned: SmallVec<[SliceAmount; 2]>,
        /// When it lapses now.
        expires_at: Option<Timestamp>,
    },
    /// An attempt may start.
    AttemptConfirmed(Box<AttemptConfirmed>),
    /// An attempt was reported running for the first time.
    AttemptStarted {
        /// The job.
        job: JobNo,
    },
    /// The paid running time or the overdraft of an attempt changed.
    AttemptFunded {
        /// The job.
        job: JobNo,
        /// The total running time that is paid for; `None` if all of it is.
        funded_ms: Option<i64>,
        /// The total that it may leave unpaid.
        overdraft: u64,
        /// Whether less than a full window was added.
        short: bool,
        /// The running time that credits pay for, if the rest is an overdraft.
        credits_ms: Option<i64>,
    },
    /// The stop of an attempt was ordered.
    AttemptStopping {
        /// The job.
        job: JobNo,
    },
    /// An attempt has ended. Its hold was closed just before, and the job is queued unless its own
    /// end follows.
    AttemptEnded {
        /// The job.
        job: JobNo,
        /// How it ended.
        end: AttemptEnd,
    },
    /// The cancellation of a job was requested.
    CancelRequested {
        /// The job.
        job: JobNo,
    },
    /// Dependencies of a job have succeeded.
    DependenciesMet {
        /// The job that waited.
        job: JobNo,
        /// Those jobs.
        met: Vec<JobNo>,
    },
    /// A job has ended; it has no open hold.
    JobEnded {
        /// The job.
        job: JobNo,
        /// Its final state.
        state: JobState,
    },
    /// Blocked jobs of a tenant were reviewed, up to one job or all of them.
    BlockedJobsRechecked {
        /// The tenant.
        tenant: AccountNo,
        /// The time and the first job of the next review.
        next: Option<Review>,
    },
    /// A message was sent to a cell. The courier delivers it.
    CellMessageSent {
        /// The cell.
        cell: CellNo,
        /// The message's number, dense from 1 for each cell.
        number: u64,
        /// The message.
        message: Box<ToCell>,
    },
    /// A message of a cell was taken. Its effects follow.
    MessageReceived {
        /// The cell.
        cell: CellNo,
        /// Its number.
        number: u64,
        /// The record of the cell's journal that it comes from.
        position: u64,
    },
    /// The paid running time of an attempt ends soon. Sent once for each time that the end comes
    /// near.
    ExhaustionWarned {
        /// The job.
        job: JobNo,
        /// When it ends, if nothing changes.
        ends_at: Timestamp,
        /// What happens then: the attempt is stopped, or it continues on overdraft.
        then: OnExhausted,
    },
}

impl Event {
    /// The number of its parts: one, and one for each piece of credits that it contains. The sum
    /// over one decision is bounded.
    pub fn parts(&self) -> usize {
        1 + match self {
            Event::ExpiryReversed { pieces }
            | Event::ReturnExpired { pieces, .. }
            | Event::ReturnRevoked { pieces, .. }
            | Event::HoldExtended { pieces, .. } => pieces.len(),
            Event::HoldPlaced(placed) => placed.pieces.len(),
            Event::Charged(charged) => charged.pieces.len(),
            Event::Refunded { movement, .. }
            | Event::CreditsMoved { movement, .. }
            | Event::DebtRepaid { movement, .. } => movement.pieces.len(),
            Event::HoldCaptured { taken, .. } => taken.len(),
            Event::HoldCut { cut, .. } => cut.len(),
            Event::HoldPinned { returned, .. } => returned.len(),
            Event::DependenciesMet { met, .. } => met.len(),
            Event::JobSubmitted { after, .. } => after.len(),
            Event::HoldRestored { record, .. } => record.hold.slices.len(),
            Event::PolicySet(_)
            | Event::AccountOpened { .. }
            | Event::AccountChanged { .. }
            | Event::AccountFrozen { .. }
            | Event::AccountUnfrozen { .. }
            | Event::GrantIssued(_)
            | Event::GrantActivated { .. }
            | Event::GrantRevoked { .. }
            | Event::BucketExpired { .. }
            | Event::HoldClosed { .. }
            | Event::BudgetSet { .. }
            | Event::BudgetRemoved { .. }
            | Event::BudgetThresholdReached { .. }
            | Event::Answered { .. }
            | Event::CreditsDenied { .. }
            | Event::Forgotten { .. }
            | Event::RegionOpened { .. }
            | Event::RegionPoliciesSent { .. }
            | Event::SetAside { .. }
            | Event::QuotaSet { .. }
            | Event::QuotaRemoved { .. }
            | Event::AttemptConfirmed(_)
            | Event::AttemptStarted { .. }
            | Event::AttemptFunded { .. }
            | Event::AttemptStopping { .. }
            | Event::AttemptEnded { .. }
            | Event::CancelRequested { .. }
            | Event::JobEnded { .. }
            | Event::BlockedJobsRechecked { .. }
            | Event::CellMessageSent { .. }
            | Event::MessageReceived { .. }
            | Event::ExhaustionWarned { .. } => 0,
        }
    }
}
