//! The stored form of jobs, quotas and cells.

use bursar_core::cell::ids::ClassRank;
use bursar_core::credits::Credits;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::accounts::region::CellBook;
use bursar_core::ledger::id::{CellNo, JobNo, Name};
use bursar_core::ledger::jobs::table::Review;
use bursar_core::ledger::jobs::{
    ArchivedJob, Attempt, AttemptEnd, EndReason, Job, JobOrder, JobState, Offer, Standing,
};
use bursar_core::message::{Mark, ProposedNode};
use bursar_core::name::GpuModel;
use bursar_core::opaque::Opaque;
use smallvec::SmallVec;

use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_struct,
};

stored_choice!(JobState {
    0 Queued, 1 Starting, 2 Running, 3 Stopping, 4 Succeeded, 5 Failed, 6 Cancelled, 7 Lost,
    8 OutOfCredits, 9 TimedOut,
});
stored_choice!(EndReason {
    0 Succeeded, 1 Failed, 2 Cancelled, 3 Preempted, 4 Operator, 5 Drained, 6 TimedOut,
    7 OutOfCredits, 8 Lost,
});

stored_struct!(Offer {
    0 gpu_type,
    1 region,
    2 per_gpu_hour,
});

stored_struct!(JobOrder {
    0 id,
    1 account,
    2 terms,
    3 offers,
    4 payload = Opaque::default(),
    5 submitted = Opaque::default(),
    6 hold,
    7 fingerprint,
});

stored_struct!(Job {
    0 order,
    1 state,
    2 submitted_at,
    3 ended_at = None,
    4 reserved = Credits::ZERO,
    5 hold = None,
    6 hold_name = None,
    7 holds = 0,
    8 after = Vec::new(),
    9 standings = SmallVec::new(),
    10 attempts = Vec::new(),
    11 highest = 0,
    12 cancel_asked = false,
});

stored_struct!(ArchivedJob {
    0 number,
    1 job,
});

stored_struct!(Standing {
    0 cell,
    1 after = 0,
    2 waits = false,
});

stored_struct!(Attempt {
    0 cell = None,
    1 number,
    2 gpu_type = None,
    3 nodes = SmallVec::new(),
    4 per_gpu_hour,
    5 hold = None,
    6 confirmed_at,
    7 started_at = None,
    8 funded_ms = None,
    9 overdraft = 0,
    10 end = None,
    11 short = false,
    12 credits_ms = None,
    13 warned = None,
});

stored_struct!(AttemptEnd {
    0 at,
    1 reason,
    2 exit_code = None,
    3 gpu_ms = 0,
    4 charged = 0,
    5 uncollected = 0,
    6 returned = 0,
});

stored_struct!(ProposedNode {
    0 node,
    1 gpus,
});

stored_struct!(Review {
    0 at,
    1 from,
    2 retry_at = None,
});

stored_struct!(CellBook {
    0 region,
    1 shard = 0,
    2 sent = 0,
    3 mark = Mark::default(),
});

/// Limits by GPU type as a list of pairs, in the order of the names.
impl Stored for Quota {
    fn write(&self, out: &mut Writer<'_>) {
        let Quota { gpus, running_jobs, waiting_jobs } = self;
        let gpus: Vec<(Name, u32)> =
            gpus.iter().map(|(name, count)| (name.clone(), *count)).collect();
        QuotaForm { gpus, running_jobs: *running_jobs, waiting_jobs: *waiting_jobs }.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Quota, FormatError> {
        let QuotaForm { gpus, running_jobs, waiting_jobs } = QuotaForm::read(input)?;
        if !gpus.is_sorted_by(|(one, _), (other, _)| one < other) {
            return Err(FormatError::impossible("a quota", "a list out of order"));
        }
        Ok(Quota { gpus: gpus.into_iter().collect(), running_jobs, waiting_jobs })
    }
}

struct QuotaForm {
    gpus: Vec<(Name, u32)>,
    running_jobs: Option<u32>,
    waiting_jobs: Option<u32>,
}

stored_struct!(QuotaForm {
    0 gpus = Vec::new(),
    1 running_jobs = None,
    2 waiting_jobs = None,
});

impl Stored for JobNo {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<JobNo, FormatError> {
        u64::read(input).map(JobNo)
    }
}

impl Stored for CellNo {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.0.into());
    }

    fn read(input: &mut Reader<'_>) -> Result<CellNo, FormatError> {
        u16::read(input).map(CellNo)
    }
}

impl Stored for ClassRank {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.0.into());
    }

    fn read(input: &mut Reader<'_>) -> Result<ClassRank, FormatError> {
        u8::read(input).map(ClassRank)
    }
}

impl Stored for i32 {
    fn write(&self, out: &mut Writer<'_>) {
        out.signed((*self).into());
    }

    fn read(input: &mut Reader<'_>) -> Result<i32, FormatError> {
        let value = input.signed()?;
        i32::try_from(value).map_err(|_| FormatError::impossible("i32", value))
    }
}

macro_rules! stored_short_list {
    ($($type:ty),*) => { $(
        impl Stored for SmallVec<$type> {
            fn write(&self, out: &mut Writer<'_>) {
                out.array(self.len());
                self.iter().for_each(|element| element.write(out));
            }

            fn read(input: &mut Reader<'_>) -> Result<SmallVec<$type>, FormatError> {
                (0..input.array()?).map(|_| Stored::read(input)).collect()
            }
        }
    )* };
}

stored_short_list!([Standing; 1], [ProposedNode; 1], [Name; 1], [GpuModel; 2]);
