//! The effects of events on one hold. The ledger, history and archive look-ups all use these
//! functions, so all readers of a journal compute the same hold.

use std::fmt;

use fefo::Span;
use smallvec::SmallVec;

use super::archive::ArchivedHold;
use super::hold::{
    ChargeTerms, Hold, HoldDetails, HoldKind, HoldState, Slice, gpu_time, slices_of,
};
use crate::credits::Credits;
use crate::ledger::command::{Cause, Context, OnExpiry};
use crate::ledger::credits::price::{Rate, WHOLE_GPU};
use crate::ledger::event::{Charged, HoldPlaced, Piece, SliceAmount, total};
use crate::ledger::state::short_fingerprint;
use crate::time::Timestamp;

/// Units and when they were drawn. Most holds have one piece.
pub type Drawn = SmallVec<[(Piece, Timestamp); 2]>;

/// GPU time by the draw that it belongs to, in thousandths of GPU-milliseconds.
pub type DrawnGpuTime = SmallVec<[(Timestamp, i128); 1]>;

/// The error for an event that does not fit its hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum UnfitEvent {
    /// The hold has no such slice.
    NoSlice(u32),
    /// The slice has fewer units left.
    TooMuch(u32),
}

impl fmt::Display for UnfitEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnfitEvent::NoSlice(slice) => write!(out, "a hold has no slice {slice}"),
            UnfitEvent::TooMuch(slice) => {
                write!(out, "more was taken from slice {slice} of a hold than it held")
            }
        }
    }
}

impl std::error::Error for UnfitEvent {}

/// The content of a capture.
#[derive(Copy, Clone, Debug)]
pub struct Capture<'a> {
    /// The number of the report.
    pub seq: Option<u64>,
    /// Cumulative usage, in credits.
    pub total: Credits,
    /// Cumulative usage, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// What it took from each slice.
    pub taken: &'a [SliceAmount],
    /// Usage for which no credits were found.
    pub uncollected: u64,
}

/// What a capture spent.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Units.
    pub spent: Drawn,
    /// GPU time that budgets count as spent.
    pub gpu: DrawnGpuTime,
    /// The increase of GPU time, in GPU-milliseconds.
    pub gpu_ms: u64,
}

/// What was returned at the end of a hold.
#[derive(Clone, Debug)]
pub struct Closed {
    /// Units, last drawn first.
    pub rest: Drawn,
    /// GPU time that was never used.
    pub gpu: DrawnGpuTime,
}

impl Hold {
    /// A hold as it is placed.
    pub fn placed(at: Timestamp, placed: &HoldPlaced) -> Hold {
        let share = placed.rate.map_or(WHOLE_GPU, |rate| rate.share_milli);
        let gpu = gpu_time(placed.gpu_ms, share);
        let plain = placed.context == Context::default()
            && placed.on_expiry == OnExpiry::HonorHold
            && placed.rate.is_none()
            && placed.reference.is_none()
            && placed.job.is_none()
            && gpu == 0;
        let details = (!plain).then(|| {
            Box::new(HoldDetails {
                context: placed.context.clone(),
                on_expiry: placed.on_expiry,
                rate: placed.rate,
                reference: placed.reference.clone(),
                job: placed.job,
                draws: SmallVec::from_elem((at, gpu), 1),
                ..HoldDetails::default()
            })
        });
        Hold {
            id: placed.id.clone(),
            account: placed.account,
            kind: HoldKind::Hold,
            state: HoldState::Open,
            fingerprint: short_fingerprint(placed.fingerprint),
            amount: total(&placed.pieces),
            captured: 0,
            metered: 0,
            refunded: 0,
            placed_at: at,
            expires_at: placed.expires_at,
            closed_at: at,
            moved_at: at,
            slices: slices_of(&placed.pieces, 0),
            details,
            charge: None,
        }
    }

    /// A charge as it is made.
    pub fn charged(at: Timestamp, charged: &Charged) -> Hold {
        let amount = total(&charged.pieces);
        let mut slices = slices_of(&charged.pieces, 0);
        for slice in &mut slices {
            slice.captured = slice.span.len();
        }
        Hold {
            id: charged.id.clone(),
            account: charged.account,
            kind: HoldKind::Charge,
            state: HoldState::Settled,
            fingerprint: short_fingerprint(charged.fingerprint),
            amount,
            captured: amount,
            metered: amount,
            refunded: 0,
            placed_at: at,
            expires_at: None,
            closed_at: at,
            moved_at: at,
            slices,
            details: None,
            charge: Some(Box::new(ChargeTerms {
                requested: charged.requested,
                spendable_after: charged.spendable_after,
                late_for: charged.late_for,
            })),
        }
    }

