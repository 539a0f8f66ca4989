//! Charges, refunds and collections.

use bursar_core::ledger::command::{Charge, Command, Refund, RefundOf};
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::AccountPath;

use super::Generator;
use super::amount::{credits, near};
use crate::model::{HoldView, Model};

impl Generator {
    pub(super) fn charge(&mut self, model: &Model) -> Command {
        let account = self.path();
        let context = self.context();
        if self.is_hopeless(model, &account, &context) {
            return self.issue_grant();
        }
        let amount = self.amount_to_spend(model, &account, &context);
        Command::Charge(Charge {
            id: self.new_name("c"),
            account,
            amount: credits(amount),
            allow_partial: self.random.chance(self.flavor.partial),
            context,
            effective_at: self.used_at(),
        })
    }

    pub(super) fn refund(&mut self, model: &Model) -> Command {
        let Some(hold) = self.something_spent(model) else {
            return self.charge(model);
        };
        let amount = self.random.chance(75).then(|| {
            let amount = near(&mut self.random, hold.captured - hold.refunded, self.scale);
            credits(amount)
        });
        let of = if hold.what == Resource::Charge {
            RefundOf::Charge(hold.name)
        } else {
            RefundOf::Hold(hold.name)
        };
        Command::Refund(Refund {
            id: self.new_name("r"),
            tenant: self.tenant_near(&hold.tenant),
            of,
            amount,
            compensate: self.random.chance(50),
            note: None,
            recalled: Vec::new(),
        })
    }

    /// A charge or a closed hold that most likely has an amount left to refund.
    fn something_spent(&mut self, model: &Model) -> Option<HoldView> {
        let spent: Vec<usize> = (0..model.hold_count())
            .filter(|number| model.hold_state(*number).1 != HoldState::Open)
            .collect();
        if spent.is_empty() || self.random.chance(5) {
            return self.some_hold(model, Resource::Hold);
        }
        let mut hold = model.hold_view(spent[self.recent(spent.len())]);
        for _ in 0..4 {
            if hold.captured > hold.refunded {
                break;
            }
            hold = model.hold_view(spent[self.recent(spent.len())]);
        }
        Some(hold)
    }

    pub(super) fn collect(&mut self, model: &Model) -> Command {
        let owing: Vec<AccountPath> = (0..model.account_count())
            .map(|number| model.account_view(number))
            .filter(|account| account.uncollected > 0)
            .map(|account| account.path)
            .collect();
        let path = if owing.is_empty() || self.random.chance(5) {
            self.path()
        } else {
            self.random.pick(&owing).clone()
        };
        Command::CollectUncollected { path, id: self.new_name("k") }
    }
}
