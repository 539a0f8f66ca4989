//! Captures: usage so far is turned into spent credits.

use bursar_seeded::{Bug, seeded};
use fefo::Part;
use smallvec::SmallVec;

use super::apply::{Capture, Captured};
use super::hold::{Hold, Slice, gpu_time, slices_of};
use crate::credits::Credits;
use crate::ledger::accounts::budget::Change;
use crate::ledger::command::{Context, Usage};
use crate::ledger::credits::bucket::share_of;
use crate::ledger::credits::price::Rounding;
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::credits::spend_order::overlay::Overlay;
use crate::ledger::event::{Event, Pieces, SliceAmount, total as total_of};
use crate::ledger::id::{AccountNo, HoldNo};
use crate::ledger::refusal::{Conflict, Refusal};
use crate::ledger::reply::{HoldReply, Reply};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The largest unpaid usage that a report may leave, as a multiple of what the hold drew. Unpaid
/// usage counts in the budgets of the ancestors, and one wrong report must not exhaust them.
const MAX_OVERRUN: u64 = 1_000;

/// Cumulative usage, priced.
#[derive(Copy, Clone, Debug)]
pub(in crate::ledger) struct Metered {
    /// In credits.
    pub(in crate::ledger) total: u64,
    /// In GPU-milliseconds.
    pub(in crate::ledger) gpu_ms: u64,
}

/// A hold as it will be after the events of a decision are applied.
pub(in crate::ledger) struct Projected {
    pub(in crate::ledger) reply: HoldReply,
    pub(in crate::ledger) slices: SmallVec<[Slice; 2]>,
}

impl Projected {
    /// What is not captured, last drawn first.
    pub(in crate::ledger) fn rest(&self) -> Pieces {
        let open = self.slices.iter().rev().filter(|slice| slice.room() > 0);
        open.map(Slice::rest).collect()
    }

    pub(in crate::ledger) fn of(number: HoldNo, hold: &Hold) -> Projected {
        let slices = hold.slices.iter().copied().collect();
        Projected { reply: hold.reply(number), slices }
    }
}

impl Ledger {
    /// Converts usage to credits. GPU time is priced at the pinned rate of the hold.
    pub(in crate::ledger) fn meter(
        &self,
        hold: &Hold,
        usage: Usage,
        rounding: Rounding,
    ) -> Result<Metered, Refusal> {
        let seen = hold.details.as_ref().map_or(0, |details| details.gpu_ms);
        match usage {
            Usage::Total(total) => Ok(Metered { total: total.length(), gpu_ms: seen }),
            Usage::GpuMs(gpu_ms) => {
                let rate = hold.details.as_ref().and_then(|details| details.rate);
                let rate = rate.ok_or(Refusal::Conflict(Conflict::NoRate))?;
                let total = rate.charge(gpu_ms, rounding).ok_or(Refusal::InvalidField {
                    field: "gpu_ms_total",
                    reason: "would cost more than the largest amount",
                })?;
                Ok(Metered { total: total.length(), gpu_ms: gpu_ms.min(rate.gpu_ms_limit) })
            }
        }
    }

    pub(in crate::ledger) fn decide_capture(
        &self,
        now: Timestamp,
        number: HoldNo,
        usage: Usage,
        seq: Option<u64>,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let hold = self.live_hold(number);
        if !hold.is_open() {
            return Err(Refusal::HoldClosed { state: hold.state });
        }
        let metered = self.meter(hold, usage, Rounding::Floor)?;
        let last = hold.details.as_ref().and_then(|details| details.last_report);
        let stale = match (seq, last) {
            (Some(seq), Some((last, seen))) if seq == last && seen.length() != metered.total => {
                return Err(Refusal::SequenceConflict { seen });
            }
            (Some(seq), Some((last, _))) => seq <= last && !seeded(Bug::TakesStaleCapture),
            (Some(_), None) | (None, _) => false,
        };
        let projected = if stale || !hold.grows_by(metered) {
            Projected::of(number, hold)
        } else {
            self.push_reported(now, number, (usage, metered), seq, events)?
        };
        Ok(Reply::Hold(projected.reply))
    }