    /// A forgotten hold as it is restored.
    pub fn revived(at: Timestamp, record: &ArchivedHold) -> Hold {
        let mut hold = record.hold.clone();
        hold.moved_at = at;
        if !record.counted {
            hold.details.get_or_insert_default().revived = true;
        }
        hold
    }

    /// Adds a draw. Returns the GPU time that it stands for, in thousandths of GPU-milliseconds.
    pub fn apply_extended(
        &mut self,
        at: Timestamp,
        pieces: &[Piece],
        gpu_ms: u64,
        expires_at: Option<Timestamp>,
    ) -> i128 {
        self.expires_at = expires_at;
        let gpu = gpu_time(gpu_ms, self.share_milli());
        if pieces.is_empty() && gpu == 0 {
            return gpu;
        }
        let placed_at = self.placed_at;
        let details = self.details.get_or_insert_default();
        if details.draws.is_empty() {
            details.draws.push((placed_at, 0));
        }
        details.draws.push((at, gpu));
        let draw = u32::try_from(details.draws.len() - 1).unwrap_or(u32::MAX);
        self.slices.extend(slices_of(pieces, draw));
        self.amount += total(pieces);
        gpu
    }

    /// Takes captured units off the slices.
    ///
    /// # Errors
    /// If more was captured than was held.
    pub fn apply_captured(
        &mut self,
        at: Timestamp,
        capture: &Capture<'_>,
    ) -> Result<Captured, UnfitEvent> {
        let mut spent = Drawn::new();
        for SliceAmount { slice: number, amount } in capture.taken {
            let slice = self.slice_mut(*number)?;
            if *amount > slice.room() {
                return Err(UnfitEvent::TooMuch(*number));
            }
            let start = slice.span.start + slice.captured;
            slice.captured += amount;
            let slice = *slice;
            self.captured += amount;
            let span = Span::new(start, start + amount);
            spent.push((Piece { bucket: slice.bucket, span }, self.drawn_at(&slice)));
        }
        // A report of more GPU time can be worth less than an earlier report in credits.
        self.metered = self.metered.max(capture.total.length());
        if let Some(seq) = capture.seq {
            self.details.get_or_insert_default().last_report = Some((seq, capture.total));
        }
        if capture.uncollected > 0 {
            self.details.get_or_insert_default().uncollected.push((at, capture.uncollected));
        }
        let before = self.details.as_ref().map_or(0, |details| details.gpu_ms);
        let gpu = self.spend_gpu_time(capture.gpu_ms);
        let after = self.details.as_ref().map_or(0, |details| details.gpu_ms);
        Ok(Captured { spent, gpu, gpu_ms: after - before })
    }

    /// Counts GPU time as spent, first drawn first. Returns how much of each draw.
    fn spend_gpu_time(&mut self, gpu_ms: u64) -> DrawnGpuTime {
        let share = self.share_milli();
        let mut changes = DrawnGpuTime::new();
        let Some(details) = &mut self.details else { return changes };
        details.gpu_ms = details.gpu_ms.max(gpu_ms);
        let mut before = details.gpu_spent;
        let mut left = gpu_time(details.gpu_ms, share) - before;
        for (at, held) in &details.draws {
            let skipped = before.min(*held);
            before -= skipped;
            let spent = left.min(held - skipped);
            if spent > 0 {
                left -= spent;
                details.gpu_spent += spent;
                changes.push((*at, spent));
            }
        }
        changes
    }

    /// Removes the uncaptured rest of slices whose bucket expired. Returns that rest.
    ///
    /// # Errors
    /// If more was cut off than was held.
    pub fn apply_cut(&mut self, cut: &[SliceAmount]) -> Result<Drawn, UnfitEvent> {
        let mut gone = Drawn::new();
        for SliceAmount { slice: number, amount } in cut {
            let slice = self.slice_mut(*number)?;
            if *amount > slice.room() {
                return Err(UnfitEvent::TooMuch(*number));
            }
            let rest = slice.rest();
            slice.cut = true;
            let slice = *slice;
            self.amount -= amount;
            gone.push((rest, self.drawn_at(&slice)));
        }
        Ok(gone)
    }

    /// Pins the price of a hold. Returns the surplus, last drawn first.
    ///
    /// # Errors
    /// If more was returned than was held.
    pub fn apply_pinned(
        &mut self,
        rate: Rate,
        returned: &[SliceAmount],
        expires_at: Option<Timestamp>,
    ) -> Result<Drawn, UnfitEvent> {
        let mut back = Drawn::new();
        for SliceAmount { slice: number, amount } in returned {
            let slice = self.slice_mut(*number)?;
            if *amount > slice.rest().span.len() {
                return Err(UnfitEvent::TooMuch(*number));
            }
            let end = slice.span.end;
            slice.span.end -= amount;
            let slice = *slice;
            self.amount -= amount;
            let span = Span::new(end - amount, end);
            back.push((Piece { bucket: slice.bucket, span }, self.drawn_at(&slice)));
        }
        back.reverse();
        self.slices.retain(|slice| !slice.span.is_empty());
        self.expires_at = expires_at;
        self.details.get_or_insert_default().rate = Some(rate);
        Ok(back)
    }

