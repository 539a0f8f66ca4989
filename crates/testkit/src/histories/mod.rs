//! A checker of what clients saw: requests and answers with their times, beside the journals.
//!
//! It shares no code with the ledger and knows only sums: what each account has free and held. The
//! journal is the claimed order of effects. [`check`] verifies that the order is legal, that it
//! agrees with every answer and with real time, and therefore that each tenant's history is
//! linearizable. It finds effects that were acknowledged and lost, doubled or never asked for, stale
//! reads, refusals without a reason, and keys that are accepted after their revocation.

mod books;
mod calls;
mod keys;
mod operations;

use std::collections::BTreeMap;
use std::fmt;

use books::Books;

/// Micro-credits.
pub type MicroCredits = u64;

/// Everything that was observed.
#[derive(Clone, Debug, Default)]
pub struct ClientHistory {
    /// The journals of all ledger shards.
    pub journals: Vec<MachineJournal>,
    /// All requests of all clients, in any order.
    pub calls: Vec<ClientCall>,
    /// The keys that they were sent with.
    pub keys: Vec<KeyLife>,
}

/// The journal of one ledger shard.
#[derive(Clone, Debug, Default)]
pub struct MachineJournal {
    /// The name of the shard.
    pub machine: String,
    /// The position of the last record.
    pub last: u64,
    /// The effects, in the order of the journal.
    pub entries: Vec<JournalEntry>,
}

/// One effect in a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// The number of its record.
    pub position: u64,
    /// What the journal stores of the idempotency key.
    pub repeat: Option<String>,
    /// What happened.
    pub effect: MoneyEffect,
}

/// Amounts by the account whose grants they come from.
pub type Parts = Vec<(String, MicroCredits)>;

/// What can happen to credits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MoneyEffect {
    /// An account was opened.
    Opened { account: String },
    /// Credits were granted.
    Granted { id: String, account: String, amount: MicroCredits },
    /// Credits were held.
    Held { id: String, account: String, from: Parts },
    /// A hold was closed: a part was taken, the rest returned.
    Settled { tenant: String, hold: String, taken: Parts },
    /// Credits were charged.
    Charged { id: String, account: String, from: Parts, spendable_after: MicroCredits },
    /// A part of what a hold or charge took was returned.
    Refunded { id: String, tenant: String, of: String, to: Parts },
}

/// One request of one client, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCall {
    /// The number of the client.
    pub client: u32,
    /// The name of the key that it was sent with.
    pub bearer: String,
    /// The tenant that it is about.
    pub tenant: String,
    /// When it was sent, on a clock that all clients share.
    pub invoked: u64,
    /// When the answer was there. Not used without an answer.
    pub returned: u64,
    /// The idempotency key.
    pub repeat: Option<String>,
    /// What was asked.
    pub request: MoneyRequest,
    /// What was answered.
    pub outcome: CallOutcome,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MoneyRequest {
    /// Credits for an account.
    Grant { id: Option<String>, account: String, amount: MicroCredits },
    /// A reservation.
    Hold { id: Option<String>, account: String, amount: MicroCredits },
    /// The end of a hold, with its cost.
    Settle { hold: String, total: MicroCredits },
    /// A payment at once.
    Charge { id: Option<String>, account: String, amount: MicroCredits },
    /// Credits back from a hold or a charge.
    Refund { id: Option<String>, of: String, amount: MicroCredits },
    /// A strong read.
    Balance { account: String },
}

/// What a client learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Nothing: no answer, or one that leaves the outcome open.
    Unknown,
    /// The key is not accepted.
    Unauthenticated,
    /// Nothing was changed, for this reason.
    Refused(RefusalReason),
    /// It is done. `first` is false if the answer says that it repeats an earlier one.
    Done {
        position: u64,
        id: String,
        amount: MicroCredits,
        spendable_after: Option<MicroCredits>,
        first: bool,
    },
    /// A balance.
    Balance { position: u64, available: MicroCredits, held: MicroCredits, spendable: MicroCredits },
}

