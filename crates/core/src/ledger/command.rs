//! The commands of a ledger.
//!
//! Amounts, names and times are already parsed. Conditions that depend on the state, such as
//! whether an account exists or credits suffice, are checked in the file of the noun.

use smallvec::SmallVec;

use super::accounts::quota::Quota;
use super::credits::price::Rate;
use super::holds::archive::{ArchivedAnswer, ArchivedHold, RecalledRecord};
use super::holds::hold::HoldKind;
use super::id::{AccountNo, CellNo, Name};
use super::jobs::{JobTerms, Offer};
use super::refusal::Resource;
use super::state::{Movement, short_fingerprint};
use crate::credits::Credits;
use crate::message::ToLedger;
use crate::name::{GpuModel, Region};
use crate::time::Timestamp;

/// The author of a command and its idempotency key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The API key or component that sent the command, for the audit trail.
    pub actor: Name,
    /// A hash of the whole request (method, path, body): equal requests have equal ones.
    pub fingerprint: u128,
    /// A hash of tenant and idempotency key, if the request carried one.
    pub key: Option<u128>,
    /// The hash of the batch that contains the request, if the key is derived from the key of the
    /// batch. The key then identifies the whole batch.
    pub batch: Option<u128>,
    /// The id of the request; zero if it has none. A kept refusal stores it, so that a repeated
    /// answer is identical.
    pub request: u128,
    /// What history said of the id under which the command creates something, if it was asked. It is no part of the
    /// record: what happened is.
    pub looked_up: Option<LookUp>,
    /// The position of the archive in which the idempotency key and the names of the command were looked up. Nothing
    /// is checked if it is absent.
    pub archive: Option<u64>,
    /// What the archive has under those names.
    pub recalled: Vec<RecalledRecord>,
}

/// What a look-up in history came to, for an id that the ledger may have forgotten.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum LookUp {
    /// History has every record before this instant, and nothing under this id among them.
    Absent {
        /// That instant.
        through: Timestamp,
    },
    /// History has it, and the ledger had it as well.
    Present,
}

impl Envelope {
    /// The record of a forgotten hold or charge that came with the command.
    pub(super) fn recalled_hold(
        &self,
        tenant_of: impl Fn(AccountNo) -> Option<AccountNo>,
        (tenant, kind, id): (AccountNo, HoldKind, &str),
    ) -> Option<&ArchivedHold> {
        self.recalled.iter().find_map(|recalled| match recalled {
            RecalledRecord::Hold(record) => {
                let hold = &record.hold;
                let own = tenant_of(hold.account) == Some(tenant);
                (own && hold.kind == kind && hold.id == id).then_some(record)
            }
            RecalledRecord::Movement(_) => None,
        })
    }

    /// The parts of a forgotten refund, transfer or collection that came with the command.
    pub(super) fn recalled_movement(
        &self,
        tenant: AccountNo,
        what: Resource,
        id: &str,
    ) -> Option<&[Movement]> {
        self.recalled.iter().find_map(|recalled| match recalled {
            RecalledRecord::Hold(_) => None,
            RecalledRecord::Movement(parts) => {
                let whole = parts.first()?;
                let own = whole.tenant == tenant && whole.what == what && whole.movement.id == id;
                own.then_some(parts.as_slice())
            }
        })
    }

    /// The hash of the request or batch that the idempotency key identifies.
    pub fn keyed_fingerprint(&self) -> u128 {
        self.batch.unwrap_or(self.fingerprint)
    }

    /// Whether the same request created the resource that stores this shortened hash. In journals
    /// of earlier releases, a resource created by a batch with a key stores the hash of the batch.
    pub fn made(&self, kept: u64) -> bool {
        let is_kept = |fingerprint| short_fingerprint(fingerprint) == kept;
        is_kept(self.fingerprint) || self.batch.is_some_and(is_kept)
    }
}

/// What an account represents. Ordered from the widest to the narrowest.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccountKind {
    /// A customer.
    Org,
    /// A group of people; teams may nest.
    Team,
    /// A piece of work; projects may nest.
    Project,
    /// A person or a machine.
    User,
}

/// The settings of an account. `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccountSettings {
    /// The display name.
    pub name: Option<Name>,
    /// The fair-share weight in thousandths; 1000 unless set.
    pub weight_milli: Option<u32>,
    /// The home region of the account's credits.
    pub home_region: Option<Region>,
    /// Free-form text, stored unchanged.
    pub metadata: Option<Box<str>>,
    /// How long credits are valid that are re-issued because the platform failed. Inherited.
    pub compensation_ttl_ms: Option<i64>,
    /// How far uncollected usage may grow before jobs are stopped. Inherited.
    pub overdraft_limit: Option<Credits>,
}

