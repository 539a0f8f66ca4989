//! Proposals: a cell has found a placement, and the ledger confirms or refuses it once.

use bursar_seeded::{Bug, seeded};
use smallvec::SmallVec;

use super::{Attempt, Job, JobState, Offer};
use crate::cell::command::{FundsBlocker, Verdict};
use crate::cell::ids::AttemptId;
use crate::credits::Credits;
use crate::ledger::accounts::budget::Change;
use crate::ledger::credits::price::Rate;
use crate::ledger::event::{AttemptConfirmed, Event, Piece, Pieces, SliceAmount};
use crate::ledger::holds::capture::Projected;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::{CellNo, HoldNo, JobNo};
use crate::ledger::refusal::{Blocker, Refusal};
use crate::ledger::state::Ledger;
use crate::message::{ProposedNode, ToCell};
use crate::name::GpuModel;
use crate::time::Timestamp;

/// The lease of a running job's hold without reports of its region: two days. It is longer than any
/// lease of a node and any grace, so that the cell decides first, and short enough that a lost
/// region does not keep credits for ever.
pub const RUNNING_LEASE_MS: i64 = 48 * 3_600_000;

impl Ledger {
    /// The attempt that a cell reports on, unless it has ended.
    pub(in crate::ledger) fn live_attempt_of(
        &self,
        cell: CellNo,
        attempt: AttemptId,
    ) -> Option<(JobNo, &Attempt)> {
        let number = JobNo::of_cell(attempt.job);
        let live = self.jobs.all.get(&number)?.attempt_of(cell, attempt)?;
        Some((number, live))
    }

    /// Pushes the answer to a proposal.
    pub(in crate::ledger) fn push_proposal(
        &self,
        now: Timestamp,
        cell: CellNo,
        attempt: AttemptId,
        gpu_type: Option<&GpuModel>,
        nodes: &SmallVec<[ProposedNode; 1]>,
        events: &mut Vec<Event>,
    ) {
        match self.judge(now, cell, attempt, gpu_type) {
            Ok((job, offer)) => {
                let confirmed = AttemptConfirmed {
                    job: JobNo::of_cell(attempt.job),
                    cell: Some(cell),
                    number: attempt.number,
                    gpu_type: gpu_type.cloned(),
                    nodes: nodes.clone(),
                    per_gpu_hour: offer.per_gpu_hour,
                    funded_ms: job.order.terms.first_window(),
                };
                self.push_confirmed(now, attempt, job, confirmed, events);
            }
            Err(verdict) => {
                self.send(cell, ToCell::PlacementRefused { attempt, verdict }, events);
                self.push_orphaned(now, cell, attempt, verdict, events);
            }
        }
    }

    /// Ends a job whose last cell proposed a GPU type without a price.
    fn push_orphaned(
        &self,
        now: Timestamp,
        cell: CellNo,
        attempt: AttemptId,
        verdict: Verdict,
        events: &mut Vec<Event>,
    ) {
        let number = JobNo::of_cell(attempt.job);
        let Some(job) = self.jobs.all.get(&number) else { return };
        let last = job
            .standings
            .iter()
            .all(|standing| standing.cell == cell && attempt.number > standing.after);
        let stands = job.state == JobState::Queued && !job.standings.is_empty();
        if verdict == Verdict::Withdraw && stands && last {
            self.push_over(now, number, job, JobState::Cancelled, events);
        }
    }

    /// Decides whether a proposed attempt may start and at which price, or what happens to the job
    /// in the cell.
    fn judge(
        &self,
        now: Timestamp,
        cell: CellNo,
        attempt: AttemptId,
        gpu_type: Option<&GpuModel>,
    ) -> Result<(&Job, &Offer), Verdict> {
        let job = self.jobs.all.get(&JobNo::of_cell(attempt.job)).ok_or(Verdict::Withdraw)?;
        let current = job
            .standings
            .iter()
            .any(|standing| standing.cell == cell && attempt.number > standing.after);
        let twice = seeded(Bug::ConfirmsTwice) && !job.state.is_ended();
        let stands = twice || (current && job.state == JobState::Queued);
        if !stands || job.cancel_asked || !job.after.is_empty() {
            return Err(Verdict::Withdraw);
        }
        let region = &self.cells[cell.index()].region;
        let offer =
            job.order.offer(gpu_type.map(GpuModel::as_str), region).ok_or(Verdict::Withdraw)?;
        let path = self.path(job.order.account);
        if self.require_thawed(&path).is_err() {
            return Err(Verdict::Wait(FundsBlocker::Frozen));
        }
        if job.is_unfunded() {
            return Err(Verdict::Wait(self.funds_blocker(now, job)));
        }
        Ok((job, offer))
    }

