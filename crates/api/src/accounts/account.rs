//! Accounts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// What an account stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A customer.
    Org,
    /// A group of people.
    Team,
    /// A piece of work.
    Project,
    /// A person or a machine.
    User,
}

/// Opens an account below its parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"id": "acme:nlp", "kind": "team", "name": "Language"}))]
pub struct OpenAccount {
    /// The full path.
    #[schema(pattern = "^[a-z0-9][a-z0-9._-]{0,62}(:[a-z0-9][a-z0-9._-]{0,62}){0,7}$")]
    pub id: String,
    /// What it stands for.
    pub kind: AccountKind,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The fair-share weight, a decimal with at most three decimals; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The region where the account's money lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub home_region: Option<String>,
    /// Anything; kept as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// How long credits live that are re-issued because the platform failed. Inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub compensation_ttl_seconds: Option<u64>,
    /// How far uncollected usage may grow before jobs are stopped. Inherited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft_limit: Option<Amount>,
}

/// Changes what is given; the rest stays. `null` takes a setting back, as if it had never been made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "Language models"}))]
pub struct ChangeAccount {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The fair-share weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// Anything; replaces what was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// How long credits live that are re-issued because the platform failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub compensation_ttl_seconds: Option<u64>,
    /// How far uncollected usage may grow before jobs are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft_limit: Option<Amount>,
}

/// A fair-share weight: a decimal string with at most three decimals, or a whole number.
///
/// Kept in thousandths, so that it needs no floating point either.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Weight(u32);

impl Weight {
    /// A weight in thousandths.
    pub const fn from_milli(milli: u32) -> Weight {
        Weight(milli)
    }

    /// The weight in thousandths.
    pub const fn milli(self) -> u32 {
        self.0
    }
}

impl Serialize for Weight {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Sum::from_micros(i128::from(self.0) * 1000))
    }
}

impl<'de> Deserialize<'de> for Weight {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Weight, D::Error> {
        let micros = Amount::deserialize(deserializer)?.micros();
        let milli = u32::try_from(micros / 1000).ok().filter(|_| micros % 1000 == 0);
        milli.filter(|milli| (1..=1_000_000_000).contains(milli)).map(Weight).ok_or_else(|| {
            serde::de::Error::custom("a weight is between 0.001 and 1000000, with three decimals")
        })
    }
}

impl utoipa::PartialSchema for Weight {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, OneOfBuilder, SchemaType, Type};
        let text = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String)).pattern(Some(
            r"^([1-9][0-9]{0,5}(\.[0-9]{1,3})?|0\.([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9]))$",
        ));
        let whole = ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Integer))
            .minimum(Some(1))
            .maximum(Some(1_000_000));
        let description = "A weight with at most three decimals; answers carry a string.";
        OneOfBuilder::new()
            .item(text)
            .item(whole)
            .description(Some(description))
            .examples(["1.5"])
            .into()
    }
}

impl ToSchema for Weight {}

/// An account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// The full path.
    #[schema(example = "acme:nlp")]
    pub id: String,
    /// The account above it.
    pub parent: Option<String>,
    /// What it stands for.
    pub kind: AccountKind,
    /// A name for people.
    pub name: Option<String>,
    /// The fair-share weight.
    pub weight: Weight,
    /// The region where the account's money lives.
    pub home_region: Option<String>,
    /// Anything.
    pub metadata: Option<Value>,
    /// How long credits live that are re-issued because the platform failed, if set here.
    pub compensation_ttl_seconds: Option<u64>,
    /// How far uncollected usage may grow, if set here.
    pub overdraft_limit: Option<Sum>,
    /// Whether new spending at and below it is stopped by this account.
    pub frozen: bool,
    /// Usage of its holds that no credits could be found for.
    pub uncollected: Sum,
    /// The ledger's time, on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position, on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Which accounts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AccountFilter {
    /// Only those directly below this account.
    pub parent: Option<String>,
    /// Only those whose path begins so.
    pub prefix: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// Where to go on.
    pub cursor: Option<String>,
}

/// A repayment of uncollected usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// The caller's own id for this repayment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
}

/// What a repayment came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collected {
    /// The repayment.
    pub id: String,
    /// The account.
    pub account: String,
    /// How much was repaid.
    pub collected: Sum,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}