    /// Pushes the capture of reported usage, unless it exceeds the plausible maximum.
    pub(in crate::ledger) fn push_reported(
        &self,
        now: Timestamp,
        number: HoldNo,
        (usage, metered): (Usage, Metered),
        seq: Option<u64>,
        events: &mut Vec<Event>,
    ) -> Result<Projected, Refusal> {
        let hold = self.live_hold(number);
        let before = events.len();
        let mut overlay = Overlay::default();
        let projected = self.push_capture(now, number, hold, metered, seq, &mut overlay, events);
        let owed = projected.reply.uncollected.length();
        if owed > hold.uncollected().max(hold.most_owed()) {
            events.truncate(before);
            let field = match usage {
                Usage::Total(_) => "total",
                Usage::GpuMs(_) => "gpu_ms_total",
            };
            let reason = "must not leave more than 1000 times what the hold drew unpaid";
            return Err(Refusal::InvalidField { field, reason });
        }
        Ok(projected)
    }

    /// Pushes the capture of increased usage, and tops the hold up if it is too small. The overlay
    /// contains the earlier changes of the decision; draws made here are added to it.
    #[allow(clippy::too_many_arguments, reason = "one function for all captures")]
    pub(in crate::ledger) fn push_capture(
        &self,
        now: Timestamp,
        number: HoldNo,
        hold: &Hold,
        metered: Metered,
        seq: Option<u64>,
        overlay: &mut Overlay,
        events: &mut Vec<Event>,
    ) -> Projected {
        let mut projected = Projected::of(number, hold);
        let increase = metered.total.saturating_sub(hold.metered);
        let short = increase.saturating_sub(hold.room());
        let pieces = if short > 0 { self.top_up(now, hold, short, overlay) } else { Pieces::new() };
        let added = total_of(&pieces);
        if added > 0 {
            overlay.take(&pieces);
            let draws = hold.details.as_ref().map_or(0, |details| details.draws.len()).max(1);
            let draw = u32::try_from(draws).unwrap_or(u32::MAX);
            projected.slices.extend(slices_of(&pieces, draw));
            let expires_at = hold.expires_at;
            events.push(Event::HoldExtended { hold: number, pieces, gpu_ms: 0, expires_at });
        }
        let captured = increase.min(hold.room() + added);
        let uncollected = increase - captured;
        let taken = self.attribute(&mut projected.slices, hold.captured + captured, captured);
        let credits = |length| Credits::from_length(length).unwrap_or(Credits::MAX);
        events.push(Event::HoldCaptured {
            hold: number,
            seq,
            total: credits(metered.total),
            gpu_ms: metered.gpu_ms,
            taken,
            uncollected,
        });
        if added + uncollected > 0 {
            overlay.relief.push((now, -i128::from(added + uncollected), 0));
            let path = self.path(hold.account);
            self.push_thresholds(now, &path, i128::from(added + uncollected), 0, events);
        }
        projected.reply.amount = credits(hold.amount + added);
        projected.reply.captured = credits(hold.captured + captured);
        projected.reply.uncollected = credits(hold.uncollected() + uncollected);
        projected.reply.slices = u32::try_from(projected.slices.len()).unwrap_or(u32::MAX);
        projected
    }

    /// Draws up to `short` more for a hold, as far as credits and budgets allow.
    fn top_up(&self, now: Timestamp, hold: &Hold, short: u64, overlay: &Overlay) -> Pieces {
        let path = self.path(hold.account);
        if self.require_thawed(&path).is_err() {
            return Pieces::new();
        }
        let default = Context::default();
        let context = hold.details.as_ref().map_or(&default, |details| &details.context);
        let request = DrawRequest { hold: Some(hold), ..DrawRequest::new(&path, context) };
        // Earlier draws of this decision may count in the same budgets.
        let room = self.budget_room(now, &path).saturating_sub(total_of(&overlay.drawn).into());
        let wanted = u128::from(short).min(room);
        let amount = self.largest_draw(request, &overlay.drawn_on(self, &path), wanted);
        if amount == 0 {
            return Pieces::new();
        }
        // At most `short`, which fits.
        let amount = u64::try_from(amount).unwrap_or(short);
        self.draw_after(overlay, request, amount).unwrap_or_default()
    }

