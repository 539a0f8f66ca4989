//! Validation of fields, independent of the state.

use super::command::{
    AccountSettings, BudgetTerms, Charge, Command, Context, GrantKind, IssueGrant, PlaceHold,
    Policy, Refund, RefundOf, Restriction, SubmitJob, Transfer, UsageOf,
};
use super::credits::price::{Rate, Rounding, WHOLE_GPU};
use super::id::MAX_JOBS;
use super::jobs::{JobTerms, Offer, Reserve};
use super::refusal::Refusal;
use crate::cell::schedule::shape::GpuDemand;
use crate::credits::Credits;
use crate::name::{AccountPath, BudgetName, JobName, NAME_FORM, Region, is_valid_name, tenant_of};

const MILLIONTHS: u32 = 1_000_000;
const MAX_GPU_TYPES: usize = 64;
/// The most pairs of GPU type and region of one job.
const MAX_OFFERS: usize = 1024;
/// The most text that is stored with a job, in bytes.
const MAX_TEXT: usize = 1 << 20;
const TTL_MS: std::ops::RangeInclusive<i64> = 1_000..=315_360_000_000;

fn refuse(field: &'static str, reason: &'static str) -> Result<(), Refusal> {
    Err(Refusal::InvalidField { field, reason })
}

fn require(holds: bool, field: &'static str, reason: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { refuse(field, reason) }
}

fn positive(amount: Credits, field: &'static str) -> Result<(), Refusal> {
    require(!amount.is_zero(), field, "must be more than zero")
}

fn name(id: &str) -> Result<(), Refusal> {
    require(is_valid_name(id), "id", NAME_FORM)
}

fn job_name(id: &str) -> Result<(), Refusal> {
    require(JobName::is_valid(id), "id", JobName::FORM)
}

fn path(path: &AccountPath, field: &'static str) -> Result<(), Refusal> {
    require(AccountPath::is_valid(path), field, AccountPath::FORM)
}

fn is_region(region: &Region) -> Result<(), Refusal> {
    require(Region::is_valid(region), "region", Region::FORM)
}

fn ttl(ttl_ms: Option<i64>) -> Result<(), Refusal> {
    let reason = "must be between 1 and 315360000";
    require(ttl_ms.is_none_or(|ttl| TTL_MS.contains(&ttl)), "ttl_seconds", reason)
}

impl Command {
    /// Refuses fields that are invalid in every state.
    pub(super) fn validate(&self) -> Result<(), Refusal> {
        match self {
            Command::SetPolicy(policy) => validate_policy(policy),
            Command::OpenAccount { path: id, kind: _, settings } => {
                path(id, "id")?;
                validate_settings(settings)
            }
            Command::ChangeAccount { path: id, settings, cleared: _ } => {
                path(id, "id")?;
                validate_settings(settings)
            }
            Command::FreezeAccount { path: id, .. } | Command::UnfreezeAccount { path: id, .. } => {
                path(id, "id")
            }
            Command::IssueGrant(command) => validate_grant(command),
            Command::RevokeGrant { tenant: _, grant: id } => name(id),
            Command::PlaceHold(command) => validate_place(command),
            Command::CaptureHold { tenant: _, hold: id, usage: _, seq: _ }
            | Command::SettleHold { tenant: _, hold: id, usage: _, cause: _ }
            | Command::ReleaseHold { tenant: _, hold: id, cause: _ } => name(id),
            Command::ExtendHold { tenant: _, hold: id, amount, gpu_ms, ttl_ms } => {
                name(id)?;
                let stands_for = amount.is_some() || *gpu_ms == 0;
                require(stands_for, "gpu_ms", "requires amount")?;
                let given = amount.is_some() || ttl_ms.is_some();
                require(given, "amount", "give amount, ttl_seconds or both")?;
                amount.map_or(Ok(()), |amount| positive(amount, "amount"))?;
                ttl(*ttl_ms)
            }
            Command::Charge(command) => validate_charge(command),
            Command::Refund(command) => validate_refund(command),
            Command::Transfer(command) => validate_transfer(command),
            Command::CollectUncollected { path: account, id } => {
                path(account, "account")?;
                name(id)
            }
            Command::SetBudget { path: account, budget, terms } => {
                path(account, "account")?;
                validate_budget(budget, terms)
            }
            Command::RemoveBudget { path: account, budget } => {
                path(account, "account")?;
                name(budget)
            }
            Command::RestoreHold { .. }
            | Command::Forget(_)
            | Command::Receive { .. }
            | Command::KeepBatch { .. } => Ok(()),
            Command::OpenRegion { region, shard: _ } => is_region(region),
            Command::SetQuota { path: account, region, quota } => {
                path(account, "account")?;
                region.as_ref().map_or(Ok(()), is_region)?;
                let names = quota.gpus.keys().all(|name| name == "*" || is_valid_name(name));
                let few = quota.gpus.len() <= MAX_GPU_TYPES;
                require(names && few, "gpus", "must be at most 64 GPU types")
            }
            Command::RemoveQuota { path: account, region } => {
                path(account, "account")?;
                region.as_ref().map_or(Ok(()), is_region)
            }
            Command::SubmitJob(command) => validate_submit(command),
            Command::CancelJob { tenant: _, job: id } => job_name(id),
            Command::ReportUsage { tenant: _, of, seq: _, usage: _, ended: _ } => match of {
                UsageOf::Job(id) => job_name(id),
                UsageOf::Hold(id) => name(id),
            },
        }
    }
}

