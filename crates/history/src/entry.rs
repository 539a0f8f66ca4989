//! One movement on one account, as `GET …/entries` shows it.

use bursar_core::time::Timestamp;

/// What a movement was, and so what it did to its account.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EntryType {
    /// Credits came in and can be spent.
    Granted = 0,
    /// Credits were promised for later; they come in with an entry of their own.
    Scheduled = 1,
    /// Expired credits were issued again because the platform was the cause.
    Reissued = 2,
    /// Credits came from another account of the tenant.
    Received = 3,
    /// Credits were set aside.
    Held = 4,
    /// Credits that were set aside were spent.
    Captured = 5,
    /// Credits that were set aside came back.
    Returned = 6,
    /// Free credits expired.
    Expired = 7,
    /// Credits that were set aside by a strict hold expired.
    Cut = 8,
    /// Credits were taken back.
    Revoked = 9,
    /// Expired credits were brought back for usage that was reported late.
    ExpiryReversed = 10,
    /// Credits were spent at once.
    Charged = 11,
    /// Spent credits came back.
    Refunded = 12,
    /// Credits went to another account of the tenant.
    Moved = 13,
    /// Credits were spent on usage that could not be collected before.
    Collected = 14,
    /// Usage could not be collected.
    Uncollected = 15,
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

    /// The name that the API gives it.
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

    /// How often the amount is added to what is available and to what is held.
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
}

/// One movement on one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number, dense over all accounts.
    pub entry: u64,
    /// The record that caused it.
    pub position: u64,
    /// When.
    pub at: Timestamp,
    /// The account whose credits moved.
    pub account: String,
    /// What it was.
    pub kind: EntryType,
    /// How much, in micro-credits.
    pub amount: i128,
    /// The grant, if all of it came from one.
    pub grant: Option<String>,
    /// The hold or charge.
    pub hold: Option<String>,
    /// The job that the hold pays for.
    pub job: Option<String>,
    /// The account that held or spent.
    pub spender: Option<String>,
    /// The name of the refund, transfer or collection.
    pub movement: Option<String>,
    /// What the account had available afterwards.
    pub available_after: i128,
    /// What of its credits was held afterwards.
    pub held_after: i128,
}
