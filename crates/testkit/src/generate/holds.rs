//! Commands about holds.

use bursar_core::ledger::command::{Cause, Command, Context, OnExpiry, PlaceHold, Usage};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;

use super::Generator;
use super::amount::{credits, near};
use crate::model::{HoldView, Model};

impl Generator {
    pub(super) fn place_hold(&mut self, model: &Model) -> Command {
        let account = self.path();
        let context = self.context();
        if self.is_hopeless(model, &account, &context) {
            return self.issue_grant();
        }
        let amount = self.amount_to_spend(model, &account, &context);
        Command::PlaceHold(PlaceHold {
            id: self.new_name("h"),
            account,
            amount: credits(amount),
            ttl_ms: self.ttl(),
            context,
            on_expiry: *self.random.pick(&[OnExpiry::HonorHold, OnExpiry::Strict]),
            rate: self.rate(),
            gpu_ms: self.gpu_ms(),
            reference: None,
        })
    }

    /// Whether nothing is spendable; in that case still false once in ten times.
    pub(super) fn is_hopeless(
        &mut self,
        model: &Model,
        account: &AccountPath,
        context: &Context,
    ) -> bool {
        model.spendable_in(account, context) == Some(0) && self.random.chance(90)
    }

    /// An amount close to what is spendable.
    pub(super) fn amount_to_spend(
        &mut self,
        model: &Model,
        account: &AccountPath,
        context: &Context,
    ) -> i64 {
        match model.spendable_in(account, context) {
            Some(spendable) if self.random.chance(70) => {
                // Mostly a part of it, so that later commands can spend too.
                let middle = if self.random.chance(75) { spendable / 4 } else { spendable };
                near(&mut self.random, middle, self.scale)
            }
            _ => self.scale.amount(&mut self.random),
        }
    }

    /// A hold or charge. A hold is most likely open.
    pub(super) fn some_hold(&mut self, model: &Model, what: Resource) -> Option<HoldView> {
        let all: Vec<usize> =
            (0..model.hold_count()).filter(|number| model.hold_state(*number).0 == what).collect();
        let open: Vec<usize> = (all.iter().copied())
            .filter(|number| model.hold_state(*number).1 == HoldState::Open)
            .collect();
        let choice = if what == Resource::Hold && self.random.chance(88) { open } else { all };
        if choice.is_empty() {
            return None;
        }
        let place = self.recent(choice.len());
        Some(model.hold_view(choice[place]))
    }

    pub(super) fn capture_hold(&mut self, model: &Model) -> Command {
        let Some(hold) = self.some_hold(model, Resource::Hold) else {
            return self.place_hold(model);
        };
        let seq = match self.random.index(4) {
            0 => None,
            _ => Some(self.random.bits() % 6),
        };
        let usage = self.usage(&hold);
        Command::CaptureHold { tenant: self.tenant_near(&hold.tenant), hold: hold.name, usage, seq }
    }

    /// Usage below or above the last report, equal to the hold, or above it.
    fn usage(&mut self, hold: &HoldView) -> Usage {
        if hold.has_rate && self.random.chance(70) || self.random.chance(2) {
            return Usage::GpuMs(match self.random.index(8) {
                0 => 0,
                1 => self.random.bits() % 2_000,
                2..=4 => self.random.bits() % 4_000_000,
                5 | 6 => self.random.bits() % 40_000_000,
                _ => u64::MAX - self.random.bits() % 5,
            });
        }
        let total = match self.random.index(8) {
            0 => near(&mut self.random, hold.metered, self.scale),
            1 => near(&mut self.random, hold.amount, self.scale),
            2 if self.random.chance(10) => {
                let times = i128::from(self.random.between(990, 1_010));
                i64::try_from(hold.amount.saturating_mul(times)).unwrap_or(i64::MAX)
            }
            2 | 3 => near(&mut self.random, hold.amount + 1, self.scale),
            _ => {
                let most = i64::try_from(hold.amount.clamp(0, i128::from(i64::MAX))).unwrap_or(0);
                self.random.between(0, most)
            }
        };
        Usage::Total(credits(total))
    }

    pub(super) fn extend_hold(&mut self, model: &Model) -> Command {
        let Some(hold) = self.some_hold(model, Resource::Hold) else {
            return self.place_hold(model);
        };
        let amount = self.random.chance(70).then(|| {
            let amount = near(&mut self.random, hold.amount / 2, self.scale);
            credits(amount)
        });
        let gpu_ms = if amount.is_some() || self.random.chance(5) { self.gpu_ms() } else { 0 };
        Command::ExtendHold {
            tenant: self.tenant_near(&hold.tenant),
            hold: hold.name,
            amount,
            gpu_ms,
            ttl_ms: self.ttl(),
        }
    }

    pub(super) fn settle_hold(&mut self, model: &Model) -> Command {
        let Some(hold) = self.some_hold(model, Resource::Hold) else {
            return self.place_hold(model);
        };
        let usage = if self.random.chance(25) {
            let metered = i64::try_from(hold.metered).unwrap_or(i64::MAX);
            Usage::Total(credits(metered))
        } else {
            self.usage(&hold)
        };
        let tenant = self.tenant_near(&hold.tenant);
        Command::SettleHold { tenant, hold: hold.name, usage, cause: self.cause() }
    }

    pub(super) fn release_hold(&mut self, model: &Model) -> Command {
        let Some(hold) = self.some_hold(model, Resource::Hold) else {
            return self.place_hold(model);
        };
        let tenant = self.tenant_near(&hold.tenant);
        Command::ReleaseHold { tenant, hold: hold.name, cause: self.cause() }
    }

    fn cause(&mut self) -> Cause {
        *self.random.pick(&[Cause::Holder, Cause::Platform])
    }
}