fn validate_policy(policy: &Policy) -> Result<(), Refusal> {
    let Policy { idempotency_ttl_ms, retention_ms, lateness_ms, compensation_ttl_ms, .. } = *policy;
    let all_positive = [idempotency_ttl_ms, retention_ms, lateness_ms, compensation_ttl_ms]
        .iter()
        .all(|ttl| (1..=TTL_MS.end().saturating_mul(10)).contains(ttl));
    require(all_positive, "policy", "every duration must be more than zero, at most a century")?;
    // Kept answers refer to holds and movements by number.
    require(
        retention_ms >= idempotency_ttl_ms,
        "retention",
        "must not be shorter than the retention of idempotency keys",
    )
}

fn validate_settings(settings: &AccountSettings) -> Result<(), Refusal> {
    let weight = settings.weight_milli.is_none_or(|weight| (1..=1_000_000_000).contains(&weight));
    require(weight, "weight", "must be between 0.001 and 1000000")?;
    let ttl = settings.compensation_ttl_ms.is_none_or(|ttl| TTL_MS.contains(&ttl));
    require(ttl, "compensation_ttl_seconds", "must be between 1 and 315360000")
}

fn validate_grant(command: &IssueGrant) -> Result<(), Refusal> {
    name(&command.id)?;
    path(&command.account, "account")?;
    positive(command.amount, "amount")?;
    let Some(restriction) = &command.restriction else { return Ok(()) };
    let lists = is_sorted_list(restriction.gpu_types.as_deref())
        && is_sorted_list(restriction.regions.as_deref())
        && is_sorted_list(restriction.classes.as_deref());
    require(lists, "restrict", "a list must not be empty or contain a value twice")?;
    validate_share(command.kind, restriction)
}

/// Whether a list is absent, or has values in order and none twice.
fn is_sorted_list<T: PartialOrd>(list: Option<&[T]>) -> bool {
    list.is_none_or(|list| !list.is_empty() && list.is_sorted_by(|a, b| a < b))
}

fn validate_share(kind: GrantKind, restriction: &Restriction) -> Result<(), Refusal> {
    let Some(share) = restriction.max_share_micro else { return Ok(()) };
    let field = "restrict.max_share";
    require(kind == GrantKind::Promotion, field, "is allowed only for promotions")?;
    require((1..=MILLIONTHS).contains(&share), field, "must be more than 0 and at most 1")
}

fn validate_context(context: &Context) -> Result<(), Refusal> {
    let given = context.gpu_types.as_ref().is_none_or(|list| !list.is_empty())
        && context.regions.as_ref().is_none_or(|list| !list.is_empty());
    require(given, "context", "a list must not be empty; leave it out to allow everything")
}

fn validate_place(command: &PlaceHold) -> Result<(), Refusal> {
    name(&command.id)?;
    path(&command.account, "account")?;
    positive(command.amount, "amount")?;
    ttl(command.ttl_ms)?;
    validate_context(&command.context)?;
    command.rate.map_or(Ok(()), validate_rate)
}

fn validate_rate(rate: Rate) -> Result<(), Refusal> {
    let share = (1..=WHOLE_GPU).contains(&rate.share_milli);
    require(share, "share", "must be more than 0 and at most 1")
}

fn validate_charge(command: &Charge) -> Result<(), Refusal> {
    name(&command.id)?;
    path(&command.account, "account")?;
    positive(command.amount, "amount")?;
    validate_context(&command.context)
}

fn validate_refund(command: &Refund) -> Result<(), Refusal> {
    name(&command.id)?;
    match &command.of {
        RefundOf::Hold(of) | RefundOf::Charge(of) => name(of)?,
        RefundOf::Job(of) | RefundOf::PastJob(of, _) => job_name(of)?,
    }
    command.amount.map_or(Ok(()), |amount| positive(amount, "amount"))
}

