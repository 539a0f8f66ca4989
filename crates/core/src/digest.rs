//! One hash over a whole state, fed in a fixed order.

use std::fmt;

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

/// Collects values into a [`Digest`]. Every value is written with its length or a fixed width, so
/// that two different sequences of values never feed the same bytes.
#[derive(Default)]
pub struct Digester(blake3::Hasher);

impl Digester {
    /// An empty digester.
    pub fn new() -> Digester {
        Digester::default()
    }

    /// Feeds an integer.
    pub fn integer(&mut self, value: i128) -> &mut Digester {
        self.0.update(&value.to_le_bytes());
        self
    }

    /// Feeds bytes with their length.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Digester {
        // A usize fits in 128 bits on every platform.
        self.0.update(&(value.len() as u128).to_le_bytes());
        self.0.update(value);
        self
    }

    /// The digest of all values fed so far.
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}
