//! Parsers of command line values.

use std::time::Duration;

use bursar_client::api::Time;
use bursar_client::api::credits::hold::Context;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An enum value by its API name.
pub(crate) fn word<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value(Value::String(name)))
}

pub(crate) const ACCOUNT_KINDS: &[&str] = &["org", "team", "project", "user"];
pub(crate) const GRANT_KINDS: &[&str] = &["purchase", "grant", "promotion", "compensation"];
pub(crate) const HOLD_STATES: &[&str] = &["open", "settled", "released", "lapsed"];
pub(crate) const ON_EXPIRY: &[&str] = &["honor_hold", "strict"];
pub(crate) const BUDGET_UNITS: &[&str] = &["credits", "gpu_hours"];
pub(crate) const BUDGET_PERIODS: &[&str] = &["total", "day", "week", "month"];
pub(crate) const BUDGET_MODES: &[&str] = &["hard", "soft"];
pub(crate) const ROLES: &[&str] =
    &["admin", "billing", "operator", "submitter", "viewer", "auditor", "agent"];
pub(crate) const CAPABILITIES: &[&str] = &["issue"];
pub(crate) const TOP_KINDS: &[&str] = &["user", "project", "team", "org", "job"];
pub(crate) const TOP_BY: &[&str] = &["spent", "available", "held", "gpu_seconds"];

/// An instant as RFC 3339, or a day for its first instant in UTC.
pub(crate) fn instant(text: &str) -> Result<Time, String> {
    let full = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    full.parse().map_err(|_| "write it as 2026-01-31 or 2026-01-31T12:00:00Z".to_owned())
}

/// A month such as `2026-01`: its first instant, and that of the next month.
pub(crate) fn month(text: &str) -> Result<(Time, Time), String> {
    let wrong = || "write a month as 2026-01".to_owned();
    let (year, month) = text.split_once('-').ok_or_else(wrong)?;
    let (year, month): (u16, u16) =
        (year.parse().map_err(|_| wrong())?, month.parse().map_err(|_| wrong())?);
    let (next_year, next_month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    let first = |year: u16, month: u16| instant(&format!("{year:04}-{month:02}-01"));
    Ok((first(year, month).map_err(|_| wrong())?, first(next_year, next_month)?))
}

/// A duration: `90s`, `15m`, `2h`, `7d`, or plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write it as 90s, 15m, 2h, 7d or a number of seconds".to_owned();
    let (digits, unit) = match text.strip_suffix(|last: char| last.is_ascii_alphabetic()) {
        Some(digits) => (digits, &text[digits.len()..]),
        None => (text, "s"),
    };
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

/// A pair such as `team=nlp`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Pairs as an object, or `None` if empty.
pub(crate) fn object(pairs: &[(String, String)]) -> Option<Map<String, Value>> {
    let entries = pairs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
    (!pairs.is_empty()).then(|| entries.collect())
}

/// A list, or `None` if empty.
pub(crate) fn some(values: &[String]) -> Option<Vec<String>> {
    (!values.is_empty()).then(|| values.to_vec())
}

/// What the credits are for.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ContextArguments {
    /// Acceptable GPU types, separated by commas: allows restricted grants to be drawn.
    #[arg(long = "gpu-type", value_name = "TYPE", value_delimiter = ',')]
    gpu_types: Vec<String>,
    /// Acceptable regions, separated by commas.
    #[arg(long = "region", value_name = "REGION", value_delimiter = ',')]
    regions: Vec<String>,
    /// The priority class.
    #[arg(long)]
    class: Option<String>,
}

impl ContextArguments {
    /// The context, if one was given.
    pub(crate) fn context(&self) -> Option<Context> {
        let context = Context {
            gpu_types: some(&self.gpu_types),
            regions: some(&self.regions),
            class: self.class.clone(),
        };
        (context != Context::default()).then_some(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_client::api::accounts::account::AccountKind;
    use bursar_client::api::accounts::budget::{BudgetMode, BudgetPeriod, BudgetUnit};
    use bursar_client::api::accounts::top::{TopBy, TopKind};
    use bursar_client::api::credits::grant::GrantKind;
    use bursar_client::api::credits::hold::{HoldState, OnExpiry};
    use bursar_client::api::system::key::{Capability, Role};

    fn all_known<T: DeserializeOwned>(names: &[&str]) {
        for name in names {
            let known = serde_json::from_value::<T>(Value::String((*name).to_owned()));
            assert!(known.is_ok(), "{name}");
        }
    }

    #[test]
    fn every_word_that_is_offered_is_one_that_the_server_knows() {
        all_known::<AccountKind>(ACCOUNT_KINDS);
        all_known::<GrantKind>(GRANT_KINDS);
        all_known::<HoldState>(HOLD_STATES);
        all_known::<OnExpiry>(ON_EXPIRY);
        all_known::<BudgetUnit>(BUDGET_UNITS);
        all_known::<BudgetPeriod>(BUDGET_PERIODS);
        all_known::<BudgetMode>(BUDGET_MODES);
        all_known::<Role>(ROLES);
        all_known::<Capability>(CAPABILITIES);
        all_known::<TopKind>(TOP_KINDS);
        all_known::<TopBy>(TOP_BY);
    }

    #[test]
    fn days_and_instants_are_understood() {
        let written = |text| instant(text).map(|time| time.to_string());
        assert_eq!(written("2026-01-31"), Ok("2026-01-31T00:00:00.000Z".into()));
        assert_eq!(written("2026-01-31T12:00:00+01:00"), Ok("2026-01-31T11:00:00.000Z".into()));
        for wrong in ["tomorrow", "2026-02-30", "", "2026-01-31T12:00"] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_month_ends_where_the_next_begins() {
        let ends = |text| month(text).map(|(from, to)| format!("{from} {to}"));
        let december = "2026-12-01T00:00:00.000Z 2027-01-01T00:00:00.000Z";
        assert_eq!(ends("2026-12"), Ok(december.into()));
        for wrong in ["2026", "2026-13", "2026-00", "x-1", "2026-1-1"] {
            assert!(month(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lengths_of_time_have_units() {
        for (text, seconds) in
            [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("7d", 604_800)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "1.5h", "-1s", "1y", "99999999999999999d", "1é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
