//! Faults on demand, for tests of a whole server. Compiled out of release builds.

use std::sync::OnceLock;

/// The environment variable with the words, joined by `&`, that make a decision panic.
const WORDS: &str = "BURSAR_DEBUG_PANIC";

/// Panics if the decision contains all of the words. A decision that sets something aside is
/// exempt.
pub(crate) fn strike(decided: impl FnOnce() -> String) {
    static KNOWN: OnceLock<Option<String>> = OnceLock::new();
    if let Some(words) = KNOWN.get_or_init(|| std::env::var(WORDS).ok()) {
        let decided = decided();
        let is_meant = words.split('&').all(|word| decided.contains(word));
        assert!(!is_meant || decided.contains("SetAside"), "panic on demand at `{words}`");
    }
}