    /// Ends a hold.
    pub fn apply_closed(&mut self, at: Timestamp, state: HoldState, cause: Cause) -> Closed {
        self.state = state;
        self.closed_at = at;
        self.moved_at = at;
        if cause != Cause::default() {
            self.details.get_or_insert_default().cause = cause;
        }
        let open = self.slices.iter().rev().filter(|slice| slice.room() > 0);
        let rest = open.map(|slice| (slice.rest(), self.drawn_at(slice))).collect();
        Closed { rest, gpu: self.unused_gpu_time() }
    }

    /// Records a refund. Returns its units with the instants at which they were drawn.
    pub fn apply_refunded(&mut self, at: Timestamp, pieces: &[Piece]) -> Drawn {
        self.refunded += total(pieces);
        self.moved_at = at;
        pieces.iter().map(|piece| (*piece, self.drawn_when(piece))).collect()
    }

    /// When units that it spent were drawn.
    fn drawn_when(&self, piece: &Piece) -> Timestamp {
        let slice = self.slices.iter().find(|slice| {
            slice.bucket == piece.bucket
                && (slice.span.start..slice.span.end).contains(&piece.span.start)
        });
        slice.map_or(self.placed_at, |slice| self.drawn_at(slice))
    }

    fn slice_mut(&mut self, number: u32) -> Result<&mut Slice, UnfitEvent> {
        self.slices.get_mut(number as usize).ok_or(UnfitEvent::NoSlice(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::id::{AccountNo, BucketNo, HoldNo};

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn piece(start: u64, end: u64) -> Piece {
        Piece { bucket: BucketNo(3), span: Span::new(start, end) }
    }

    fn hold_of(pieces: &[Piece]) -> Hold {
        let placed = HoldPlaced {
            hold: HoldNo(1),
            id: "h".into(),
            account: AccountNo(0),
            pieces: pieces.iter().copied().collect(),
            expires_at: None,
            context: Context::default(),
            on_expiry: OnExpiry::HonorHold,
            rate: None,
            gpu_ms: 0,
            reference: None,
            fingerprint: 7,
            job: None,
        };
        Hold::placed(at(1), &placed)
    }

    #[test]
    fn units_keep_the_instant_of_their_draw_until_they_are_returned() {
        let mut hold = hold_of(&[piece(0, 10)]);
        hold.apply_extended(at(5), &[piece(10, 15)], 0, None);
        let taken = [SliceAmount { slice: 0, amount: 4 }];
        let total = Credits::from_length(4).expect("small");
        let capture = Capture { seq: None, total, gpu_ms: 0, taken: &taken, uncollected: 0 };
        let captured = hold.apply_captured(at(6), &capture).expect("it holds ten");
        assert_eq!(captured.spent[..], [(piece(0, 4), at(1))]);
        let closed = hold.apply_closed(at(9), HoldState::Settled, Cause::default());
        assert_eq!(closed.rest[..], [(piece(10, 15), at(5)), (piece(4, 10), at(1))]);
        let refunded = hold.apply_refunded(at(20), &[piece(2, 4)]);
        assert_eq!(refunded[..], [(piece(2, 4), at(1))]);
        assert_eq!((hold.amount, hold.captured, hold.refunded), (15, 4, 2));
        assert_eq!((hold.closed_at, hold.moved_at), (at(9), at(20)));
    }

    #[test]
    fn an_event_that_does_not_fit_is_an_error() {
        let too_much = [SliceAmount { slice: 0, amount: 11 }];
        let elsewhere = [SliceAmount { slice: 1, amount: 1 }];
        for (parts, error) in
            [(too_much, UnfitEvent::TooMuch(0)), (elsewhere, UnfitEvent::NoSlice(1))]
        {
            let total = Credits::from_length(11).expect("small");
            let capture = Capture { seq: None, total, gpu_ms: 0, taken: &parts, uncollected: 0 };
            let rate = Rate { per_gpu_hour: total, share_milli: 1000, gpu_ms_limit: 1 };
            let hold = || hold_of(&[piece(0, 10)]);
            assert_eq!(hold().apply_captured(at(2), &capture).err(), Some(error));
            assert_eq!(hold().apply_cut(&parts).err(), Some(error));
            assert_eq!(hold().apply_pinned(rate, &parts, None).err(), Some(error));
        }
    }
}
