//! The price book: versions, each with the instant from which on it counts.

use super::state::Directory;
use crate::credits::Credits;
use crate::ledger::id::Name;
use crate::time::Timestamp;

/// One version of a price. Of several that count from the same instant the latest wins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PriceVersion {
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Credits,
    /// From when on it counts.
    pub effective_at: Timestamp,
}

/// A price that counts, and which version it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentPrice {
    /// The GPU type.
    pub gpu_type: Name,
    /// The region; every region without a price of its own if absent.
    pub region: Option<Name>,
    /// The price.
    pub price: PriceVersion,
    /// The number of the version, from 1.
    pub version: u32,
}

/// The version that counts at an instant, and its number.
fn current(versions: &[PriceVersion], at: Timestamp) -> Option<(PriceVersion, u32)> {
    let counting = (1u32..).zip(versions).filter(|(_, version)| version.effective_at <= at);
    counting.max_by_key(|(number, version)| (version.effective_at, *number)).map(|(n, v)| (*v, n))
}

impl Directory {
    /// Every price that counts at an instant, by GPU type and region.
    pub fn prices_at(&self, at: Timestamp) -> Vec<CurrentPrice> {
        let mut prices = Vec::new();
        for ((gpu_type, region), versions) in &self.prices {
            if let Some((price, version)) = current(versions, at) {
                let (gpu_type, region) = (gpu_type.clone(), region.clone());
                prices.push(CurrentPrice { gpu_type, region, price, version });
            }
        }
        prices
    }

    /// The first instant after `at` at which a price that is known already begins to count.
    pub fn next_price_change(&self, at: Timestamp) -> Option<Timestamp> {
        let versions = self.prices.values().flatten();
        versions.map(|version| version.effective_at).filter(|effective| *effective > at).min()
    }

    /// The price of a GPU type in a region at an instant: the region's own, or the general one.
    pub fn price(&self, gpu_type: &str, region: &str, at: Timestamp) -> Option<Credits> {
        let find = |region: Option<Name>| {
            let versions = self.prices.get(&(Name::from(gpu_type), region))?;
            current(versions, at).map(|(price, _)| price.per_gpu_hour)
        };
        find(Some(region.into())).or_else(|| find(None))
    }
}