fn validate_transfer(command: &Transfer) -> Result<(), Refusal> {
    name(&command.id)?;
    path(&command.from, "from")?;
    path(&command.to, "to")?;
    positive(command.amount, "amount")?;
    require(command.from != command.to, "to", "must be another account")?;
    let same = tenant_of(&command.from) == tenant_of(&command.to);
    require(same, "to", "must be in the same tenant")
}

fn validate_budget(budget: &BudgetName, terms: &BudgetTerms) -> Result<(), Refusal> {
    name(budget)?;
    positive(terms.limit, "limit")?;
    let thresholds = &terms.thresholds;
    let ascending = thresholds.len() <= 16
        && thresholds.is_sorted_by(|a, b| a < b)
        && thresholds.iter().all(|percent| (1..=1000).contains(percent));
    require(ascending, "thresholds", "must be at most 16 ascending percentages from 1 to 1000")?;
    let offset = (-1440..=1440).contains(&terms.utc_offset_minutes);
    require(offset, "utc_offset_minutes", "must be between -1440 and 1440")
}

pub(super) fn validate_submit(command: &SubmitJob) -> Result<(), Refusal> {
    path(&command.account, "account")?;
    let array = command.array.is_none_or(|count| (1..=MAX_JOBS).contains(&count));
    require(array, "array", "must be between 1 and 1000")?;
    name(&command.id)?;
    name(&command.hold)?;
    let text = command.payload.len() <= MAX_TEXT && command.submitted.len() <= MAX_TEXT;
    require(text, "command", "must be at most 1 MiB with its environment")?;
    require(command.after.len() <= MAX_JOBS as usize, "after", "must be at most 1000 jobs")?;
    command
        .after
        .iter()
        .try_for_each(|id| require(JobName::is_valid(id), "after", "must be names of jobs"))?;
    validate_terms(&command.terms)?;
    validate_offers(&command.terms, &command.offers)
}

fn validate_terms(terms: &JobTerms) -> Result<(), Refusal> {
    require(terms.nodes > 0, "nodes", "must be at least 1")?;
    let gpus = u32::from(terms.gpu.devices()) * u32::from(terms.nodes);
    require(gpus <= 1_000_000, "gpus", "must be at most 1000000 in all")?;
    let share = match terms.gpu {
        GpuDemand::None => true,
        GpuDemand::Share(share) => (1..WHOLE_GPU).contains(&share),
        GpuDemand::Whole(count) => count > 0,
    };
    require(
        share,
        "gpus",
        "must be a share of one GPU between 0 and 1, or a number of whole GPUs",
    )?;
    let runtime = terms.max_runtime_ms.is_none_or(|runtime| TTL_MS.contains(&runtime));
    require(runtime, "max_runtime_seconds", "must be between 1 and 315360000")?;
    match terms.reserve {
        Reserve::Full => {
            let bounded = terms.max_runtime_ms.is_some();
            require(bounded, "max_runtime_seconds", "may be absent only with a rolling reserve")?;
        }
        Reserve::Rolling { window_ms } => {
            require(TTL_MS.contains(&window_ms), "reserve", "must pay for 1 to 315360000 seconds")?;
        }
    }
    require((0..=86_400_000).contains(&terms.grace_ms), "grace_seconds", "must be at most 86400")?;
    let ahead = (0..=86_400_000).contains(&terms.warn_ahead_ms);
    require(ahead, "warn_ahead_seconds", "must be at most 86400")?;
    let group =
        terms.group.as_ref().is_none_or(|group| group.limit > 0 && is_valid_name(&group.name));
    require(group, "concurrency_group", "must have a name and a limit of at least 1")
}

fn validate_offers(terms: &JobTerms, offers: &[Offer]) -> Result<(), Refusal> {
    let some = (1..=MAX_OFFERS).contains(&offers.len());
    require(some, "gpus", "must have a price in an allowed region")?;
    let longest = terms.gpu_ms_limit();
    let payable = offers
        .iter()
        .all(|offer| terms.rate(offer.per_gpu_hour).charge(longest, Rounding::Ceil).is_some());
    require(payable, "max_runtime_seconds", "would cost more than the largest amount")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_opens_under_every_name_that_the_directory_accepts() {
        for region in ["eu", "EU", "eu:1", "_"] {
            let open = Command::OpenRegion { region: region.into(), shard: 0 };
            assert_eq!(open.validate(), Ok(()), "{region}");
        }
        let open = Command::OpenRegion { region: "a b".into(), shard: 0 };
        let refusal = Refusal::InvalidField { field: "region", reason: Region::FORM };
        assert_eq!(open.validate(), Err(refusal));
    }
}
