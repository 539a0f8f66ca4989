//! Captures: cumulative usage becomes spent credits.

use bursar_core::ledger::command::Usage;
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Conflict, Refusal, Resource};
use bursar_core::name::HoldId;

use super::Model;
use super::answer::Reply;
use super::check::invalid;
use super::draw::{DrawPlan, largest, plan};
use super::hold::credits;
use super::price::{Round, cost};
use super::state::{Hold, Micros, Shortfall};

impl Model {
    pub(super) fn capture_hold(
        &mut self,
        tenant: &str,
        name: &HoldId,
        usage: Usage,
        seq: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let number = self.find_hold(Resource::Hold, tenant, name)?;
        let hold = &self.holds[number];
        if hold.state != HoldState::Open {
            return Err(Refusal::HoldClosed { state: hold.state });
        }
        let (used, gpu_ms) = total_used(hold, usage, Round::Down)?;
        if let (Some(seq), Some((last, seen))) = (seq, hold.last_report) {
            if seq == last && used != seen {
                let seen = credits(seen);
                return Err(Refusal::SequenceConflict { seen });
            }
            if seq <= last {
                return Ok(self.hold_reply(number));
            }
        }
        if says_more(hold, used, gpu_ms) {
            self.refuse_if_beyond_means(number, used, usage)?;
            self.accept_usage(number, used, gpu_ms);
            if let Some(seq) = seq {
                self.holds[number].last_report = Some((seq, used));
            }
        }
        Ok(self.hold_reply(number))
    }

    /// Accepts increased usage: tops the hold up if needed, captures what it has, and records the
    /// rest as uncollected.
    pub(super) fn accept_usage(&mut self, number: usize, used: Micros, gpu_ms: Option<u64>) {
        let hold = &self.holds[number];
        let account = hold.account;
        let increase = (used - hold.metered).max(0);
        let room = hold.amount() - hold.captured();
        let drawn_before = hold.amount();
        if increase > room && self.frozen_above(account).is_empty() {
            self.hold_units(number, self.top_up(number, increase - room), 0);
        }
        let hold = &self.holds[number];
        let spent = increase.min(hold.amount() - hold.captured());
        self.capture_units(number, spent);
        let uncollected = increase - spent;
        if uncollected > 0 {
            self.accounts[account].uncollected += uncollected;
            self.shortfalls.push(Shortfall { account, at: self.now, amount: uncollected });
        }
        let hold = &mut self.holds[number];
        hold.metered += increase;
        if let Some(gpu_ms) = gpu_ms {
            hold.gpu_ms = hold.gpu_ms.max(Micros::from(gpu_ms));
        }
        let mut left = hold.gpu_ms - hold.gpu_lots.iter().map(|lot| lot.used).sum::<Micros>();
        for lot in &mut hold.gpu_lots {
            let used = left.min(lot.drawn - lot.used);
            lot.used += used;
            left -= used;
        }
        let grown = hold.amount() - drawn_before + uncollected;
        self.alert_budgets(account, grown, 0);
    }

    /// The plan to draw up to `short` more for a hold.
    fn top_up(&self, number: usize, short: Micros) -> DrawPlan {
        let hold = &self.holds[number];
        let wanted = short.min(self.budget_room(hold.account));
        let sources = self.sources_now(hold.account, &hold.context);
        let amount = largest(&sources, wanted, Some(hold));
        plan(&sources, amount, Some(hold)).unwrap_or_default()
    }

    /// Refuses a report that would leave a thousand times the drawn amount of the hold uncollected.
    pub(super) fn refuse_if_beyond_means(
        &self,
        number: usize,
        used: Micros,
        usage: Usage,
    ) -> Result<(), Refusal> {
        let hold = &self.holds[number];
        let drawn: Micros = hold.lots.iter().map(|lot| lot.drawn).sum();
        let short = used - hold.metered - (hold.amount() - hold.captured());
        if short <= 0 {
            return Ok(());
        }
        let plan = if self.frozen_above(hold.account).is_empty() {
            self.top_up(number, short)
        } else {
            DrawPlan::new()
        };
        let drawable: Micros = plan.iter().map(|(_, units)| units).sum();
        let (before, more) = (hold.metered - hold.captured(), short - drawable);
        let field = match usage {
            Usage::Total(_) => "total",
            Usage::GpuMs(_) => "gpu_ms_total",
        };
        let beyond = more > 0 && before + more > 1_000 * drawn;
        if beyond { Err(invalid(field)) } else { Ok(()) }
    }

    /// Captures `amount` of a hold: first drawn first, but from a capped grant no more than its
    /// share of the captured total, unless rounding leaves a rest.
    fn capture_units(&mut self, number: usize, amount: Micros) {
        let captured = self.holds[number].captured() + amount;
        let mut left = amount;
        for respect_shares in [true, false] {
            for place in 0..self.holds[number].lots.len() {
                let hold = &self.holds[number];
                let lot = &hold.lots[place];
                let grant = lot.grant;
                let mut take = left.min(lot.held());
                if respect_shares
                    && let Some(share) = self.grants[grant].restriction.max_share_micro
                {
                    let cap = Micros::from(share) * captured / 1_000_000;
                    take = take.min((cap - hold.captured_from(grant)).max(0));
                }
                self.holds[number].lots[place].captured += take;
                self.grants[grant].held -= take;
                self.grants[grant].spent += take;
                left -= take;
            }
        }
        assert_eq!(left, 0, "a hold captures no more than it has");
    }
}

/// The cumulative usage in credits, and the GPU time that it was computed from.
pub(super) fn total_used(
    hold: &Hold,
    usage: Usage,
    round: Round,
) -> Result<(Micros, Option<u64>), Refusal> {
    match usage {
        Usage::Total(total) => Ok((Micros::from(total.micros()), None)),
        Usage::GpuMs(gpu_ms) => {
            let rate = hold.rate.as_ref().ok_or(Refusal::Conflict(Conflict::NoRate))?;
            let used = cost(rate, gpu_ms, round).ok_or_else(|| invalid("gpu_ms_total"))?;
            Ok((used, Some(gpu_ms.min(rate.gpu_ms_limit))))
        }
    }
}

/// Whether a report has more usage than those before it, in credits or in GPU time.
pub(super) fn says_more(hold: &Hold, used: Micros, gpu_ms: Option<u64>) -> bool {
    used > hold.metered || gpu_ms.is_some_and(|gpu_ms| Micros::from(gpu_ms) > hold.gpu_ms)
}
