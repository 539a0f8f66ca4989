//! Everything that can be asked of a ledger.
//!
//! Amounts, names and times are already parsed; what only the ledger can know (whether a thing
//! exists, whether credits suffice) is decided in the noun's own file.

use smallvec::SmallVec;

use super::accounts::quota::Quota;
use super::credits::price::Rate;
use super::id::{CellNo, Name};
use super::jobs::{JobTerms, Offer};
use super::refusal::Resource;
use super::state::short_fingerprint;
use crate::credits::Credits;
use crate::message::ToLedger;
use crate::time::Timestamp;

/// Who asks, and under which idempotency key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The API key or component that asks, for the audit trail.
    pub actor: Name,
    /// A hash of the whole request (method, path, body): equal requests have equal ones.
    pub fingerprint: u128,
    /// A hash of tenant and idempotency key, if the request carried one.
    pub key: Option<u128>,
    /// The hash of the batch that the request is an operation of, if the key is made from the batch's: the key
    /// then stands for the whole batch.
    pub batch: Option<u128>,
    /// The id of the request, zero if it has none. A refusal that is kept names it, so that it is told
    /// again in the same words.
    pub request: u128,
    /// What the archive said of the id under which the command creates something, if it was asked. It is no
    /// part of the record: what happened is.
    pub looked_up: Option<LookUp>,
}

/// What a look-up in the archive came to, for an id that the ledger may have forgotten.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// The archive has every record before this instant, and nothing under this id among them.
    Absent {
        /// That instant.
        through: Timestamp,
    },
    /// The archive has it, and the ledger had it as well.
    Present,
}

impl Envelope {
    /// The hash of what the idempotency key stands for.
    pub fn keyed_fingerprint(&self) -> u128 {
        self.batch.unwrap_or(self.fingerprint)
    }

    /// Whether a thing that keeps this part of a hash was made by the same request. In journals of earlier
    /// releases, what a batch with a key made keeps the hash of the batch.
    pub fn made(&self, kept: u64) -> bool {
        let is_kept = |fingerprint| short_fingerprint(fingerprint) == kept;
        is_kept(self.fingerprint) || self.batch.is_some_and(is_kept)
    }
}

/// What an account stands for. Ordered from the widest to the narrowest.
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

/// What may be set on an account, each if given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountSettings {
    /// A name for people.
    pub name: Option<Name>,
    /// The fair-share weight in thousandths; 1000 unless set.
    pub weight_milli: Option<u32>,
    /// The region where the account's money lives.
    pub home_region: Option<Name>,
    /// Free-form text, kept as it is.
    pub metadata: Option<Box<str>>,
    /// How long credits live that are re-issued because the platform failed. Inherited.
    pub compensation_ttl_ms: Option<i64>,
    /// How far uncollected usage may grow before jobs are stopped. Inherited.
    pub overdraft_limit: Option<Credits>,
}

/// Settings of an account that are taken back, as if they had never been made.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ClearedSettings {
    /// The name for people.
    pub name: bool,
    /// The free-form text.
    pub metadata: bool,
    /// How long re-issued credits live: inherited again.
    pub compensation_ttl_ms: bool,
    /// How far uncollected usage may grow: only the limits above count.
    pub overdraft_limit: bool,
}

/// Where credits come from.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantKind {
    /// Given for free, under conditions. Spent first among equals.
    Promotion,
    /// Given because the platform failed.
    Compensation,
    /// Given.
    Grant,
    /// Paid for. Spent last among equals.
    Purchase,
}

impl GrantKind {
    /// All kinds, in the order in which they are spent among equals.
    pub const ALL: [GrantKind; 4] =
        [GrantKind::Promotion, GrantKind::Compensation, GrantKind::Grant, GrantKind::Purchase];
}

/// What a grant may be spent on. An absent list admits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Restriction {
    /// GPU types, sorted and without repeats.
    pub gpu_types: Option<Vec<Name>>,
    /// Regions, sorted and without repeats.
    pub regions: Option<Vec<Name>>,
    /// Priority classes, sorted and without repeats.
    pub classes: Option<Vec<Name>>,
    /// The largest part of one hold that may come from this grant, in millionths.
    pub max_share_micro: Option<u32>,
}

/// What a hold or charge is for: all that it may still turn out to be. An absent list is "anything".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// GPU types that are acceptable.
    pub gpu_types: Option<Vec<Name>>,
    /// Regions that are acceptable.
    pub regions: Option<Vec<Name>>,
    /// The priority class.
    pub class: Option<Name>,
}

