//! Quotes: what a job would cost, and whether it would be accepted.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Sum;
use crate::problem::Blocker;
use crate::time::Time;

/// What one GPU type in one region would cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuoteOffer {
    /// The GPU type.
    pub gpu_type: String,
    /// The region.
    pub region: String,
    /// Credits per hour of one whole GPU, with the class's multiplier.
    pub per_gpu_hour: Sum,
    /// Credits per hour of the whole job.
    pub per_hour: Sum,
    /// The hold if this were the only choice.
    pub hold: Sum,
    /// When it could start; absent if it never fits the region.
    pub estimated_start_at: Option<Time>,
}

/// The cost of a job. A quote reserves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Quote {
    /// Each choice: by the job's preference of types, then by region.
    pub offers: Vec<QuoteOffer>,
    /// The hold: enough for the most expensive choice.
    pub hold: Sum,
    /// Whether the job would be accepted now.
    pub admissible: bool,
    /// Everything that blocks it, including reasons to wait.
    pub blockers: Vec<Blocker>,
    /// Credits still spendable after the hold.
    pub spendable_after: Sum,
    /// The ledger's time.
    pub as_of: Time,
    /// The ledger's position.
    pub position: u64,
}
