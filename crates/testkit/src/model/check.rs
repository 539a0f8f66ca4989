//! Checks of fields that do not depend on the state of the ledger.

use bursar_core::ledger::command::{
    AccountSettings, BudgetTerms, Charge, Command, Context, GrantKind, IssueGrant, PlaceHold,
    Policy, Refund, RefundOf, Restriction, Transfer,
};
use bursar_core::ledger::refusal::Refusal;

use super::account::tenant;

/// A refusal of a field. The model gives the field, but not the reason.
pub(super) fn invalid(field: &'static str) -> Refusal {
    Refusal::InvalidField { field, reason: "" }
}

fn require(holds: bool, field: &'static str) -> Result<(), Refusal> {
    if holds { Ok(()) } else { Err(invalid(field)) }
}

/// Checks everything that does not depend on the state of the ledger.
pub(super) fn fields(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::SetPolicy(policy) => check_policy(policy),
        Command::OpenAccount { path, kind: _, settings } => {
            require(is_path(path), "id")?;
            check_settings(settings)
        }
        Command::ChangeAccount { path, settings, cleared: _ } => {
            require(is_path(path), "account")?;
            check_settings(settings)
        }
        Command::FreezeAccount { path, .. } | Command::UnfreezeAccount { path, .. } => {
            require(is_path(path), "account")
        }
        Command::IssueGrant(issue) => check_grant(issue),
        Command::RevokeGrant { tenant: _, grant } => require(is_name(grant), "id"),
        Command::PlaceHold(place) => check_place(place),
        Command::CaptureHold { tenant: _, hold, usage: _, seq: _ }
        | Command::SettleHold { tenant: _, hold, usage: _, cause: _ }
        | Command::ReleaseHold { tenant: _, hold, cause: _ } => require(is_name(hold), "id"),
        Command::ExtendHold { tenant: _, hold, amount, gpu_ms, ttl_ms } => {
            require(is_name(hold), "id")?;
            require(amount.is_some() || *gpu_ms == 0, "gpu_ms")?;
            require(amount.is_some() || ttl_ms.is_some(), "amount")?;
            require(amount.is_none_or(|amount| !amount.is_zero()), "amount")?;
            check_ttl(*ttl_ms)
        }
        Command::Charge(charge) => check_charge(charge),
        Command::Refund(refund) => check_refund(refund),
        Command::Transfer(transfer) => check_transfer(transfer),
        Command::CollectUncollected { path, id } => {
            require(is_path(path), "account")?;
            require(is_name(id), "id")
        }
        Command::SetBudget { path, budget, terms } => {
            require(is_path(path), "account")?;
            require(is_name(budget), "id")?;
            check_terms(terms)
        }
        Command::RemoveBudget { path, budget } => {
            require(is_path(path), "account")?;
            require(is_name(budget), "id")
        }
        Command::Forget(_)
        | Command::RestoreHold { record: _ }
        | Command::OpenRegion { .. }
        | Command::SetQuota { .. }
        | Command::RemoveQuota { .. }
        | Command::SubmitJob(_)
        | Command::CancelJob { .. }
        | Command::ReportUsage { .. }
        | Command::Receive { .. }
        | Command::KeepBatch { aborted: _ } => Ok(()),
    }
}

fn check_policy(policy: &Policy) -> Result<(), Refusal> {
    let ttls = [
        policy.idempotency_ttl_ms,
        policy.retention_ms,
        policy.lateness_ms,
        policy.compensation_ttl_ms,
    ];
    // At most a century.
    require(ttls.iter().all(|ttl_ms| (1..=3_153_600_000_000).contains(ttl_ms)), "policy")?;
    require(policy.retention_ms >= policy.idempotency_ttl_ms, "policy")
}

fn check_settings(settings: &AccountSettings) -> Result<(), Refusal> {
    require(
        settings.weight_milli.is_none_or(|weight| (1..=1_000_000_000).contains(&weight)),
        "weight",
    )?;
    check_ttl(settings.compensation_ttl_ms)
}

