//! Everything that can happen in a ledger. Only this is ever stored.
//!
//! An event says what moved, not which rule moved it: replay never draws, prices or attributes
//! anew, so that rules may change while old journals stay true.

pub mod subject;

use std::sync::Arc;

use fefo::Span;
use smallvec::SmallVec;

use super::accounts::quota::Quota;
use super::command::{
    AccountKind, AccountSettings, BudgetTerms, Cause, ClearedSettings, Context, GrantKind,
    OnExpiry, Policy, Restriction,
};
use super::credits::price::Rate;
use super::holds::archive::ArchivedHold;
use super::holds::hold::HoldState;
use super::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo, Name};
use super::index::aside::Aside;
use super::jobs::table::Review;
use super::jobs::{AttemptEnd, JobOrder, JobState, OnExhausted};
use super::refusal::Refusal;
use super::reply::Answer;
use crate::credits::Credits;
use crate::message::{ProposedMember, ToCell};
use crate::time::Timestamp;

/// Consecutive units of one bucket.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// The bucket.
    pub bucket: BucketNo,
    /// The units on its line.
    pub span: Span,
}

/// Units of one or more buckets, in the order in which they were drawn.
pub type Pieces = SmallVec<[Piece; 2]>;

/// How many units pieces have together.
pub fn total(pieces: &[Piece]) -> u64 {
    // Pieces of one draw never add up to more than one amount, which fits in 63 bits.
    pieces.iter().map(|piece| piece.span.len()).sum()
}

/// What a slice of a hold contributes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct SliceAmount {
    /// The place of the slice in its hold.
    pub slice: u32,
    /// How many units of it.
    pub amount: u64,
}

/// What brought a grant about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum GrantOrigin {
    /// A command.
    Issued,
    /// Returned credits had expired, and the platform was the cause.
    Compensation {
        /// The hold or charge they came back from.
        hold: HoldNo,
    },
    /// A transfer out of this bucket.
    Transfer {
        /// The bucket the credits were moved out of.
        from: BucketNo,
    },
}

/// A grant as it was issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantIssued {
    /// Its number.
    pub grant: GrantNo,
    /// Its name.
    pub id: Name,
    /// The account that has it.
    pub account: AccountNo,
    /// Where it comes from.
    pub kind: GrantKind,
    /// How much.
    pub amount: Credits,
    /// The first instant at which it can be spent.
    pub effective_at: Timestamp,
    /// The last instant at which it can be spent; `None` never expires.
    pub expires_at: Option<Timestamp>,
    /// Lower is spent first.
    pub priority: u8,
    /// What it may be spent on.
    pub restriction: Option<Restriction>,
    /// What brought it about.
    pub origin: GrantOrigin,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// Free-form text, kept as it is.
    pub metadata: Option<Box<str>>,
    /// The hash of the request that issued it; zero if none did.
    pub fingerprint: u128,
}

/// A hold as it was placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldPlaced {
    /// Its number.
    pub hold: HoldNo,
    /// Its name.
    pub id: Name,
    /// The account that spends.
    pub account: AccountNo,
    /// What was drawn for it.
    pub pieces: Pieces,
    /// The last instant before it lapses; `None` if only closing ends it.
    pub expires_at: Option<Timestamp>,
    /// What it is for.
    pub context: Context,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The pinned rate.
    pub rate: Option<Rate>,
    /// The GPU time that it stands for, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// The hash of the request that placed it.
    pub fingerprint: u128,
    /// The job that it pays for.
    pub job: Option<JobNo>,
}

/// An attempt as it was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptConfirmed {
    /// The job.
    pub job: JobNo,
    /// The cell that proposed it; `None` if others measure it.
    pub cell: Option<CellNo>,
    /// Its number there.
    pub number: u32,
    /// The GPU type.
    pub gpu_type: Option<Name>,
    /// Where it runs.
    pub members: SmallVec<[ProposedMember; 1]>,
    /// The pinned price.
    pub per_gpu_hour: Credits,
    /// The running time that is paid for. `None`: all of it.
    pub funded_ms: Option<i64>,
}

/// A charge as it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Its number, among the holds.
    pub hold: HoldNo,
    /// Its name.
    pub id: Name,
    /// The account that spent.
    pub account: AccountNo,
    /// What was spent.
    pub pieces: Pieces,
    /// How much was asked for.
    pub requested: Credits,
    /// When the usage happened, if it was reported late.
    pub late_for: Option<Timestamp>,
    /// What the account could still spend in the same context afterwards.
    pub spendable_after: i128,
    /// The hash of the request that made it.
    pub fingerprint: u128,
}

