//! Fields that can never be right, whatever the state.

use super::command::{
    AccountSettings, BudgetTerms, Charge, Command, Context, GrantKind, IssueGrant, PlaceHold,
    Policy, Refund, RefundOf, Restriction, Transfer,
};
use super::id::{Name, is_valid_name, is_valid_path};
use super::price::{Rate, WHOLE_GPU};
use super::refusal::Refusal;
use crate::credits::Credits;

const MILLIONTHS: u32 = 1_000_000;
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

fn name(id: &Name) -> Result<(), Refusal> {
    let reason = "must be 1 to 64 of the characters A-Z a-z 0-9 . _ : -";
    require(is_valid_name(id), "id", reason)
}

fn path(path: &Name, field: &'static str) -> Result<(), Refusal> {
    let reason = "must be one to eight segments of a-z 0-9 . _ - joined by colons";
    require(is_valid_path(path), field, reason)
}

fn ttl(ttl_ms: Option<i64>) -> Result<(), Refusal> {
    let reason = "must be between 1 and 315360000";
    require(ttl_ms.is_none_or(|ttl| TTL_MS.contains(&ttl)), "ttl_seconds", reason)
}

impl Command {
    /// Refuses what no state could accept.
    pub(super) fn validate(&self) -> Result<(), Refusal> {
        match self {
            Command::SetPolicy(policy) => validate_policy(policy),
            Command::OpenAccount { path: id, kind: _, settings } => {
                path(id, "id")?;
                validate_settings(settings)
            }
            Command::ChangeAccount { path: id, settings } => {
                path(id, "id")?;
                validate_settings(settings)
            }
            Command::FreezeAccount { path: id } | Command::UnfreezeAccount { path: id } => {
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
                require(stands_for, "gpu_ms", "stands for the larger amount: give that too")?;
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
            Command::ReviveHold { .. } | Command::KeepBatch { .. } => Ok(()),
        }
    }
}

fn validate_policy(policy: &Policy) -> Result<(), Refusal> {
    let Policy { idempotency_ttl_ms, retention_ms, lateness_ms, compensation_ttl_ms } = *policy;
    let all_positive = [idempotency_ttl_ms, retention_ms, lateness_ms, compensation_ttl_ms]
        .iter()
        .all(|ttl| (1..=TTL_MS.end().saturating_mul(10)).contains(ttl));
    require(all_positive, "policy", "every duration must be more than zero, at most a century")?;
    // Kept answers point at the things they speak of.
    require(
        retention_ms >= idempotency_ttl_ms,
        "retention",
        "must not be shorter than the life of idempotency keys",
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
    let sorted = |list: &[Name]| !list.is_empty() && list.is_sorted_by(|a, b| a < b);
    let lists = restriction.lists().into_iter().flatten().all(sorted);
    require(lists, "restrict", "a list must have a value and name each once")?;
    validate_share(command.kind, restriction)
}

fn validate_share(kind: GrantKind, restriction: &Restriction) -> Result<(), Refusal> {
    let Some(share) = restriction.max_share_micro else { return Ok(()) };
    let field = "restrict.max_share";
    require(kind == GrantKind::Promotion, field, "only promotions have one")?;
    require((1..=MILLIONTHS).contains(&share), field, "must be more than 0 and at most 1")
}

fn validate_context(context: &Context) -> Result<(), Refusal> {
    let lists = [&context.gpu_types, &context.regions];
    let given = lists.into_iter().flatten().all(|list| !list.is_empty());
    require(given, "context", "a list must have a value: leave it out to allow everything")
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
    let (RefundOf::Hold(of) | RefundOf::Charge(of)) = &command.of;
    name(of)?;
    command.amount.map_or(Ok(()), |amount| positive(amount, "amount"))
}

fn validate_transfer(command: &Transfer) -> Result<(), Refusal> {
    name(&command.id)?;
    path(&command.from, "from")?;
    path(&command.to, "to")?;
    positive(command.amount, "amount")?;
    let tenant = |path: &Name| path.split(':').next().map(Name::from);
    require(command.from != command.to, "to", "must be another account")?;
    let same = tenant(&command.from) == tenant(&command.to);
    require(same, "to", "must be in the same tenant: credits never leave it")
}

fn validate_budget(budget: &Name, terms: &BudgetTerms) -> Result<(), Refusal> {
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
