//! Holds: reserved credits. `open → settled | released | lapsed`.
mod records;

use fefo::Span;
use smallvec::SmallVec;

use crate::credits::Credits;
use crate::ledger::command::{Cause, Context, Envelope, OnExpiry, PlaceHold};
use crate::ledger::credits::price::{Rate, WHOLE_GPU};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::{Event, HoldPlaced, Piece, Pieces, total};
use crate::ledger::id::{AccountNo, BucketNo, HoldNo, JobNo};
use crate::ledger::refusal::{Blocker, Conflict, Refusal, Resource};
use crate::ledger::reply::{HoldReply, Reply};
use crate::ledger::state::Ledger;
use crate::name::{AccountPath, HoldId};
use crate::time::Timestamp;

/// The state of a hold.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldState {
    /// Credits are reserved.
    Open,
    /// Ended with a final total. Charges are created in this state.
    Settled,
    /// Ended at the captured amount.
    Released,
    /// Its lease ran out.
    Lapsed,
}

/// Whether it is a hold or a charge. Both have slices and can be refunded.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldKind {
    /// Placed, captured and closed.
    Hold,
    /// Spent in one step.
    Charge,
}

/// Consecutive units that a hold has drawn. Captures take units from the front.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The bucket.
    pub bucket: BucketNo,
    /// The number of its draw in the hold; 0 is the placement.
    pub draw: u32,
    /// The units, as drawn.
    pub span: Span,
    /// How many of them were captured.
    pub captured: u64,
    /// Whether the rest was cut off because the bucket expired.
    pub cut: bool,
}

impl Slice {
    /// How many units can still be captured.
    pub fn room(&self) -> u64 {
        if self.cut { 0 } else { self.span.len() - self.captured }
    }

    /// The number of units drawn, less those that were cut off.
    pub fn kept(&self) -> u64 {
        if self.cut { self.captured } else { self.span.len() }
    }

    /// The units that were not captured.
    pub fn rest(&self) -> Piece {
        let span = Span::new(self.span.start + self.captured, self.span.end);
        Piece { bucket: self.bucket, span }
    }
}

/// One hold or charge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Its name.
    pub id: HoldId,
    /// The account that spends.
    pub account: AccountNo,
    /// Whether it is a hold or a charge.
    pub kind: HoldKind,
    /// Its state.
    pub state: HoldState,
    /// The hash of the request that placed it.
    pub fingerprint: u64,
    /// How much it has drawn, less what was cut off.
    pub amount: u64,
    /// How much of that was captured.
    pub captured: u64,
    /// The cumulative usage reported last; above `captured` by what could not be collected.
    pub metered: u64,
    /// How much of the captured amount has been refunded.
    pub refunded: u64,
    /// When it was placed.
    pub placed_at: Timestamp,
    /// The last instant before it lapses.
    pub expires_at: Option<Timestamp>,
    /// When it was closed.
    pub closed_at: Timestamp,
    /// When it was closed, or last refunded.
    pub moved_at: Timestamp,
    /// What it has drawn, in order.
    pub slices: SmallVec<[Slice; 1]>,
    /// Fields that most holds do not need.
    pub details: Option<Box<HoldDetails>>,
    /// Fields that only charges have.
    pub charge: Option<Box<ChargeTerms>>,
}

/// Fields that only charges have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChargeTerms {
    /// The requested amount.
    pub requested: Credits,
    /// What the account could still spend in the same context afterwards.
    pub spendable_after: i128,
    /// When the usage happened, if it was reported late.
    pub late_for: Option<Timestamp>,
}

/// Fields that most holds do not need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HoldDetails {
    /// What it is for.
    pub context: Context,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The pinned rate.
    pub rate: Option<Rate>,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// The number and total of the last numbered report.
    pub last_report: Option<(u64, Credits)>,
    /// GPU time used so far, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// GPU time that budgets count as spent, in thousandths of GPU-milliseconds.
    pub gpu_spent: i128,
    /// Its draws: when, and the GPU time each stands for, in thousandths of GPU-milliseconds.
    pub draws: SmallVec<[(Timestamp, i128); 1]>,
    /// Usage that could not be collected: when, and how much.
    pub uncollected: Vec<(Timestamp, u64)>,
    /// Who closed it.
    pub cause: Cause,
    /// Whether it was forgotten and restored. Budgets may have been counted without it.
    pub revived: bool,
    /// The job that it pays for.
    pub job: Option<JobNo>,
}

impl Hold {
    /// Whether it was forgotten and came back for a refund.
    pub(in crate::ledger) fn is_revived(&self) -> bool {
        self.details.as_ref().is_some_and(|details| details.revived)
    }

    /// Whether credits are still set aside.
    pub fn is_open(&self) -> bool {
        self.state == HoldState::Open
    }

