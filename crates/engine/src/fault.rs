//! Faults on demand, for tests of a whole server. Compiled out of release builds.

use std::fmt::Debug;
use std::sync::OnceLock;

use bursar_core::machine::Machine;

use crate::codec::RecordOrigin;

/// The environment variable with the words, joined by `&`, that make a decision panic.
const WORDS: &str = "BURSAR_DEBUG_PANIC";

/// Panics if the decision contains all of the words. A decision that sets something aside is
/// exempt.
pub(crate) fn panic_on_demand<M>(origin: &RecordOrigin<'_, M>, events: &[M::Event])
where
    M: Machine<Command: Debug, Event: Debug>,
{
    static KNOWN: OnceLock<Option<String>> = OnceLock::new();
    let Some(words) = KNOWN.get_or_init(|| std::env::var(WORDS).ok()) else { return };
    let decided = match origin {
        RecordOrigin::Due => format!("{events:?}"),
        RecordOrigin::Command { command, .. } => format!("{command:?} {events:?}"),
    };
    let is_meant = words.split('&').all(|word| decided.contains(word));
    assert!(!is_meant || decided.contains("SetAside"), "panic on demand at `{words}`");
}
