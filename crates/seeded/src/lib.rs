//! Seeded bugs: known mistakes in the real code, each of which some check must find.
//!
//! A place that can be wrong asks [`seeded`]. With debug assertions the answer depends on the
//! variable `BURSAR_BUG`, which names one bug for the whole process. Without them the answer is
//! `false` at compile time, and nothing of the bug is in the program.
//!
//! [`caught`] runs tests of the same binary with a bug each and requires that they fail. Without a
//! bug they are ordinary tests, which pass.

mod bug;
pub mod caught;

pub use bug::Bug;

/// The name of the variable that switches a bug on.
pub const VARIABLE: &str = "BURSAR_BUG";

/// Whether this process has the bug.
#[cfg(debug_assertions)]
#[inline]
pub fn seeded(bug: Bug) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).ok()?;
        let named = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
        Some(named.unwrap_or_else(|| panic!("{VARIABLE} must name a seeded bug, not {name:?}")))
    });
    *chosen == Some(bug)
}

/// Whether this process has the bug: never without debug assertions.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn seeded(_: Bug) -> bool {
    false
}
