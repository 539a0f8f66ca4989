//! Hash tables over names that callers choose.
//!
//! Each table hashes with its own random keys, drawn when the table is created. A caller that knows
//! the hash function but not the keys cannot choose many names that collide. The keys determine
//! only the slot of a name. Such a table is used for look-ups and never iterated, so no event,
//! answer, digest or image depends on the keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// A map from names that callers choose. It must not be iterated.
pub(crate) type NameMap<K, V> = HashMap<K, V, NameHasher>;

/// Hashes names with its own random keys.
#[derive(Clone, Debug)]
pub(crate) struct NameHasher(SeedableRandomState);

/// A random number: the standard library seeds its keys from the operating system.
fn secret() -> u64 {
    RandomState::new().hash_one(0)
}

impl Default for NameHasher {
    fn default() -> NameHasher {
        static SHARED: OnceLock<SharedSeed> = OnceLock::new();
        let shared = SHARED.get_or_init(|| SharedSeed::from_u64(secret()));
        NameHasher(SeedableRandomState::with_seed(secret(), shared))
    }
}

impl BuildHasher for NameHasher {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> FoldHasher<'static> {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustc_hash::FxBuildHasher;

    use super::*;

    /// Names that all fall into one slot of a table of 2^16 under a hash without a key.
    fn collisions() -> Vec<String> {
        let names = (0..u32::MAX).map(|number| format!("job-{number}"));
        let falls = |name: &String| FxBuildHasher.hash_one(name.as_str()) & 0xffff == 0x1234;
        names.filter(falls).take(64).collect()
    }

    #[test]
    fn names_chosen_to_collide_do_not_collide() {
        let hasher = NameHasher::default();
        let names = collisions();
        let places: BTreeSet<u64> =
            names.iter().map(|name| hasher.hash_one(name.as_str()) & 0xffff).collect();
        assert!(places.len() > 50, "{} slots for {} names", places.len(), names.len());
    }

    #[test]
    fn each_table_has_its_own_keys_and_a_clone_has_the_same() {
        let (one, other) = (NameHasher::default(), NameHasher::default());
        let hashes = |of: &NameHasher| ["a", "b", "c"].map(|name| of.hash_one(name));
        assert_ne!(hashes(&one), hashes(&other));
        assert_eq!(hashes(&one), hashes(&one.clone()));
    }
}
