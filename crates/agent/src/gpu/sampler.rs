//! Samples of the GPUs, taken on a thread of their own: a driver that hangs must not delay a report.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use super::{Gpus, Sample};
use crate::clock::BootTime;

/// The longest time between two looks, unless they take longer.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The most looks that are kept until they are read: more than a report waits.
const MAX_LOOKS: usize = 64;

/// What the GPUs of a node did at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLook {
    /// When.
    pub at: BootTime,
    /// By id; without GPUs that report nothing.
    pub samples: BTreeMap<String, Sample>,
}

impl GpuLook {
    /// How busy a GPU was, in percent, if that is known.
    pub fn percent(&self, gpu: &str) -> Option<u32> {
        self.samples.get(gpu).map(|sample| sample.utilization_percent)
    }
}

/// Looks at the GPUs until it is dropped.
#[derive(Debug)]
pub struct GpuSampler(Arc<Mutex<VecDeque<GpuLook>>>);

impl GpuSampler {
    /// Starts to look at the GPUs. `longest` bounds the time between two looks further.
    pub fn start(gpus: &Arc<Gpus>, longest: Option<Duration>) -> GpuSampler {
        let looks = Arc::default();
        let interval = longest.map_or(LOOK_INTERVAL, |longest| longest.min(LOOK_INTERVAL));
        if gpus.are_measured() {
            let (gpus, looks) = (Arc::clone(gpus), Arc::downgrade(&looks));
            thread::spawn(move || look_on(&gpus, interval, &looks));
        }
        GpuSampler(looks)
    }

    /// The looks that were not returned before, in the order of time.
    pub fn take(&self) -> Vec<GpuLook> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

fn look_on(gpus: &Gpus, interval: Duration, looks: &Weak<Mutex<VecDeque<GpuLook>>>) {
    loop {
        let at = BootTime::now();
        let samples = gpus.samples();
        let Some(looks) = looks.upgrade() else { return };
        let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == MAX_LOOKS {
            looks.pop_front();
        }
        looks.push_back(GpuLook { at, samples });
        drop(looks);
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
        let mut looks = Vec::new();
        while looks.len() < 3 {
            looks.extend(sampler.take());
        }
        assert!(looks.is_sorted_by_key(|look| look.at));
        assert!(looks.iter().all(|look| look.percent("GPU-fake-n1-1") == Some(37)), "{looks:?}");
        assert_eq!(looks[0].percent("another"), None);
        let is_full = || sampler.0.lock().expect("not poisoned").len() == MAX_LOOKS;
        while !is_full() {
            thread::yield_now();
        }
        assert!(sampler.take().len() <= MAX_LOOKS);
    }

    #[test]
    fn simulated_gpus_without_a_file_are_not_looked_at() {
        let gpus = Gpus::fake("H100:2:80", "n1").expect("well formed");
        assert!(!gpus.are_measured());
        assert_eq!(GpuSampler::start(&Arc::new(gpus), None).take(), []);
    }
}