/// What happens to held credits whose grant expires.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum OnExpiry {
    /// They stay capturable while the hold is open.
    #[default]
    HonorHold,
    /// They are cut off at the expiry instant.
    Strict,
}

/// How much was used so far, in all.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Usage {
    /// An amount of credits.
    Total(Credits),
    /// GPU-milliseconds, charged at the hold's pinned rate.
    GpuMs(u64),
}

/// Who caused the end of a hold.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The holder: finished, cancelled, failed by itself.
    #[default]
    Holder,
    /// The platform: preemption or a lost node. Returned credits that have expired are re-issued.
    Platform,
}

/// What a budget counts.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum BudgetUnit {
    /// Micro-credits.
    #[default]
    Credits,
    /// Millionths of a GPU-hour.
    GpuHours,
}

/// When a budget starts anew. Calendar periods, shifted by the budget's UTC offset.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
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
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum BudgetMode {
    /// Nothing more can be drawn.
    Hard,
    /// Alerts only.
    Soft,
}

/// The terms of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetTerms {
    /// The limit in micro-credits, or in millionths of a GPU-hour.
    pub limit: Credits,
    /// What is counted.
    pub unit: BudgetUnit,
    /// When counting starts anew.
    pub period: BudgetPeriod,
    /// What reaching the limit means.
    pub mode: BudgetMode,
    /// Percentages of the limit at which to alert, ascending.
    pub thresholds: SmallVec<[u16; 4]>,
    /// Minutes to add to UTC before looking at the calendar.
    pub utc_offset_minutes: i16,
}

/// How long the ledger remembers, and other platform-wide terms.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Policy {
    /// How long an answer is kept for its idempotency key.
    pub idempotency_ttl_ms: i64,
    /// How long a closed hold or charge is kept after its last movement.
    pub retention_ms: i64,
    /// How late usage may be reported.
    pub lateness_ms: i64,
    /// How long re-issued credits live where no account says otherwise.
    pub compensation_ttl_ms: i64,
    /// Whether no grant expires, because the clock went further ahead than can be believed: until an
    /// operator has looked at it.
    pub expiry_waits: bool,
}

/// As it was before expiry could wait, while it does not: the digest of a state is made from this.
impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut form = f.debug_struct("Policy");
        form.field("idempotency_ttl_ms", &self.idempotency_ttl_ms)
            .field("retention_ms", &self.retention_ms)
            .field("lateness_ms", &self.lateness_ms)
            .field("compensation_ttl_ms", &self.compensation_ttl_ms);
        if self.expiry_waits {
            form.field("expiry_waits", &true);
        }
        form.finish()
    }
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

/// Everything that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sets how long things are remembered.
    SetPolicy(Policy),
    /// Opens an account below its parent.
    OpenAccount {
        /// The full path.
        path: Name,
        /// What it stands for.
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
        /// What to take back.
        cleared: ClearedSettings,
    },
    /// Stops new spending at and below an account.
    FreezeAccount {
        /// The account.
        path: Name,
        /// Whether the platform asks: then only the platform lifts it.
        by_platform: bool,
    },
    /// Allows spending again.
    UnfreezeAccount {
        /// The account.
        path: Name,
        /// Whether the platform asks.
        by_platform: bool,
    },
    /// Puts credits into an account.
    IssueGrant(IssueGrant),
    /// Takes back what is left of a grant, now and whenever a part of it comes back.
    RevokeGrant {
        /// The tenant in which `grant` is looked up.
        tenant: Name,
        /// The grant.
        grant: Name,
    },
    /// Reserves credits.
    PlaceHold(PlaceHold),
    /// Spends what was used so far.
    CaptureHold {
        /// The tenant in which `hold` is looked up.
        tenant: Name,
        /// The hold.
        hold: Name,
        /// The cumulative usage.
        usage: Usage,
        /// The number of this report; a report with a number already seen changes nothing.
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
        /// How long the hold lives from now on; never shortens it.
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
    /// Repays uncollected usage from what can be spent.
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
    /// Brings back a closed hold or charge that was forgotten, from its archived record.
    ReviveHold {
        /// The record, as history kept it.
        record: Box<super::holds::archive::ArchivedHold>,
        /// The digest that history kept with it.
        digest: crate::digest::Digest,
    },
    /// Keeps what became of an atomic batch for the batch's own idempotency key. Leads a batch that
    /// is tried, and follows one that came to nothing.
    KeepBatch {
        /// Why nothing of it happened, in the words of the answer.
        aborted: Option<Box<str>>,
    },
    /// Makes a region's cell known. Again: nothing happens.
    OpenRegion {
        /// The region.
        region: Name,
        /// The shard that this ledger is: it goes into the job ids that the cell sees.
        shard: u16,
    },
    /// Sets or replaces a quota over an account's subtree.
    SetQuota {
        /// The account.
        path: Name,
        /// The region; each if absent.
        region: Option<Name>,
        /// Its numbers.
        quota: Quota,
    },
    /// Removes a quota.
    RemoveQuota {
        /// The account.
        path: Name,
        /// The region; the quota for each if absent.
        region: Option<Name>,
    },
    /// Submits a job, or an array of them: the holds are placed, and the cells may compete.
    SubmitJob(Box<SubmitJob>),
    /// Ends a job, wherever it is.
    CancelJob {
        /// The tenant in which `job` is looked up.
        tenant: Name,
        /// The job.
        job: Name,
    },
    /// Reports usage that was measured outside: the cumulative total so far.
    ReportUsage {
        /// The tenant in which `of` is looked up.
        tenant: Name,
        /// What was used.
        of: UsageOf,
        /// The number of this report; one that was seen changes nothing.
        seq: u64,
        /// The cumulative usage.
        usage: Usage,
        /// Whether nothing more will be used: the hold is settled, and the job has succeeded.
        ended: bool,
    },
    /// A message of a cell, through the courier.
    Receive {
        /// The cell.
        cell: CellNo,
        /// The message's number, dense from 1.
        number: u64,
        /// The record of the cell's journal that it comes from.
        position: u64,
        /// What it says.
        message: Box<ToLedger>,
    },
}

