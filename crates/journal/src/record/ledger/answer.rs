//! The stored form of answers: replies and refusals.

use bursar_core::ledger::command::AccountSettings;
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use bursar_core::ledger::reply::{AccountReply, BudgetReply, HoldReply, LedgerAnswer, Reply};

use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, read_fields, stored_choice, stored_enum, stored_struct,
    write_fields,
};

stored_choice!(HoldState { 0 Open, 1 Settled, 2 Released, 3 Lapsed });
stored_choice!(Resource {
    0 Account, 1 Grant, 2 Hold, 3 Charge, 4 Refund, 5 Transfer, 6 Collection, 7 Budget, 8 Job,
    9 Region, 10 Quota,
});

stored_enum!(Reply {
    0 Done {};
    2 Grant { 0 grant, 1 parts };
    3 Hold(hold);
    4 Charge { 0 hold, 1 requested, 2 charged, 3 spendable_after };
    5 Movement { 0 movement, 1 amount };
    7 Jobs { 0 first, 1 count };
    8 Job { 0 job, 1 state };
    9 Region(cell);
    10 Received { 0 taken };
    11 Account(account);
    12 Budget(budget);
    13 Archived(record);
});

stored_struct!(AccountReply {
    0 account,
    1 settings = AccountSettings::default(),
    2 frozen = false,
    3 uncollected = 0,
});

stored_struct!(BudgetReply {
    0 account,
    1 budget,
    2 terms,
    3 at,
    4 spent = 0,
    5 held = 0,
});

stored_struct!(HoldReply {
    0 hold,
    1 state,
    2 amount,
    3 captured,
    4 uncollected,
    5 expires_at = None,
    6 slices,
});

stored_enum!(Blocker {
    0 Frozen { 0 account };
    1 Credits { 0 account, 1 requested, 2 spendable };
    2 Budget {
        0 account, 1 budget, 2 unit, 3 limit, 4 spent, 5 held, 6 requested, 7 period_end = None,
    };
    3 WaitingJobs { 0 account, 1 region, 2 limit, 3 waiting, 4 requested };
    4 Dependency { 0 job, 1 state };
});

stored_enum!(Conflict {
    0 SettleBelowCaptured { 0 captured };
    1 RefundAboveSpent { 0 spent };
    2 StillOpen {};
    3 NoRate {};
    4 NothingUncollected {};
    5 RecordMismatch {};
    6 HeldByJob {};
    7 JobEnded { 0 state };
    8 NotMeasuredByOthers {};
    9 DependencyFailed {};
    10 MessageSkipped { 0 expected };
});

/// One number per part of a grant.
impl Stored for [u64; 6] {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(6);
        self.iter().for_each(|part| out.unsigned(*part));
    }

    fn read(input: &mut Reader<'_>) -> Result<[u64; 6], FormatError> {
        input.array_of("the parts of a grant", 6)?;
        let mut parts = [0; 6];
        for part in &mut parts {
            *part = input.unsigned()?;
        }
        Ok(parts)
    }
}

