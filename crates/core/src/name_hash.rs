//! Tables over names that callers choose.
//!
//! Each table hashes under keys of its own, drawn when it is made. A caller that knows the hash
//! function but not the keys cannot choose many names that fall into one place. The keys decide where
//! in a table a name lies and nothing else: such a table is only looked into, never gone through, so
//! no event, answer, digest or image depends on them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

/// A map by names that callers choose. It must not be iterated.
pub(crate) type NameMap<K, V> = HashMap<K, V, NameHasher>;

/// Hashes names under keys of its own.
#[derive(Clone, Debug)]
pub(crate) struct NameHasher(SeedableRandomState);

/// A number that no caller knows: the standard library draws its keys from the operating system.
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

    /// Names that all fall into one place of a table of 2^16 under a hash without a key.
    fn collisions() -> Vec<String> {
        let names = (0..u32::MAX).map(|number| format!("job-{number}"));
        let falls = |name: &String| FxBuildHasher.hash_one(name.as_str()) & 0xffff == 0x1234;
        names.filter(falls).take(64).collect()
    }

    #[test]
    fn names_that_were_chosen_to_collide_do_not() {
        let hasher = NameHasher::default();
        let names = collisions();
        let places: BTreeSet<u64> =
            names.iter().map(|name| hasher.hash_one(name.as_str()) & 0xffff).collect();
        assert!(places.len() > 50, "{} places for {} names", places.len(), names.len());
    }

    #[test]
    fn each_table_has_keys_of_its_own_and_a_copy_has_the_same() {
        let (one, other) = (NameHasher::default(), NameHasher::default());
        let hashes = |of: &NameHasher| ["a", "b", "c"].map(|name| of.hash_one(name));
        assert_ne!(hashes(&one), hashes(&other));
        assert_eq!(hashes(&one), hashes(&one.clone()));
    }
}
