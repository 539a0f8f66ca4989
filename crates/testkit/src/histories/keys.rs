//! No key is accepted after its revocation was answered, or after an answer said that it is revoked.

use std::collections::BTreeMap;

use super::PromiseKind::{RevokedKeyAccepted, ValidKeyRefused};
use super::{BrokenPromise, CallOutcome, ClientCall, ClientHistory, KeyLife, broken};

/// Verifies every answer against the life of its key.
pub(super) fn check(history: &ClientHistory) -> Result<(), BrokenPromise> {
    let lives: BTreeMap<&str, &KeyLife> =
        history.keys.iter().map(|life| (life.bearer.as_str(), life)).collect();
    // When a key was first known to be refused.
    let mut refused: BTreeMap<&str, u64> = BTreeMap::new();
    for call in answered(history).filter(|call| call.outcome == CallOutcome::Unauthenticated) {
        let Some(life) = lives.get(call.bearer.as_str()) else { continue };
        let may_be_revoked = life.revoked.is_some_and(|(asked, _)| asked < call.returned);
        if life.made <= call.invoked && !may_be_revoked {
            return broken(ValidKeyRefused, named(call));
        }
        if life.made <= call.invoked {
            let first = refused.entry(call.bearer.as_str()).or_insert(call.returned);
            *first = call.returned.min(*first);
        }
    }
    for call in answered(history).filter(|call| call.outcome != CallOutcome::Unauthenticated) {
        let Some(life) = lives.get(call.bearer.as_str()) else {
            return broken(RevokedKeyAccepted, format!("{}: it was never made", named(call)));
        };
        let revoked = life.revoked.and_then(|(_, answered)| answered);
        let known = revoked.into_iter().chain(refused.get(call.bearer.as_str()).copied()).min();
        if known.is_some_and(|known| known < call.invoked) {
            return broken(RevokedKeyAccepted, named(call));
        }
    }
    Ok(())
}

fn answered(history: &ClientHistory) -> impl Iterator<Item = &ClientCall> {
    history.calls.iter().filter(|call| call.outcome != CallOutcome::Unknown)
}

fn named(call: &ClientCall) -> String {
    format!("key {}, client {} at {}", call.bearer, call.client, call.invoked)
}
