//! Prefetch: reads the memory that the next commands will read before the first of them is decided.
//! The cache misses of all commands then overlap.
//!
//! It runs in steps. Each step reads, for every command, what the previous step found, and does not
//! use the values that it reads. A use would wait for memory and delay all later reads.

use std::hint::black_box;

use smallvec::SmallVec;

use crate::ledger::accounts::account::Account;
use crate::ledger::command::{Command, Envelope};
use crate::ledger::credits::bucket::Bucket;
use crate::ledger::holds::hold::{Hold, HoldKind};
use crate::ledger::id::{AccountNo, Name};
use crate::ledger::state::Ledger;

/// The account of a command, and a hold or charge of that account's tenant.
struct Subject<'a> {
    account: &'a Name,
    hold: Option<(HoldKind, &'a Name)>,
}

/// The progress of one command. A number under the hash of a name is assumed to have that name.
struct Sight<'a> {
    subject: Subject<'a>,
    /// The hash of the account's name, later of the hold's.
    hash: u32,
    account: Option<AccountNo>,
    hold: Option<u32>,
}

impl Ledger {
    /// Reads the memory that these commands will read.
    pub(in crate::ledger) fn look_ahead(&self, coming: &[(&Envelope, &Command)]) {
        let subjects = coming.iter().filter_map(|(_, command)| subject(command));
        let mut sights: SmallVec<[Sight<'_>; 16]> = subjects
            .map(|subject| {
                let hash = self.account_names.hash_of(&subject.account.as_str());
                Sight { subject, hash, account: None, hold: None }
            })
            .collect();
        // Slower work is done beforehand, so that the reads follow each other directly.
        look(coming, |(envelope, _)| envelope.key.map_or(0, |key| self.answers.glimpse(key)));
        look(&sights, |sight| self.account_names.glimpse(sight.hash));
        for sight in &mut sights {
            sight.account = self.account_names.first(sight.hash).map(AccountNo);
        }
        look(&sights, |sight| {
            sight.account.map_or(0, |account| glimpse_account(self.account(account)))
        });
        for sight in &mut sights {
            if let (Some(account), Some((kind, id))) = (sight.account, sight.subject.hold) {
                let name = (self.account(account).tenant, kind, id.as_str());
                sight.hash = self.hold_names.hash_of(&name);
            }
        }
        look(&sights, |sight| self.hold_names.glimpse(sight.hash));
        look(&sights, |sight| self.first_bucket_of(sight).map_or(0, glimpse_bucket));
        for sight in &mut sights {
            sight.hold = self.hold_names.first(sight.hash);
        }
        look(&sights, |sight| {
            let hold = sight.hold.and_then(|hold| self.holds.get(hold));
            hold.map_or(0, glimpse_hold)
        });
        // Only few lines store the states of their units in a separate allocation.
        look(&sights, |sight| {
            self.first_bucket_of(sight).map_or(0, |bucket| bucket.line.free() as u32)
        });
    }

    /// The bucket that the account spends first.
    fn first_bucket_of(&self, sight: &Sight<'_>) -> Option<&Bucket> {
        let account = sight.account.map(|account| self.account(account))?;
        account.first_bucket.bucket().map(|bucket| self.bucket(bucket))
    }
}

/// Reads for all commands in turn, without waiting for the values.
fn look<T>(all: &[T], glimpse: impl Fn(&T) -> u32) {
    let seen = all.iter().fold(0, |seen, one| seen ^ glimpse(one));
    // The value is not needed. `black_box` keeps the compiler from removing the reads.
    black_box(seen);
}

/// Reads a value from every cache line of an account.
fn glimpse_account(account: &Account) -> u32 {
    account.available as u32 ^ account.fingerprint as u32 ^ account.tenant.0
}

/// Reads a value from every cache line of a bucket.
fn glimpse_bucket(bucket: &Bucket) -> u32 {
    bucket.account.0 ^ u32::from(bucket.rank.priority) ^ u32::from(bucket.restriction.is_some())
}

/// Reads a value from every cache line of a hold.
fn glimpse_hold(hold: &Hold) -> u32 {
    let [placed, moved] = [hold.placed_at, hold.moved_at].map(|at| at.millis() as u32);
    let numbers = hold.amount as u32 ^ hold.refunded as u32 ^ placed ^ moved;
    numbers ^ hold.id.len() as u32 ^ hold.slices.len() as u32 ^ hold.account.0
}

fn subject(command: &Command) -> Option<Subject<'_>> {
    match command {
        Command::PlaceHold(command) => {
            let hold = Some((HoldKind::Hold, &command.id));
            Some(Subject { account: &command.account, hold })
        }
        Command::Charge(command) => {
            let hold = Some((HoldKind::Charge, &command.id));
            Some(Subject { account: &command.account, hold })
        }
        Command::CaptureHold { tenant, hold, .. }
        | Command::ExtendHold { tenant, hold, .. }
        | Command::SettleHold { tenant, hold, .. }
        | Command::ReleaseHold { tenant, hold, .. } => {
            Some(Subject { account: tenant, hold: Some((HoldKind::Hold, hold)) })
        }
        Command::SubmitJob(command) => Some(Subject { account: &command.account, hold: None }),
        Command::IssueGrant(command) => Some(Subject { account: &command.account, hold: None }),
        Command::Transfer(command) => Some(Subject { account: &command.from, hold: None }),
        Command::ChangeAccount { path, .. }
        | Command::FreezeAccount { path, by_platform: _ }
        | Command::UnfreezeAccount { path, by_platform: _ }
        | Command::CollectUncollected { path, .. }
        | Command::SetBudget { path, .. }
        | Command::RemoveBudget { path, .. }
        | Command::SetQuota { path, .. }
        | Command::RemoveQuota { path, .. } => Some(Subject { account: path, hold: None }),
        Command::RevokeGrant { tenant, .. }
        | Command::CancelJob { tenant, .. }
        | Command::ReportUsage { tenant, .. } => Some(Subject { account: tenant, hold: None }),
        Command::SetPolicy(_)
        | Command::OpenAccount { .. }
        | Command::Refund(_)
        | Command::ReviveHold { .. }
        | Command::KeepBatch { .. }
        | Command::OpenRegion { .. }
        | Command::Receive { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::Credits;
    use crate::ledger::Event;
    use crate::ledger::command::{
        AccountKind, AccountSettings, Cause, Charge, Context, GrantKind, IssueGrant, OnExpiry,
        PlaceHold, Policy, Usage,
    };
    use crate::machine::{Machine, advance, execute};
    use crate::time::Timestamp;

    fn start() -> Timestamp {
        Timestamp::from_millis(1_600_000_000_000)
    }

    fn micros(amount: i64) -> Credits {
        Credits::from_micros(amount).expect("a small positive amount")
    }

    fn place(account: &str, id: &str, amount: i64) -> Command {
        Command::PlaceHold(PlaceHold {
            id: id.into(),
            account: account.into(),
            amount: micros(amount),
            ttl_ms: Some(1000),
            context: Context::default(),
            on_expiry: OnExpiry::HonorHold,
            rate: None,
            gpu_ms: 0,
            reference: None,
        })
    }

    fn settle(tenant: &str, hold: &str, amount: i64) -> Command {
        let (tenant, hold) = (tenant.into(), hold.into());
        Command::SettleHold {
            tenant,
            hold,
            usage: Usage::Total(micros(amount)),
            cause: Cause::Holder,
        }
    }

    fn charge(account: &str, id: &str) -> Command {
        Command::Charge(Charge {
            id: id.into(),
            account: account.into(),
            amount: micros(7),
            allow_partial: false,
            context: Context::default(),
            effective_at: None,
        })
    }

    fn open(path: &str, kind: AccountKind) -> Command {
        Command::OpenAccount { path: path.into(), kind, settings: AccountSettings::default() }
    }

    fn grant(account: &str, id: &str) -> Command {
        Command::IssueGrant(IssueGrant {
            id: id.into(),
            account: account.into(),
            amount: micros(100),
            kind: GrantKind::Purchase,
            effective_at: None,
            expires_at: Some(start().plus_millis(50_000)),
            priority: 100,
            restriction: None,
            reference: None,
            metadata: None,
        })
    }

    /// Commands on accounts and holds that exist, do not exist, existed, or belong to another
    /// tenant.
    fn commands() -> Vec<Command> {
        let mut commands = vec![
            Command::SetPolicy(Policy { retention_ms: 1, ..Policy::default() }),
            open("acme", AccountKind::Org),
            open("acme:ml", AccountKind::Team),
            open("other", AccountKind::Org),
            open("poor", AccountKind::Org),
            grant("acme", "g"),
            grant("acme:ml", "g2"),
            grant("other", "g"),
        ];
        for account in ["acme", "acme:ml", "other", "poor", "unknown", ""] {
            let tenant = account.split(':').next().unwrap_or_default();
            for id in ["a", "b", "a", ""] {
                commands.push(place(account, id, 30));
                commands.push(charge(account, id));
                commands.push(settle(tenant, id, 10));
                commands.push(settle("other", id, 10));
            }
            commands.push(place(account, "much", 1_000_000));
            commands.push(Command::FreezeAccount { path: account.into(), by_platform: false });
            commands.push(place(account, "late", 1));
            commands.push(Command::UnfreezeAccount { path: account.into(), by_platform: false });
            let (tenant, grant) = (tenant.into(), "g".into());
            commands.push(Command::RevokeGrant { tenant, grant });
        }
        commands
    }

    /// Decides all commands twice, with or without a prefetch. Time passes, so that holds lapse,
    /// credits expire and closed holds are forgotten.
    fn run(ahead: usize) -> (Ledger, Vec<String>) {
        let mut ledger = Ledger::new();
        let mut told = Vec::new();
        let twice = commands().into_iter().chain(commands());
        let asked: Vec<(Envelope, Command)> = (0..)
            .zip(twice)
            .map(|(number, command)| {
                let key = (number % 3 != 0).then_some(number / 2);
                (
                    Envelope {
                        actor: "me".into(),
                        fingerprint: number,
                        key,
                        ..Envelope::default()
                    },
                    command,
                )
            })
            .collect();
        for (number, (envelope, command)) in asked.iter().enumerate() {
            let coming: Vec<_> = asked[number..].iter().take(ahead).map(|(e, c)| (e, c)).collect();
            let before = ledger.digest();
            ledger.foresee(&coming);
            assert_eq!(ledger.digest(), before, "a prefetch changes nothing");
            let now = start().plus_millis(700 * number as i64);
            advance(&mut ledger, now, |_, _| {});
            let mut events: Vec<Event> = Vec::new();
            let answer = execute(&mut ledger, now, envelope, command, &mut events);
            told.push(format!("{answer:?} {events:?}"));
        }
        (ledger, told)
    }

    #[test]
    fn prefetching_changes_no_decision_and_no_state() {
        let (blind, told) = run(0);
        let accepted = told.iter().filter(|told| told.starts_with("Ok")).count();
        assert!((20..told.len() - 20).contains(&accepted), "{accepted} of {}", told.len());
        for ahead in [1, 2, 16, 1000] {
            let (ledger, same) = run(ahead);
            assert_eq!(same, told, "{ahead} ahead");
            assert_eq!(ledger.digest(), blind.digest(), "{ahead} ahead");
        }
    }

    #[test]
    fn an_empty_ledger_can_prefetch_any_command() {
        let ledger = Ledger::new();
        let envelope =
            Envelope { actor: "me".into(), fingerprint: 1, key: Some(1), ..Envelope::default() };
        let commands = commands();
        let coming: Vec<_> = commands.iter().map(|command| (&envelope, command)).collect();
        ledger.foresee(&coming);
        ledger.foresee(&[]);
        assert_eq!(ledger.digest(), Ledger::new().digest());
    }
}
