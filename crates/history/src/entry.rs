//! One movement on one account, as `GET …/entries` shows it.

use bursar_core::ledger::refusal::Resource;
use bursar_core::time::Timestamp;

/// The type of a movement, which determines its effect on the account.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryType {
    /// Credits were granted and can be spent.
    Granted = 0,
    /// Credits were granted for later. A separate entry records when they become valid.
    Scheduled = 1,
    /// Expired credits were issued again because the platform caused the expiry.
    Reissued = 2,
    /// Credits came from another account of the tenant.
    Received = 3,
    /// Credits were held.
    Held = 4,
    /// Held credits were spent.
    Captured = 5,
    /// Held credits were returned.
    Returned = 6,
    /// Free credits expired.
    Expired = 7,
    /// Credits held by a strict hold expired.
    Cut = 8,
    /// Credits were revoked.
    Revoked = 9,
    /// The expiry of credits was reversed for usage that was reported late.
    ExpiryReversed = 10,
    /// Credits were spent in one step.
    Charged = 11,
    /// Spent credits were refunded.
    Refunded = 12,
    /// Credits went to another account of the tenant.
    Moved = 13,
    /// Credits were spent on usage that could not be collected before.
    Collected = 14,
    /// Usage could not be collected.
    Uncollected = 15,
}

/// By how much one entry, or all entries of a type, change the amounts of an account.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The available credits.
    pub available: i128,
    /// The held credits.
    pub held: i128,
    /// The spent credits.
    pub spent: i128,
}

impl EntryType {
    /// All types, in the order of their stored numbers.
    pub const ALL: [EntryType; 16] = [
        EntryType::Granted,
        EntryType::Scheduled,
        EntryType::Reissued,
        EntryType::Received,
        EntryType::Held,
        EntryType::Captured,
        EntryType::Returned,
        EntryType::Expired,
        EntryType::Cut,
        EntryType::Revoked,
        EntryType::ExpiryReversed,
        EntryType::Charged,
        EntryType::Refunded,
        EntryType::Moved,
        EntryType::Collected,
        EntryType::Uncollected,
    ];

    /// The name in the API.
    pub fn name(self) -> &'static str {
        match self {
            EntryType::Granted => "granted",
            EntryType::Scheduled => "scheduled",
            EntryType::Reissued => "reissued",
            EntryType::Received => "received",
            EntryType::Held => "held",
            EntryType::Captured => "captured",
            EntryType::Returned => "returned",
            EntryType::Expired => "expired",
            EntryType::Cut => "cut",
            EntryType::Revoked => "revoked",
            EntryType::ExpiryReversed => "expiry_reversed",
            EntryType::Charged => "charged",
            EntryType::Refunded => "refunded",
            EntryType::Moved => "moved",
            EntryType::Collected => "collected",
            EntryType::Uncollected => "uncollected",
        }
    }

    /// The factors by which the amount changes the available and the held credits.
    pub fn effect(self) -> (i128, i128) {
        match self {
            EntryType::Granted
            | EntryType::Reissued
            | EntryType::Received
            | EntryType::ExpiryReversed
            | EntryType::Refunded => (1, 0),
            EntryType::Expired
            | EntryType::Revoked
            | EntryType::Charged
            | EntryType::Moved
            | EntryType::Collected => (-1, 0),
            EntryType::Held => (-1, 1),
            EntryType::Returned => (1, -1),
            EntryType::Captured | EntryType::Cut => (0, -1),
            EntryType::Scheduled | EntryType::Uncollected => (0, 0),
        }
    }

    /// The factor by which the amount changes the spent credits.
    pub fn spends(self) -> i128 {
        match self {
            EntryType::Captured | EntryType::Charged | EntryType::Collected => 1,
            EntryType::Refunded => -1,
            EntryType::Granted
            | EntryType::Scheduled
            | EntryType::Reissued
            | EntryType::Received
            | EntryType::Held
            | EntryType::Returned
            | EntryType::Expired
            | EntryType::Cut
            | EntryType::Revoked
            | EntryType::ExpiryReversed
            | EntryType::Moved
            | EntryType::Uncollected => 0,
        }
    }

    /// What an entry of this type changes.
    pub fn changes(self, amount: i128) -> Changes {
        let (available, held) = self.effect();
        Changes {
            available: available * amount,
            held: held * amount,
            spent: self.spends() * amount,
        }
    }

    /// What makes movements of this type under a name, if anything does.
    pub fn made_by(self) -> Option<Resource> {
        match self {
            EntryType::Refunded => Some(Resource::Refund),
            EntryType::Moved | EntryType::Received => Some(Resource::Transfer),
            EntryType::Collected => Some(Resource::Collection),
            EntryType::Granted
            | EntryType::Scheduled
            | EntryType::Reissued
            | EntryType::Held
            | EntryType::Captured
            | EntryType::Returned
            | EntryType::Expired
            | EntryType::Cut
            | EntryType::Revoked
            | EntryType::ExpiryReversed
            | EntryType::Charged
            | EntryType::Uncollected => None,
        }
    }

    /// The type with this name in the API.
    pub fn named(name: &str) -> Option<EntryType> {
        EntryType::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The factor by which the amount changes the expired credits.
    pub fn expires(self) -> i128 {
        match self {
            EntryType::Expired | EntryType::Cut => 1,
            EntryType::ExpiryReversed => -1,
            EntryType::Granted
            | EntryType::Scheduled
            | EntryType::Reissued
            | EntryType::Received
            | EntryType::Held
            | EntryType::Captured
            | EntryType::Returned
            | EntryType::Revoked
            | EntryType::Charged
            | EntryType::Refunded
            | EntryType::Moved
            | EntryType::Collected
            | EntryType::Uncollected => 0,
        }
    }

    /// The factor by which the amount changes the sum of available, held and spent credits. Only
    /// credits that enter or leave an account change it.
    pub fn funds(self) -> i128 {
        let (available, held) = self.effect();
        available + held + self.spends()
    }
}

/// One movement on one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, dense over all accounts.
    pub entry: u64,
    /// The record that caused it.
    pub position: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The account whose credits moved.
    pub account: String,
    /// The type.
    pub kind: EntryType,
    /// The amount in micro-credits.
    pub amount: i128,
    /// The grant, if the whole amount belongs to one grant.
    pub grant: Option<String>,
    /// The hold or charge.
    pub hold: Option<String>,
    /// The job that the hold pays for.
    pub job: Option<String>,
    /// The account that held or spent.
    pub spender: Option<String>,
    /// The name of the refund, transfer or collection.
    pub movement: Option<String>,
    /// Why it was refunded.
    pub reason: Option<String>,
    /// The caller's own reference: of the refund, else of the hold, else of the grant.
    pub reference: Option<String>,
    /// The available credits of the account afterwards.
    pub available_after: i128,
    /// The held credits of the account afterwards.
    pub held_after: i128,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holding, spending and returning only move credits inside an account.
    #[test]
    fn only_credits_that_enter_or_leave_change_the_funds_of_an_account() {
        for kind in EntryType::ALL {
            let expected = match kind {
                EntryType::Granted
                | EntryType::Reissued
                | EntryType::Received
                | EntryType::ExpiryReversed => 1,
                EntryType::Expired | EntryType::Cut | EntryType::Revoked | EntryType::Moved => -1,
                EntryType::Scheduled
                | EntryType::Held
                | EntryType::Captured
                | EntryType::Returned
                | EntryType::Charged
                | EntryType::Refunded
                | EntryType::Collected
                | EntryType::Uncollected => 0,
            };
            assert_eq!(kind.funds(), expected, "{}", kind.name());
        }
    }
}
