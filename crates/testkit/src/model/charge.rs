//! Charges and refunds.

use bursar_core::ledger::command::{Charge, OnExpiry, Refund, RefundOf};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Conflict, Refusal, Resource};
use bursar_core::time::Timestamp;

use super::Model;
use super::account::tenant;
use super::answer::Reply;
use super::check::invalid;
use super::draw::{DrawPlan, largest, plan, total};
use super::grant::From;
use super::hold::credits;
use super::state::{Hold, Lot, Micros};

impl Model {
    pub(super) fn charge(&mut self, fingerprint: u128, charge: &Charge) -> Result<Reply, Refusal> {
        let account = self.find_account(&charge.account)?;
        if let Ok(existing) = self.find_hold(Resource::Charge, tenant(&charge.account), &charge.id)
        {
            return self.same_again(existing, fingerprint);
        }
        let used_at = charge.effective_at.map_or(self.now, Timestamp::millis);
        if used_at > self.now {
            return Err(invalid("effective_at"));
        }
        let earliest = Timestamp::from_millis(self.now).plus_millis(-self.policy.lateness_ms);
        if used_at < earliest.millis() {
            return Err(Refusal::TooLate { earliest });
        }
        self.refuse_if_frozen(account)?;
        let amount = Micros::from(charge.amount.micros());
        let sources = if used_at < self.now {
            self.sources_at(account, &charge.context, used_at)
        } else {
            self.sources_now(account, &charge.context)
        };
        let spendable = largest(&sources, total(&sources), None);
        let plan = if charge.allow_partial {
            let room = self.budget_room(account);
            let possible = largest(&sources, amount.min(room), None);
            if possible == 0 {
                let blocked = (largest(&sources, amount, None) > 0).then(DrawPlan::new);
                self.refuse_if_blocked(account, blocked, amount, 0, 0)?
            } else {
                plan(&sources, possible, None).unwrap_or_default()
            }
        } else {
            let plan = plan(&sources, amount, None);
            self.refuse_if_blocked(account, plan, amount, spendable, 0)?
        };
        let hold = self.spend_at_once(fingerprint, charge, account, plan);
        self.alert_budgets(account, self.holds[hold].captured(), 0);
        let reply = Reply::Charge {
            hold,
            requested: amount,
            charged: self.holds[hold].captured(),
            spendable_after: self.spendable(account, &charge.context),
        };
        self.holds[hold].charge_reply = Some(reply.clone());
        Ok(reply)
    }

    fn spend_at_once(
        &mut self,
        fingerprint: u128,
        charge: &Charge,
        account: usize,
        plan: DrawPlan,
    ) -> usize {
        let mut lots = Vec::new();
        for (number, units) in plan {
            self.spend(number, units);
            lots.push(Lot { captured: units, ..Lot::new(number, self.now, units) });
        }
        let metered = lots.iter().map(|lot| lot.drawn).sum();
        self.holds.push(Hold {
            what: Resource::Charge,
            name: charge.id.clone(),
            account,
            state: HoldState::Settled,
            lots,
            gpu_lots: Vec::new(),
            gpu_ms: 0,
            metered,
            last_report: None,
            expires_at: None,
            closed_at: Some(self.now),
            context: charge.context.clone(),
            on_expiry: OnExpiry::HonorHold,
            rate: None,
            fingerprint,
            charge_reply: None,
        });
        self.holds.len() - 1
    }

    /// Spends units of a grant: free ones first, then ones whose expiry is reversed.
    pub(super) fn spend(&mut self, number: usize, units: Micros) {
        let grant = &mut self.grants[number];
        let free = units.min(grant.free);
        grant.free -= free;
        grant.expired -= units - free;
        grant.spent += units;
    }

    pub(super) fn refund(&mut self, fingerprint: u128, refund: &Refund) -> Result<Reply, Refusal> {
        let (what, name) = match &refund.of {
            RefundOf::Hold(name) => (Resource::Hold, name),
            RefundOf::Charge(name) => (Resource::Charge, name),
            RefundOf::Job(name) | RefundOf::PastJob(name, _) => {
                return Err(Refusal::NotFound { what: Resource::Job, name: name.clone().into() });
            }
        };
        let again = self.movement_again(Resource::Refund, &refund.tenant, &refund.id, fingerprint);
        if let Ok(Some(reply)) = again {
            return Ok(reply);
        }
        let number = self.find_hold(what, &refund.tenant, name)?;
        again?;
        let hold = &self.holds[number];
        if hold.state == HoldState::Open {
            return Err(Refusal::Conflict(Conflict::StillOpen));
        }
        let spent = hold.captured() - hold.refunded();
        let amount = refund.amount.map_or(spent, |amount| Micros::from(amount.micros()));
        if amount == 0 || amount > spent {
            let spent = credits(spent);
            return Err(Refusal::Conflict(Conflict::RefundAboveSpent { spent }));
        }
        let mut left = amount;
        let mut refunded = Vec::new();
        let mut expired = Vec::new();
        for place in (0..self.holds[number].lots.len()).rev() {
            let lot = &mut self.holds[number].lots[place];
            let (grant, units) = (lot.grant, left.min(lot.spent()));
            lot.refunded += units;
            left -= units;
            refunded.push((grant, units));
            let lost = self.give_back(grant, units, From::Spent);
            if lost > 0 {
                expired.push((grant, lost));
            }
        }
        if refund.compensate {
            self.compensate(&expired);
        }
        Ok(self.add_movement(Resource::Refund, &refund.tenant, &refund.id, fingerprint, refunded))
    }
}