    /// How much can still be captured without drawing more.
    pub fn room(&self) -> u64 {
        self.amount - self.captured
    }

    /// How much can still be captured without drawing more; zero if the hold has ended.
    pub fn remaining(&self) -> u64 {
        if self.is_open() { self.room() } else { 0 }
    }

    /// Usage that could not be collected.
    pub fn uncollected(&self) -> u64 {
        self.metered - self.captured
    }

    /// When a slice was drawn.
    pub fn drawn_at(&self, slice: &Slice) -> Timestamp {
        let draws = self.details.as_ref().map_or(&[][..], |details| &details.draws[..]);
        draws.get(slice.draw as usize).map_or(self.placed_at, |(at, _)| *at)
    }

    /// Whether it loses credits whose grant expires.
    pub fn is_strict(&self) -> bool {
        self.details.as_ref().is_some_and(|details| details.on_expiry == OnExpiry::Strict)
    }

    /// The share of a GPU that its GPU time stands for, in thousandths.
    pub(in crate::ledger) fn share_milli(&self) -> u16 {
        let rate = self.details.as_ref().and_then(|details| details.rate);
        rate.map_or(WHOLE_GPU, |rate| rate.share_milli)
    }

    /// The job that it pays for.
    pub fn job(&self) -> Option<JobNo> {
        self.details.as_ref().and_then(|details| details.job)
    }

    /// The reply to a command on this hold.
    pub(in crate::ledger) fn reply(&self, hold: HoldNo) -> HoldReply {
        let credits = |length| Credits::from_length(length).unwrap_or(Credits::MAX);
        HoldReply {
            hold,
            state: self.state,
            amount: credits(self.amount),
            captured: credits(self.captured),
            uncollected: credits(self.uncollected()),
            expires_at: self.expires_at,
            slices: u32::try_from(self.slices.len()).unwrap_or(u32::MAX),
        }
    }
}

/// GPU time in the unit of GPU-hour budgets: thousandths of GPU-milliseconds.
pub(in crate::ledger) fn gpu_time(gpu_ms: u64, share_milli: u16) -> i128 {
    i128::from(gpu_ms) * i128::from(share_milli)
}

impl Ledger {
    /// The hold or charge with this name.
    pub fn find_hold(&self, tenant: AccountNo, kind: HoldKind, id: &str) -> Option<HoldNo> {
        self.hold_names.find((tenant, kind, id), |number| self.hold_name(number)).map(HoldNo)
    }

    fn hold_name(&self, number: u32) -> (AccountNo, HoldKind, &str) {
        let hold = self.live_hold(HoldNo(number));
        (self.account(hold.account).tenant, hold.kind, hold.id.as_str())
    }

    pub(in crate::ledger) fn existing_hold(
        &self,
        tenant: &AccountPath,
        id: &HoldId,
    ) -> Result<HoldNo, Refusal> {
        self.find_account(tenant)
            .and_then(|tenant| self.find_hold(tenant, HoldKind::Hold, id))
            .ok_or_else(|| Refusal::NotFound { what: Resource::Hold, name: id.clone().into() })
    }

    /// The hold with this name. Refuses a hold of a job, which only the job changes.
    pub(in crate::ledger) fn movable_hold(
        &self,
        tenant: &AccountPath,
        id: &HoldId,
    ) -> Result<HoldNo, Refusal> {
        let hold = self.existing_hold(tenant, id)?;
        match self.live_hold(hold).job() {
            Some(_) => Err(Refusal::Conflict(Conflict::HeldByJob)),
            None => Ok(hold),
        }
    }

    pub(in crate::ledger) fn decide_place_hold(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &PlaceHold,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(&command.account)?;
        let tenant = self.account(account).tenant;
        let path = self.path(account);
        let request = DrawRequest::new(&path, &command.context);
        // Drawn before the look-up by name, so that the cache misses of both overlap.
        let drawn = self.draw(request, command.amount.length());
        if let Some(hold) = self.find_hold(tenant, HoldKind::Hold, &command.id) {
            let present = self.live_hold(hold);
            return if envelope.made(present.fingerprint) {
                Ok(Reply::Hold(present.reply(hold)))
            } else {
                Err(Refusal::AlreadyExists {
                    what: Resource::Hold,
                    name: command.id.clone().into(),
                })
            };
        }
        if let Some(answer) =
            self.made_before(envelope, (tenant, HoldKind::Hold, command.id.as_str()))
        {
            return answer;
        }
        self.require_thawed(&path)?;
        let share = command.rate.map_or(WHOLE_GPU, |rate| rate.share_milli);
        let gpu = gpu_time(command.gpu_ms, share);
        let pieces = self.within_budgets(now, request, drawn, command.amount, gpu)?;
        let hold = HoldNo(self.holds.next());
        let expires_at = command.ttl_ms.map(|ttl| now.plus_millis(ttl));
        let reply = HoldReply {
            hold,
            state: HoldState::Open,
            amount: command.amount,
            captured: Credits::ZERO,
            uncollected: Credits::ZERO,
            expires_at,
            slices: u32::try_from(pieces.len()).unwrap_or(u32::MAX),
        };
        events.push(Event::HoldPlaced(Box::new(HoldPlaced {
            hold,
            id: command.id.clone(),
            account,
            pieces,
            expires_at,
            context: command.context.clone(),
            on_expiry: command.on_expiry,
            rate: command.rate,
            gpu_ms: command.gpu_ms,
            reference: command.reference.clone(),
            fingerprint: envelope.fingerprint,
            job: None,
        })));
        self.push_thresholds(now, &path, i128::from(command.amount.micros()), gpu, events);
        Ok(Reply::Hold(reply))
    }

