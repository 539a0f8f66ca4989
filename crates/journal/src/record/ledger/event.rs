//! The stored form of events. Tags and keys are never reused. A field that is no longer written
//! keeps its number.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{ClearedSettings, Context, MovementNote, OnExpiry};
use bursar_core::ledger::event::Forgetting;
use bursar_core::ledger::event::{
    AttemptConfirmed, Charged, Event, GrantIssued, GrantOrigin, HoldPlaced, NamedMovement, Pieces,
};
use bursar_core::ledger::index::aside::LedgerAside;
use smallvec::SmallVec;

use crate::record::codec::wire::{stored_enum, stored_struct};

stored_struct!(Forgetting {
    0 through,
    1 old_holds = 0,
    2 kept = Vec::new(),
    3 longer = Vec::new(),
    4 kept_movements = Vec::new(),
    // Builds that know no jobs in an archive refuse the record, and do not keep the jobs.
    5 jobs = 0,
});

stored_enum!(Event {
    0 PolicySet(policy);
    1 AccountOpened { 0 account, 1 path, 2 kind, 3 settings, 4 fingerprint };
    2 AccountChanged { 0 account, 1 settings, 2 cleared = ClearedSettings::default() };
    3 AccountFrozen { 0 account, 1 by_platform = false };
    4 AccountUnfrozen { 0 account };
    5 GrantIssued(issued);
    6 GrantActivated { 0 grant };
    7 GrantRevoked { 0 grant, 1 amount };
    8 BucketExpired { 0 bucket, 1 amount };
    9 ExpiryReversed { 0 pieces };
    10 ReturnExpired { 0 hold, 1 pieces };
    11 ReturnRevoked { 0 hold, 1 pieces };
    12 HoldPlaced(placed);
    13 HoldExtended { 0 hold, 1 pieces = Pieces::new(), 2 gpu_ms = 0, 3 expires_at = None };
    14 HoldCaptured {
        0 hold, 1 seq = None, 2 total = Credits::ZERO, 3 gpu_ms = 0, 4 taken = SmallVec::new(),
        5 uncollected = 0,
    };
    15 HoldCut { 0 hold, 1 cut };
    16 HoldClosed { 0 hold, 1 state, 2 cause, 3 returned = 0 };
    17 Charged(charged);
    18 Refunded { 0 movement, 1 hold, 2 note = None };
    19 CreditsMoved { 0 movement, 1 from, 2 to, 3 note = None };
    20 DebtRepaid { 0 movement, 1 account };
    21 BudgetSet { 0 account, 1 budget, 2 terms, 3 period_start, 4 spent = 0, 5 held = 0 };
    22 BudgetRemoved { 0 account, 1 budget };
    23 BudgetThresholdReached { 0 account, 1 budget, 2 percent, 3 used };
    24 Answered { 0 key, 1 fingerprint, 2 answer, 3 request = 0 };
    25 CreditsDenied { 0 account, 1 refusal };
    26 Forgotten {
        0 answers = 0, 1 holds = 0, 2 movements = 0, 3 buckets = 0, 4 jobs = 0, 5 archived = None,
    };
    27 HoldRestored { 0 hold, 1 record };
    28 RegionOpened { 0 cell, 1 region, 2 shard = 0 };
    29 QuotaSet { 0 account, 1 region = None, 2 quota };
    30 QuotaRemoved { 0 account, 1 region = None };
    31 JobSubmitted { 0 job, 1 order, 2 after = Vec::new() };
    32 HoldPinned { 0 hold, 1 rate, 2 returned = SmallVec::new(), 3 expires_at = None };
    33 AttemptConfirmed(confirmed);
    34 AttemptStarted { 0 job };
    35 AttemptFunded {
        0 job, 1 funded_ms = None, 2 overdraft = 0, 3 short = false, 4 credits_ms = None,
    };
    36 AttemptStopping { 0 job };
    37 AttemptEnded { 0 job, 1 end };
    38 CancelRequested { 0 job };
    39 DependenciesMet { 0 job, 1 met };
    40 JobEnded { 0 job, 1 state };
    41 BlockedJobsRechecked { 0 tenant, 1 next = None };
    42 CellMessageSent { 0 cell, 1 number, 2 message };
    43 MessageReceived { 0 cell, 1 number, 2 position };
    44 ExhaustionWarned { 0 job, 1 ends_at, 2 then };
    45 SetAside { 0 what, 1 digest };
    46 RegionPoliciesSent { 0 cell, 1 next = None };
});

stored_enum!(LedgerAside {
    0 Message { 0 cell, 1 number };
    1 Activation { 0 grant };
    2 Expiry { 0 bucket };
    3 Cut { 0 bucket, 1 hold };
    4 Lapse { 0 hold, 1 expires_at };
    5 Dependant { 0 job };
    6 Review { 0 tenant, 1 at };
    7 Warning { 0 job, 1 at };
    8 Briefing { 0 cell };
    9 Forgetting {};
});

stored_struct!(GrantIssued {
    0 grant,
    1 id,
    2 account,
    3 kind,
    4 amount,
    5 effective_at,
    6 expires_at = None,
    7 priority,
    8 restriction = None,
    9 origin = GrantOrigin::Issued,
    10 reference = None,
    11 metadata = None,
    12 fingerprint = 0,
});

