//! The stored form of events. Tags and keys are never reused. A field that is no longer written
//! keeps its number.

use bursar_core::cell::command::{NodeOffer, RequestKey, StoredAnswer};
use bursar_core::cell::config::CellConfig;
use bursar_core::cell::event::{AttemptNodeEnd, Event, Placement};
use bursar_core::cell::ids::{AccountId, MaintenanceId, RequestId};
use bursar_core::cell::nodes::node::{GpuSet, NodeId};
use bursar_core::cell::schedule::shape::ModelId;

use crate::record::codec::value::stored_number;
use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_enum, stored_struct,
};
use crate::record::message::stored_small_list;

stored_enum!(Event {
    0 MessageReceived { 0 shard, 1 number, 2 position };
    1 LedgerMessageSent { 0 shard, 1 number, 2 message };
    2 Configured(config);
    3 PriceSet { 0 model, 1 price };
    4 AccountSet(policy);
    5 NodeRegistered { 0 node, 1 offer, 2 incarnation, 3 lease_until, 4 kept_until = None };
    6 NodeReported { 0 node, 1 seq, 2 lease_until };
    7 NodeLost { 0 node };
    8 NodeDrained { 0 node };
    9 NodeResumed { 0 node };
    10 NodeRemoved { 0 node };
    11 MaintenancePlanned { 0 id, 1 from, 2 to, 3 nodes };
    12 MaintenanceBegan { 0 id };
    13 MaintenanceEnded { 0 id };
    14 JobQueued(spec);
    15 JobFunded { 0 job, 1 attempts_before = 0 };
    16 JobReleased { 0 job };
    17 JobHeldByGroup { 0 job };
    18 JobEnded { 0 job, 1 outcome };
    19 PlacementProposed { 0 attempt, 1 model = None, 2 placements };
    20 PlacementConfirmed { 0 attempt, 1 price, 2 funded_ms = None };
    21 PlacementRefused { 0 attempt, 1 blocker };
    22 AttemptStartedOnNode { 0 attempt, 1 node };
    23 UsageMetered { 0 node, 1 usage };
    24 AttemptEndedOnNode { 0 attempt, 1 node, 2 end, 3 exit_code = None };
    25 FundingSet { 0 attempt, 1 funded_ms = None };
    26 FundsNeeded { 0 attempt };
    27 FundingEnded { 0 attempt };
    28 StopOrdered { 0 attempt, 1 reason, 2 kill_at };
    29 CancelNoted { 0 attempt };
    30 KillOrdered { 0 attempt, 1 end_at };
    31 AttemptEnded { 0 attempt, 1 outcome, 2 gpu_ms = 0, 3 exit_code = None, 4 requeued = None };
    32 FenceLifted { 0 attempt, 1 node };
    33 RequestParked { 0 class, 1 request };
    34 RequestBlocked { 0 account, 1 request, 2 mixed = false };
    35 ReservationMade { 0 job, 1 model = None, 2 nodes, 3 start_at, 4 preempting = false, 5 guests = false };
    36 ReservationKept { 0 job };
    37 ReservationsDone { 0 class, 1 model = None };
    38 ReservationDropped { 0 job };
    39 ReviewBegan {};
    40 ReviewPassed { 0 class };
    41 PassEnded {};
    42 ClassSet { 0 class, 1 preempts = None };
    43 RequestDone { 0 request };
    44 AnswerKept { 0 request, 1 answer };
    45 RequestsForgotten { 0 requests };
    46 SetAside { 0 what, 1 digest };
    47 Rewound { 0 generation, 1 served = false };
    48 NodeCleared { 0 node };
});

stored_number!(NodeId, ModelId, AccountId, RequestId, MaintenanceId);

stored_small_list!(Placement; 1, NodeId; 1, AccountId; 1);

stored_choice!(AttemptNodeEnd { 0 Succeeded, 1 Failed, 2 Stopped });

stored_struct!(Placement { 0 node, 1 gpus = GpuSet::EMPTY });

/// One bit for each device.
impl Stored for GpuSet {
    fn write(&self, out: &mut Writer<'_>) {
        out.unsigned(self.bits());
    }

