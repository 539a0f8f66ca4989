//! A hold as the ledger has it, brought forward by events alone.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{Cause, Context, OnExpiry};
use bursar_core::ledger::event::{Charged, HoldPlaced, Piece, SliceAmount, total};
use bursar_core::ledger::hold::{ChargeTerms, Hold, HoldKind, HoldRare, HoldState, Slice};
use bursar_core::ledger::price::{Rate, WHOLE_GPU};
use bursar_core::ledger::state::short_fingerprint;
use bursar_core::time::Timestamp;
use fefo::Span;
use smallvec::SmallVec;

use crate::error::HistoryError;

/// Units and when they were drawn. Most holds are of one piece.
pub(super) type Drawn = SmallVec<[(Piece, Timestamp); 2]>;

fn share(hold: &Hold) -> i128 {
    let rate = hold.rare.as_ref().and_then(|rare| rare.rate);
    rate.map_or(WHOLE_GPU, |rate| rate.share_milli).into()
}

fn slices(pieces: &[Piece], draw: u32, captured: bool) -> SmallVec<[Slice; 1]> {
    let slice = |piece: &Piece| Slice {
        bucket: piece.bucket,
        draw,
        span: piece.span,
        captured: if captured { piece.span.len() } else { 0 },
        cut: false,
    };
    pieces.iter().map(slice).collect()
}

pub(super) fn placed(at: Timestamp, placed: &HoldPlaced) -> Hold {
    let share = placed.rate.map_or(WHOLE_GPU, |rate| rate.share_milli);
    let gpu = i128::from(placed.gpu_ms) * i128::from(share);
    let plain = placed.context == Context::default()
        && placed.on_expiry == OnExpiry::HonorHold
        && placed.rate.is_none()
        && placed.reference.is_none()
        && placed.job.is_none()
        && gpu == 0;
    let rare = HoldRare {
        context: placed.context.clone(),
        on_expiry: placed.on_expiry,
        rate: placed.rate,
        reference: placed.reference.clone(),
        job: placed.job,
        draws: SmallVec::from_elem((at, gpu), 1),
        ..HoldRare::default()
    };
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
        slices: slices(&placed.pieces, 0, false),
        rare: (!plain).then(|| Box::new(rare)),
        charge: None,
    }
}

pub(super) fn charged(at: Timestamp, charged: &Charged) -> Hold {
    let amount = total(&charged.pieces);
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
        slices: slices(&charged.pieces, 0, true),
        rare: None,
        charge: Some(Box::new(ChargeTerms {
            requested: charged.requested,
            spendable_after: charged.spendable_after,
            late_for: charged.late_for,
        })),
    }
}

pub(super) fn extend(
    hold: &mut Hold,
    at: Timestamp,
    pieces: &[Piece],
    gpu_ms: u64,
    expires_at: Option<Timestamp>,
) {
    hold.expires_at = expires_at;
    let gpu = i128::from(gpu_ms) * share(hold);
    if pieces.is_empty() && gpu == 0 {
        return;
    }
    let placed_at = hold.placed_at;
    let rare = hold.rare.get_or_insert_default();
    if rare.draws.is_empty() {
        rare.draws.push((placed_at, 0));
    }
    rare.draws.push((at, gpu));
    let draw = u32::try_from(rare.draws.len() - 1).unwrap_or(u32::MAX);
    hold.slices.extend(slices(pieces, draw, false));
    hold.amount += total(pieces);
}

/// What one capture says.
pub(super) struct Capture<'a> {
    pub(super) seq: Option<u64>,
    pub(super) total: Credits,
    pub(super) gpu_ms: u64,
    pub(super) taken: &'a [SliceAmount],
    pub(super) uncollected: u64,
}

