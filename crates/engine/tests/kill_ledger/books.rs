//! What the clients know, and what the journal says about it.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bursar_audit::{LiveNumbers, SqliteSource, verify};
use bursar_core::ledger::hold::{HoldKind, HoldState};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::{Ledger, invariant};
use bursar_core::machine::Machine;
use bursar_engine::{Engine, LedgerCodec, WallClock, replay, replay_from_genesis};

use crate::child::{CHARGED, GRANTED, HELD, REPEAT, Request, hold_name, open};
use crate::support::options;

/// The clients' log.
#[derive(Default)]
pub(crate) struct Log {
    tried: BTreeSet<Request>,
    acknowledged: BTreeSet<Request>,
    repeated: usize,
    repeated_had_happened: usize,
}

impl Log {
    /// Takes one line; says whether it was an answer.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        if let Some(request) = line.strip_prefix("try ") {
            self.tried.insert(Request::parse(request));
            return false;
        }
        let request = line.strip_prefix("ack ").expect("the child says nothing else");
        self.acknowledged.insert(Request::parse(request))
    }

    /// The first id that nobody has used.
    pub(crate) fn next_id(&self) -> u64 {
        let id = |request: &Request| match request {
            Request::Place(id) | Request::Settle(id) => *id,
        };
        self.tried.iter().map(id).max().map_or(1, |last| last + 1)
    }

    fn unknown(&self) -> impl Iterator<Item = &Request> {
        self.tried.difference(&self.acknowledged)
    }

    /// Leaves what had no answer for the next child.
    pub(crate) fn write_unknown(&mut self, directory: &Path) {
        let lines: String = self.unknown().map(|request| format!("{request}\n")).collect();
        self.repeated += self.unknown().count();
        std::fs::write(directory.join(REPEAT), lines).expect("the directory is ours");
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }

    pub(crate) fn repeated(&self) -> usize {
        self.repeated
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests acknowledged, {} had no answer and were repeated, of which {} had happened; \
             none lost, none twice",
            self.acknowledged.len(),
            self.repeated,
            self.repeated_had_happened
        )
    }
}

/// Opens the journal as a new process would and compares it with itself, with the auditor's books and
/// with what the clients know.
pub(crate) fn compare(directory: &Path, log: &mut Log) {
    let journal = open(directory);
    let whole = replay_from_genesis(&*journal, &LedgerCodec).expect("the journal is whole");
    let digest = whole.machine.digest();
    let quick = replay(&*journal, &LedgerCodec).expect("the journal is whole");
    assert_eq!(quick.skipped, [""; 0], "a snapshot was put in place half written");
    assert_eq!(quick.machine.digest(), digest, "L11: from a snapshot and from the start");
    let codec = Arc::new(LedgerCodec);
    let clock = Arc::new(WallClock::new());
    let engine = Engine::start(Arc::clone(&journal), codec, clock, options("parent"));
    let live = engine.handle().read(|ledger: &Ledger| (ledger.digest(), LiveNumbers::of(ledger)));
    let (served, numbers) = live.expect("it serves").value;
    assert_eq!(served, digest, "L11: what is served is what the journal says");
    engine.stop();
    drop(journal);
    let source = SqliteSource::open(&directory.join("journal.db")).expect("nobody has it");
    let report = verify(&source, Some(&numbers), |_| {});
    assert!(report.holds() && report.compared, "{report}");
    assert_eq!(invariant::check(&whole.machine), Ok(()));
    compare_holds(&whole.machine, log);
}

/// Every hold is what the clients say, and the account has exactly what is left.
fn compare_holds(ledger: &Ledger, log: &mut Log) {
    // The first child may have been killed before it did anything.
    let Some(account) = ledger.find_account("acme") else {
        return assert_eq!(log.acknowledged(), 0, "nothing is there");
    };
    let mut happened = BTreeSet::new();
    let (mut held, mut charged) = (0, 0);
    for (_, hold) in ledger.holds_from(0, u32::MAX) {
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
            HoldState::Released | HoldState::Lapsed => panic!("nobody asked for {hold:?}"),
        }
        assert!(ledger.find_hold(account, HoldKind::Hold, &hold_name(id)).is_some());
    }
    for request in &log.acknowledged {
        assert!(happened.contains(request), "{request} was acknowledged and is gone");
    }
    for request in &happened {
        assert!(log.tried.contains(request), "{request} was never asked for");
    }
    log.repeated_had_happened += log.unknown().filter(|request| happened.contains(request)).count();
    if ledger.grant_count() > 0 {
        let left = ledger.account(AccountNo(account.0)).available;
        assert_eq!(left + held + charged, i128::from(GRANTED), "each happened once");
    }
}
