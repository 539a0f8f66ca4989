//! Demand as plain data, for snapshots.

use super::{Demand, DemandMix, Kind, Level, Restriction, weight_of};
use crate::cell::schedule::shape::{GpuDemand, ModelId};

/// A [`Demand`] as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DemandImage {
    /// Observations of each shape, by shape number.
    pub counts: Vec<u64>,
    /// Observations since the mix was computed.
    pub news: u64,
    /// The condensed mix.
    pub mix: MixImage,
}

/// A [`DemandMix`] as plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct MixImage {
    /// Its version.
    pub version: u64,
    /// Kinds that need GPUs with their weights, in order.
    pub kinds: Vec<KindImage>,
    /// The weight of kinds that use no GPU.
    pub without_gpu: u64,
    /// Average CPU per whole GPU.
    pub cpu_milli_per_gpu: u64,
    /// Average memory per whole GPU.
    pub memory_mib_per_gpu: u64,
    /// Models, least GPU memory, and the part of GPU demand that only they can serve.
    pub restricted: Vec<((Vec<ModelId>, u32), u64)>,
}

/// One kind of work of a mix.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KindImage {
    /// The GPUs that it needs.
    pub gpu: GpuDemand,
    /// The CPU that it needs.
    pub cpu_milli: u32,
    /// The models that it accepts.
    pub models: Vec<ModelId>,
    /// Least memory of each GPU.
    pub gpu_memory_mib: u32,
    /// Its weight.
    pub weight: u64,
}

impl Demand {
    /// The demand as plain data.
    pub fn image(&self) -> DemandImage {
        let kinds = self.mix.levels.iter().flat_map(|level| &level.kinds);
        let kinds = kinds.map(|(kind, weight)| KindImage {
            gpu: kind.gpu,
            cpu_milli: kind.cpu_milli,
            models: kind.restriction.models.clone(),
            gpu_memory_mib: kind.restriction.gpu_memory_mib,
            weight: *weight,
        });
        let restricted = self.mix.restricted.iter();
        let restricted =
            restricted.map(|(only, share)| ((only.models.clone(), only.gpu_memory_mib), *share));
        DemandImage {
            counts: self.counts.clone(),
            news: self.news,
            mix: MixImage {
                version: self.mix.version,
                kinds: kinds.collect(),
                without_gpu: self.mix.without_gpu,
                cpu_milli_per_gpu: self.mix.cpu_milli_per_gpu,
                memory_mib_per_gpu: self.mix.memory_mib_per_gpu,
                restricted: restricted.collect(),
            },
        }
    }

    /// The inverse of [`Demand::image`].
    pub fn from_image(image: DemandImage) -> Demand {
        let mut levels: Vec<(u16, Vec<(Kind, u64)>)> = Vec::new();
        for kind in image.mix.kinds {
            let KindImage { gpu, cpu_milli, models, gpu_memory_mib, weight } = kind;
            let per_device = gpu.per_device();
            let restriction = Restriction { models, gpu_memory_mib };
            let kind = (Kind { gpu, cpu_milli, restriction }, weight);
            match levels.last_mut().filter(|(level, _)| *level == per_device) {
                Some((_, kinds)) => kinds.push(kind),
                None => levels.push((per_device, vec![kind])),
            }
        }
        let levels = levels.into_iter().map(|(per_device, kinds)| Level::new(per_device, kinds));
        let levels: Vec<Level> = levels.collect();
        let restricted = image.mix.restricted.into_iter();
        let restricted = restricted.map(|((models, gpu_memory_mib), share)| {
            (Restriction { models, gpu_memory_mib }, share)
        });
        let mix = DemandMix {
            version: image.mix.version,
            weight: weight_of(&levels, image.mix.without_gpu),
            levels,
            without_gpu: image.mix.without_gpu,
            cpu_milli_per_gpu: image.mix.cpu_milli_per_gpu,
            memory_mib_per_gpu: image.mix.memory_mib_per_gpu,
            restricted: restricted.collect(),
        };
        let total = image.counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        Demand { total, counts: image.counts, news: image.news, mix }
    }
}