/// Settings of an account that are reset to their defaults.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClearedSettings {
    /// The display name.
    pub name: bool,
    /// The free-form text.
    pub metadata: bool,
    /// The validity of re-issued credits: inherited again.
    pub compensation_ttl_ms: bool,
    /// The limit on uncollected usage: only those of the ancestors apply.
    pub overdraft_limit: bool,
}

/// Where credits come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantKind {
    /// Given for free, usually with conditions. Spent first among equals.
    Promotion,
    /// Given because the platform failed.
    Compensation,
    /// Given.
    Grant,
    /// Paid for. Spent last among equals.
    Purchase,
}

impl GrantKind {
    /// All kinds, in spend order among equals.
    pub const ALL: [GrantKind; 4] =
        [GrantKind::Promotion, GrantKind::Compensation, GrantKind::Grant, GrantKind::Purchase];
}

/// What a grant may be spent on. An absent list allows everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Restriction {
    /// GPU types, sorted and without duplicates.
    pub gpu_types: Option<Vec<GpuModel>>,
    /// Regions, sorted and without duplicates.
    pub regions: Option<Vec<Region>>,
    /// Priority classes, sorted and without duplicates.
    pub classes: Option<Vec<Name>>,
    /// The largest part of one hold that may come from this grant, in millionths.
    pub max_share_micro: Option<u32>,
}

/// What a hold or charge is for: every alternative that is still possible. An absent list allows
/// anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Context {
    /// GPU types that are acceptable.
    pub gpu_types: Option<Vec<GpuModel>>,
    /// Regions that are acceptable.
    pub regions: Option<Vec<Region>>,
    /// The priority class.
    pub class: Option<Name>,
}

/// What happens to held credits whose grant expires.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnExpiry {
    /// They stay capturable while the hold is open.
    #[default]
    HonorHold,
    /// They are cut off at the expiry instant.
    Strict,
}

/// The cumulative usage so far.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Usage {
    /// An amount of credits.
    Total(Credits),
    /// GPU-milliseconds, charged at the hold's pinned rate.
    GpuMs(u64),
}

/// Who caused the end of a hold.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The holder: finished, cancelled or failed.
    #[default]
    Holder,
    /// The platform: preemption or a lost node. Returned credits that have expired are re-issued.
    Platform,
}

/// What a budget counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum BudgetUnit {
    /// Micro-credits.
    #[default]
    Credits,
    /// Millionths of a GPU-hour.
    GpuHours,
}

/// When a new period of a budget begins. Calendar periods, shifted by the budget's UTC offset.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum BudgetPeriod {
    /// Never.
    Total,
    /// At midnight.
    Day,
    /// At midnight before Monday.
    Week,
    /// At midnight before the first of a month.
    Month,
}

/// What reaching the limit means.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum BudgetMode {
    /// Nothing more can be drawn.
    Hard,
    /// Alerts only.
    Soft,
}

/// The terms of a budget.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BudgetTerms {
    /// The limit in micro-credits, or in millionths of a GPU-hour.
    pub limit: Credits,
    /// What is counted.
    pub unit: BudgetUnit,
    /// When a new period begins.
    pub period: BudgetPeriod,
    /// What reaching the limit means.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert, ascending.
    pub thresholds: SmallVec<[u16; 4]>,
    /// Minutes added to UTC to find the calendar day.
    pub utc_offset_minutes: i16,
}

/// Retention times and other platform-wide terms.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// How long an answer is kept for its idempotency key.
    pub idempotency_ttl_ms: i64,
    /// How long a closed hold or charge is kept after its last movement.
    pub retention_ms: i64,
    /// How late usage may be reported.
    pub lateness_ms: i64,
    /// How long re-issued credits are valid unless an account has its own setting.
    pub compensation_ttl_ms: i64,
    /// Whether expiry is suspended because the clock jumped implausibly far ahead, until an
    /// operator has checked it.
    pub expiry_waits: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        const HOUR_MS: i64 = 3_600_000;
        Policy {
            idempotency_ttl_ms: 7 * 24 * HOUR_MS,
            retention_ms: 35 * 24 * HOUR_MS,
            lateness_ms: 72 * HOUR_MS,
            compensation_ttl_ms: 72 * HOUR_MS,
            expiry_waits: false,
        }
    }
}

