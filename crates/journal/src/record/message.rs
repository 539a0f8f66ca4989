//! The stored form of messages of a cell to ledgers, and of their parts. Messages of ledgers to a
//! cell are in [`super::ledger`]. Both machines share the numbers. Tags and keys are never reused.

use bursar_core::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::schedule::preemption::cause::PreemptionCause;
use bursar_core::message::{Mark, ToLedger};

use super::codec::wire::{stored_choice, stored_enum, stored_struct};

/// The stored form of small lists: an array, as for any list.
macro_rules! stored_small_list {
    ($($item:ty; $inline:literal),*) => { $(
        impl $crate::record::codec::wire::Stored for smallvec::SmallVec<[$item; $inline]> {
            fn write(&self, out: &mut $crate::record::codec::wire::Writer<'_>) {
                out.array(self.len());
                self.iter().for_each(|item| item.write(out));
            }

            fn read(
                input: &mut $crate::record::codec::wire::Reader<'_>,
            ) -> Result<Self, $crate::record::codec::wire::FormatError> {
                (0..input.array()?).map(|_| <$item>::read(input)).collect()
            }
        }
    )* };
}
pub(super) use stored_small_list;

stored_struct!(Mark { 0 number, 1 position });

stored_enum!(StopReason {
    0 Cancelled {};
    1 Preempted { 0 by, 1 for_share = false, 2 cause = None };
    2 Operator { 0 by_platform = false };
    3 Drained {};
    4 MaxRuntime {};
    5 OutOfCredits {};
});

stored_enum!(PreemptionCause {
    0 Class { 0 victim, 1 taker };
    1 Share { 0 victim_used = 0, 1 taker_used = 0, 2 ran_ms = 0, 3 quantum_ms = 0 };
    2 OwnJob { 0 victim_gpus = 0, 1 taker_gpus = 0 };
    3 Guest { 0 start_at };
});

stored_enum!(AttemptOutcome {
    0 Succeeded {};
    1 Failed {};
    2 Stopped(reason);
    3 Lost {};
});

stored_choice!(JobOutcome {
    0 Succeeded,
    1 Failed,
    2 Cancelled,
    3 Lost,
    4 OutOfCredits,
    5 TimedOut,
    6 Withdrawn,
    7 WaitingQuota,
    8 TooManyDemands,
});

stored_enum!(ToLedger {
    0 PlacementProposed { 0 attempt, 1 gpu_type = None, 2 nodes };
    1 AttemptStarted { 0 attempt };
    2 UsageMetered(usage);
    3 FundsNeeded { 0 attempt };
    4 StopOrdered { 0 attempt, 1 reason };
    5 AttemptEnded { 0 attempt, 1 outcome, 2 gpu_ms = 0, 3 exit_code = None, 4 requeued = None };
    6 JobEnded { 0 job, 1 outcome };
});