fn check_grant(issue: &IssueGrant) -> Result<(), Refusal> {
    require(is_name(&issue.id), "id")?;
    require(is_path(&issue.account), "account")?;
    require(!issue.amount.is_zero(), "amount")?;
    match &issue.restriction {
        None => Ok(()),
        Some(restriction) => check_restriction(restriction, issue.kind),
    }
}

fn check_list<T: PartialOrd>(list: Option<&[T]>) -> Result<(), Refusal> {
    let Some(list) = list else { return Ok(()) };
    require(!list.is_empty(), "restrict")?;
    require(list.windows(2).all(|pair| pair[0] < pair[1]), "restrict")
}

fn check_restriction(restriction: &Restriction, kind: GrantKind) -> Result<(), Refusal> {
    check_list(restriction.gpu_types.as_deref())?;
    check_list(restriction.regions.as_deref())?;
    check_list(restriction.classes.as_deref())?;
    match restriction.max_share_micro {
        None => Ok(()),
        Some(share) => {
            require((1..=1_000_000).contains(&share), "max_share")?;
            require(kind == GrantKind::Promotion, "max_share")
        }
    }
}

fn check_place(place: &PlaceHold) -> Result<(), Refusal> {
    require(is_name(&place.id), "id")?;
    require(is_path(&place.account), "account")?;
    require(!place.amount.is_zero(), "amount")?;
    check_ttl(place.ttl_ms)?;
    check_context(&place.context)?;
    require(place.rate.is_none_or(|rate| (1..=1000).contains(&rate.share_milli)), "rate")
}

fn check_charge(charge: &Charge) -> Result<(), Refusal> {
    require(is_name(&charge.id), "id")?;
    require(is_path(&charge.account), "account")?;
    require(!charge.amount.is_zero(), "amount")?;
    check_context(&charge.context)
}

fn check_refund(refund: &Refund) -> Result<(), Refusal> {
    require(is_name(&refund.id), "id")?;
    match &refund.of {
        RefundOf::Hold(name) | RefundOf::Charge(name) => require(is_name(name), "id")?,
        RefundOf::Job(name) | RefundOf::PastJob(name, _) => require(is_name(name), "id")?,
    }
    require(refund.amount.is_none_or(|amount| !amount.is_zero()), "amount")
}

fn check_transfer(transfer: &Transfer) -> Result<(), Refusal> {
    require(is_name(&transfer.id), "id")?;
    require(is_path(&transfer.from), "from")?;
    require(is_path(&transfer.to), "to")?;
    require(!transfer.amount.is_zero(), "amount")?;
    require(transfer.from != transfer.to, "to")?;
    require(tenant(&transfer.from) == tenant(&transfer.to), "to")
}

fn check_terms(terms: &BudgetTerms) -> Result<(), Refusal> {
    require(!terms.limit.is_zero(), "limit")?;
    let thresholds = &terms.thresholds;
    require(thresholds.len() <= 16, "thresholds")?;
    require(thresholds.iter().all(|percent| (1..=1000).contains(percent)), "thresholds")?;
    require(thresholds.windows(2).all(|pair| pair[0] < pair[1]), "thresholds")?;
    require((-1440..=1440).contains(&terms.utc_offset_minutes), "utc_offset")
}

fn check_context(context: &Context) -> Result<(), Refusal> {
    require(context.gpu_types.as_ref().is_none_or(|list| !list.is_empty()), "context")?;
    require(context.regions.as_ref().is_none_or(|list| !list.is_empty()), "context")
}

fn check_ttl(ttl_ms: Option<i64>) -> Result<(), Refusal> {
    require(ttl_ms.is_none_or(|ttl_ms| (1_000..=315_360_000_000).contains(&ttl_ms)), "ttl_seconds")
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    !text.is_empty() && text.len() <= 64 && text.chars().all(plain)
}

fn is_segment(text: &str) -> bool {
    let lower = |c: char| matches!(c, 'a'..='z' | '0'..='9');
    text.len() <= 63
        && text.chars().next().is_some_and(lower)
        && text.chars().all(|c| lower(c) || matches!(c, '.' | '_' | '-'))
}

fn is_path(text: &str) -> bool {
    let segments: Vec<&str> = text.split(':').collect();
    segments.len() <= 8 && segments.into_iter().all(is_segment)
}