/// A command to a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Sets retention times and other platform-wide terms.
    SetPolicy(Policy),
    /// Opens an account below its parent.
    OpenAccount {
        /// The full path.
        path: Name,
        /// What it represents.
        kind: AccountKind,
        /// Its settings.
        settings: AccountSettings,
    },
    /// Changes the settings that are given.
    ChangeAccount {
        /// The account.
        path: Name,
        /// What to change.
        settings: AccountSettings,
        /// The settings to reset.
        cleared: ClearedSettings,
    },
    /// Stops new spending at and below an account.
    FreezeAccount {
        /// The account.
        path: Name,
        /// Whether the platform sent it. Only the platform can then unfreeze the account.
        by_platform: bool,
    },
    /// Allows spending again.
    UnfreezeAccount {
        /// The account.
        path: Name,
        /// Whether the platform sent it.
        by_platform: bool,
    },
    /// Puts credits into an account.
    IssueGrant(IssueGrant),
    /// Takes back the free units of a grant, and later its held units when they are returned.
    RevokeGrant {
        /// The tenant in which `grant` is looked up.
        tenant: Name,
        /// The grant.
        grant: Name,
    },
    /// Reserves credits.
    PlaceHold(PlaceHold),
    /// Turns usage so far into spent credits.
    CaptureHold {
        /// The tenant in which `hold` is looked up.
        tenant: Name,
        /// The hold.
        hold: Name,
        /// The cumulative usage.
        usage: Usage,
        /// The number of this report. A report with a number already seen has no effect.
        seq: Option<u64>,
    },
    /// Reserves more, for longer, or both.
    ExtendHold {
        /// The tenant in which `hold` is looked up.
        tenant: Name,
        /// The hold.
        hold: Name,
        /// How much more.
        amount: Option<Credits>,
        /// How much more GPU time the larger amount stands for, in GPU-milliseconds.
        gpu_ms: u64,
        /// How long the lease lasts from now on; never shortens it.
        ttl_ms: Option<i64>,
    },
    /// Spends the final usage and returns the rest.
    SettleHold {
        /// The tenant in which `hold` is looked up.
        tenant: Name,
        /// The hold.
        hold: Name,
        /// The cumulative usage at the end.
        usage: Usage,
        /// Who ended it.
        cause: Cause,
    },
    /// Returns all that was not captured.
    ReleaseHold {
        /// The tenant in which `hold` is looked up.
        tenant: Name,
        /// The hold.
        hold: Name,
        /// Who ended it.
        cause: Cause,
    },
    /// Spends credits at once.
    Charge(Charge),
    /// Returns spent credits to the grants they came from.
    Refund(Refund),
    /// Moves credits from one account of a tenant to another.
    Transfer(Transfer),
    /// Repays uncollected usage from the spendable credits.
    CollectUncollected {
        /// The account.
        path: Name,
        /// The name of this repayment.
        id: Name,
    },
    /// Sets or replaces a budget.
    SetBudget {
        /// The account whose subtree it covers.
        path: Name,
        /// Its name there.
        budget: Name,
        /// Its terms.
        terms: BudgetTerms,
    },
    /// Removes a budget.
    RemoveBudget {
        /// The account.
        path: Name,
        /// The budget's name there.
        budget: Name,
    },
    /// Restores a forgotten hold or charge from its archived record.
    ReviveHold {
        /// The record from history.
        record: Box<super::holds::archive::ArchivedHold>,
    },
    /// Keeps the outcome of an atomic batch under the batch's own idempotency key. First in a batch
    /// that is tried, and alone after one that was rolled back.
    KeepBatch {
        /// The body of the answer if the batch was rolled back.
        aborted: Option<Box<str>>,
    },
    /// Registers the cell of a region. Has no effect if it is registered already.
    OpenRegion {
        /// The region.
        region: Region,
        /// The shard number of this ledger. It is part of the job ids that the cell sees.
        shard: u16,
    },
    /// Sets or replaces a quota over an account's subtree.
    SetQuota {
        /// The account.
        path: Name,
        /// The region; all regions if absent.
        region: Option<Region>,
        /// Its limits.
        quota: Quota,
    },
    /// Removes a quota.
    RemoveQuota {
        /// The account.
        path: Name,
        /// The region; the quota for all regions if absent.
        region: Option<Region>,
    },
    /// Submits a job or an array of jobs: places the holds and admits the jobs to cells.
    SubmitJob(Box<SubmitJob>),
    /// Ends a job in any state.
    CancelJob {
        /// The tenant in which `job` is looked up.
        tenant: Name,
        /// The job.
        job: Name,
    },
    /// Reports usage that was measured outside Bursar: the cumulative total so far.
    ReportUsage {
        /// The tenant in which `of` is looked up.
        tenant: Name,
        /// What was used.
        of: UsageOf,
        /// The number of this report. A report with a number already seen has no effect.
        seq: u64,
        /// The cumulative usage.
        usage: Usage,
        /// Whether this is the final usage: the hold is settled, and the job has succeeded.
        ended: bool,
    },
    /// Forgets what the archive has durably.
    Forget(Box<Forget>),
    /// A message of a cell, delivered by the courier.
    Receive {
        /// The cell.
        cell: CellNo,
        /// The message's number, dense from 1.
        number: u64,
        /// The record of the cell's journal that it comes from.
        position: u64,
        /// The message.
        message: Box<ToLedger>,
    },
}

