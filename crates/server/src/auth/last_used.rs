//! When each key was last used, since the server started.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{PoisonError, RwLock};

use bursar_core::time::Timestamp;

use super::Principal;

/// The last use of each key, by the hash of its secret.
///
/// Every request notes one, so noting a known key takes no exclusive lock. Only valid keys are
/// noted: there are at most as many entries as keys, until revoked ones are removed.
#[derive(Default)]
pub struct LastUses(RwLock<HashMap<[u8; 32], AtomicI64>>);

impl LastUses {
    /// Notes that a caller's key was used, by itself or by a session of it.
    pub(crate) fn note(&self, principal: &Principal, now: Timestamp) {
        let Some(secret_hash) = principal.secret_hash else { return };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = known.get(&secret_hash) {
            last.fetch_max(now.millis(), Ordering::Relaxed);
            return;
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(secret_hash).or_default().fetch_max(now.millis(), Ordering::Relaxed);
    }

    /// When a key was last used; `None` if it was not used since the server started.
    pub(crate) fn of(&self, secret_hash: &[u8; 32]) -> Option<Timestamp> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.get(secret_hash).map(|last| Timestamp::from_millis(last.load(Ordering::Relaxed)))
    }

    /// Drops keys that are not kept any more. Called periodically.
    pub fn retain(&self, mut is_kept: impl FnMut(&[u8; 32]) -> bool) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|secret_hash, _| is_kept(secret_hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_use_of_a_key_is_kept_until_the_key_is_gone() {
        let (uses, at) = (LastUses::default(), Timestamp::from_millis);
        let key = |byte| Principal { secret_hash: Some([byte; 32]), ..Principal::root() };
        uses.note(&Principal::root(), at(1));
        assert_eq!(uses.of(&[1; 32]), None);
        for (byte, millis) in [(1, 5), (2, 7), (1, 9), (1, 8)] {
            uses.note(&key(byte), at(millis));
        }
        assert_eq!((uses.of(&[1; 32]), uses.of(&[2; 32])), (Some(at(9)), Some(at(7))));
        uses.retain(|secret_hash| *secret_hash == [2; 32]);
        assert_eq!((uses.of(&[1; 32]), uses.of(&[2; 32])), (None, Some(at(7))));
    }
}
