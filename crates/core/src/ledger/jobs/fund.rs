//! Rolling funding: running time is paid for one window at a time, or for as much of a window as
//! credits allow.
//!
//! A window that cannot be filled leaves its attempt short. A short attempt is reviewed again
//! whenever credits, budgets or limits change, like a waiting job, and shortly before its end.

use smallvec::SmallVec;

use super::terms::CENTURY_MS;
use super::{Attempt, Job, JobTerms, OnExhausted};
use crate::cell::ids::AttemptId;
use crate::credits::Credits;
use crate::ledger::accounts::account::Path;
use crate::ledger::command::{BudgetMode, BudgetUnit, Context};
use crate::ledger::credits::price::{HOUR_MS, WHOLE_GPU};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::{Event, Pieces, total};
use crate::ledger::holds::hold::gpu_time;
use crate::ledger::id::{AccountNo, CellNo, JobNo};
use crate::ledger::index::timers::earlier;
use crate::ledger::jobs::start::RUNNING_LEASE_MS;
use crate::ledger::jobs::table::Review;
use crate::ledger::jobs::wait::next_period;
use crate::ledger::refusal::Refusal;
use crate::ledger::state::Ledger;
use crate::message::ToCell;
use crate::name::MAX_DEPTH;
use crate::time::Timestamp;

/// Additional running time of an attempt.
#[derive(Debug, Default)]
struct Portion {
    /// The total running time that is paid for; `None` if all of it is.
    funded_ms: Option<i64>,
    /// The units drawn for it, and the GPU time that they cover.
    pieces: Pieces,
    gpu_ms: u64,
    /// The total that may stay unpaid.
    overdraft: u64,
    /// The running time that credits pay for, if the rest is an overdraft.
    credits_ms: Option<i64>,
}

/// The part of the next window that is paid for, and the reason if it is not the whole window.
type FoundPortion = (Option<Portion>, Option<Refusal>);

impl Ledger {
    /// Pays for one more window or a part of it, and reports the rest as refused.
    pub(in crate::ledger) fn push_more_funds(
        &self,
        now: Timestamp,
        cell: CellNo,
        attempt: AttemptId,
        number: JobNo,
        events: &mut Vec<Event>,
    ) {
        let job = self.live_job(number);
        let Some(live) = job.live_attempt() else { return };
        let Some(funded_ms) = live.funded_ms else { return };
        let (portion, refusal) = self.next_portion(now, number, job, live, funded_ms);
        let found = portion.is_some();
        let short = refusal.is_some();
        let retry_at = refusal.as_ref().and_then(|refusal| next_period(now, refusal.blockers()));
        if let Some(refusal) = refusal {
            let account = job.order.account;
            events.push(Event::CreditsDenied { account, refusal: Box::new(refusal) });
        }
        let portion = portion.unwrap_or_else(|| Portion {
            funded_ms: Some(funded_ms),
            overdraft: live.overdraft,
            credits_ms: live.credits_ms,
            ..Portion::default()
        });
        self.push_portion(now, number, job, portion, (found, short), events);
        if short {
            self.send(cell, ToCell::FundsRefused { attempt }, events);
            self.push_retry(now, job, retry_at, events);
        }
    }

    /// Funds a short attempt with credits that have become available. If there are none, returns
    /// the next time to retry, if known.
    pub(in crate::ledger) fn push_refill(
        &self,
        now: Timestamp,
        number: JobNo,
        events: &mut Vec<Event>,
    ) -> Result<(), Option<Timestamp>> {
        let job = self.live_job(number);
        let live = job.live_attempt().ok_or(None)?;
        let (funded_ms, cell) = (live.funded_ms.ok_or(None)?, live.cell.ok_or(None)?);
        let (portion, refusal) = self.next_portion(now, number, job, live, funded_ms);
        let retry_at = refusal.as_ref().and_then(|refusal| next_period(now, refusal.blockers()));
        let portion = portion.ok_or(retry_at)?;
        let short = refusal.is_some();
        self.push_portion(now, number, job, portion, (true, short), events);
        if short {
            let id = number.in_cell(self.cells[cell.index()].shard);
            let attempt = AttemptId { job: id, number: live.number };
            self.send(cell, ToCell::FundsRefused { attempt }, events);
        }
        Ok(())
    }

