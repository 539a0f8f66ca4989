//! The terms in commands: kinds, settings, restrictions, budgets, policy.

use smallvec::SmallVec;

use crate::credits::Credits;
use crate::ledger::id::Name;
use crate::name::{ClassName, GpuModel, Region};

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

/// An amount for each kind of grant, in the order of [`GrantKind::ALL`].
pub type KindAmounts = [i128; GrantKind::ALL.len()];

impl GrantKind {
    /// All kinds, in spend order among equals, each at its number. History stores these numbers: a
    /// new kind raises its schema, so that it is built again.
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
    pub classes: Option<Vec<ClassName>>,
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
    pub class: Option<ClassName>,
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
