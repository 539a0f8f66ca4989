//! The commands of a ledger.
//!
//! Amounts, names and times are already parsed. Conditions that depend on the state, such as
//! whether an account exists or credits suffice, are checked in the file of the noun.

mod envelope;
mod requests;
mod terms;

pub use envelope::Envelope;
pub use requests::{
    Charge, Forget, IssueGrant, MovementNote, PlaceHold, RecalledHold, Refund, RefundOf, SubmitJob,
    Transfer, UsageEnd, UsageOf,
};
pub use terms::{
    AccountKind, AccountSettings, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Cause,
    ClearedSettings, Context, GrantKind, KindAmounts, OnExpiry, Policy, Restriction, Usage,
};

use smallvec::SmallVec;

use crate::credits::Credits;
use crate::ledger::accounts::quota::Quota;
use crate::ledger::holds::archive::ArchivedHold;
use crate::ledger::id::CellNo;
use crate::ledger::refusal::Resource;
use crate::message::ToLedger;
use crate::name::{AccountPath, BudgetName, GrantId, HoldId, JobName, MovementId, Region};
use crate::opaque::Opaque;

/// A command to a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Sets retention times and other platform-wide terms.
    SetPolicy(Policy),
    /// Opens an account below its parent.
    OpenAccount {
        /// The full path.
        path: AccountPath,
        /// What it represents.
        kind: AccountKind,
        /// Its settings.
        settings: AccountSettings,
    },
    /// Changes the settings that are given.
    ChangeAccount {
        /// The account.
        path: AccountPath,
        /// What to change.
        settings: AccountSettings,
        /// The settings to reset.
        cleared: ClearedSettings,
    },
    /// Stops new spending at and below an account.
    FreezeAccount {
        /// The account.
        path: AccountPath,
        /// Whether the platform sent it. Only the platform can then unfreeze the account.
        by_platform: bool,
    },
    /// Allows spending again.
    UnfreezeAccount {
        /// The account.
        path: AccountPath,
        /// Whether the platform sent it.
        by_platform: bool,
    },
    /// Puts credits into an account.
    IssueGrant(IssueGrant),
    /// Takes back the free units of a grant, and later its held units when they are returned.
    RevokeGrant {
        /// The tenant in which `grant` is looked up.
        tenant: AccountPath,
        /// The grant.
        grant: GrantId,
    },
    /// Reserves credits.
    PlaceHold(PlaceHold),
    /// Turns usage so far into spent credits.
    CaptureHold {
        /// The tenant in which `hold` is looked up.
        tenant: AccountPath,
        /// The hold.
        hold: HoldId,
        /// The cumulative usage.
        usage: Usage,
        /// The number of this report. A report with a number already seen has no effect.
        seq: Option<u64>,
    },
    /// Reserves more, for longer, or both.
    ExtendHold {
        /// The tenant in which `hold` is looked up.
        tenant: AccountPath,
        /// The hold.
        hold: HoldId,
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
        tenant: AccountPath,
        /// The hold.
        hold: HoldId,
        /// The cumulative usage at the end.
        usage: Usage,
        /// Who ended it.
        cause: Cause,
    },
    /// Returns all that was not captured.
    ReleaseHold {
        /// The tenant in which `hold` is looked up.
        tenant: AccountPath,
        /// The hold.
        hold: HoldId,
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
        path: AccountPath,
        /// The name of this repayment.
        id: MovementId,
    },
    /// Sets or replaces a budget.
    SetBudget {
        /// The account whose subtree it covers.
        path: AccountPath,
        /// Its name there.
        budget: BudgetName,
        /// Its terms.
        terms: BudgetTerms,
    },
    /// Removes a budget.
    RemoveBudget {
        /// The account.
        path: AccountPath,
        /// The budget's name there.
        budget: BudgetName,
    },
    /// Restores a forgotten hold or charge from its archived record.
    RestoreHold {
        /// The record from history.
        record: Box<ArchivedHold>,
    },
    /// Keeps the outcome of an atomic batch under the batch's own idempotency key. First in a batch
    /// that is tried, and alone after one that was rolled back.
    KeepBatch {
        /// The body of the answer if the batch was rolled back.
        aborted: Option<Opaque>,
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
        path: AccountPath,
        /// The region; all regions if absent.
        region: Option<Region>,
        /// Its limits.
        quota: Quota,
    },
    /// Removes a quota.
    RemoveQuota {
        /// The account.
        path: AccountPath,
        /// The region; the quota for all regions if absent.
        region: Option<Region>,
    },
    /// Submits a job or an array of jobs: places the holds and admits the jobs to cells.
    SubmitJob(Box<SubmitJob>),
    /// Ends a job in any state.
    CancelJob {
        /// The tenant in which `job` is looked up.
        tenant: AccountPath,
        /// The job.
        job: JobName,
    },
    /// Reports usage that was measured outside Bursar: the cumulative total so far.
    ReportUsage {
        /// The tenant in which `of` is looked up.
        tenant: AccountPath,
        /// What was used.
        of: UsageOf,
        /// The number of this report. A report with a number already seen has no effect.
        seq: u64,
        /// The cumulative usage.
        usage: Usage,
        /// How it ended, if this is the final usage: the hold is settled, and the job has ended.
        ended: Option<UsageEnd>,
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

impl Command {
    /// The names of holds, charges and movements that its decision depends on: what it creates, and what it changes.
    /// Each with its account or tenant.
    pub fn archived_names(&self) -> SmallVec<[(Resource, &str, &str); 2]> {
        let mut names = SmallVec::new();
        names.extend(self.creates_for_a_while());
        if let Some((tenant, hold)) = self.changed_hold() {
            names.push((Resource::Hold, tenant.as_str(), hold.as_str()));
        } else if let Command::Refund(Refund { tenant, of, .. }) = self {
            match of {
                RefundOf::Hold(hold) => {
                    names.push((Resource::Hold, tenant.as_str(), hold.as_str()))
                }
                RefundOf::Charge(charge) => {
                    names.push((Resource::Charge, tenant.as_str(), charge.as_str()));
                }
                RefundOf::PastJob(_, holds) => {
                    let hold = |hold| (Resource::Hold, tenant.as_str(), HoldId::as_str(hold));
                    names.extend(holds.iter().map(hold));
                }
                // The ledger has the names of its holds.
                RefundOf::Job(_) => {}
            }
        }
        names
    }

    /// The hold that it changes: its tenant and its name.
    pub(super) fn changed_hold(&self) -> Option<(&AccountPath, &HoldId)> {
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
    pub fn creates_for_a_while(&self) -> Option<(Resource, &str, &str)> {
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
            | Command::RestoreHold { .. }
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
