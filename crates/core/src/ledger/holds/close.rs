//! The end of a hold. Settlement, release, preemption and lapse share this code.

use fefo::Part;

use super::apply::Closed;
use super::capture::Projected;
use super::hold::HoldState;
use crate::credits::Credits;
use crate::ledger::accounts::budget::Change;
use crate::ledger::command::{Cause, Usage};
use crate::ledger::credits::price::Rounding;
use crate::ledger::event::{Event, Pieces, SliceAmount, total};
use crate::ledger::id::{BucketNo, HoldNo};
use crate::ledger::refusal::{Conflict, Refusal};
use crate::ledger::reply::Reply;
use crate::ledger::state::Ledger;
use crate::ledger::undo::Undo;
use crate::time::Timestamp;

impl Ledger {
    pub(in crate::ledger) fn decide_settle(
        &self,
        now: Timestamp,
        number: HoldNo,
        usage: Usage,
        cause: Cause,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let hold = self.live_hold(number);
        let metered = self.meter(hold, usage, Rounding::HalfEven);
        if !hold.is_open() {
            let same = metered.is_ok_and(|metered| metered.total == hold.metered);
            return if same && hold.state == HoldState::Settled {
                Ok(Reply::Hold(hold.reply(number)))
            } else {
                Err(Refusal::HoldClosed { state: hold.state })
            };
        }
        let metered = metered?;
        if metered.total < hold.metered {
            let captured = Credits::from_length(hold.metered).unwrap_or(Credits::MAX);
            return Err(Refusal::Conflict(Conflict::SettleBelowCaptured { captured }));
        }
        let projected = if hold.grows_by(metered) {
            self.push_reported(now, number, (usage, metered), None, events)?
        } else {
            Projected::of(number, hold)
        };
        Ok(self.push_close(now, projected, HoldState::Settled, cause, events))
    }

    pub(in crate::ledger) fn decide_release(
        &self,
        now: Timestamp,
        number: HoldNo,
        cause: Cause,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let hold = self.live_hold(number);
        match hold.state {
            HoldState::Open => {
                let projected = Projected::of(number, hold);
                Ok(self.push_close(now, projected, HoldState::Released, cause, events))
            }
            HoldState::Released => Ok(Reply::Hold(hold.reply(number))),
            HoldState::Settled | HoldState::Lapsed => {
                Err(Refusal::HoldClosed { state: hold.state })
            }
        }
    }

    /// Pushes the end of a hold whose lease has run out.
    pub(in crate::ledger) fn push_lapse(
        &self,
        now: Timestamp,
        number: HoldNo,
        events: &mut Vec<Event>,
    ) {
        let hold = self.live_hold(number);
        let projected = Projected::of(number, hold);
        let returned = total(&projected.rest());
        self.push_close(now, projected, HoldState::Lapsed, Cause::Holder, events);
        if let Some(job) = hold.job() {
            self.push_job_lapsed(now, job, hold, returned, events);
        }
    }

    /// Pushes the end of a hold: the rest is returned to its grants, last drawn first.
    pub(in crate::ledger) fn push_close(
        &self,
        now: Timestamp,
        projected: Projected,
        state: HoldState,
        cause: Cause,
        events: &mut Vec<Event>,
    ) -> Reply {
        let rest = projected.rest();
        let Projected { mut reply, slices: _ } = projected;
        let hold = reply.hold;
        events.push(Event::HoldClosed { hold, state, cause, returned: total(&rest) });
        self.push_returned(now, hold, &rest, cause == Cause::Platform, events);
        reply.state = state;
        Reply::Hold(reply)
    }

    pub(in crate::ledger) fn apply_closed(
        &mut self,
        at: Timestamp,
        number: HoldNo,
        state: HoldState,
        cause: Cause,
    ) {
        self.remember_hold(number);
        self.forget_hold_indexes(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let (account, job) = (hold.account, hold.job());
        let Closed { rest, gpu } = hold.apply_closed(at, state, cause);
        for (piece, drawn_at) in rest {
            self.retag(piece, Part::Held, Part::Free);
            let change = Change { held: -i128::from(piece.span.len()), ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
        for (drawn_at, amount) in gpu {
            let change = Change { gpu_held: -amount, ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
        self.aging.holds.push_back((at, number));
        self.remember(|| Undo::HoldAged);
        if let Some(job) = job {
            self.apply_job_released(job);
        }
    }

    /// Pushes the expiry of a bucket: its free units expire, and strict holds are cut. At most
    /// `room` holds are cut here; the others follow at once, in further steps.
    pub(in crate::ledger) fn push_expiry(
        &self,
        bucket: BucketNo,
        room: usize,
        events: &mut Vec<Event>,
    ) {
        let amount = self.bucket(bucket).line.free();
        events.push(Event::BucketExpired { bucket, amount });
        let strict = self.strict.range((bucket, HoldNo(0))..=(bucket, HoldNo(u32::MAX)));
        let cuts = strict.map(|(_, hold)| (*hold, self.cut_of(bucket, *hold)));
        for (hold, cut) in cuts.filter(|(_, cut)| !cut.is_empty()).take(room) {
            events.push(Event::HoldCut { hold, cut });
        }
    }

    pub(in crate::ledger) fn apply_bucket_expired(&mut self, at: Timestamp, number: BucketNo) {
        let bucket = self.bucket(number);
        let (account, rank) = (bucket.account, bucket.rank);
        let was_open = bucket.is_open();
        let restricted = bucket.restriction.is_some();
        let shared = bucket.max_share().is_none();
        let free: Pieces = bucket
            .line
            .free_spans(0)
            .map(|span| crate::ledger::event::Piece { bucket: number, span })
            .collect();
        if let Some(expires_at) = rank.expires_at() {
            self.timers.expiries.remove(&(expires_at, number));
        }
        if was_open {
            self.index_open((rank, number), restricted, false);
        }
        if shared && self.find_bucket(account, &rank, self.restriction_of(number)) == Some(number) {
            self.unindex_bucket(number, None);
        }
        self.buckets[number.index()].expired = true;
        let strict = self.strict.range((number, HoldNo(0))..=(number, HoldNo(u32::MAX)));
        let held = strict.filter(|(_, hold)| !self.cut_of(number, *hold).is_empty());
        let held: Vec<(BucketNo, HoldNo)> = held.copied().collect();
        self.cuts.extend(held);
        for piece in free {
            self.retag(piece, Part::Free, Part::Expired);
        }
        self.rare_account(account).expired.insert((rank, number), ());
        self.aging.buckets.push_back((at, number));
    }

    fn restriction_of(&self, bucket: BucketNo) -> Option<&crate::ledger::command::Restriction> {
        self.bucket(bucket).restriction.as_deref()
    }

    pub(in crate::ledger) fn apply_hold_cut(&mut self, number: HoldNo, cut: &[SliceAmount]) {
        self.touch_tallies(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let account = hold.account;
        let gone = hold.apply_cut(cut).expect("only held units are cut off");
        for (piece, drawn_at) in gone {
            self.cuts.remove(&(piece.bucket, number));
            self.retag(piece, Part::Held, Part::Expired);
            let change = Change { held: -i128::from(piece.span.len()), ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
    }
}
