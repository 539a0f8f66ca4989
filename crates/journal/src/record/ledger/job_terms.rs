//! The stored form of what a job asks for: its terms in the ledger, and its specification for the cells.

use bursar_core::cell::command::{GroupSpec, JobSpec};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::ledger::jobs::{JobTerms, OnExhausted, Reserve, WARN_AHEAD_MS};
use bursar_core::name::ClassName;
use bursar_core::opaque::Opaque;
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use crate::record::codec::wire::{stored_choice, stored_enum, stored_struct};

stored_choice!(OnExhausted { 0 Stop, 1 Overdraft });

stored_enum!(Reserve {
    0 Full {};
    1 Rolling { 0 window_ms };
});

stored_enum!(GpuDemand {
    0 None {};
    1 Share(thousandths);
    2 Whole(count);
});

stored_struct!(GroupSpec {
    0 name,
    1 limit,
});

stored_struct!(JobTerms {
    0 class,
    1 rank,
    2 gpu,
    3 gpu_types = Vec::new(),
    4 nodes = 1,
    5 gpu_memory_mib = 0,
    6 cpu_milli = 0,
    7 memory_mib = 0,
    8 labels = Vec::new(),
    9 max_runtime_ms = None,
    10 preemptible = false,
    11 grace_ms = 0,
    12 reserve = Reserve::Full,
    13 on_exhausted = OnExhausted::Stop,
    14 group = None,
    15 max_requeues = 0,
    16 warn_ahead_ms = WARN_AHEAD_MS,
    17 resumable = false,
    18 external = false,
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
