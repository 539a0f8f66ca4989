//! Faults on demand, for tests of a whole server. There are none in release builds.

use std::sync::OnceLock;

/// The variable that names words, joined by `&`, of what must not be decided.
const WORDS: &str = "BURSAR_DEBUG_PANIC";

/// Panics if what was decided has all of the words in it. What sets it aside may have them.
pub(crate) fn strike(decided: impl FnOnce() -> String) {
    static KNOWN: OnceLock<Option<String>> = OnceLock::new();
    if let Some(words) = KNOWN.get_or_init(|| std::env::var(WORDS).ok()) {
        let decided = decided();
        let is_meant = words.split('&').all(|word| decided.contains(word));
        assert!(!is_meant || decided.contains("SetAside"), "told to panic at `{words}`");
    }
}
