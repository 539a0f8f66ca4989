//! The stored form of messages to a cell.

use bursar_core::cell::command::{AccountPolicy, FundsBlocker, QuotaSpec, Verdict};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::message::ToCell;

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