    /// Pushes a portion. If one was found, the cell is notified.
    fn push_portion(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        portion: Portion,
        (found, short): (bool, bool),
        events: &mut Vec<Event>,
    ) {
        let Portion { funded_ms, pieces, gpu_ms, overdraft, credits_ms } = portion;
        if let Some(hold) = job.hold.filter(|_| found) {
            let present = self.live_hold(hold);
            let drawn = i128::from(total(&pieces));
            let expires_at = Some(now.plus_millis(RUNNING_LEASE_MS)).max(present.expires_at);
            events.push(Event::HoldExtended { hold, pieces, gpu_ms, expires_at });
            let gpu = gpu_time(gpu_ms, present.share_milli());
            self.push_thresholds(now, &self.path(present.account), drawn, gpu, events);
        }
        events.push(Event::AttemptFunded { job: number, funded_ms, overdraft, short, credits_ms });
        let live = job.live_attempt();
        if let Some((cell, live)) = live.and_then(|live| Some((live.cell?, live)))
            && found
        {
            let id = number.in_cell(self.cells[cell.index()].shard);
            let attempt = AttemptId { job: id, number: live.number };
            self.send(cell, ToCell::FundingChanged { attempt, funded_ms }, events);
        }
    }

    /// Schedules a review for the next period of a budget that blocks.
    fn push_retry(
        &self,
        now: Timestamp,
        job: &Job,
        retry_at: Option<Timestamp>,
        events: &mut Vec<Event>,
    ) {
        let Some(at) = retry_at else { return };
        let tenant = self.account(job.order.account).tenant;
        let next = match self.jobs.reviews.get(&tenant).copied() {
            Some(review) if review.at <= now => {
                Review { retry_at: earlier(review.retry_at, Some(at)), ..review }
            }
            Some(review) => Review { at: review.at.min(at), ..review },
            None => Review { at, from: JobNo(0), retry_at: None },
        };
        events.push(Event::BlockedJobsRechecked { tenant, next: Some(next) });
    }

    /// The next window of an attempt, whole or in part, and the refusal if it is not whole.
    fn next_portion(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        live: &Attempt,
        funded_ms: i64,
    ) -> FoundPortion {
        let terms = &job.order.terms;
        let next = terms.window_after(funded_ms);
        let Some(hold) = job.hold else {
            // The job costs nothing.
            return (Some(Portion { funded_ms: next, ..Portion::default() }), None);
        };
        let present = self.live_hold(hold);
        let path = self.path(present.account);
        if let Err(refusal) = self.require_thawed(&path) {
            return (None, Some(refusal));
        }
        let default = Context::default();
        let context = present.details.as_ref().map_or(&default, |details| &details.context);
        let request = DrawRequest { hold: Some(present), ..DrawRequest::new(&path, context) };
        let target = terms.hold_at(live.per_gpu_hour, next).map_or(u64::MAX, Credits::length);
        let owed = present.uncollected();
        let wanted = target.saturating_sub(present.amount.saturating_add(owed));
        let wanted = Credits::from_length(wanted).unwrap_or(Credits::MAX);
        let gpu_ms = terms.funded_gpu_ms(next) - terms.funded_gpu_ms(Some(funded_ms));
        let gpu = gpu_time(gpu_ms, present.share_milli());
        match self.draw_within_budgets(now, request, wanted, gpu) {
            Ok(pieces) => {
                // Late usage may have extended the hold already.
                let pieces = if wanted.is_zero() { Pieces::new() } else { pieces };
                let overdraft = owed;
                let funded_ms = next;
                let whole = Portion { funded_ms, pieces, gpu_ms, overdraft, credits_ms: None };
                (Some(whole), None)
            }
            Err(refusal) => {
                let part = self.part_of_window(now, number, job, live, request, funded_ms);
                let whole = part.as_ref().is_some_and(|part| part.funded_ms == next);
                (part, (!whole).then_some(refusal))
            }
        }
    }

