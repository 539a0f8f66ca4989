//! The stored form of answers: replies and refusals.

use bursar_core::ledger::command::AccountSettings;
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Refusal, Resource};
use bursar_core::ledger::reply::{AccountReply, BudgetReply, HoldReply, LedgerAnswer, Reply};

use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_enum, stored_struct,
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
