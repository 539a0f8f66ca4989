//! Samples of the GPUs, taken on a thread of their own: a driver that hangs must not delay a report.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::{GpuUse, Gpus};
use crate::clock::BootTime;

/// The longest time between two samples, unless one takes longer.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The most samples that are kept until they are read. They last longer than the time between two reports.
const MAX_SAMPLES: usize = 64;

/// What the GPUs of a node did at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSample {
    /// The instant.
    pub at: BootTime,
    /// By id, without the GPUs that report nothing.
    pub uses: BTreeMap<String, GpuUse>,
}

impl GpuSample {
    /// How busy a GPU was, in percent, if that is known.
    pub fn percent(&self, gpu: &str) -> Option<u32> {
        self.uses.get(gpu).map(|used| used.utilization_percent)
    }
}

/// Takes samples of the GPUs until it is dropped.
#[derive(Debug)]
pub struct GpuSampler(Arc<Mutex<VecDeque<GpuSample>>>);

impl GpuSampler {
    /// Starts to take samples. `longest` bounds the time between two samples further.
    pub fn start(gpus: &Arc<Gpus>, longest: Option<Duration>) -> GpuSampler {
        let samples = Arc::default();
        let interval = longest.map_or(LOOK_INTERVAL, |longest| longest.min(LOOK_INTERVAL));
        if gpus.are_measured() {
            let (gpus, samples) = (Arc::clone(gpus), Arc::downgrade(&samples));
            thread::spawn(move || take_samples(&gpus, interval, &samples));
        }
        GpuSampler(samples)
    }

    /// The samples that were not returned before, in the order of time.
    pub fn take(&self) -> Vec<GpuSample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

fn take_samples(gpus: &Gpus, interval: Duration, samples: &Weak<Mutex<VecDeque<GpuSample>>>) {
    loop {
        let at = BootTime::now();
        let uses = gpus.uses();
        let Some(samples) = samples.upgrade() else { return };
        let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == MAX_SAMPLES {
            samples.pop_front();
        }
        samples.push_back(GpuSample { at, uses });
        drop(samples);
        thread::sleep(interval);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_taken_once_and_their_number_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("busy");
        std::fs::write(&file, "37").expect("written");
        let gpus = Gpus::fake("H100:2:80", "n1").expect("well formed");
        let gpus = Arc::new(gpus.with_utilization(Some(file)));
        let sampler = GpuSampler::start(&gpus, Some(Duration::ZERO));
        let mut samples = Vec::new();
        while samples.len() < 3 {
            samples.extend(sampler.take());
        }
        assert!(samples.is_sorted_by_key(|sample| sample.at));
        assert!(
            samples.iter().all(|sample| sample.percent("GPU-fake-n1-1") == Some(37)),
            "{samples:?}"
        );
        assert_eq!(samples[0].percent("another"), None);
        let is_full = || sampler.0.lock().expect("not poisoned").len() == MAX_SAMPLES;
        while !is_full() {
            thread::yield_now();
        }
        assert!(sampler.take().len() <= MAX_SAMPLES);
    }

    #[test]
    fn simulated_gpus_without_a_file_are_not_looked_at() {
        let gpus = Gpus::fake("H100:2:80", "n1").expect("well formed");
        assert!(!gpus.are_measured());
        assert_eq!(GpuSampler::start(&Arc::new(gpus), None).take(), []);
    }
}
