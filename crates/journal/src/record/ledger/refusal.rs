//! The stored form of refusals: their codes, and whole refusals where they are kept.

use bursar_core::ledger::refusal::{Blocker, Conflict, Refusal};

use super::header::pinned_names;
use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, read_fields, stored_choice, stored_enum, write_fields,
};

pinned_names!(
    /// Why a command was refused: the code of [`Refusal`].
    RefusalCode {
        0 InvalidField "invalid_field",
        1 IdempotencyKeyReused "idempotency_key_reused",
        2 NotFound "not_found",
        3 AlreadyExists "already_exists",
        4 TooLate "too_late",
        5 AccountFrozen "account_frozen",
        6 HoldClosed "hold_closed",
        7 SequenceConflict "sequence_conflict",
        8 Conflict "conflict",
        9 InsufficientCredits "insufficient_credits",
        10 BudgetExceeded "budget_exceeded",
        11 QuotaExceeded "quota_exceeded",
        12 BatchAborted "batch_aborted",
        13 FrozenByPlatform "frozen_by_platform",
        14 Forgotten "forgotten",
    }
);

impl From<&Refusal> for RefusalCode {
    fn from(refusal: &Refusal) -> RefusalCode {
        match refusal {
            Refusal::InvalidField { .. } => RefusalCode::InvalidField,
            Refusal::IdempotencyKeyReused => RefusalCode::IdempotencyKeyReused,
            Refusal::NotFound { .. } => RefusalCode::NotFound,
            Refusal::AlreadyExists { .. } => RefusalCode::AlreadyExists,
            Refusal::TooLate { .. } => RefusalCode::TooLate,
            Refusal::AccountFrozen { .. } => RefusalCode::AccountFrozen,
            Refusal::HoldClosed { .. } => RefusalCode::HoldClosed,
            Refusal::SequenceConflict { .. } => RefusalCode::SequenceConflict,
            Refusal::Conflict(_) => RefusalCode::Conflict,
            Refusal::InsufficientCredits { .. } => RefusalCode::InsufficientCredits,
            Refusal::BudgetExceeded { .. } => RefusalCode::BudgetExceeded,
            Refusal::QuotaExceeded { .. } => RefusalCode::QuotaExceeded,
            Refusal::BatchAborted { .. } => RefusalCode::BatchAborted,
            Refusal::FrozenByPlatform { .. } => RefusalCode::FrozenByPlatform,
            Refusal::Forgotten { .. } => RefusalCode::Forgotten,
        }
    }
}

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

/// Refusals that are kept for an idempotency key or recorded as a denial. The tags are the numbers
/// of [`RefusalCode`]. An invalid field (tag 0) is never stored: its text is not
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
