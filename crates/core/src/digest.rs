//! One hash over a whole state, fed in a fixed order.

use std::fmt;
use std::hash::{Hash, Hasher};

/// 256 bits of BLAKE3.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Collects values into a [`Digest`], by their [`Hash`]: the fields in order, lists and texts with
/// their length, variants by their place. Names of types and fields do not matter. Two sequences
/// of values of the same types that differ never feed the same bytes.
#[derive(Default)]
pub struct Digester(blake3::Hasher);

impl Digester {
    /// An empty digester.
    pub fn new() -> Digester {
        Digester::default()
    }

    /// Feeds a value.
    pub fn value(&mut self, value: impl Hash) -> &mut Digester {
        value.hash(&mut Sink(&mut self.0));
        self
    }

    /// The digest of all values fed so far.
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }

    /// The first half of the digest.
    pub fn finish_half(&self) -> u128 {
        let digest = self.finish().0;
        let (half, _) = digest.split_first_chunk::<16>().expect("a digest has 32 bytes");
        u128::from_le_bytes(*half)
    }
}

/// Feeds numbers in the same bytes on every platform.
struct Sink<'a>(&'a mut blake3::Hasher);

impl Hasher for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn write_u16(&mut self, number: u16) {
        self.write(&number.to_le_bytes());
    }

    fn write_u32(&mut self, number: u32) {
        self.write(&number.to_le_bytes());
    }

    fn write_u64(&mut self, number: u64) {
        self.write(&number.to_le_bytes());
    }

    fn write_u128(&mut self, number: u128) {
        self.write(&number.to_le_bytes());
    }

    fn write_usize(&mut self, number: usize) {
        self.write(&(number as u64).to_le_bytes());
    }

    fn write_isize(&mut self, number: isize) {
        self.write(&(number as i64).to_le_bytes());
    }

    fn finish(&self) -> u64 {
        let digest = *self.0.finalize().as_bytes();
        let (first, _) = digest.split_first_chunk::<8>().expect("a digest has 32 bytes");
        u64::from_le_bytes(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_have_digests_that_differ() {
        #[derive(Hash)]
        enum Shape {
            Point,
            Line { length: u32 },
        }
        let of = |feed: &dyn Fn(&mut Digester)| {
            let mut digester = Digester::new();
            feed(&mut digester);
            digester.finish()
        };
        let digests = [
            of(&|_| ()),
            of(&|all| _ = all.value("ab").value("c")),
            of(&|all| _ = all.value("a").value("bc")),
            of(&|all| _ = all.value(vec![1_u8, 2]).value(Vec::<u8>::new())),
            of(&|all| _ = all.value(vec![1_u8]).value(vec![2_u8])),
            of(&|all| _ = all.value(None::<u32>)),
            of(&|all| _ = all.value(Some(7_u32))),
            of(&|all| _ = all.value([Shape::Point, Shape::Point].as_slice())),
            of(&|all| _ = all.value(Shape::Line { length: 0 })),
            of(&|all| _ = all.value(Shape::Line { length: 1 })),
        ];
        for (place, digest) in digests.iter().enumerate() {
            assert!(!digests[..place].contains(digest), "{place}");
        }
    }
}