stored_enum!(GrantOrigin {
    0 Issued {};
    1 Compensation { 0 hold };
    2 Transfer { 0 from };
});

stored_struct!(HoldPlaced {
    0 hold,
    1 id,
    2 account,
    3 pieces,
    4 expires_at = None,
    5 context = Context::default(),
    6 on_expiry = OnExpiry::HonorHold,
    7 rate = None,
    8 gpu_ms = 0,
    9 reference = None,
    10 fingerprint,
    11 job = None,
});

stored_struct!(AttemptConfirmed {
    0 job,
    1 cell = None,
    2 number,
    3 gpu_type = None,
    4 nodes = SmallVec::new(),
    5 per_gpu_hour,
    6 funded_ms = None,
});

stored_struct!(Charged {
    0 hold,
    1 id,
    2 account,
    3 pieces,
    4 requested,
    5 late_for = None,
    6 spendable_after,
    7 fingerprint,
});

stored_struct!(MovementNote {
    0 reason = None,
    1 reference = None,
});

stored_struct!(NamedMovement {
    0 movement,
    1 id,
    2 pieces,
    3 fingerprint,
});

/// The name of an event wherever it is shown. Never changes, even if the variant is renamed.
pub fn event_name(event: &Event) -> &'static str {
    match event {
        Event::PolicySet(_) => "policy_set",
        Event::AccountOpened { .. } => "account_opened",
        Event::AccountChanged { .. } => "account_changed",
        Event::AccountFrozen { .. } => "account_frozen",
        Event::AccountUnfrozen { .. } => "account_unfrozen",
        Event::GrantIssued(_) => "grant_issued",
        Event::GrantActivated { .. } => "grant_activated",
        Event::GrantRevoked { .. } => "grant_revoked",
        Event::BucketExpired { .. } => "bucket_expired",
        Event::ExpiryReversed { .. } => "expiry_reversed",
        Event::ReturnExpired { .. } => "return_expired",
        Event::ReturnRevoked { .. } => "return_revoked",
        Event::HoldPlaced(_) => "hold_placed",
        Event::HoldExtended { .. } => "hold_extended",
        Event::HoldCaptured { .. } => "hold_captured",
        Event::HoldCut { .. } => "hold_cut",
        Event::HoldClosed { .. } => "hold_closed",
        Event::Charged(_) => "charged",
        Event::Refunded { .. } => "refunded",
        Event::CreditsMoved { .. } => "credits_moved",
        Event::DebtRepaid { .. } => "uncollected_collected",
        Event::BudgetSet { .. } => "budget_set",
        Event::BudgetRemoved { .. } => "budget_removed",
        Event::BudgetThresholdReached { .. } => "budget_threshold_reached",
        Event::Answered { .. } => "answered",
        Event::CreditsDenied { .. } => "credits_denied",
        Event::Forgotten { .. } => "forgotten",
        Event::HoldRestored { .. } => "hold_revived",
        Event::RegionOpened { .. } => "region_opened",
        Event::QuotaSet { .. } => "quota_set",
        Event::QuotaRemoved { .. } => "quota_removed",
        Event::JobSubmitted { .. } => "job_submitted",
        Event::HoldPinned { .. } => "hold_pinned",
        Event::AttemptConfirmed(_) => "attempt_confirmed",
        Event::AttemptStarted { .. } => "attempt_started",
        Event::AttemptFunded { .. } => "attempt_funded",
        Event::AttemptStopping { .. } => "attempt_stopping",
        Event::AttemptEnded { .. } => "attempt_ended",
        Event::CancelRequested { .. } => "cancel_asked",
        Event::DependenciesMet { .. } => "dependencies_met",
        Event::JobEnded { .. } => "job_ended",
        Event::BlockedJobsRechecked { .. } => "held_up_reviewed",
        Event::CellMessageSent { .. } => "cell_told",
        Event::MessageReceived { .. } => "message_received",
        Event::ExhaustionWarned { .. } => "exhaustion_warned",
        Event::SetAside { .. } => "set_aside",
        Event::RegionPoliciesSent { .. } => "region_briefed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::codec::wire::{FormatError, Reader, Stored, Writer};

    /// What a build reads that knows no jobs in an archive.
    #[derive(Debug)]
    struct WithoutJobs {
        through: u64,
        old_holds: u32,
        kept: Vec<u32>,
        longer: Vec<u32>,
        kept_movements: Vec<u32>,
    }

    stored_struct!(WithoutJobs {
        0 through,
        1 old_holds = 0,
        2 kept = Vec::new(),
        3 longer = Vec::new(),
        4 kept_movements = Vec::new(),
    });

    #[test]
    fn a_build_without_archived_jobs_refuses_a_record_that_forgets_some() {
        let read = |jobs: u32| {
            let forgetting = Forgetting { through: 9, jobs, ..Forgetting::default() };
            let mut bytes = Vec::new();
            forgetting.write(&mut Writer::new(&mut bytes));
            WithoutJobs::read(&mut Reader::new(&bytes)).map(|read| read.through)
        };
        assert_eq!(read(0).ok(), Some(9));
        assert!(matches!(read(2), Err(FormatError::UnknownField { key: 5, .. })));
    }
}
