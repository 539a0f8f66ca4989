//! The tree over a long journal in little memory: below a certain level hashes are not kept but
//! computed again from the records when a proof needs them.

use bursar_core::digest::Digest;

use super::tree::{InclusionProof, MerkleTree, empty_root, largest_power_below, node};

/// Records of one chunk. The leaves of a complete chunk are not kept.
const CHUNK: u64 = 256;

/// The same tree as [`MerkleTree`], with a quarter of a byte for each record.
#[derive(Clone, Debug, Default)]
pub struct ChunkedTree {
    /// The roots of complete chunks, and the tree above them.
    chunks: MerkleTree,
    /// The records after the last complete chunk.
    rest: MerkleTree,
}

impl ChunkedTree {
    /// An empty tree.
    pub fn new() -> ChunkedTree {
        ChunkedTree::default()
    }

    /// Adds the frame of the next record.
    pub fn push(&mut self, frame: &[u8]) {
        self.rest.push(frame);
        if self.rest.size() == CHUNK {
            let root = self.rest.root(CHUNK).expect("the chunk is whole");
            self.chunks.push_hash(root);
            self.rest = MerkleTree::new();
        }
    }

    /// How many records were added.
    pub fn size(&self) -> u64 {
        self.chunks.size() * CHUNK + self.rest.size()
    }

    /// The root over all of them.
    pub fn root(&self) -> Digest {
        match self.size() {
            0 => empty_root(),
            size => self.subtree(0, size),
        }
    }

    /// The first and the last position of the chunk that a proof for `position` needs, if its
    /// leaves are no longer kept.
    pub fn needed(&self, position: u64) -> Option<(u64, u64)> {
        let chunk = position.checked_sub(1)? / CHUNK;
        (chunk < self.chunks.size()).then_some((chunk * CHUNK + 1, (chunk + 1) * CHUNK))
    }

    /// Proves that the record at `position` is in the tree. `chunk` is the tree over the records
    /// that [`ChunkedTree::needed`] names. With any other tree the proof is invalid.
    pub fn inclusion(&self, position: u64, chunk: Option<&MerkleTree>) -> Option<InclusionProof> {
        let index = position.checked_sub(1)?;
        let size = self.size();
        if index >= size {
            return None;
        }
        let low = chunk.unwrap_or(&self.rest);
        let mut path = Vec::new();
        self.audit_path(index, 0, size, low, &mut path)?;
        Some(InclusionProof { path })
    }

    /// The hash over `size` leaves from `start`, which is a multiple of the power of two at or above
    /// `size`.
    fn subtree(&self, start: u64, size: u64) -> Digest {
        let place = start / CHUNK;
        if size >= CHUNK && size.is_power_of_two() {
            return self.chunks.subtree(place, size / CHUNK);
        }
        if size < CHUNK {
            return self.rest.subtree(start % CHUNK, size);
        }
        let left = largest_power_below(size);
        node(&self.subtree(start, left), &self.subtree(start + left, size - left))
    }

    /// PATH of RFC 6962: inside a chunk from its own tree, above it from the kept hashes.
    fn audit_path(
        &self,
        index: u64,
        start: u64,
        size: u64,
        low: &MerkleTree,
        path: &mut Vec<Digest>,
    ) -> Option<()> {
        if size <= CHUNK {
            path.extend(low.inclusion(index + 1, size)?.path);
            return Some(());
        }
        let left = largest_power_below(size);
        if index < left {
            self.audit_path(index, start, left, low, path)?;
            path.push(self.subtree(start + left, size - left));
        } else {
            self.audit_path(index - left, start + left, size - left, low, path)?;
            path.push(self.subtree(start, left));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u64) -> [u8; 8] {
        number.to_le_bytes()
    }

    #[test]
    fn it_is_the_same_tree_as_the_one_that_keeps_all_hashes() {
        let (mut whole, mut chunked) = (MerkleTree::new(), ChunkedTree::new());
        assert_eq!(Some(chunked.root()), whole.root(0));
        for size in 1..=CHUNK * 5 + 3 {
            whole.push(&frame(size));
            chunked.push(&frame(size));
            assert_eq!((chunked.size(), Some(chunked.root())), (size, whole.root(size)));
            if size % 97 != 0 && size % CHUNK > 1 {
                continue;
            }
            for position in [1, 2, size / 2, CHUNK, CHUNK + 1, size - 1, size] {
                let tree = chunked.needed(position).map(|(first, last)| {
                    let mut tree = MerkleTree::new();
                    (first..=last).for_each(|number| tree.push(&frame(number)));
                    tree
                });
                let proof = chunked.inclusion(position, tree.as_ref());
                assert_eq!(proof, whole.inclusion(position, size), "{position} of {size}");
            }
        }
    }
}
