//! The stored form of whole jobs and attempts in a snapshot.

use bursar_core::cell::image::{
    AttemptNode, AttemptNodePhase, CellAttempt, CellJob, EndedAttempt, Funded, Held, Occupancy,
    Phase, Stop, Timer, Waiting,
};
use bursar_core::cell::nodes::node::GpuSet;
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use crate::record::codec::wire::{stored_enum, stored_struct};
use crate::record::message::stored_small_list;

stored_small_list!(AttemptNode; 1, (Timestamp, Timer); 2);

stored_enum!(Occupancy {
    0 Within(power);
    1 Unlimited {};
});

stored_struct!(CellJob {
    0 spec,
    1 account,
    2 request,
    3 shape,
    4 group = None,
    5 ticket,
    6 submitted_at,
    7 attempts = 0,
    8 requeues = 0,
    9 share_preemptions = 0,
    10 preempted_by = None,
    11 failed_plans = 0,
    12 plan_after,
    13 phase,
    14 guest_turns = 0,
    15 unsent_end = None,
    16 preemption = None,
});

stored_struct!(EndedAttempt {
    0 attempt,
    1 outcome,
    2 gpu_ms = 0,
    3 exit_code = None,
    4 requeued = None,
});

stored_enum!(Phase {
    0 Waiting(waiting);
    1 Active(attempt);
});

stored_enum!(Waiting {
    0 Competing {};
    1 Group {};
    2 Funds(blocker);
    3 Delayed(until);
    4 Nominated {};
    5 Moving {};
});

stored_struct!(CellAttempt {
    0 id,
    1 model = None,
    2 price,
    3 nodes,
    4 proposed_at,
    5 confirmed = false,
    6 running_since = None,
    7 funded = None,
    8 stop = None,
    9 entry_micros = 0,
    10 used_micros = 0,
    11 timers = SmallVec::new(),
});

stored_struct!(AttemptNode {
    0 node,
    1 gpus = GpuSet::EMPTY,
    2 gpu_ms = 0,
    3 exit_code = None,
    4 phase,
});

stored_enum!(AttemptNodePhase {
    0 Silent {};
    1 Running { 0 since };
    2 Ended(end);
});

stored_struct!(Funded { 0 total_ms, 1 last_ms });

stored_struct!(Stop { 0 reason, 1 ordered_at, 2 kill_at, 3 killed = false });

stored_struct!(Held {
    0 gpus = GpuSet::EMPTY,
    1 shape,
    2 class,
    3 preemptible = false,
    4 fenced = false,
    5 reported = false,
    6 until,
});