    fn read(input: &mut Reader<'_>) -> Result<GpuSet, FormatError> {
        input.unsigned().map(GpuSet::from_bits)
    }
}

stored_struct!(NodeOffer {
    0 name,
    1 rack,
    2 model,
    3 gpus,
    4 uuids = Vec::new(),
    5 gpu_memory_mib,
    6 cpu_milli,
    7 memory_mib,
    8 labels = Vec::new(),
    9 scope = None,
});

stored_struct!(RequestKey { 0 key, 1 fingerprint });

stored_struct!(StoredAnswer { 0 code, 1 body = None, 2 scope = None });

stored_struct!(CellConfig {
    0 half_life_ms,
    1 entry_charge_ms,
    2 ageing_after_ms,
    3 ageing_one_in,
    4 node_lease_ms,
    5 heartbeat_ms,
    6 meter_slack_ms,
    7 requeue_delay_ms,
    8 kill_timeout_ms,
    9 start_allowance_ms,
    10 assumed_runtime_ms,
    11 share_preemption,
    12 share_minimum_runtime_ms,
    13 review_ms,
    14 victims_per_review,
    15 plan_timeout_ms,
});

/// The name of an event wherever it is shown. Never changes, even if the variant is renamed.
pub fn event_name(event: &Event) -> &'static str {
    match event {
        Event::MessageReceived { .. } => "message_received",
        Event::LedgerMessageSent { .. } => "ledger_told",
        Event::Configured(_) => "configured",
        Event::PriceSet { .. } => "price_set",
        Event::ClassSet { .. } => "class_set",
        Event::AccountSet(_) => "account_set",
        Event::NodeRegistered { .. } => "node_registered",
        Event::NodeReported { .. } => "node_reported",
        Event::NodeLost { .. } => "node_lost",
        Event::NodeDrained { .. } => "node_drained",
        Event::NodeResumed { .. } => "node_resumed",
        Event::NodeRemoved { .. } => "node_removed",
        Event::MaintenancePlanned { .. } => "maintenance_planned",
        Event::MaintenanceBegan { .. } => "maintenance_began",
        Event::MaintenanceEnded { .. } => "maintenance_ended",
        Event::JobQueued(_) => "job_queued",
        Event::JobFunded { .. } => "job_funded",
        Event::JobReleased { .. } => "job_released",
        Event::JobHeldByGroup { .. } => "job_held_by_group",
        Event::JobEnded { .. } => "job_ended",
        Event::PlacementProposed { .. } => "placement_proposed",
        Event::PlacementConfirmed { .. } => "placement_confirmed",
        Event::PlacementRefused { .. } => "placement_refused",
        Event::AttemptStartedOnNode { .. } => "member_started",
        Event::UsageMetered { .. } => "usage_metered",
        Event::AttemptEndedOnNode { .. } => "member_ended",
        Event::FundingSet { .. } => "funding_set",
        Event::FundsNeeded { .. } => "funds_needed",
        Event::FundingEnded { .. } => "funding_ended",
        Event::StopOrdered { .. } => "stop_ordered",
        Event::CancelNoted { .. } => "cancel_noted",
        Event::KillOrdered { .. } => "kill_ordered",
        Event::AttemptEnded { .. } => "attempt_ended",
        Event::FenceLifted { .. } => "fence_lifted",
        Event::RequestParked { .. } => "request_parked",
        Event::RequestBlocked { .. } => "request_blocked",
        Event::ReservationMade { .. } => "reservation_made",
        Event::ReservationKept { .. } => "reservation_kept",
        Event::ReservationsDone { .. } => "reservations_done",
        Event::ReservationDropped { .. } => "reservation_dropped",
        Event::ReviewBegan => "review_began",
        Event::ReviewPassed { .. } => "review_passed",
        Event::PassEnded => "pass_ended",
        Event::RequestDone { .. } => "request_done",
        Event::AnswerKept { .. } => "answer_kept",
        Event::RequestsForgotten { .. } => "requests_forgotten",
        Event::SetAside { .. } => "set_aside",
        Event::Rewound { .. } => "rewound",
        Event::NodeCleared { .. } => "node_cleared",
    }
}