/// What the archive has durably and the ledger may forget, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Forget {
    /// The position of the archive: the last record of the journal that these states contain.
    pub through: u64,
    /// Answers.
    pub answers: Vec<ArchivedAnswer>,
    /// Closed holds and charges.
    pub holds: Vec<ArchivedHold>,
    /// Closed holds of jobs that were kept for the whole retention.
    pub old_holds: Vec<ArchivedHold>,
    /// Refunds, transfers and collections.
    pub movements: Vec<Movement>,
}

impl Forget {
    /// Whether there is nothing to forget.
    pub fn is_empty(&self) -> bool {
        let Forget { through: _, answers, holds, old_holds, movements } = self;
        answers.is_empty() && holds.is_empty() && old_holds.is_empty() && movements.is_empty()
    }
}

/// What usage measured outside Bursar belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UsageOf {
    /// A job that runs outside Bursar.
    Job(Name),
    /// A hold.
    Hold(Name),
}

/// Submits a job or an array of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubmitJob {
    /// The job's name; the jobs of an array are `<id>.0`, `<id>.1`, and so on.
    pub id: Name,
    /// The account that pays.
    pub account: Name,
    /// The terms for credits and placement.
    pub terms: JobTerms,
    /// The current price of every acceptable GPU type and region.
    pub offers: Vec<Offer>,
    /// What the agent needs to start it, stored unchanged.
    pub payload: Box<str>,
    /// The job as submitted, stored unchanged.
    pub shown: Box<str>,
    /// The name of its first hold; later ones are `<hold>.2`, `<hold>.3`, and so on. For an array
    /// `<hold>.0`, `<hold>.1`, and so on are the first ones.
    pub hold: Name,
    /// The number of jobs of an array.
    pub array: Option<u32>,
    /// Jobs of the tenant that must succeed first.
    pub after: Vec<Name>,
    /// The account at or below which the caller may see jobs; the whole tenant if absent.
    pub scope: Option<Name>,
}

/// Puts credits into an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IssueGrant {
    /// The grant's name.
    pub id: Name,
    /// The account that gets it.
    pub account: Name,
    /// How much.
    pub amount: Credits,
    /// Where it comes from.
    pub kind: GrantKind,
    /// The first instant at which it can be spent; now if absent.
    pub effective_at: Option<Timestamp>,
    /// The last instant at which it can be spent; never expires if absent.
    pub expires_at: Option<Timestamp>,
    /// Lower is spent first.
    pub priority: u8,
    /// What it may be spent on.
    pub restriction: Option<Restriction>,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// Free-form text, stored unchanged.
    pub metadata: Option<Box<str>>,
}

/// Reserves credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlaceHold {
    /// The hold's name.
    pub id: Name,
    /// The account that spends.
    pub account: Name,
    /// How much.
    pub amount: Credits,
    /// The lease without renewal; unlimited if absent (a queued job).
    pub ttl_ms: Option<i64>,
    /// What it is for.
    pub context: Context,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The pinned rate at which GPU time is charged.
    pub rate: Option<Rate>,
    /// The GPU time that the amount stands for, in GPU-milliseconds; counted by GPU-hour budgets.
    pub gpu_ms: u64,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
}

/// Spends credits at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// The charge's name.
    pub id: Name,
    /// The account that spends.
    pub account: Name,
    /// How much.
    pub amount: Credits,
    /// Whether to charge what is spendable if that is less.
    pub allow_partial: bool,
    /// What it is for.
    pub context: Context,
    /// When the usage happened; now if absent.
    pub effective_at: Option<Timestamp>,
}

