//! The stored form of whole holds: archived ones, and those of a snapshot.

use bursar_core::ledger::command::{Cause, Context, OnExpiry};
use bursar_core::ledger::holds::archive::{
    ArchivedAnswer, ArchivedHold, ArchivedName, RecalledRecord,
};
use bursar_core::ledger::holds::hold::{ChargeTerms, Hold, HoldDetails, HoldKind, Slice};
use bursar_core::ledger::id::BucketNo;
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use crate::record::codec::value::{read_span, write_span};
use crate::record::codec::wire::{
    FormatError, Reader, Stored, Writer, stored_choice, stored_enum, stored_struct,
};

stored_choice!(HoldKind { 0 Hold, 1 Charge });

stored_struct!(Hold {
    0 id,
    1 account,
    2 kind,
    3 state,
    4 fingerprint,
    5 amount,
    6 captured = 0,
    7 metered = 0,
    8 refunded = 0,
    9 placed_at,
    10 expires_at = None,
    11 moved_at,
    12 slices,
    13 details = None,
    14 charge = None,
    15 closed_at,
});

stored_struct!(HoldDetails {
    0 context = Context::default(),
    1 on_expiry = OnExpiry::HonorHold,
    2 rate = None,
    3 reference = None,
    4 last_report = None,
    5 gpu_ms = 0,
    6 gpu_spent = 0,
    7 draws = SmallVec::new(),
    8 uncollected = Vec::new(),
    9 cause = Cause::Holder,
    10 revived = false,
    11 job = None,
});

stored_struct!(ChargeTerms {
    0 requested,
    1 spendable_after,
    2 late_for = None,
});

stored_struct!(ArchivedHold {
    0 hold,
    1 counted = false,
});

stored_struct!(ArchivedName {
    0 what,
    1 tenant,
    2 name,
});

stored_struct!(ArchivedAnswer {
    0 at,
    1 key,
    2 fingerprint,
    3 answer,
    4 request = 0,
    5 of = None,
});

stored_enum!(RecalledRecord {
    0 Hold(hold);
    1 Movement(parts);
});

/// `[bucket, draw, first unit, units, captured, cut]`.
impl Stored for Slice {
    fn write(&self, out: &mut Writer<'_>) {
        let Slice { bucket, draw, span, captured, cut } = self;
        out.array(6);
        bucket.write(out);
        draw.write(out);
        write_span(*span, out);
        captured.write(out);
        cut.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Slice, FormatError> {
        input.array_of("Slice", 6)?;
        let slice = Slice {
            bucket: BucketNo::read(input)?,
            draw: u32::read(input)?,
            span: read_span(input)?,
            captured: u64::read(input)?,
            cut: bool::read(input)?,
        };
        if slice.captured > slice.span.len() {
            return Err(FormatError::impossible("a slice's captured part", slice.captured));
        }
        Ok(slice)
    }
}

impl Stored for SmallVec<[Slice; 1]> {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(self.len());
        self.iter().for_each(|slice| slice.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<SmallVec<[Slice; 1]>, FormatError> {
        (0..input.array()?).map(|_| Slice::read(input)).collect()
    }
}

impl Stored for SmallVec<[(Timestamp, i128); 1]> {
    fn write(&self, out: &mut Writer<'_>) {
        out.array(self.len());
        self.iter().for_each(|draw| draw.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<SmallVec<[(Timestamp, i128); 1]>, FormatError> {
        (0..input.array()?).map(|_| Stored::read(input)).collect()
    }
}