    pub(in crate::ledger) fn decide_extend_hold(
        &self,
        now: Timestamp,
        hold: HoldNo,
        amount: Option<Credits>,
        gpu_ms: u64,
        ttl_ms: Option<i64>,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let present = self.live_hold(hold);
        let path = self.path(present.account);
        if amount.is_some() {
            self.require_thawed(&path)?;
        }
        if !present.is_open() {
            return Err(Refusal::HoldClosed { state: present.state });
        }
        let mut reply = present.reply(hold);
        let renewed = ttl_ms.map(|ttl| now.plus_millis(ttl));
        let expires_at = renewed.max(present.expires_at);
        let gpu = gpu_time(gpu_ms, present.share_milli());
        let mut pieces = Pieces::new();
        if let Some(amount) = amount {
            let grown = reply.amount.checked_add(amount).ok_or(Refusal::InvalidField {
                field: "amount",
                reason: "the hold would exceed the largest amount",
            })?;
            let default = Context::default();
            let context = present.details.as_ref().map_or(&default, |details| &details.context);
            let request = DrawRequest { hold: Some(present), ..DrawRequest::new(&path, context) };
            pieces = self.draw_within_budgets(now, request, amount, gpu)?;
            reply.amount = grown;
            reply.slices += u32::try_from(pieces.len()).unwrap_or(0);
        }
        reply.expires_at = expires_at;
        let drawn = i128::from(total(&pieces));
        events.push(Event::HoldExtended { hold, pieces, gpu_ms, expires_at });
        self.push_thresholds(now, &path, drawn, gpu, events);
        Ok(Reply::Hold(reply))
    }

    /// Draws an amount if credits and budgets allow it, or returns all blockers.
    pub(in crate::ledger) fn draw_within_budgets(
        &self,
        now: Timestamp,
        request: DrawRequest<'_>,
        amount: Credits,
        gpu: i128,
    ) -> Result<Pieces, Refusal> {
        let drawn = self.draw(request, amount.length());
        self.within_budgets(now, request, drawn, amount, gpu)
    }

    /// Returns the draw if it succeeded and budgets allow it, or all blockers.
    fn within_budgets(
        &self,
        now: Timestamp,
        request: DrawRequest<'_>,
        drawn: Option<Pieces>,
        amount: Credits,
        gpu: i128,
    ) -> Result<Pieces, Refusal> {
        let budgets = self.blocking_budgets(now, request.path, amount.micros().into(), gpu);
        match drawn {
            Some(pieces) if budgets.is_empty() => Ok(pieces),
            Some(_) => Err(Refusal::BudgetExceeded { blockers: budgets }),
            None => Err(self.denied(now, request, amount, gpu)),
        }
    }

    /// The refusal of an amount that cannot be drawn: too few credits, and every budget that
    /// blocks.
    pub(in crate::ledger) fn denied(
        &self,
        now: Timestamp,
        request: DrawRequest<'_>,
        amount: Credits,
        gpu: i128,
    ) -> Refusal {
        let spender = self.account(request.path[0]);
        let spendable = self.largest_draw(request, &[], u128::MAX);
        let mut blockers = vec![Blocker::Credits {
            account: spender.path.clone(),
            requested: amount,
            spendable: i128::try_from(spendable).unwrap_or(i128::MAX),
        }];
        blockers.extend(self.blocking_budgets(now, request.path, amount.micros().into(), gpu));
        Refusal::InsufficientCredits { blockers }
    }
}

/// The slices of one draw.
pub(super) fn slices_of(pieces: &[Piece], draw: u32) -> SmallVec<[Slice; 1]> {
    let slice = |piece: &Piece| Slice {
        bucket: piece.bucket,
        draw,
        span: piece.span,
        captured: 0,
        cut: false,
    };
    pieces.iter().map(slice).collect()
}
