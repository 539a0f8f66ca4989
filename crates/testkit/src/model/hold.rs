//! Holds: place, extend, settle, release, and how they close.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{Cause, PlaceHold, Usage};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::{Conflict, Refusal, Resource};
use bursar_core::name::HoldId;
use bursar_core::time::Timestamp;

use super::Model;
use super::account::tenant;
use super::answer::Reply;
use super::capture::{says_more, total_used};
use super::check::invalid;
use super::draw::{DrawPlan, largest, plan, total};
use super::grant::From;
use super::price::Round;
use super::state::{GpuLot, Hold, Lot, Micros, share_milli};

impl Model {
    pub(super) fn place_hold(
        &mut self,
        fingerprint: u128,
        place: &PlaceHold,
    ) -> Result<Reply, Refusal> {
        let account = self.find_account(&place.account)?;
        if let Ok(existing) = self.find_hold(Resource::Hold, tenant(&place.account), &place.id) {
            return self.same_again(existing, fingerprint);
        }
        self.refuse_if_frozen(account)?;
        let amount = Micros::from(place.amount.micros());
        let gpu_time = Micros::from(place.gpu_ms) * share_milli(place.rate.as_ref());
        let sources = self.sources_now(account, &place.context);
        let plan = plan(&sources, amount, None);
        let spendable = largest(&sources, total(&sources), None);
        let plan = self.refuse_if_blocked(account, plan, amount, spendable, gpu_time)?;
        let hold = self.holds.len();
        self.holds.push(Hold {
            what: Resource::Hold,
            name: place.id.clone(),
            account,
            state: HoldState::Open,
            lots: Vec::new(),
            gpu_lots: Vec::new(),
            gpu_ms: 0,
            metered: 0,
            last_report: None,
            expires_at: place.ttl_ms.map(|ttl_ms| self.after(ttl_ms)),
            closed_at: None,
            context: place.context.clone(),
            on_expiry: place.on_expiry,
            rate: place.rate,
            fingerprint,
            charge_reply: None,
        });
        self.hold_units(hold, plan, Micros::from(place.gpu_ms));
        self.alert_budgets(account, amount, gpu_time);
        Ok(self.hold_reply(hold))
    }

    /// The answer to a creation whose name is taken.
    pub(super) fn same_again(&self, existing: usize, fingerprint: u128) -> Result<Reply, Refusal> {
        let hold = &self.holds[existing];
        if hold.fingerprint == fingerprint {
            Ok(hold.charge_reply.clone().unwrap_or_else(|| self.hold_reply(existing)))
        } else {
            Err(Refusal::AlreadyExists { what: hold.what, name: hold.name.clone().into() })
        }
    }

    pub(super) fn extend_hold(
        &mut self,
        tenant: &str,
        name: &HoldId,
        amount: Option<Credits>,
        gpu_ms: u64,
        ttl_ms: Option<i64>,
    ) -> Result<Reply, Refusal> {
        let number = self.find_hold(Resource::Hold, tenant, name)?;
        let hold = &self.holds[number];
        let account = hold.account;
        if amount.is_some() {
            self.refuse_if_frozen(account)?;
        }
        if hold.state != HoldState::Open {
            return Err(Refusal::HoldClosed { state: hold.state });
        }
        if let Some(amount) = amount {
            let amount = Micros::from(amount.micros());
            if hold.amount() + amount > Micros::from(i64::MAX) {
                return Err(invalid("amount"));
            }
            let gpu_time = Micros::from(gpu_ms) * hold.share_milli();
            let sources = self.sources_now(account, &hold.context);
            let plan = plan(&sources, amount, Some(hold));
            let spendable = largest(&sources, total(&sources), Some(hold));
            let plan = self.refuse_if_blocked(account, plan, amount, spendable, gpu_time)?;
            self.hold_units(number, plan, Micros::from(gpu_ms));
            self.alert_budgets(account, amount, gpu_time);
        }
        if let Some(ttl_ms) = ttl_ms {
            let until = self.after(ttl_ms);
            let hold = &mut self.holds[number];
            hold.expires_at = Some(hold.expires_at.map_or(until, |old| old.max(until)));
        }
        Ok(self.hold_reply(number))
    }

