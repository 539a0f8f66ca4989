//! Hands a session over to the command line: a page approves it and gets a code, and the command
//! line redeems the code once, with the text whose hash it gave the page.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bursar_core::time::Timestamp;
use subtle::ConstantTimeEq;

use super::{LiveSession, random_text};
use crate::auth::hash;

/// How long a code is valid.
const LIFETIME_MS: i64 = 60_000;
/// The most codes that are kept, and of one tenant.
const MAX_CODES: usize = 1_000;
const MAX_OF_TENANT: usize = 50;

struct Approved {
    session: LiveSession,
    /// The hash of the text that redeems the code.
    challenge: [u8; 32],
    until: Timestamp,
}

/// Codes that were approved and not redeemed yet, by the hash of the code.
#[derive(Default)]
pub struct Handoffs(Mutex<HashMap<[u8; 32], Approved>>);

impl Handoffs {
    /// Approves to hand a session over; returns the code. `None` if too many are under way.
    pub(crate) fn approve(
        &self,
        session: LiveSession,
        challenge: [u8; 32],
        now: Timestamp,
    ) -> Option<String> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        codes.retain(|_, approved| now <= approved.until);
        let tenant = session.principal.tenant();
        let is_own = |approved: &&Approved| approved.session.principal.tenant() == tenant;
        let of_tenant = codes.values().filter(is_own).count();
        if codes.len() >= MAX_CODES || of_tenant >= MAX_OF_TENANT {
            return None;
        }
        let code = random_text();
        let until = now.plus_millis(LIFETIME_MS);
        codes.insert(hash(&code), Approved { session, challenge, until });
        Some(code)
    }

    /// The session of a code. A code is used up by the first attempt.
    pub(crate) fn redeem(&self, code: &str, verifier: &str, now: Timestamp) -> Option<LiveSession> {
        let mut codes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let approved = codes.remove(&hash(code)).filter(|approved| now <= approved.until)?;
        bool::from(approved.challenge.ct_eq(&hash(verifier))).then_some(approved.session)
    }
}

/// Reads a challenge: 64 hexadecimal digits.
pub(crate) fn read_challenge(text: &str) -> Option<[u8; 32]> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Principal;

    #[test]
    fn a_code_is_redeemed_once_in_time_and_with_the_right_text() {
        let (handoffs, at) = (Handoffs::default(), Timestamp::from_millis);
        let approve =
            || handoffs.approve(LiveSession::of_root(), hash("v"), at(0)).expect("there is room");
        let code = approve();
        assert!(handoffs.redeem(&code, "v", at(60_000)).is_some());
        assert!(handoffs.redeem(&code, "v", at(0)).is_none(), "once");
        let code = approve();
        assert!(handoffs.redeem(&code, "w", at(0)).is_none());
        assert!(handoffs.redeem(&code, "v", at(0)).is_none(), "a wrong text uses it up");
        let code = approve();
        assert!(handoffs.redeem(&code, "v", at(60_001)).is_none());
        assert!(handoffs.redeem("x", "v", at(0)).is_none());
    }

    #[test]
    fn codes_are_bounded_in_all_and_for_each_tenant() {
        let handoffs = Handoffs::default();
        let approve = |tenant: String, millis| {
            let principal = Principal { scope: Some(tenant.as_str().into()), ..Principal::root() };
            let session = LiveSession { principal, ..LiveSession::of_root() };
            handoffs.approve(session, hash("v"), Timestamp::from_millis(millis)).is_some()
        };
        let of_one = (0..100).filter(|_| approve("acme".into(), 0)).count();
        assert_eq!(of_one, MAX_OF_TENANT, "a tenant leaves room for others");
        let others = (0..2_000).filter(|number| approve(format!("org{}", number % 100), 0));
        assert_eq!(others.count(), MAX_CODES - MAX_OF_TENANT);
        assert!(approve("acme".into(), 60_001), "old ones are gone");
    }
}