    /// As much of the next window as credits, budgets and the overdraft pay for, to the
    /// millisecond.
    fn part_of_window(
        &self,
        now: Timestamp,
        number: JobNo,
        job: &Job,
        live: &Attempt,
        request: DrawRequest<'_>,
        funded_ms: i64,
    ) -> Option<Portion> {
        let (terms, price, present) = (&job.order.terms, live.per_gpu_hour, request.hold?);
        let next = terms.window_after(funded_ms);
        let last = next.or(terms.max_runtime_ms).unwrap_or(CENTURY_MS);
        let reach = self.reach(now, terms, request.path, funded_ms).min(last);
        let paid = present.amount.saturating_add(present.uncollected());
        let target = terms.hold_at(price, Some(reach)).map_or(u64::MAX, Credits::length);
        let wanted = target.saturating_sub(paid);
        let room = self.budget_room(now, request.path);
        let there = self.largest_draw(request, &[], u128::from(wanted).min(room));
        // At most `wanted`, which fits.
        let there = u64::try_from(there).unwrap_or(0);
        let pieces = if there > 0 { self.draw(request, there)? } else { Pieces::new() };
        let owing = match terms.on_exhausted {
            OnExhausted::Stop => 0,
            OnExhausted::Overdraft => {
                (wanted - there).min(self.overdraft_room(now, number, request.path, there))
            }
        };
        let covered = terms.running_ms(price, paid.saturating_add(there).saturating_add(owing));
        let covered = covered.min(reach);
        if covered <= funded_ms {
            return None;
        }
        let gpu_ms = terms.funded_gpu_ms(Some(covered)) - terms.funded_gpu_ms(Some(funded_ms));
        Some(Portion {
            funded_ms: if covered == last { next } else { Some(covered) },
            pieces,
            gpu_ms,
            overdraft: present.uncollected() + owing,
            credits_ms: (owing > 0).then(|| terms.running_ms(price, present.amount + there)),
        })
    }

    /// The running time that the hard GPU-hour budgets on a path allow.
    fn reach(&self, now: Timestamp, terms: &JobTerms, path: &Path, funded_ms: i64) -> i64 {
        let share = terms.rate(Credits::ZERO).share_milli;
        let each = gpu_time(terms.gpu_ms(1), share).max(1);
        let budgets = path.iter().flat_map(|account| self.account(*account).budgets());
        let room = budgets
            .filter(|b| b.terms.mode == BudgetMode::Hard && b.terms.unit == BudgetUnit::GpuHours)
            .map(|b| (b.terms.limit_units() - b.used(now)).max(0) / each)
            .min();
        let room = room.map_or(i64::MAX, |room| i64::try_from(room).unwrap_or(i64::MAX));
        funded_ms.saturating_add(room)
    }

    /// The additional overdraft that a job may use. Every account on its path with a limit counts
    /// the uncollected usage and the unused overdrafts at and below it. Without a limit on the path
    /// there is no overdraft. An overdraft also counts in hard budgets, beside the amount `drawn`
    /// now.
    fn overdraft_room(&self, now: Timestamp, number: JobNo, path: &Path, drawn: u64) -> u64 {
        let details = |account: &AccountNo| self.account(*account).details.as_ref();
        let limit = |account: &AccountNo| details(account).and_then(|r| r.settings.overdraft_limit);
        if path.iter().all(|account| limit(account).is_none()) {
            return 0;
        }
        let others = self.possible_debt(path, number);
        let mut room = i128::MAX;
        for (account, others) in path.iter().zip(&others) {
            if let Some(limit) = limit(account) {
                let owed = details(account).map_or(0, |details| details.owed_below);
                room = room.min(i128::from(limit.micros()) - owed - others);
            }
        }
        for (account, others) in path.iter().zip(&others) {
            for budget in self.account(*account).budgets() {
                let hard = budget.terms.mode == BudgetMode::Hard;
                if hard && budget.terms.unit == BudgetUnit::Credits {
                    let left = budget.terms.limit_units() - budget.used(now) - others;
                    room = room.min(left - i128::from(drawn));
                }
            }
        }
        u64::try_from(room).unwrap_or(0)
    }

