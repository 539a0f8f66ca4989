//! The prover: the tree, its root and its proofs.

use bursar_core::digest::Digest;

fn leaf(frame: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[0]).update(frame);
    Digest(*hasher.finalize().as_bytes())
}

pub(super) fn node(left: &Digest, right: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[1]).update(&left.0).update(&right.0);
    Digest(*hasher.finalize().as_bytes())
}

/// The root of an empty tree, as in RFC 6962.
pub(super) fn empty_root() -> Digest {
    Digest(*blake3::hash(&[]).as_bytes())
}

/// The hashes on the path from one leaf to the root, lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InclusionProof {
    /// Siblings from the leaf upwards.
    pub path: Vec<Digest>,
}

/// The hashes that prove that a tree continues a smaller one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConsistencyProof {
    /// Nodes in the order of RFC 6962.
    pub path: Vec<Digest>,
}

/// Keeps only the hashes that the root needs as records are added: one for each set bit of the
/// size.
#[derive(Clone, Debug, Default)]
pub struct Frontier {
    size: u64,
    /// Roots of the complete subtrees, largest first.
    peaks: Vec<Digest>,
}

impl Frontier {
    /// An empty tree.
    pub fn new() -> Frontier {
        Frontier::default()
    }

    /// The tree over `size` records with these roots of complete subtrees, largest first. `None` if
    /// a tree of that size has another number of them.
    pub fn from_peaks(size: u64, peaks: Vec<Digest>) -> Option<Frontier> {
        let fits = usize::try_from(size.count_ones()).is_ok_and(|count| count == peaks.len());
        fits.then_some(Frontier { size, peaks })
    }

    /// The roots of the complete subtrees, largest first.
    pub fn peaks(&self) -> &[Digest] {
        &self.peaks
    }

    /// Adds the frame of the next record.
    pub fn push(&mut self, frame: &[u8]) {
        let mut hash = leaf(frame);
        // This leaf completes one peak for each trailing one bit.
        for _ in 0..self.size.trailing_ones() {
            let left = self.peaks.pop().expect("a peak for each set bit of the size");
            hash = node(&left, &hash);
        }
        self.peaks.push(hash);
        self.size += 1;
    }

    /// How many records were added.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root over all of them.
    pub fn root(&self) -> Digest {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty_root() };
        peaks.fold(*last, |right, left| node(left, &right))
    }
}

/// The whole tree, 64 bytes for each record. Makes a proof in logarithmic time.
#[derive(Clone, Debug, Default)]
pub struct MerkleTree {
    /// Hashes of the complete subtrees of 1, 2, 4 … leaves.
    levels: Vec<Vec<Digest>>,
}

impl MerkleTree {
    /// An empty tree.
    pub fn new() -> MerkleTree {
        MerkleTree::default()
    }

    /// Adds the frame of the next record.
    pub fn push(&mut self, frame: &[u8]) {
        self.push_hash(leaf(frame));
    }

    /// Adds the hash of the next leaf.
    pub(super) fn push_hash(&mut self, mut hash: Digest) {
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            let hashes = &mut self.levels[level];
            hashes.push(hash);
            let [.., left, right] = hashes.as_slice() else { return };
            if hashes.len() % 2 == 1 {
                return;
            }
            hash = node(left, right);
        }
    }

    /// How many records were added.
    pub fn size(&self) -> u64 {
        self.levels.first().map_or(0, |leaves| leaves.len() as u64)
    }

    /// The root over the first `size` records, if there are that many.
    pub fn root(&self, size: u64) -> Option<Digest> {
        if size > self.size() {
            return None;
        }
        Some(if size == 0 { empty_root() } else { self.subtree(0, size) })
    }

    /// Proves that the record at `position` is among the first `size`.
    pub fn inclusion(&self, position: u64, size: u64) -> Option<InclusionProof> {
        let index = position.checked_sub(1)?;
        if index >= size || size > self.size() {
            return None;
        }
        let mut path = Vec::new();
        self.audit_path(index, 0, size, &mut path);
        Some(InclusionProof { path })
    }

    /// Proves that the first `new` records begin with the first `old`.
    pub fn consistency(&self, old: u64, new: u64) -> Option<ConsistencyProof> {
        if old == 0 || old > new || new > self.size() {
            return None;
        }
        let mut path = Vec::new();
        if old < new {
            self.extension_path(old, 0, new, true, &mut path);
        }
        Some(ConsistencyProof { path })
    }

    /// The hash over `size` leaves from `start`, which is a multiple of the power of two at or
    /// above `size`.
    pub(super) fn subtree(&self, start: u64, size: u64) -> Digest {
        if size.is_power_of_two() {
            let level = size.trailing_zeros();
            let index = usize::try_from(start >> level).expect("it is in memory");
            return self.levels[level as usize][index];
        }
        let left = largest_power_below(size);
        node(&self.subtree(start, left), &self.subtree(start + left, size - left))
    }

    /// PATH of RFC 6962, for the leaf `index` of the subtree, counted inside it.
    fn audit_path(&self, index: u64, start: u64, size: u64, path: &mut Vec<Digest>) {
        if size == 1 {
            return;
        }
        let left = largest_power_below(size);
        if index < left {
            self.audit_path(index, start, left, path);
            path.push(self.subtree(start + left, size - left));
        } else {
            self.audit_path(index - left, start + left, size - left, path);
            path.push(self.subtree(start, left));
        }
    }

    /// SUBPROOF of RFC 6962. `whole` is true if the old tree begins where the subtree does.
    fn extension_path(&self, old: u64, start: u64, size: u64, whole: bool, path: &mut Vec<Digest>) {
        if old == size {
            if !whole {
                path.push(self.subtree(start, size));
            }
            return;
        }
        let left = largest_power_below(size);
        if old <= left {
            self.extension_path(old, start, left, whole, path);
            path.push(self.subtree(start + left, size - left));
        } else {
            self.extension_path(old - left, start + left, size - left, false, path);
            path.push(self.subtree(start, left));
        }
    }
}

/// The largest power of two below `size`, which is at least 2.
pub(super) fn largest_power_below(size: u64) -> u64 {
    1 << (u64::BITS - 1 - (size - 1).leading_zeros())
}