/// Takes captured units off the slices; returns them, and by how much GPU time grew.
pub(super) fn capture(
    hold: &mut Hold,
    at: Timestamp,
    capture: &Capture<'_>,
) -> Result<(Drawn, u64), HistoryError> {
    let mut spent = Drawn::new();
    for SliceAmount { slice, amount } in capture.taken {
        let slice = slice_mut(hold, *slice)?;
        if *amount > slice.room() {
            return Err(HistoryError::inconsistent("more was captured than was held"));
        }
        let start = slice.span.start + slice.captured;
        slice.captured += amount;
        let slice = *slice;
        hold.captured += amount;
        let piece = Piece { bucket: slice.bucket, span: Span::new(start, start + amount) };
        spent.push((piece, hold.drawn_at(&slice)));
    }
    hold.metered = hold.metered.max(capture.total.length());
    if let Some(seq) = capture.seq {
        hold.rare.get_or_insert_default().last_report = Some((seq, capture.total));
    }
    if capture.uncollected > 0 {
        hold.rare.get_or_insert_default().uncollected.push((at, capture.uncollected));
    }
    Ok((spent, spend_gpu_time(hold, capture.gpu_ms)))
}

/// Counts GPU time as spent, first drawn first, and returns by how much it grew.
fn spend_gpu_time(hold: &mut Hold, gpu_ms: u64) -> u64 {
    let share = share(hold);
    let Some(rare) = &mut hold.rare else { return 0 };
    let grown = gpu_ms.saturating_sub(rare.gpu_ms);
    rare.gpu_ms = rare.gpu_ms.max(gpu_ms);
    let held: i128 = rare.draws.iter().map(|(_, gpu)| gpu).sum();
    rare.gpu_spent = (i128::from(rare.gpu_ms) * share).min(held).max(rare.gpu_spent);
    grown
}

pub(super) fn cut(hold: &mut Hold, cut: &[SliceAmount]) -> Result<Drawn, HistoryError> {
    let mut gone = Drawn::new();
    for SliceAmount { slice, amount } in cut {
        let slice = slice_mut(hold, *slice)?;
        let rest = slice.rest();
        slice.cut = true;
        let slice = *slice;
        hold.amount -= amount;
        gone.push((rest, hold.drawn_at(&slice)));
    }
    Ok(gone)
}

/// Gives a hold its price and returns what came back beyond that.
pub(super) fn pin(
    hold: &mut Hold,
    rate: Rate,
    returned: &[SliceAmount],
    expires_at: Option<Timestamp>,
) -> Result<Drawn, HistoryError> {
    let mut back = Drawn::new();
    for SliceAmount { slice, amount } in returned {
        let slice = slice_mut(hold, *slice)?;
        let end = slice.span.end;
        slice.span.end -= amount;
        let (bucket, span) = (slice.bucket, Span::new(end - amount, end));
        let slice = *slice;
        hold.amount -= amount;
        back.push((Piece { bucket, span }, hold.drawn_at(&slice)));
    }
    back.reverse();
    hold.slices.retain(|slice| !slice.span.is_empty());
    hold.expires_at = expires_at;
    hold.rare.get_or_insert_default().rate = Some(rate);
    Ok(back)
}

/// Ends a hold and returns what came back.
pub(super) fn close(hold: &mut Hold, at: Timestamp, state: HoldState, cause: Cause) -> Drawn {
    let open = hold.slices.iter().rev().filter(|slice| slice.room() > 0);
    let rest = open.map(|slice| (slice.rest(), hold.drawn_at(slice))).collect();
    hold.state = state;
    hold.closed_at = at;
    hold.moved_at = at;
    if cause != Cause::default() {
        hold.rare.get_or_insert_default().cause = cause;
    }
    rest
}

/// Notes a refund and says when its units were drawn.
pub(super) fn refund(hold: &mut Hold, at: Timestamp, pieces: &[Piece]) -> Drawn {
    hold.refunded += total(pieces);
    hold.moved_at = at;
    let drawn_at = |piece: &Piece| {
        let slice = hold.slices.iter().find(|slice| {
            slice.bucket == piece.bucket
                && (slice.span.start..slice.span.end).contains(&piece.span.start)
        });
        slice.map_or(hold.placed_at, |slice| hold.drawn_at(slice))
    };
    pieces.iter().map(|piece| (*piece, drawn_at(piece))).collect()
}

fn slice_mut(hold: &mut Hold, slice: u32) -> Result<&mut Slice, HistoryError> {
    hold.slices
        .get_mut(slice as usize)
        .ok_or_else(|| HistoryError::inconsistent(format!("a hold has no slice {slice}")))
}
