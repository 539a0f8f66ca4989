//! How fast an account spends, and the forecast that follows from it.

use bursar_core::ledger::accounts::view::Expiring;
use bursar_core::time::Timestamp;

/// What was spent in a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BurnRate {
    spent: i128,
    millis: i128,
}

impl BurnRate {
    /// The rate of spending an amount in some milliseconds. A negative amount (more was refunded
    /// than spent) counts as zero.
    pub fn new(spent: i128, millis: i64) -> BurnRate {
        BurnRate { spent: spent.max(0), millis: millis.max(1).into() }
    }

    /// The amount that is spent in some milliseconds.
    pub fn over(self, millis: i64) -> i128 {
        self.spent * i128::from(millis.max(0)) / self.millis
    }

    /// An amount that was spent already, and what is spent in some more milliseconds.
    pub fn projected(self, spent: i128, millis: i64) -> i128 {
        spent + self.over(millis)
    }

    /// The milliseconds in which an amount is spent. `None`: nothing is being spent.
    pub fn time_for(self, amount: i128) -> Option<i128> {
        (self.spent > 0).then(|| amount.max(0) * self.millis / self.spent)
    }

    /// How much of each of these credits expires unspent, and the sum. The soonest are spent first.
    pub fn unspent(self, expiring: &[Expiring], now: Timestamp) -> (Vec<i128>, i128) {
        let mut spent: i128 = 0;
        let unspent = |one: &Expiring| {
            let used = one.amount.min((self.over(one.expires_at.millis_since(now)) - spent).max(0));
            spent += used;
            one.amount - used
        };
        let unspent: Vec<i128> = expiring.iter().map(unspent).collect();
        let sum = unspent.iter().sum();
        (unspent, sum)
    }
}

#[cfg(test)]
mod tests {
    use bursar_core::ledger::command::GrantKind;
    use bursar_core::time::DAY_MS;

    use super::*;

    #[test]
    fn credits_spent_before_they_expire_are_not_at_risk() {
        let now = Timestamp::from_millis(0);
        let day = |days: i64, amount: i128| Expiring {
            expires_at: Timestamp::from_millis(days * DAY_MS),
            kind: GrantKind::Grant,
            amount,
        };
        let expiring = [day(1, 10), day(2, 30)];
        let unspent = |spent| BurnRate::new(spent, DAY_MS).unspent(&expiring, now);
        assert_eq!(unspent(0), (vec![10, 30], 40));
        assert_eq!(unspent(10), (vec![0, 20], 20));
        // Ten of the first and twenty of the second are spent in time.
        assert_eq!(unspent(15), (vec![0, 10], 10));
        assert_eq!(unspent(100), (vec![0, 0], 0));
    }

    #[test]
    fn a_rate_says_how_much_is_spent_and_how_long_credits_last() {
        let rate = BurnRate::new(24, DAY_MS);
        assert_eq!(rate.over(DAY_MS / 24), 1);
        assert_eq!(rate.projected(5, 2 * DAY_MS), 53);
        assert_eq!(rate.time_for(48), Some(2 * i128::from(DAY_MS)));
        assert_eq!(rate.time_for(-48), Some(0));
        assert_eq!(BurnRate::new(0, 1).time_for(48), None);
        assert_eq!(BurnRate::new(-5, 0), BurnRate::new(0, 1));
    }
}
