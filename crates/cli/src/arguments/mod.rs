//! Parsers of command line values.

pub(crate) mod errors;
mod time;

pub(crate) use bursar_client::api::credits::grant::GRANT_KINDS;
use bursar_client::api::credits::hold::Context;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) use time::{Expiry, duration, expiry, in_one_unit, instant, interval, month};

/// An enum value by its API name.
pub(crate) fn word<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| serde_json::from_value(Value::String(name)))
}

pub(crate) const ACCOUNT_KINDS: &[&str] = &["org", "team", "project", "user"];
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
}
