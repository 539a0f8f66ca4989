//! The stored form of what the ledger and the cells tell each other, and of the words it is made of.
//!
//! Both machines store their messages, so both share these numbers. Tags and keys are never reused.

use bursar_core::cell::command::{
    AccountPolicy, FundsBlocker, GroupSpec, JobSpec, QuotaSpec, Verdict,
};
use bursar_core::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::ids::{AttemptId, ClassRank, JobId};
use bursar_core::cell::shape::GpuDemand;
use bursar_core::message::{ProposedMember, ToCell, ToLedger};
use bursar_core::time::Timestamp;
use compact_str::CompactString;
use smallvec::SmallVec;

use super::ledger::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_enum, stored_struct,
};

/// The stored form of small lists: an array, as for any list.
macro_rules! stored_small_list {
    ($($item:ty; $inline:literal),*) => { $(
        impl $crate::record::ledger::wire::Stored for smallvec::SmallVec<[$item; $inline]> {
            fn write(&self, out: &mut $crate::record::ledger::wire::Writer<'_>) {
                out.array(self.len());
                self.iter().for_each(|item| item.write(out));
            }

            fn read(
                input: &mut $crate::record::ledger::wire::Reader<'_>,
            ) -> Result<Self, $crate::record::ledger::wire::FormatError> {
                (0..input.array()?).map(|_| <$item>::read(input)).collect()
            }
        }
    )* };
}
pub(super) use stored_small_list;

stored_small_list!(CompactString; 1, CompactString; 2, ProposedMember; 1);

impl Stored for i32 {
    fn write(&self, out: &mut Writer<'_>) {
        out.signed((*self).into());
    }

    fn read(input: &mut Reader<'_>) -> Result<i32, FormatError> {
        let value = input.signed()?;
        i32::try_from(value).map_err(|_| FormatError::impossible("i32", value))
    }
}

/// Shard and number, as two values without a head of their own: small ones stay small.
fn write_job(job: JobId, out: &mut Writer<'_>) {
    job.shard().write(out);
    out.unsigned(job.number());
}

fn read_job(input: &mut Reader<'_>) -> Result<JobId, FormatError> {
    let (shard, number) = (u16::read(input)?, input.unsigned()?);
    let job = JobId(u64::from(shard) << 48 | number & (u64::MAX >> 16));
    if job.number() != number {
        return Err(FormatError::impossible("the number of a job", number));
    }
    Ok(job)
}

/// `[shard, number]`.
impl Stored for JobId {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(2);
        write_job(*self, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<JobId, FormatError> {
        input.array_of("a job", 2)?;
        read_job(input)
    }
}

/// `[shard, number, attempt]`.
impl Stored for AttemptId {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(3);
        write_job(self.job, out);
        self.number.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<AttemptId, FormatError> {
        input.array_of("an attempt", 3)?;
        Ok(AttemptId { job: read_job(input)?, number: u32::read(input)? })
    }
}

impl Stored for ClassRank {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<ClassRank, FormatError> {
        u8::read(input).map(ClassRank)
    }
}

stored_enum!(GpuDemand {
    0 None {};
    1 Share(thousandths);
    2 Whole(count);
});

stored_struct!(GroupSpec { 0 name, 1 limit });

stored_struct!(JobSpec {
    0 job,
    1 account,
    2 class = ClassRank::NORMAL,
    3 gpu,
    4 models = SmallVec::new(),
    5 gpu_memory_mib = 0,
    6 cpu_milli = 0,
    7 memory_mib = 0,
    8 labels = SmallVec::new(),
    9 nodes = 1,
    10 max_runtime_ms = None,
    11 preemptible = true,
    12 grace_ms = 60_000,
    13 group = None,
    14 max_requeues = 3,
    15 submitted_at = Timestamp::default(),
    16 attempts_before = 0,
    17 payload = Box::default(),
});

stored_struct!(QuotaSpec {
    0 gpus = Vec::new(),
    1 total_gpus = None,
    2 running_jobs = None,
    3 waiting_jobs = None,
});

stored_struct!(AccountPolicy {
    0 path,
    1 weight = 1,
    2 frozen = false,
    3 quota = QuotaSpec::default(),
});

stored_choice!(FundsBlocker { 0 Credits, 1 Budget, 2 Frozen });

stored_enum!(Verdict {
    0 Withdraw {};
    1 Wait(blocker);
});

stored_enum!(StopReason {
    0 Cancelled {};
    1 Preempted { 0 by, 1 for_share = false };
    2 Operator {};
    3 Drained {};
    4 MaxRuntime {};
    5 OutOfCredits {};
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
});

stored_struct!(ProposedMember { 0 node, 1 gpus });

stored_enum!(ToCell {
    0 AccountPolicyChanged(policy);
    1 JobAdmitted(spec);
    2 PlacementConfirmed { 0 attempt, 1 price, 2 funded_ms = None };
    3 PlacementRefused { 0 attempt, 1 verdict };
    4 FundingChanged { 0 attempt, 1 funded_ms = None };
    5 FundsRefused { 0 attempt };
    6 CancelRequested { 0 job };
    7 JobWithdrawn { 0 job };
});

stored_enum!(ToLedger {
    0 PlacementProposed { 0 attempt, 1 gpu_type = None, 2 members };
    1 AttemptStarted { 0 attempt };
    2 UsageMetered(usage);
    3 FundsNeeded { 0 attempt };
    4 StopOrdered { 0 attempt, 1 reason };
    5 AttemptEnded { 0 attempt, 1 outcome, 2 gpu_ms = 0, 3 exit_code = None, 4 requeued = None };
    6 JobEnded { 0 job, 1 outcome };
});
