//! The list of seeded bugs.

macro_rules! bugs {
    ($($(#[$meta:meta])* $bug:ident,)*) => {
        /// A known mistake.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug {
            $($(#[$meta])* $bug,)*
        }

        impl Bug {
            /// Every bug.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];

            /// The name that switches it on.
            pub fn name(self) -> &'static str {
                match self {
                    $(Bug::$bug => stringify!($bug),)*
                }
            }
        }
    };
}

bugs! {
    /// A write is answered before its append has completed.
    AnswersBeforeDurable,
    /// A read is answered although the lease is no longer trusted.
    ReadsWithoutLease,
    /// A lease is trusted for longer than the store keeps it.
    TrustOutlivesLease,
    /// A new owner serves before its barrier is durable.
    SkipsBarrier,
    /// A takeover continues from a state with batches that the journal has lost.
    TakesOverLostHistory,
    /// A writer that stops drops its last batch and answers it.
    StopsWithoutFlush,
    /// A follower shows batches that are not known to be durable.
    FollowerShowsUnsynced,
    /// A courier delivers messages that are not known to be durable.
    CourierSendsUnsynced,
    /// A courier continues after a group that the receiver took in part.
    CourierSkipsUntaken,
    /// A snapshot of another history is used.
    TrustsForeignSnapshot,
    /// Replay drops the last record of a batch of several.
    ReplayDropsLastRecord,
    /// Of a group that is refused, what was applied stays.
    KeepsHalfOfGroup,
    /// A clock that jumped ahead is followed at once.
    FollowsClockJump,
    /// The time of a machine follows a clock that was set back.
    TimeRunsBack,
    /// What leaves memory is not put into the archive first.
    ForgetsBeforeArchiving,
    /// Something is added to the archive at a position that was looked up.
    ArchivesAtPastPosition,
    /// A forgotten name is not looked up.
    SkipsLookUp,
    /// The journal appends under any epoch and after any head.
    AppendsWithoutEpoch,
    /// The hashes of batches are not compared.
    SkipsHashChain,
    /// A torn frame counts as a batch.
    AcceptsTornFrame,
    /// A message that was taken before is taken again.
    TakesMessageTwice,
    /// A message that comes too early is taken.
    TakesMessageTooEarly,
    /// The mark moves and the effect of the message is lost.
    MarksWithoutEffect,
    /// The answer to a request is not kept for its idempotency key.
    ForgetsAnswer,
    /// A kept answer is given to another request with the same key.
    IgnoresFingerprint,
    /// A refund may exceed what was spent.
    RefundsMoreThanSpent,
    /// A hold may be refunded again and again.
    IgnoresEarlierRefund,
    /// Credits of the nearest account are spent first, whenever they expire.
    SpendsNearestFirst,
    /// Credits expire one millisecond early.
    ExpiresEarly,
    /// A budget counts what was spent and not what is held.
    BudgetIgnoresHeld,
    /// A capture with an earlier number counts.
    TakesStaleCapture,
    /// A final charge is rounded up.
    RoundsChargeUp,
    /// The lease of a running job's hold is seconds, and reports do not renew it.
    HoldLapsesWhileRunning,
    /// The hold of an ended attempt stays open.
    KeepsHoldOfEndedAttempt,
    /// A job is confirmed in two regions.
    ConfirmsTwice,
    /// A report of an earlier start of an agent counts.
    TakesStaleReport,
    /// A node is lost while its agent may still run jobs.
    LosesNodeEarly,
    /// A job starts again while a part of it may still run elsewhere.
    SkipsFence,
    /// GPUs are given back to a quota twice.
    GivesQuotaTwice,
    /// GPU time counts as the agent reports it, without a limit.
    TrustsAgentClock,
    /// A start is ordered before the ledger has confirmed it.
    StartsUnconfirmed,
    /// The number of a refused attempt is used again.
    ReusesAttemptNumber,
}

#[cfg(test)]
mod tests {
    use super::Bug;
    use crate::seeded;

    #[test]
    fn without_the_variable_there_is_no_bug() {
        assert!(Bug::ALL.iter().all(|bug| !seeded(*bug)));
    }
}
