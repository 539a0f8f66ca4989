//! First-expiring-first-out pools of credits.
