//! Conversions from API types to ledger types.

use bursar_api::accounts::{account, budget};
use bursar_api::credits::{grant, hold};
use bursar_api::{Amount, Time};
use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, BudgetMode, BudgetPeriod, BudgetTerms, BudgetUnit, Context, OnExpiry, Restriction,
};
use bursar_core::name::{ClassName, GpuModel, InvalidName, Region};
use bursar_core::time::Timestamp;
use serde_json::{Map, Value};

use crate::request::Failure;

/// The most bytes of metadata.
const MAX_METADATA: usize = 16_384;

pub(super) fn instant(at: Time) -> Timestamp {
    Timestamp::from_millis(at.millis())
}

/// Converts an amount. Everything that the strict parser accepts fits.
pub(super) fn credits(amount: Amount, field: &str) -> Result<Credits, Failure> {
    let micros = i64::try_from(amount.micros()).ok().and_then(Credits::from_micros);
    micros.ok_or_else(|| Failure::invalid(field, "an amount is at most 9223372036854.775807"))
}

/// Parses 1 to 64 names of one kind, in the given order.
pub(super) fn name_list<T>(
    list: Vec<String>,
    field: &str,
    parse: fn(String) -> Result<T, InvalidName>,
) -> Result<Vec<T>, Failure> {
    let parsed: Result<Vec<T>, InvalidName> = list.into_iter().map(parse).collect();
    parsed.ok().filter(|list| (1..=64).contains(&list.len())).ok_or_else(|| {
        let reason = "must list 1 to 64 names of the characters A-Z a-z 0-9 . _ : -";
        Failure::invalid(field, reason)
    })
}

/// Parses a list of names and sorts it.
pub(super) fn names<T: Ord>(
    list: Option<Vec<String>>,
    field: &str,
    parse: fn(String) -> Result<T, InvalidName>,
) -> Result<Option<Vec<T>>, Failure> {
    let Some(list) = list else { return Ok(None) };
    let mut names = name_list(list, field, parse)?;
    names.sort();
    Ok(Some(names))
}

/// Parses a name, if there is one.
pub(super) fn name<T>(
    text: Option<String>,
    field: &str,
    parse: fn(String) -> Result<T, InvalidName>,
) -> Result<Option<T>, Failure> {
    text.map(parse).transpose().map_err(|invalid| Failure::invalid(field, invalid.must))
}

/// Checks the length of a display text.
pub(super) fn text(
    text: Option<String>,
    field: &str,
    most: usize,
) -> Result<Option<Box<str>>, Failure> {
    match text {
        Some(text) if text.chars().count() > most => {
            Err(Failure::invalid(field, format!("must have at most {most} characters")))
        }
        Some(text) => Ok(Some(text.into())),
        None => Ok(None),
    }
}

pub(super) fn metadata(map: Option<Map<String, Value>>) -> Result<Option<Box<str>>, Failure> {
    let Some(map) = map else { return Ok(None) };
    let map = Value::Object(map);
    if let Some(field) = inexact(&map, "metadata") {
        let reason = "numbers without a fraction must fit in 64 bits; send larger ones as text";
        return Err(Failure::invalid(field, reason));
    }
    let text = map.to_string();
    if text.len() > MAX_METADATA {
        let reason = format!("must have at most {MAX_METADATA} bytes");
        return Err(Failure::invalid("metadata", reason));
    }
    Ok(Some(text.into()))
}

/// The path of the first whole number that would not be stored exactly, if there is one. Nothing
/// deeper than [`MAX_DEPTH`](bursar_api::json::MAX_DEPTH) is read.
fn inexact(value: &Value, place: &str) -> Option<String> {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            (float.fract() == 0.0 && float.abs() >= TWO_POW_63).then(|| place.to_owned())
        }
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| inexact(item, &format!("{place}[{index}]")))
        }
        Value::Object(map) => {
            map.iter().find_map(|(name, value)| inexact(value, &format!("{place}.{name}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Converts seconds to milliseconds. The ledger refuses a duration that does not fit as too long.
pub(super) fn millis(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000)
}

pub(super) fn account_kind(kind: account::AccountKind) -> AccountKind {
    match kind {
        account::AccountKind::Org => AccountKind::Org,
        account::AccountKind::Team => AccountKind::Team,
        account::AccountKind::Project => AccountKind::Project,
        account::AccountKind::User => AccountKind::User,
    }
}

pub(super) fn restriction(
    restrict: Option<grant::Restriction>,
) -> Result<Option<Restriction>, Failure> {
    let Some(restrict) = restrict else { return Ok(None) };
    let max_share_micro = match restrict.max_share {
        Some(share) => {
            let reason = "must be more than 0 and at most 1";
            let share = u32::try_from(share.micros());
            Some(share.map_err(|_| Failure::invalid("restrict.max_share", reason))?)
        }
        None => None,
    };
    let restriction = Restriction {
        gpu_types: names(restrict.gpu_types, "restrict.gpu_types", GpuModel::parse)?,
        regions: names(restrict.regions, "restrict.regions", Region::parse)?,
        classes: names(restrict.classes, "restrict.classes", ClassName::parse)?,
        max_share_micro,
    };
    Ok((!restriction.is_empty()).then_some(restriction))
}

pub(super) fn context(context: Option<hold::Context>) -> Result<Context, Failure> {
    let Some(context) = context else { return Ok(Context::default()) };
    Ok(Context {
        gpu_types: names(context.gpu_types, "context.gpu_types", GpuModel::parse)?,
        regions: names(context.regions, "context.regions", Region::parse)?,
        class: name(context.class, "context.class", ClassName::parse)?,
    })
}

pub(super) fn on_expiry(on_expiry: Option<hold::OnExpiry>) -> OnExpiry {
    match on_expiry.unwrap_or_default() {
        hold::OnExpiry::HonorHold => OnExpiry::HonorHold,
        hold::OnExpiry::Strict => OnExpiry::Strict,
    }
}

pub(super) fn budget_terms(set: budget::SetBudget) -> Result<BudgetTerms, Failure> {
    Ok(BudgetTerms {
        limit: credits(set.limit, "limit")?,
        unit: match set.unit.unwrap_or_default() {
            budget::BudgetUnit::Credits => BudgetUnit::Credits,
            budget::BudgetUnit::GpuHours => BudgetUnit::GpuHours,
        },
        period: match set.period {
            budget::BudgetPeriod::Total => BudgetPeriod::Total,
            budget::BudgetPeriod::Day => BudgetPeriod::Day,
            budget::BudgetPeriod::Week => BudgetPeriod::Week,
            budget::BudgetPeriod::Month => BudgetPeriod::Month,
        },
        mode: match set.mode {
            budget::BudgetMode::Hard => BudgetMode::Hard,
            budget::BudgetMode::Soft => BudgetMode::Soft,
        },
        thresholds: set.thresholds.unwrap_or_else(|| vec![50, 80, 100]).into(),
        utc_offset_minutes: set.utc_offset_minutes.unwrap_or(0),
    })
}