/// What usage that was measured outside belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageOf {
    /// A job that runs elsewhere.
    Job(Name),
    /// A hold.
    Hold(Name),
}

/// Submits a job or an array of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitJob {
    /// The job's name; the jobs of an array are `<id>.0`, `<id>.1`, and so on.
    pub id: Name,
    /// The account that pays.
    pub account: Name,
    /// What matters to money and placement.
    pub terms: JobTerms,
    /// What it would cost where: every GPU type and region that will do, at the price of now.
    pub offers: Vec<Offer>,
    /// What the agent must know to start it, kept as it is.
    pub payload: Box<str>,
    /// The job as it was submitted, kept as it is.
    pub shown: Box<str>,
    /// The name of its first hold; later ones are `<hold>.2`, `<hold>.3`, and so on. For an array
    /// `<hold>.0`, `<hold>.1`, and so on are the first ones.
    pub hold: Name,
    /// How many jobs, for an array.
    pub array: Option<u32>,
    /// Jobs of the tenant that must have succeeded before.
    pub after: Vec<Name>,
    /// The account at or below which the caller knows of jobs; all of the tenant if absent.
    pub scope: Option<Name>,
}

/// Puts credits into an account.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Free-form text, kept as it is.
    pub metadata: Option<Box<str>>,
}

/// Reserves credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceHold {
    /// The hold's name.
    pub id: Name,
    /// The account that spends.
    pub account: Name,
    /// How much.
    pub amount: Credits,
    /// How long without renewal; for ever if absent (a queued job).
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The charge's name.
    pub id: Name,
    /// The account that spends.
    pub account: Name,
    /// How much.
    pub amount: Credits,
    /// Take what there is if that is less.
    pub allow_partial: bool,
    /// What it is for.
    pub context: Context,
    /// When the usage happened; now if absent.
    pub effective_at: Option<Timestamp>,
}

/// Returns spent credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The refund's name.
    pub id: Name,
    /// The tenant in which `of` is looked up.
    pub tenant: Name,
    /// The closed hold or the charge.
    pub of: RefundOf,
    /// How much; all that is still spent if absent.
    pub amount: Option<Credits>,
    /// Re-issue what has expired in the meantime.
    pub compensate: bool,
    /// Records of what the ledger may have forgotten. Those that are needed come back with the refund.
    pub recalled: Vec<RecalledHold>,
}

/// The archived record of a closed hold or charge, with the digest that history kept with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecalledHold {
    /// The record.
    pub record: Box<super::holds::archive::ArchivedHold>,
    /// Its digest.
    pub digest: crate::digest::Digest,
}

/// What a refund returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundOf {
    /// A closed hold.
    Hold(Name),
    /// A charge.
    Charge(Name),
    /// A job: over its holds, the newest first.
    Job(Name),
    /// A job that the ledger has forgotten, with the names of its holds as history has them, the newest first.
    PastJob(Name, Vec<Name>),
}

/// Moves credits.
#[derive(Clone, Debug, PartialEq, Eq)]
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
            | Command::Receive { .. } => None,
        }
    }
}
