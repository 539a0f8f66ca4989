//! Accounts.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use crate::amount::{Amount, Sum};
use crate::time::Time;

/// What an account represents.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// A customer.
    Org,
    /// A group of people.
    Team,
    /// A project.
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
    /// What the account represents.
    pub kind: AccountKind,
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The fair-share weight, a decimal with at most three decimals; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The region that keeps the account's credits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub home_region: Option<String>,
    /// Free-form metadata, returned unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// How long compensation credits are valid. Inherited from the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub compensation_ttl_seconds: Option<u64>,
    /// The most uncollected usage before jobs are stopped. Inherited from the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft_limit: Option<Amount>,
}

/// Updates an account. Absent fields stay as they are; `null` removes a setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "Language models"}))]
pub struct ChangeAccount {
    /// Display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The fair-share weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// Free-form metadata; replaces the earlier metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// How long compensation credits are valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 315360000)]
    pub compensation_ttl_seconds: Option<u64>,
    /// The most uncollected usage before jobs are stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdraft_limit: Option<Amount>,
}

/// A fair-share weight: a decimal string with at most three decimals, or a whole number.
///
/// Stored in thousandths, to avoid floating point.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Weight(u32);

impl Weight {
    /// Creates a weight from thousandths.
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
        let description = "A weight with at most three decimals; answers use a string.";
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// The full path.
    #[schema(example = "acme:nlp")]
    pub id: String,
    /// The parent account.
    pub parent: Option<String>,
    /// What the account represents.
    pub kind: AccountKind,
    /// Display name.
    pub name: Option<String>,
    /// The fair-share weight.
    pub weight: Weight,
    /// The region that keeps the account's credits.
    pub home_region: Option<String>,
    /// Free-form metadata.
    pub metadata: Option<Value>,
    /// How long compensation credits are valid, if set on this account.
    pub compensation_ttl_seconds: Option<u64>,
    /// The most uncollected usage, if set on this account.
    pub overdraft_limit: Option<Sum>,
    /// Whether this account stops new spending in its subtree.
    pub frozen: bool,
    /// Usage of its holds that credits did not cover.
    pub uncollected: Sum,
    /// The ledger shard of the org. Only in the answer about one org.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// The ledger's time; only on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The ledger's position; only on reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
}

/// Which accounts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AccountFilter {
    /// Only children of this account.
    pub parent: Option<String>,
    /// Only accounts whose path starts with this text.
    pub prefix: Option<String>,
    /// How many entries at most: 1 to 100, 25 if absent.
    #[param(minimum = 1, maximum = 100)]
    pub limit: Option<u32>,
    /// The cursor of the next page.
    pub cursor: Option<String>,
}

/// A repayment of uncollected usage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collect {
    /// An id chosen by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    pub id: Option<String>,
}

/// The result of a repayment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Collected {
    /// The repayment.
    pub id: String,
    /// The account.
    pub account: String,
    /// How much was repaid.
    pub collected: Sum,
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}