/// Returns spent credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refund {
    /// The refund's name.
    pub id: Name,
    /// The tenant in which `of` is looked up.
    pub tenant: Name,
    /// The closed hold or the charge.
    pub of: RefundOf,
    /// How much; everything not yet refunded if absent.
    pub amount: Option<Credits>,
    /// Whether to re-issue returned credits that have expired.
    pub compensate: bool,
    /// Records of holds that the ledger may have forgotten. Those that are needed are restored with
    /// the refund.
    pub recalled: Vec<RecalledHold>,
}

/// The archived record of a closed hold or charge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecalledHold {
    /// The record.
    pub record: Box<super::holds::archive::ArchivedHold>,
}

/// What a refund returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RefundOf {
    /// A closed hold.
    Hold(Name),
    /// A charge.
    Charge(Name),
    /// A job: its holds are refunded, the newest first.
    Job(Name),
    /// A job that the ledger has forgotten, with the names of its holds from history, the newest
    /// first.
    PastJob(Name, Vec<Name>),
}

/// Moves credits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transfer {
    /// The transfer's name.
    pub id: Name,
    /// The account whose own grants are drawn.
    pub from: Name,
    /// The account that gets them.
    pub to: Name,
    /// How much.
    pub amount: Credits,
}

impl Command {
    /// The names of holds, charges and movements that its decision depends on: what it creates, and what it changes.
    /// Each with its account or tenant.
    pub fn archived_names(&self) -> SmallVec<[(Resource, &str, &Name); 2]> {
        let mut names = SmallVec::new();
        names.extend(self.creates_for_a_while().filter(|(what, ..)| *what != Resource::Job));
        if let Some((tenant, hold)) = self.changed_hold() {
            names.push((Resource::Hold, tenant.as_str(), hold));
        } else if let Command::Refund(Refund { tenant, of, .. }) = self {
            match of {
                RefundOf::Hold(hold) => names.push((Resource::Hold, tenant.as_str(), hold)),
                RefundOf::Charge(charge) => names.push((Resource::Charge, tenant.as_str(), charge)),
                RefundOf::Job(_) | RefundOf::PastJob(..) => {}
            }
        }
        names
    }

    /// The hold that it changes: its tenant and its name.
    pub(super) fn changed_hold(&self) -> Option<(&Name, &Name)> {
        if let Command::CaptureHold { tenant, hold, .. }
        | Command::ExtendHold { tenant, hold, .. }
        | Command::SettleHold { tenant, hold, .. }
        | Command::ReleaseHold { tenant, hold, .. }
        | Command::ReportUsage { tenant, of: UsageOf::Hold(hold), .. } = self
        {
            return Some((tenant, hold));
        }
        None
    }

    /// What it creates that will be forgotten: its kind, its account or tenant, and its id.
    pub fn creates_for_a_while(&self) -> Option<(Resource, &str, &Name)> {
        match self {
            Command::PlaceHold(place) => Some((Resource::Hold, &place.account, &place.id)),
            Command::Charge(charge) => Some((Resource::Charge, &charge.account, &charge.id)),
            Command::Refund(refund) => Some((Resource::Refund, &refund.tenant, &refund.id)),
            Command::Transfer(transfer) => Some((Resource::Transfer, &transfer.from, &transfer.id)),
            Command::CollectUncollected { path, id } => Some((Resource::Collection, path, id)),
            Command::SubmitJob(submit) => Some((Resource::Job, &submit.account, &submit.id)),
            Command::SetPolicy(_)
            | Command::OpenAccount { .. }
            | Command::ChangeAccount { .. }
            | Command::FreezeAccount { .. }
            | Command::UnfreezeAccount { .. }
            | Command::IssueGrant(_)
            | Command::RevokeGrant { .. }
            | Command::CaptureHold { .. }
            | Command::ExtendHold { .. }
            | Command::SettleHold { .. }
            | Command::ReleaseHold { .. }
            | Command::SetBudget { .. }
            | Command::RemoveBudget { .. }
            | Command::ReviveHold { .. }
            | Command::KeepBatch { .. }
            | Command::OpenRegion { .. }
            | Command::SetQuota { .. }
            | Command::RemoveQuota { .. }
            | Command::CancelJob { .. }
            | Command::ReportUsage { .. }
            | Command::Forget(_)
            | Command::Receive { .. } => None,
        }
    }
}
