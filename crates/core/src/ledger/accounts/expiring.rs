//! Credits of all accounts by the instant at which they expire.

use crate::ledger::id::{AccountNo, BucketNo};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// Free credits of one bucket that will expire.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ExpiringBucket {
    /// The bucket.
    pub bucket: BucketNo,
    /// The account that owns them.
    pub account: AccountNo,
    /// The last instant at which they can be spent.
    pub expires_at: Timestamp,
    /// How much of them is free.
    pub amount: u64,
}

impl Ledger {
    /// The buckets that expire after a place and not after `until`, soonest first, at most `most`.
    /// A place is an instant and the last bucket of it that was seen.
    pub fn expiring_after(
        &self,
        place: (Timestamp, BucketNo),
        until: Timestamp,
        most: usize,
    ) -> Vec<ExpiringBucket> {
        let due = self.timers.expiries.after(&place).take_while(|(at, _)| *at <= until);
        let seen = due.take(most).map(|(expires_at, number)| {
            let bucket = self.bucket(*number);
            ExpiringBucket {
                bucket: *number,
                account: bucket.account,
                expires_at: *expires_at,
                amount: bucket.line.free(),
            }
        });
        seen.collect()
    }
}