    /// Takes `increase` from slices, first drawn first, so that the captured total is `captured`.
    ///
    /// A slice whose grant limits its share of a hold gives at most that share of what is captured.
    /// Rounding such shares down can leave a few micro-credits; they come from the first slices
    /// with room.
    pub(in crate::ledger) fn attribute(
        &self,
        slices: &mut [Slice],
        captured: u64,
        increase: u64,
    ) -> SmallVec<[SliceAmount; 2]> {
        let mut taken: SmallVec<[SliceAmount; 2]> = SmallVec::new();
        let mut left = increase;
        for limited in [true, false] {
            for at in 0..slices.len() {
                if left == 0 {
                    return taken;
                }
                let slice = slices[at];
                let mut amount = slice.room().min(left);
                let share = self.bucket(slice.bucket).max_share().filter(|_| limited);
                if let Some(share) = share {
                    let same = slices.iter().filter(|other| other.bucket == slice.bucket);
                    let before: u128 = same.map(|other| u128::from(other.captured)).sum();
                    let allowed = share_of(share, captured.into()).saturating_sub(before);
                    amount = amount.min(u64::try_from(allowed).unwrap_or(u64::MAX));
                }
                if amount > 0 {
                    left -= amount;
                    slices[at].captured += amount;
                    let slice = u32::try_from(at).unwrap_or(u32::MAX);
                    match taken.iter_mut().find(|other| other.slice == slice) {
                        Some(present) => present.amount += amount,
                        None => taken.push(SliceAmount { slice, amount }),
                    }
                }
            }
        }
        taken
    }

    pub(in crate::ledger) fn apply_captured(
        &mut self,
        at: Timestamp,
        number: HoldNo,
        capture: &Capture<'_>,
    ) {
        self.remember_hold(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let account = hold.account;
        let captured = hold.apply_captured(at, capture);
        let Captured { spent, gpu, gpu_ms: _ } = captured.expect("only held units are captured");
        let uncollected = capture.uncollected;
        for (piece, drawn_at) in spent {
            self.retag(piece, Part::Held, Part::Spent);
            self.change_budgets(account, drawn_at, Change::captured(piece.span.len().into()));
        }
        for (drawn_at, amount) in gpu {
            let change = Change { gpu_held: -amount, gpu_spent: amount, ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
        if uncollected > 0 {
            self.change_owed(account, i128::from(uncollected));
            let change = Change { spent: uncollected.into(), ..Change::default() };
            self.change_budgets(account, at, change);
        }
    }

    /// The uncollected usage of an account.
    pub fn uncollected(&self, account: AccountNo) -> i128 {
        self.account(account).uncollected()
    }
}

impl Hold {
    /// The most that reports may leave uncollected.
    fn most_owed(&self) -> u64 {
        // Includes units that were cut off: a strict hold may have lost all of them.
        let drawn: u64 = self.slices.iter().map(|slice| slice.span.len()).sum();
        drawn.saturating_mul(MAX_OVERRUN)
    }

    /// Whether a report exceeds the earlier reports.
    pub(in crate::ledger) fn grows_by(&self, metered: Metered) -> bool {
        let seen = self.details.as_ref().map_or(0, |details| details.gpu_ms);
        metered.total > self.metered || metered.gpu_ms > seen
    }

    /// GPU time that was held and not used, by draw.
    pub(super) fn unused_gpu_time(&self) -> SmallVec<[(Timestamp, i128); 1]> {
        let spent = self.details.as_ref().map_or(0, |details| details.gpu_spent);
        self.gpu_time_unused_by(spent)
    }

    /// GPU time that was held and stays unused if the final usage is `gpu_ms`, by draw.
    pub(in crate::ledger) fn unused_gpu_time_at(
        &self,
        gpu_ms: u64,
    ) -> SmallVec<[(Timestamp, i128); 1]> {
        self.gpu_time_unused_by(gpu_time(gpu_ms, self.share_milli()))
    }

    fn gpu_time_unused_by(&self, mut spent: i128) -> SmallVec<[(Timestamp, i128); 1]> {
        let mut unused = SmallVec::new();
        let Some(details) = &self.details else { return unused };
        for (at, held) in &details.draws {
            let used = spent.min(*held);
            spent -= used;
            if used < *held {
                unused.push((*at, held - used));
            }
        }
        unused
    }
}
