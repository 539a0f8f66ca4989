//! The clients' log, and how the ledger must match it.

use std::collections::BTreeSet;
use std::fmt;

use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::archive::RecalledRecord;
use bursar_core::ledger::holds::hold::{Hold, HoldKind, HoldState};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::Resource;
use bursar_engine::recall::recall;
use bursar_journal::archive::Archive;

use super::ledger_clients::{CHARGED, GRANTED, HELD, Request, hold_name};

/// The clients' log.
#[derive(Default)]
pub struct Log {
    tried: BTreeSet<Request>,
    acknowledged: BTreeSet<Request>,
    repeated: usize,
    had_happened: usize,
    forgotten: usize,
}

impl Log {
    /// Reads one line. Returns whether it was an answer.
    pub fn read(&mut self, line: &str) -> bool {
        if let Some(request) = line.strip_prefix("try ") {
            self.tried.insert(Request::parse(request));
            return false;
        }
        let request = line.strip_prefix("ack ").expect("the child prints nothing else");
        self.acknowledged.insert(Request::parse(request))
    }

    /// The first unused id.
    pub fn next_id(&self) -> u64 {
        let id = |request: &Request| match request {
            Request::Place(id) | Request::Settle(id) => *id,
        };
        self.tried.iter().map(id).max().map_or(1, |last| last + 1)
    }

    fn unknown(&self) -> impl Iterator<Item = &Request> {
        self.tried.difference(&self.acknowledged)
    }

    /// The requests without an answer, to be repeated.
    pub fn take_unknown(&mut self) -> String {
        self.repeated += self.unknown().count();
        self.unknown().map(|request| format!("{request}\n")).collect()
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    /// How many holds only the archive has.
    pub fn forgotten(&self) -> usize {
        self.forgotten
    }

    pub fn repeated(&self) -> usize {
        self.repeated
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests acknowledged, {} repeated after a crash, {} without an answer had happened; \
             none lost, none twice",
            self.acknowledged.len(),
            self.repeated,
            self.had_happened
        )
    }
}

/// A closed hold as an archive has it.
fn archived(archive: &Archive, tenant: AccountNo, id: u64) -> Option<Hold> {
    let names = [(Resource::Hold, tenant, hold_name(id))];
    let found = recall(archive, &names, None).expect("the archive can be read").recalled.pop()?;
    match found {
        RecalledRecord::Hold(record) => Some(record.hold),
        RecalledRecord::Movement(_) => panic!("a hold is no movement"),
    }
}

/// Every hold is as in the log, and the account has exactly what is left.
pub fn compare_holds(ledger: &Ledger, log: &mut Log) {
    compare_with_archive(ledger, None, log);
}

/// The same of a ledger that has forgotten what an archive has.
pub fn compare_with_archive(ledger: &Ledger, archive: Option<&Archive>, log: &mut Log) {
    // The first child may have been killed before its first command.
    let Some(account) = ledger.find_account("acme") else {
        return assert_eq!(log.acknowledged(), 0, "the account does not exist");
    };
    let mut happened = BTreeSet::new();
    let (mut held, mut charged) = (0, 0);
    let mut holds: Vec<Hold> =
        ledger.holds_from(0, u32::MAX).map(|(_, hold)| hold.clone()).collect();
    let in_memory = holds.len();
    for request in &log.tried {
        let Request::Place(id) = request else { continue };
        if ledger.find_hold(account, HoldKind::Hold, &hold_name(*id)).is_none() {
            holds.extend(archive.and_then(|archive| archived(archive, account, *id)));
        }
    }
    log.forgotten = holds.len() - in_memory;
    for (place, hold) in holds.iter().enumerate() {
        let id = hold.id.strip_prefix("hold-").and_then(|id| id.parse().ok());
        let id = id.expect("holds have no other names");
        happened.insert(Request::Place(id));
        match hold.state {
            HoldState::Open => held += i128::from(HELD),
            HoldState::Settled => {
                assert_eq!(i128::from(hold.captured), i128::from(CHARGED));
                charged += i128::from(CHARGED);
                happened.insert(Request::Settle(id));
            }
            HoldState::Released | HoldState::Lapsed => panic!("no client requested {hold:?}"),
        }
        let found = ledger.find_hold(account, HoldKind::Hold, &hold_name(id));
        assert_eq!(found.is_some(), place < in_memory);
    }
    for request in &log.acknowledged {
        assert!(happened.contains(request), "{request} was acknowledged and is lost");
    }
    for request in &happened {
        assert!(log.tried.contains(request), "{request} was never sent");
    }
    log.had_happened += log.unknown().filter(|request| happened.contains(request)).count();
    if ledger.grant_count() > 0 {
        let left = ledger.account(AccountNo(account.0)).available;
        assert_eq!(left + held + charged, i128::from(GRANTED), "each request happened once");
    }
}
