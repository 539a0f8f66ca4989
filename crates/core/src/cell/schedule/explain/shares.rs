//! The fair shares of accounts.

use crate::cell::ids::AccountId;
use crate::cell::share::accounts::ROOT;
use crate::cell::state::Cell;
use crate::name::AccountPath;
use crate::time::Timestamp;

/// The fair share of an account. Shares are in millionths of the whole cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FairShare {
    /// The account's path.
    pub account: AccountPath,
    /// Its weight among its siblings.
    pub weight: u32,
    /// Usage of it and its subtree, decayed to now, in micro-credits.
    pub usage_micros: u128,
    /// Its entitlement while it competes with its active siblings.
    pub entitled_ppm: u64,
    /// Its part of all decayed usage.
    pub received_ppm: u64,
    /// Micro-credits per hour of the GPUs that it has now.
    pub rate: u64,
    /// Thousandths of GPUs that it has now.
    pub gpus: u32,
    /// Jobs that have GPUs.
    pub running_jobs: u32,
    /// Jobs that wait.
    pub waiting_jobs: u32,
}

impl Cell {
    /// The fair share of every account at `now`, parents before children, the root first.
    pub fn fair_shares(&self, now: Timestamp) -> Vec<FairShare> {
        const MILLION: u128 = 1_000_000;
        let decay = &self.accounts.decay;
        let whole = self.accounts.get(ROOT).usage.max(1);
        let active = |id: &AccountId| {
            let account = self.accounts.get(*id);
            account.rate > 0 || account.in_use.waiting_jobs > 0
        };
        // The weights of all competing children of each account.
        let mut competing: Vec<u128> = vec![0; self.accounts.iter().count()];
        for (id, account) in self.accounts.iter() {
            if let Some(parent) = account.parent.filter(|_| active(&id)) {
                competing[parent.0 as usize] += u128::from(account.weight);
            }
        }
        let mut entitled: Vec<u128> = Vec::new();
        let mut shares = Vec::new();
        for (id, account) in self.accounts.iter() {
            let part = account.parent.map_or(MILLION, |parent| {
                let own = if active(&id) { u128::from(account.weight) } else { 0 };
                entitled[parent.0 as usize] * own / competing[parent.0 as usize].max(1)
            });
            entitled.push(part);
            // Millionths.
            let ppm = |part: u128| u64::try_from(part).unwrap_or(u64::MAX);
            shares.push(FairShare {
                account: account.path.clone(),
                weight: account.weight,
                usage_micros: decay.unscale(account.usage, now),
                entitled_ppm: ppm(part),
                received_ppm: ppm(account.usage.saturating_mul(MILLION) / whole),
                rate: account.rate,
                gpus: account.in_use.total_gpus,
                running_jobs: account.in_use.running_jobs,
                waiting_jobs: account.in_use.waiting_jobs,
            });
        }
        shares
    }
}

#[cfg(test)]
mod tests;