    /// The blocker of an unfunded job.
    fn funds_blocker(&self, now: Timestamp, job: &Job) -> FundsBlocker {
        // If credits suffice and only a budget blocks, the blocker is the budget.
        match self.draw_next_hold(now, job) {
            Err(Refusal::BudgetExceeded { .. }) => FundsBlocker::Budget,
            Ok(_) | Err(_) => FundsBlocker::Credits,
        }
    }

    fn push_confirmed(
        &self,
        now: Timestamp,
        attempt: AttemptId,
        job: &Job,
        confirmed: AttemptConfirmed,
        events: &mut Vec<Event>,
    ) {
        let Some(cell) = confirmed.cell else { return };
        let price = confirmed.per_gpu_hour;
        let funded_ms = confirmed.funded_ms;
        if let Some(hold) = job.hold {
            let amount = job.order.terms.hold_at(price, funded_ms);
            // Cannot fail: the cost at the highest price was valid.
            let amount = amount.unwrap_or(Credits::MAX);
            self.push_pinned(now, hold, job.order.terms.rate(price), amount, events);
        }
        events.push(Event::AttemptConfirmed(Box::new(confirmed)));
        let price = price.length();
        self.send(cell, ToCell::PlacementConfirmed { attempt, price, funded_ms }, events);
        let number = JobNo::of_cell(attempt.job);
        self.push_withdrawals(number, job, Some(cell), events);
    }

    /// Withdraws a job from every cell where it is admitted, except one.
    pub(in crate::ledger) fn push_withdrawals(
        &self,
        number: JobNo,
        job: &Job,
        but: Option<CellNo>,
        events: &mut Vec<Event>,
    ) {
        for standing in job.standings.iter().filter(|standing| Some(standing.cell) != but) {
            let id = number.in_cell(self.cells[standing.cell.index()].shard);
            self.send(standing.cell, ToCell::JobWithdrawn { job: id }, events);
        }
    }

    /// Pins the price of a hold without captures: the surplus is returned, and the lease starts.
    fn push_pinned(
        &self,
        now: Timestamp,
        number: HoldNo,
        rate: Rate,
        amount: Credits,
        events: &mut Vec<Event>,
    ) {
        let hold = self.live_hold(number);
        let kept = amount.length().min(hold.amount);
        let mut slices = Projected::of(number, hold).slices;
        // Each slice keeps what a capture of the whole smaller hold would take from it.
        let kept = self.attribute(&mut slices, kept, kept);
        let mut returned: SmallVec<[SliceAmount; 2]> = SmallVec::new();
        for (slice, drawn) in (0u32..).zip(&hold.slices) {
            let stays = kept.iter().find(|kept| kept.slice == slice).map_or(0, |kept| kept.amount);
            let amount = drawn.span.len() - stays;
            if amount > 0 {
                returned.push(SliceAmount { slice, amount });
            }
        }
        let back = hold.off_the_end(&returned);
        let lapses = seeded(Bug::HoldLapsesWhileRunning);
        let expires_at = Some(now.plus_millis(if lapses { 20_000 } else { RUNNING_LEASE_MS }));
        events.push(Event::HoldPinned { hold: number, rate, returned, expires_at });
        self.push_returned(now, number, &back, false, events);
    }

    pub(in crate::ledger) fn apply_hold_pinned(
        &mut self,
        number: HoldNo,
        rate: Rate,
        returned: &[SliceAmount],
        expires_at: Option<Timestamp>,
    ) {
        self.remember_hold(number);
        self.forget_hold_indexes(number);
        let hold = self.holds.get_mut(number.0).expect("events name only existing holds");
        let back = hold.apply_pinned(rate, returned, expires_at);
        let back = back.expect("only held units are returned");
        let account = hold.account;
        self.note_hold_indexes(number);
        for (piece, drawn_at) in back {
            self.retag(piece, fefo::Part::Held, fefo::Part::Free);
            let change = Change { held: -i128::from(piece.span.len()), ..Change::default() };
            self.change_budgets(account, drawn_at, change);
        }
    }

    /// All blockers that keep a queued job from being funded now; empty if it is funded.
    pub(in crate::ledger) fn funds_blockers(&self, now: Timestamp, job: &Job) -> Vec<Blocker> {
        let path = self.path(job.order.account);
        let mut refusals = Vec::from_iter(self.require_thawed(&path).err());
        if job.is_unfunded() {
            refusals.extend(self.draw_thawed(now, &path, job).err());
        }
        refusals.iter().flat_map(|refusal| refusal.blockers().to_vec()).collect()
    }
}

impl Hold {
    /// The units at the ends of slices, last drawn first.
    fn off_the_end(&self, parts: &[SliceAmount]) -> Pieces {
        let piece = |part: &SliceAmount| {
            let slice = &self.slices[part.slice as usize];
            let span = fefo::Span::new(slice.span.end - part.amount, slice.span.end);
            Piece { bucket: slice.bucket, span }
        };
        parts.iter().rev().map(piece).collect()
    }
}
