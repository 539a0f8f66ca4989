//! Errors of a timeline.

use std::error::Error;
use std::fmt;

/// Why [`Timeline`](super::Timeline) refused an operation. A refused operation changes nothing.
///
/// The variants stand in order of precedence: the first that applies is the one returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineError {
    /// The amount is zero. Returned by every operation.
    ZeroAmount,
    /// The pack would expire before it starts. Returned by `add_credits`.
    ExpiresBeforeStart {
        /// The first instant of the pack.
        at: i64,
        /// Its last instant, which lies before `at`.
        expires_at: i64,
    },
    /// The sum of all recorded amounts would leave the range in which sums are exact. Returned by
    /// every operation.
    Overflow,
    /// The spendable amount at that moment is too small. Returned by `try_consume`.
    Insufficient {
        /// The amount that could be consumed there.
        available: u128,
    },
    /// The amount is spendable, but recorded consumptions depend on it. Returned by `try_consume`.
    Committed {
        /// The sum by which the shortfalls of the other consumptions would grow.
        shortfall: u128,
    },
}

impl fmt::Display for TimelineError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroAmount => write!(formatter, "the amount is zero; use at least 1"),
            Self::ExpiresBeforeStart { at, expires_at } => write!(
                formatter,
                "the pack would expire at {expires_at}, before it starts at {at}; \
                 use an expiry of {at} or later"
            ),
            Self::Overflow => {
                write!(formatter, "the sum of all amounts is out of range; use a smaller amount")
            }
            Self::Insufficient { available } => write!(
                formatter,
                "only {available} can be spent at that instant; consume at most that"
            ),
            Self::Committed { shortfall } => write!(
                formatter,
                "recorded consumptions would come up short by {shortfall}; \
                 add credits or consume less"
            ),
        }
    }
}

impl Error for TimelineError {}