    /// The unused overdrafts of running jobs at and below each account of a path, except one job.
    /// Reads each running job of the tenant with an overdraft once; their number is bounded by the
    /// tenant's GPUs.
    fn possible_debt(&self, path: &Path, but: JobNo) -> SmallVec<[i128; MAX_DEPTH]> {
        let mut sums: SmallVec<[i128; MAX_DEPTH]> = SmallVec::from_elem(0, path.len());
        let Some(tenant) = path.last() else { return sums };
        let of_tenant = (*tenant, JobNo(0))..=(*tenant, JobNo(u64::MAX));
        let others = self.jobs.index.owing.range(of_tenant).filter(|(_, job)| *job != but);
        for (_, number) in others {
            let job = self.live_job(*number);
            let unused = i128::from(self.unused_overdraft(job));
            let above = self.path(job.order.account);
            // Both paths end at the tenant, so their common part is at the end.
            let shared = path.iter().rev().zip(above.iter().rev()).take_while(|(a, b)| a == b);
            let shared = shared.count();
            sums.iter_mut().rev().take(shared).for_each(|sum| *sum += unused);
        }
        sums
    }

    /// The unused overdraft of a running job.
    fn unused_overdraft(&self, job: &Job) -> u64 {
        let owed = job.hold.and_then(|hold| self.hold(hold)).map_or(0, |hold| hold.uncollected());
        job.live_attempt().map_or(0, |live| live.overdraft.saturating_sub(owed))
    }

    /// Whether a running attempt of a tenant is short.
    pub(in crate::ledger) fn has_short(&self, tenant: AccountNo) -> bool {
        let all = (tenant, JobNo(0))..=(tenant, JobNo(u64::MAX));
        self.jobs.index.short.range(all).next().is_some()
    }
}

impl JobTerms {
    /// The longest running time whose hold at a price is at most an amount.
    pub(super) fn running_ms(&self, per_gpu_hour: Credits, amount: u64) -> i64 {
        let share = u128::from(self.rate(per_gpu_hour).share_milli);
        let each = u128::from(per_gpu_hour.length()) * share * u128::from(self.gpu_ms(1));
        let whole = u128::from(HOUR_MS) * u128::from(WHOLE_GPU);
        let running = (u128::from(amount) * whole).checked_div(each);
        let running = running.and_then(|running| i64::try_from(running).ok());
        running.map_or(CENTURY_MS, |running| running.min(CENTURY_MS))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::schedule::shape::GpuDemand;
    use crate::ledger::jobs::{ROLLING_WINDOW_MS, Reserve};

    fn terms(gpu: GpuDemand, nodes: u16) -> JobTerms {
        JobTerms {
            nodes,
            reserve: Reserve::Rolling { window_ms: ROLLING_WINDOW_MS },
            ..JobTerms::new(gpu)
        }
    }

    proptest! {
        #[test]
        fn an_amount_pays_for_exactly_the_whole_milliseconds_that_it_covers(
            price in 1u64..=100_000_000, devices in 1u16..=16, nodes in 1u16..=8,
            share in prop::option::of(1u16..1000), amount in 0u64..=1_000_000_000_000,
        ) {
            let gpu = share.map_or(GpuDemand::Whole(devices), GpuDemand::Share);
            let terms = terms(gpu, nodes);
            let price = Credits::from_length(price).expect("small");
            let running = terms.running_ms(price, amount);
            let cost = |ms| terms.hold_at(price, Some(ms)).map(Credits::length);
            prop_assert!(cost(running) <= Some(amount));
            prop_assert!(running == CENTURY_MS || cost(running + 1).is_none_or(|c| c > amount));
        }
    }
}