/// A movement that has a name of its own: refund, transfer or collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedMovement {
    /// Its number among the movements.
    pub movement: u32,
    /// Its name.
    pub id: Name,
    /// The units that moved, in order.
    pub pieces: Pieces,
    /// The hash of the request.
    pub fingerprint: u128,
}

impl Event {
    /// How many parts it has: one, and one for each piece of credits that it speaks of. What a
    /// decision may have in all is bounded.
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
            | Event::UncollectedCollected { movement, .. } => movement.pieces.len(),
            Event::HoldCaptured { taken, .. } => taken.len(),
            Event::HoldCut { cut, .. } => cut.len(),
            Event::HoldPinned { returned, .. } => returned.len(),
            Event::DependenciesMet { met, .. } => met.len(),
            Event::JobSubmitted { after, .. } => after.len(),
            Event::HoldRevived { record, .. } => record.hold.slices.len(),
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
            | Event::RegionBriefed { .. }
            | Event::SetAside { .. }
            | Event::QuotaSet { .. }
            | Event::QuotaRemoved { .. }
            | Event::AttemptConfirmed(_)
            | Event::AttemptStarted { .. }
            | Event::AttemptFunded { .. }
            | Event::AttemptStopping { .. }
            | Event::AttemptEnded { .. }
            | Event::CancelAsked { .. }
            | Event::JobEnded { .. }
            | Event::HeldUpReviewed { .. }
            | Event::CellTold { .. }
            | Event::MessageReceived { .. }
            | Event::ExhaustionWarned { .. } => 0,
        }
    }
}

