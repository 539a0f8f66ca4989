//! The price book: versions of prices, each with the instant at which it takes effect.

use super::state::Directory;
use crate::credits::Credits;
use crate::name::{GpuModel, Region};
use crate::shared_map::SharedMap;
use crate::time::Timestamp;

/// One version of a price. Of several with the same instant the latest applies.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct PriceVersion {
    /// Credits per hour of one whole GPU.
    pub per_gpu_hour: Credits,
    /// When it takes effect.
    pub effective_at: Timestamp,
}

/// The price in effect, and its version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CurrentPrice {
    /// The GPU type.
    pub gpu_type: GpuModel,
    /// The region; absent: every region without a price of its own.
    pub region: Option<Region>,
    /// The price.
    pub price: PriceVersion,
    /// The number of the version, from 1.
    pub version: u32,
}

/// The versions of one price, by the instant at which they take effect and by number, from 1.
pub(super) type Versions = SharedMap<(Timestamp, u32), Credits>;

/// The version in effect at an instant, and its number.
fn current(versions: &Versions, at: Timestamp) -> Option<(PriceVersion, u32)> {
    let ((effective_at, number), per_gpu_hour) = versions.last_until(&(at, u32::MAX))?;
    let (effective_at, per_gpu_hour) = (*effective_at, *per_gpu_hour);
    Some((PriceVersion { per_gpu_hour, effective_at }, *number))
}

impl Directory {
    /// Every price in effect at an instant, by GPU type and region.
    pub fn prices_at(&self, at: Timestamp) -> Vec<CurrentPrice> {
        let mut prices = Vec::new();
        for ((gpu_type, region), versions) in self.prices.iter() {
            if let Some((price, version)) = current(versions, at) {
                let (gpu_type, region) = (gpu_type.clone(), region.clone());
                prices.push(CurrentPrice { gpu_type, region, price, version });
            }
        }
        prices
    }

    /// The first instant after `at` at which a known price version takes effect.
    pub fn next_price_change(&self, at: Timestamp) -> Option<Timestamp> {
        // No version has the highest number, so versions that take effect at `at` come before this
        // key.
        let from = (at, u32::MAX);
        let next =
            |versions: &Versions| versions.from(&from).next().map(|((begins, _), _)| *begins);
        self.prices.iter().filter_map(|(_, versions)| next(versions)).min()
    }

    /// The price of a GPU type in a region at an instant: the region's own, or the general one.
    pub fn price(&self, gpu_type: &str, region: &str, at: Timestamp) -> Option<Credits> {
        let find = |region: Option<Region>| {
            let versions = self.prices.get(&(GpuModel::unchecked(gpu_type), region))?;
            current(versions, at).map(|(price, _)| price.per_gpu_hour)
        };
        find(Some(Region::unchecked(region))).or_else(|| find(None))
    }
}