/// Why nothing was changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// Too few credits.
    InsufficientCredits,
    /// The hold was closed with another total.
    HoldClosed,
    /// There is no such account, hold or charge.
    NotFound,
    /// Less is still spent than should be refunded.
    RefundTooLarge,
}

/// When a key was made and revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLife {
    /// Its name.
    pub bearer: String,
    /// When the answer to its creation was there.
    pub made: u64,
    /// When its revocation was asked for, and when it was answered, if it was.
    pub revoked: Option<(u64, Option<u64>)>,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenPromise {
    /// Which promise.
    pub kind: PromiseKind,
    /// Where, in words.
    pub detail: String,
}

/// The promises that can be broken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromiseKind {
    /// Positions do not grow, or a tenant is in two journals.
    JournalOrder,
    /// An effect is not possible where the journal has it.
    IllegalEffect,
    /// An acknowledged effect is not in the journal.
    Lost,
    /// One request has two effects.
    Doubled,
    /// An effect that no client asked for.
    Unasked,
    /// An answer differs from the effect, or two answers to one request differ.
    WrongAnswer,
    /// The journal's order contradicts real time.
    RealTime,
    /// A read does not see an effect that was acknowledged before it.
    StaleRead,
    /// A read shows what never was at its position.
    WrongRead,
    /// A refusal had no reason at any point of its time.
    UnfoundedRefusal,
    /// A revoked key was accepted.
    RevokedKeyAccepted,
    /// A valid key was not accepted.
    ValidKeyRefused,
}

impl fmt::Display for BrokenPromise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}: {}", self.kind, self.detail)
    }
}

fn broken<T>(kind: PromiseKind, detail: impl Into<String>) -> Result<T, BrokenPromise> {
    Err(BrokenPromise { kind, detail: detail.into() })
}

/// How much was compared.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Requests of clients.
    pub calls: usize,
    /// Of them without an answer.
    pub unanswered: usize,
    /// Effects in the journals.
    pub effects: usize,
    /// Answered changes, repeats included.
    pub changes: usize,
    /// Answered reads.
    pub reads: usize,
    /// Refused changes.
    pub refusals: usize,
}

/// Verifies a history.
///
/// # Errors
/// The first broken promise that is found.
pub fn check(history: &ClientHistory) -> Result<Compared, BrokenPromise> {
    keys::check(history)?;
    let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut compared = Compared { calls: history.calls.len(), ..Compared::default() };
    for (number, journal) in history.journals.iter().enumerate() {
        for entry in &journal.entries {
            let tenant = entry.effect.tenant();
            if *homes.entry(tenant).or_insert(number) != number {
                return broken(PromiseKind::JournalOrder, format!("{tenant} is in two journals"));
            }
        }
        compared.effects += journal.entries.len();
    }
    for (number, journal) in history.journals.iter().enumerate() {
        let books = Books::replay(journal)?;
        // A tenant without any effect is asked for in the first journal.
        let home = |call: &&ClientCall| *homes.get(call.tenant.as_str()).unwrap_or(&0) == number;
        let calls: Vec<&ClientCall> = history.calls.iter().filter(home).collect();
        calls::check(journal, &books, &calls, &mut compared)?;
    }
    Ok(compared)
}

/// The tenant of an account.
fn tenant_of(account: &str) -> &str {
    account.split(':').next().unwrap_or(account)
}

fn sum(parts: &Parts) -> MicroCredits {
    parts.iter().map(|(_, amount)| amount).sum()
}

impl MoneyEffect {
    /// The tenant whose effect it is.
    pub fn tenant(&self) -> &str {
        match self {
            MoneyEffect::Opened { account }
            | MoneyEffect::Granted { account, .. }
            | MoneyEffect::Held { account, .. }
            | MoneyEffect::Charged { account, .. } => tenant_of(account),
            MoneyEffect::Settled { tenant, .. } | MoneyEffect::Refunded { tenant, .. } => tenant,
        }
    }
}