/// Refusals that are kept for an idempotency key or recorded as a denial. The tags are the numbers
/// of [`super::header::RefusalCode`]. An invalid field (tag 0) is never stored: its text is not
/// data, and [`Refusal::is_remembered`] and [`Refusal::denies_credits`] are false for it.
impl Stored for Refusal {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(2);
        match self {
            Refusal::InvalidField { .. } => {
                panic!("an invalid field is answered at once and never stored")
            }
            Refusal::IdempotencyKeyReused => {
                out.unsigned(1);
                write_fields!(out, {});
            }
            Refusal::NotFound { what, name } => {
                out.unsigned(2);
                write_fields!(out, { 0 what, 1 name });
            }
            Refusal::AlreadyExists { what, name } => {
                out.unsigned(3);
                write_fields!(out, { 0 what, 1 name });
            }
            Refusal::TooLate { earliest } => {
                out.unsigned(4);
                write_fields!(out, { 0 earliest });
            }
            Refusal::AccountFrozen { blockers } => {
                out.unsigned(5);
                write_fields!(out, { 0 blockers });
            }
            Refusal::HoldClosed { state } => {
                out.unsigned(6);
                write_fields!(out, { 0 state });
            }
            Refusal::SequenceConflict { seen } => {
                out.unsigned(7);
                write_fields!(out, { 0 seen });
            }
            Refusal::Conflict(conflict) => {
                out.unsigned(8);
                conflict.write(out);
            }
            Refusal::InsufficientCredits { blockers } => {
                out.unsigned(9);
                write_fields!(out, { 0 blockers });
            }
            Refusal::BudgetExceeded { blockers } => {
                out.unsigned(10);
                write_fields!(out, { 0 blockers });
            }
            Refusal::QuotaExceeded { blockers } => {
                out.unsigned(11);
                write_fields!(out, { 0 blockers });
            }
            Refusal::BatchAborted { answer } => {
                out.unsigned(12);
                write_fields!(out, { 0 answer });
            }
            Refusal::FrozenByPlatform { account } => {
                out.unsigned(13);
                write_fields!(out, { 0 account });
            }
            Refusal::Forgotten { what, name } => {
                out.unsigned(14);
                write_fields!(out, { 0 what, 1 name });
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Refusal, FormatError> {
        input.array_of("Refusal", 2)?;
        match input.unsigned()? {
            1 => {
                read_fields!(input, "IdempotencyKeyReused", {});
                Ok(Refusal::IdempotencyKeyReused)
            }
            2 => {
                read_fields!(input, "NotFound", { 0 what, 1 name });
                Ok(Refusal::NotFound { what, name })
            }
            3 => {
                read_fields!(input, "AlreadyExists", { 0 what, 1 name });
                Ok(Refusal::AlreadyExists { what, name })
            }
            4 => {
                read_fields!(input, "TooLate", { 0 earliest });
                Ok(Refusal::TooLate { earliest })
            }
            5 => {
                read_fields!(input, "AccountFrozen", { 0 blockers });
                Ok(Refusal::AccountFrozen { blockers })
            }
            6 => {
                read_fields!(input, "HoldClosed", { 0 state });
                Ok(Refusal::HoldClosed { state })
            }
            7 => {
                read_fields!(input, "SequenceConflict", { 0 seen });
                Ok(Refusal::SequenceConflict { seen })
            }
            8 => Stored::read(input).map(Refusal::Conflict),
            9 => {
                read_fields!(input, "InsufficientCredits", { 0 blockers });
                Ok(Refusal::InsufficientCredits { blockers })
            }
            10 => {
                read_fields!(input, "BudgetExceeded", { 0 blockers });
                Ok(Refusal::BudgetExceeded { blockers })
            }
            11 => {
                read_fields!(input, "QuotaExceeded", { 0 blockers });
                Ok(Refusal::QuotaExceeded { blockers })
            }
            12 => {
                read_fields!(input, "BatchAborted", { 0 answer });
                Ok(Refusal::BatchAborted { answer })
            }
            13 => {
                read_fields!(input, "FrozenByPlatform", { 0 account });
                Ok(Refusal::FrozenByPlatform { account })
            }
            14 => {
                read_fields!(input, "Forgotten", { 0 what, 1 name });
                Ok(Refusal::Forgotten { what, name })
            }
            tag => Err(FormatError::UnknownTag { what: "Refusal", tag }),
        }
    }
}

/// `[0, reply]` or `[1, refusal]`.
impl Stored for LedgerAnswer {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(2);
        match self {
            Ok(reply) => {
                out.unsigned(0);
                reply.write(out);
            }
            Err(refusal) => {
                out.unsigned(1);
                refusal.write(out);
            }
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<LedgerAnswer, FormatError> {
        input.array_of("Answer", 2)?;
        match input.unsigned()? {
            0 => Reply::read(input).map(Ok),
            1 => Refusal::read(input).map(Err),
            tag => Err(FormatError::UnknownTag { what: "Answer", tag }),
        }
    }
}
