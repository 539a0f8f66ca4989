//! The balance of an account at a later instant if nothing is spent until then.

use super::view::{Balance, Expiring, soonest};
use crate::ledger::command::{Context, KindAmounts};
use crate::ledger::credits::spend_order::SpendRank;
use crate::ledger::id::AccountNo;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The free credits of one account at a later instant.
#[derive(Default)]
struct LaterCredits {
    by_kind: KindAmounts,
    spendable: i128,
    expiring: Vec<Expiring>,
}

impl LaterCredits {
    fn add(&mut self, rank: SpendRank, is_admitted: bool, amount: i128) {
        self.by_kind[rank.kind as usize] += amount;
        self.spendable += if is_admitted { amount } else { 0 };
        if let Some(expires_at) = rank.expires_at() {
            self.expiring.push(Expiring { expires_at, kind: rank.kind, amount });
        }
    }
}

impl Ledger {
    /// The balance of an account at a later instant if nothing is spent until then, and the amount
    /// that it could spend in a context.
    pub fn balance_forecast(
        &self,
        account: AccountNo,
        context: &Context,
        at: Timestamp,
    ) -> Balance {
        let credits = self.later_credits(account, context, at);
        let above = self.path(account).into_iter().skip(1);
        let inherited: i128 =
            above.map(|above| self.later_credits(above, context, at).spendable).sum();
        let own = self.account(account);
        Balance {
            available: credits.by_kind.iter().sum(),
            held: own.held,
            by_kind: credits.by_kind,
            spendable: credits.spendable + inherited,
            expiring: soonest(credits.expiring),
            uncollected: own.uncollected(),
        }
    }

    fn later_credits(&self, account: AccountNo, context: &Context, at: Timestamp) -> LaterCredits {
        let mut later = LaterCredits::default();
        for ((rank, bucket), ()) in self.account(account).open.iter() {
            if !self.expires_by(rank, at) {
                let bucket = self.bucket(*bucket);
                later.add(*rank, bucket.admits(context), bucket.line.free().into());
            }
        }
        let waiting = self.timers.activations.iter().take_while(|(from, _)| *from <= at);
        let started = waiting.map(|(_, grant)| self.grant(*grant));
        for grant in started.filter(|grant| grant.account == account) {
            let terms = grant.pending.as_ref().filter(|terms| !self.expires_by(&terms.rank, at));
            if let Some(terms) = terms {
                let is_admitted = terms.restriction.as_ref().is_none_or(|r| r.admits(context));
                later.add(terms.rank, is_admitted, grant.amount.micros().into());
            }
        }
        later
    }
}