/// Everything that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// How long things are remembered was set.
    PolicySet(Policy),
    /// An account was opened.
    AccountOpened {
        /// Its number.
        account: AccountNo,
        /// Its path.
        path: Name,
        /// What it stands for.
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
        /// What was taken back.
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
    /// A grant reached the instant from which on it can be spent.
    GrantActivated {
        /// The grant.
        grant: GrantNo,
    },
    /// A grant was revoked; its free units are gone.
    GrantRevoked {
        /// The grant.
        grant: GrantNo,
        /// How much was taken back at once.
        amount: u64,
    },
    /// The time of a bucket ran out; its free units are gone.
    BucketExpired {
        /// The bucket.
        bucket: BucketNo,
        /// How much expired.
        amount: u64,
    },
    /// Expired units were brought back, because usage was reported that happened before.
    ExpiryReversed {
        /// The units.
        pieces: Pieces,
    },
    /// Units that had just come back turned out to be expired.
    ReturnExpired {
        /// The hold or charge they came back from.
        hold: HoldNo,
        /// The units.
        pieces: Pieces,
    },
    /// Units that had just come back belong to revoked grants.
    ReturnRevoked {
        /// The hold or charge they came back from.
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
        /// What nothing could be found for.
        uncollected: u64,
    },
    /// Held units of a strict hold were cut off because their bucket expired.
    HoldCut {
        /// The hold.
        hold: HoldNo,
        /// What was cut off each slice.
        cut: SmallVec<[SliceAmount; 2]>,
    },
    /// A hold ended; all that it still held came back.
    HoldClosed {
        /// The hold.
        hold: HoldNo,
        /// How it ended.
        state: HoldState,
        /// Who ended it.
        cause: Cause,
        /// How much came back.
        returned: u64,
    },
    /// Credits were spent at once.
    Charged(Box<Charged>),
    /// Spent credits came back.
    Refunded {
        /// The refund: its name and the units that came back, last drawn first.
        movement: NamedMovement,
        /// The hold or charge.
        hold: HoldNo,
    },
    /// Credits left an account for another one; the grants there follow as events of their own.
    CreditsMoved {
        /// The transfer: its name and the units that left.
        movement: NamedMovement,
        /// Where they came from.
        from: AccountNo,
        /// Where they went.
        to: AccountNo,
    },
    /// Uncollected usage was repaid.
    UncollectedCollected {
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
        budget: Name,
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
        budget: Name,
    },
    /// A budget reached one of its thresholds, for the first time in its period.
    BudgetThresholdReached {
        /// The account.
        account: AccountNo,
        /// The budget's name there.
        budget: Name,
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
        answer: Arc<Answer>,
        /// The id of the request that was refused; zero if it was not.
        request: u128,
    },
    /// Credits were asked for and denied.
    CreditsDenied {
        /// The account that asked.
        account: AccountNo,
        /// Why they were denied.
        refusal: Box<Refusal>,
    },
    /// Things that were kept long enough were forgotten.
    Forgotten {
        /// How many answers, oldest first.
        answers: u32,
        /// How many closed holds and charges were looked at, oldest first.
        holds: u32,
        /// How many named movements, oldest first.
        movements: u32,
        /// How many expired buckets late usage can no longer reach, oldest first.
        buckets: u32,
        /// How many ended jobs, oldest first.
        jobs: u32,
    },
    /// A forgotten hold or charge was brought back.
    HoldRevived {
        /// Its number from now on.
        hold: HoldNo,
        /// What it was.
        record: Box<ArchivedHold>,
    },
    /// A region's cell became known.
    RegionOpened {
        /// Its number.
        cell: CellNo,
        /// The region.
        region: Name,
        /// The shard that this ledger is to the cell.
        shard: u16,
    },
    /// A new cell was told the policies of accounts, up to one or of all.
    RegionBriefed {
        /// The cell.
        cell: CellNo,
        /// The first account that is left.
        next: Option<AccountNo>,
    },
    /// Something failed again and again; it is skipped from now on.
    SetAside {
        /// What.
        what: Aside,
        /// A hash of it.
        digest: u128,
    },
    /// A quota was set or replaced.
    QuotaSet {
        /// The account.
        account: AccountNo,
        /// The region; each if absent.
        region: Option<Name>,
        /// Its numbers.
        quota: Quota,
    },
    /// A quota was removed.
    QuotaRemoved {
        /// The account.
        account: AccountNo,
        /// The region; each if absent.
        region: Option<Name>,
    },
    /// A job was submitted. Its hold and what cells are told follow.
    JobSubmitted {
        /// Its number.
        job: JobNo,
        /// What was submitted.
        order: Arc<JobOrder>,
        /// Jobs that have not succeeded yet and must.
        after: Vec<JobNo>,
    },
    /// A hold got its price: what it held beyond that came back.
    HoldPinned {
        /// The hold.
        hold: HoldNo,
        /// The price and the most that is ever credited.
        rate: Rate,
        /// What came back of each slice, off its end. Slices that gave all are gone.
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
    /// More running time of an attempt is paid for, or may stay unpaid.
    AttemptFunded {
        /// The job.
        job: JobNo,
        /// The running time that is paid for in all. `None`: all of it.
        funded_ms: Option<i64>,
        /// What it may leave unpaid in all.
        overdraft: u64,
        /// Whether that is less than a window more.
        short: bool,
        /// The running time that credits pay for, where the rest may stay unpaid.
        credits_ms: Option<i64>,
    },
    /// An attempt was asked to stop.
    AttemptStopping {
        /// The job.
        job: JobNo,
    },
    /// An attempt is over: its hold was closed just before, and the job waits unless its own end
    /// follows.
    AttemptEnded {
        /// The job.
        job: JobNo,
        /// How it ended.
        end: AttemptEnd,
    },
    /// A job's end was asked for.
    CancelAsked {
        /// The job.
        job: JobNo,
    },
    /// Jobs that a job had to wait for have succeeded.
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
        /// How.
        state: JobState,
    },
    /// Jobs of a tenant that were held up were looked at again, up to one or all of them.
    HeldUpReviewed {
        /// The tenant.
        tenant: AccountNo,
        /// When to look again, and from which job on.
        next: Option<Review>,
    },
    /// Something was said to a cell: the courier carries it.
    CellTold {
        /// The cell.
        cell: CellNo,
        /// The message's number, dense from 1 for each cell.
        number: u64,
        /// What was said.
        message: Box<ToCell>,
    },
    /// A message of a cell was taken; what it caused follows.
    MessageReceived {
        /// The cell.
        cell: CellNo,
        /// Its number.
        number: u64,
        /// The record of the cell's journal that it comes from.
        position: u64,
    },
    /// What is paid for of a running attempt ends soon. Once, each time that comes near.
    ExhaustionWarned {
        /// The job.
        job: JobNo,
        /// When it ends, if nothing changes.
        ends_at: Timestamp,
        /// What happens then: it is stopped, or it runs on and owes.
        then: OnExhausted,
    },
}
