//! A set of GPUs of one node.

use std::fmt;

/// The most GPUs that one node may have.
pub const MAX_GPUS: usize = 64;

/// A set of GPUs of one node, by device index.
#[derive(Copy, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuSet(u64);

impl GpuSet {
    /// No GPU.
    pub const EMPTY: GpuSet = GpuSet(0);

    /// The set of these devices; `None` if one of them is not below [`MAX_GPUS`].
    pub fn from_indexes(indexes: impl IntoIterator<Item = usize>) -> Option<GpuSet> {
        let mut set = GpuSet::EMPTY;
        for index in indexes {
            if index >= MAX_GPUS {
                return None;
            }
            set.insert(index);
        }
        Some(set)
    }

    /// Adds a device, whose index is below [`MAX_GPUS`].
    pub fn insert(&mut self, index: usize) {
        assert!(index < MAX_GPUS, "device {index} of a node with at most {MAX_GPUS}");
        self.0 |= 1 << index;
    }

    /// Whether a device is in the set.
    pub fn contains(self, index: usize) -> bool {
        index < MAX_GPUS && self.0 >> index & 1 == 1
    }

    /// How many devices there are.
    pub fn len(self) -> usize {
        // At most 64.
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The devices in rising order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_GPUS).filter(move |index| self.contains(*index))
    }

    /// One bit per device, for storage.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The set with these [`GpuSet::bits`].
    pub fn from_bits(bits: u64) -> GpuSet {
        GpuSet(bits)
    }
}

impl fmt::Debug for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