    pub(super) fn settle_hold(
        &mut self,
        tenant: &str,
        name: &HoldId,
        usage: Usage,
        cause: Cause,
    ) -> Result<Reply, Refusal> {
        let number = self.find_hold(Resource::Hold, tenant, name)?;
        let hold = &self.holds[number];
        let total = total_used(hold, usage, Round::HalfEven);
        if hold.state != HoldState::Open {
            let again = hold.state == HoldState::Settled
                && total.is_ok_and(|(used, _)| used == hold.metered);
            return if again {
                Ok(self.hold_reply(number))
            } else {
                Err(Refusal::HoldClosed { state: hold.state })
            };
        }
        let (used, gpu_ms) = total?;
        if used < hold.metered {
            let captured = credits(hold.metered);
            return Err(Refusal::Conflict(Conflict::SettleBelowCaptured { captured }));
        }
        if says_more(hold, used, gpu_ms) {
            self.refuse_if_beyond_means(number, used, usage)?;
            self.accept_usage(number, used, gpu_ms);
        }
        self.close_hold(number, HoldState::Settled, cause);
        Ok(self.hold_reply(number))
    }

    pub(super) fn release_hold(
        &mut self,
        tenant: &str,
        name: &HoldId,
        cause: Cause,
    ) -> Result<Reply, Refusal> {
        let number = self.find_hold(Resource::Hold, tenant, name)?;
        match self.holds[number].state {
            HoldState::Open => self.close_hold(number, HoldState::Released, cause),
            HoldState::Released => {}
            state @ (HoldState::Settled | HoldState::Lapsed) => {
                return Err(Refusal::HoldClosed { state });
            }
        }
        Ok(self.hold_reply(number))
    }

    /// Closes a hold: units that were not captured are returned, last drawn first.
    pub(super) fn close_hold(&mut self, number: usize, state: HoldState, cause: Cause) {
        self.holds[number].state = state;
        self.holds[number].closed_at = Some(self.now);
        let mut expired = Vec::new();
        for place in (0..self.holds[number].lots.len()).rev() {
            let lot = &mut self.holds[number].lots[place];
            let (grant, units) = (lot.grant, lot.held());
            lot.returned += units;
            let lost = self.give_back(grant, units, From::Held);
            if lost > 0 {
                expired.push((grant, lost));
            }
        }
        match cause {
            Cause::Holder => {}
            Cause::Platform => self.compensate(&expired),
        }
    }

    /// Draws units for a hold according to a plan.
    pub(super) fn hold_units(&mut self, number: usize, plan: DrawPlan, gpu_ms: Micros) {
        let drawn_at = self.now;
        for (grant, units) in plan {
            self.grants[grant].free -= units;
            self.grants[grant].held += units;
            self.holds[number].lots.push(Lot::new(grant, drawn_at, units));
        }
        self.holds[number].gpu_lots.push(GpuLot { drawn_at, drawn: gpu_ms, used: 0 });
    }

    pub(super) fn find_hold(
        &self,
        what: Resource,
        tenant: &str,
        name: &HoldId,
    ) -> Result<usize, Refusal> {
        self.holds
            .iter()
            .position(|hold| {
                hold.what == what && hold.name == *name && self.tenant_of(hold.account) == tenant
            })
            .ok_or_else(|| Refusal::NotFound { what, name: name.clone().into() })
    }

    pub(super) fn hold_reply(&self, number: usize) -> Reply {
        let hold = &self.holds[number];
        Reply::Hold {
            hold: number,
            state: hold.state,
            amount: hold.amount(),
            captured: hold.captured(),
            uncollected: hold.metered - hold.captured(),
            expires_at: hold.expires_at,
        }
    }

    /// The instant `ttl_ms` from now.
    fn after(&self, ttl_ms: i64) -> i64 {
        Timestamp::from_millis(self.now).plus_millis(ttl_ms).millis()
    }
}

/// Converts an amount that came from a command.
pub(super) fn credits(amount: Micros) -> Credits {
    i64::try_from(amount)
        .ok()
        .and_then(Credits::from_micros)
        .expect("an amount from a command fits")
}
