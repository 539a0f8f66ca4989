//! The stored form of messages to a cell.

use bursar_core::cell::command::{AccountPolicy, FundsBlocker, JobSpec, QuotaSpec, Verdict};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::message::ToCell;
use bursar_core::name::ClassName;
use bursar_core::opaque::Opaque;
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_enum, stored_struct,
};

stored_enum!(ToCell {
    0 AccountPolicyChanged(policy);
    1 JobAdmitted(spec);
    2 PlacementConfirmed { 0 attempt, 1 price = 0, 2 funded_ms = None };
    3 PlacementRefused { 0 attempt, 1 verdict };
    4 FundingChanged { 0 attempt, 1 funded_ms = None };
    5 FundsRefused { 0 attempt };
    6 CancelRequested { 0 job };
    7 JobWithdrawn { 0 job };
});

stored_enum!(Verdict {
    0 Withdraw {};
    1 Wait(blocker);
});

stored_choice!(FundsBlocker { 0 Credits, 1 Budget, 2 Frozen });

stored_struct!(AccountPolicy {
    0 path,
    1 weight = 1,
    2 frozen = false,
    3 quota = QuotaSpec::default(),
});

stored_struct!(QuotaSpec {
    0 gpus = Vec::new(),
    1 total_gpus = None,
    2 running_jobs = None,
    3 waiting_jobs = None,
});

stored_struct!(JobSpec {
    0 job,
    1 account,
    2 class,
    3 gpu,
    4 models = SmallVec::new(),
    5 gpu_memory_mib = 0,
    6 cpu_milli = 0,
    7 memory_mib = 0,
    8 labels = SmallVec::new(),
    9 nodes = 1,
    10 max_runtime_ms = None,
    11 preemptible = false,
    12 grace_ms = 0,
    13 group = None,
    14 max_requeues = 0,
    15 submitted_at = Timestamp::from_millis(0),
    16 attempts_before = 0,
    17 payload = Opaque::default(),
    18 class_name = ClassName::default(),
    19 resumable = false,
});

/// `[job, number]`.
impl Stored for AttemptId {
    fn write(&self, out: &mut Writer<'_>) {
        (self.job, self.number).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<AttemptId, FormatError> {
        let (job, number) = Stored::read(input)?;
        Ok(AttemptId { job, number })
    }
}

impl Stored for JobId {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<JobId, FormatError> {
        u64::read(input).map(JobId)
    }
}
