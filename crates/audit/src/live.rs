//! The balances of a ledger as plain numbers, to be compared with those of the journal.

use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{AccountNo, GrantNo};

/// The balances of a ledger's accounts, grants and holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveNumbers {
    /// Path, available, held and uncollected of each account, in the order of their numbers.
    pub accounts: Vec<(String, i128, i128, i128)>,
    /// Units of each grant by part, in the order of their numbers.
    pub grants: Vec<[u64; 6]>,
    /// The numbers of the revoked grants.
    pub revoked: Vec<u32>,
    /// Number, state (0 open, 1 settled, 2 released, 3 lapsed), captured and refunded of each hold
    /// and charge that is not forgotten, in the order of their numbers.
    pub holds: Vec<(u32, u64, u128, u128)>,
}

impl LiveNumbers {
    /// Reads the balances of a ledger that was rebuilt from the journal.
    pub fn of(ledger: &Ledger) -> LiveNumbers {
        let account = |number| {
            let account = ledger.account(AccountNo(number));
            (account.path.to_string(), account.available, account.held, account.uncollected())
        };
        let grants = (0..ledger.grant_count()).map(GrantNo);
        let holds = ledger.holds_from(0, u32::MAX).map(|(number, hold)| {
            (number.0, hold.state as u64, hold.captured.into(), hold.refunded.into())
        });
        LiveNumbers {
            accounts: (0..ledger.account_count()).map(account).collect(),
            grants: grants.clone().map(|grant| ledger.grant_parts(grant)).collect(),
            revoked: grants.filter(|grant| ledger.grant(*grant).revoked).map(|g| g.0).collect(),
            holds: holds.collect(),
        }
    }
}
