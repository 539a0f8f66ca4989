//! Counts the usage of a subtree in bounded steps, for a budget in a ledger with many holds.
//!
//! A count follows changes between its steps: a counted hold that changes is subtracted and counted
//! again later. A finished count therefore equals one pass over all holds. Counts are not part of
//! the state: no image and no digest contains them, and their presence never changes a decision.

use std::collections::{BTreeMap, BTreeSet};

use crate::ledger::command::{BudgetTerms, BudgetUnit, Command, Envelope};
use crate::ledger::id::{AccountNo, HoldNo};
use crate::ledger::state::Ledger;
use crate::name::{AccountPath, BudgetName};
use crate::time::Timestamp;

/// The most holds that one decision reads. In a ledger with more, they are counted in steps.
pub const MAX_COUNTED_AT_ONCE: usize = 1024;
/// Budgets that one group may have counted in steps.
pub const MAX_COUNTED_IN_GROUP: usize = 16;
/// Places of holds that one step looks at, besides those that changed since the step before.
pub const COUNT_STEP: usize = 4096;
/// The most counts that are in progress or waiting to be used.
const MAX_TALLIES: usize = 64;
/// A count that was not continued during this many requests for counts is dropped when its place is
/// needed.
const STALE_AFTER: u64 = 256;
/// The most changes that a count follows between two steps. A count with more is dropped.
const MAX_TOUCHED: usize = 65_536;

/// The subject of a count.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
struct Counted {
    account: AccountNo,
    unit: BudgetUnit,
    /// Draws at or after this instant count.
    start: Timestamp,
}

/// A count in progress.
#[derive(Clone, Debug)]
struct Tally {
    of: Counted,
    tenant: AccountNo,
    /// The next slot to visit; `None` when all were visited.
    next: Option<u32>,
    /// A bitmap of the holds that the sums contain, by number.
    counted: Vec<u64>,
    spent: i128,
    held: i128,
    /// Holds that are new or have changed. The sums do not contain them.
    touched: BTreeSet<HoldNo>,
    /// When it was last continued, in the unit of [`Tallies::asked`].
    continued: u64,
}

/// The counts in progress.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Tallies {
    all: Vec<Tally>,
    /// The number of requests for counts.
    asked: u64,
    /// Accounts whose budgets the current group has set.
    set: Vec<AccountNo>,
}

impl Tallies {
    /// Whether no count has to follow changes.
    pub(in crate::ledger) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Drops the counts of an account after its budget was set. Within a group they are kept until
    /// the group ends, because later commands of the group may use them.
    pub(super) fn note_set(&mut self, account: AccountNo, in_group: bool) {
        if in_group {
            self.set.push(account);
        } else {
            self.all.retain(|tally| tally.of.account != account);
        }
    }

    /// Ends a group, which was committed or rolled back.
    pub(in crate::ledger) fn end_group(&mut self, happened: bool) {
        for account in std::mem::take(&mut self.set) {
            if happened {
                self.note_set(account, false);
            }
        }
    }

    /// Makes room for one more count. Returns whether there is room.
    fn make_room(&mut self) -> bool {
        if self.all.len() >= MAX_TALLIES {
            let asked = self.asked;
            let stale = |tally: &Tally| tally.continued + STALE_AFTER < asked;
            match self.all.iter().position(stale) {
                Some(at) => drop(self.all.swap_remove(at)),
                None => return false,
            }
        }
        true
    }
}

impl Tally {
    fn contains(&self, hold: HoldNo) -> bool {
        let word = self.counted.get(hold.0 as usize / 64).copied().unwrap_or(0);
        word >> (hold.0 % 64) & 1 == 1
    }

    fn note(&mut self, hold: HoldNo, contained: bool) {
        let place = hold.0 as usize / 64;
        if place >= self.counted.len() {
            self.counted.resize(place + 1, 0);
        }
        let bit = 1 << (hold.0 % 64);
        if contained {
            self.counted[place] |= bit;
        } else {
            self.counted[place] &= !bit;
        }
    }

    /// The amounts that a hold contributes.
    fn share_of(&self, ledger: &Ledger, hold: HoldNo) -> Option<(i128, i128)> {
        #[cfg(test)]
        super::budget::tests::LOOKED_AT.set(super::budget::tests::LOOKED_AT.get() + 1);
        let hold = ledger.hold(hold)?;
        let below = ledger.is_at_or_below(hold.account, self.of.account);
        below.then(|| hold.usage_since(self.of.start, self.of.unit))
    }

    /// Adds a hold to the sums, or subtracts it.
    fn count(&mut self, ledger: &Ledger, hold: HoldNo, sign: i128) {
        let share = self.share_of(ledger, hold);
        if let Some((spent, held)) = share {
            self.spent += sign * spent;
            self.held += sign * held;
        }
        // A free slot may receive a hold later, so it must not be marked as counted.
        self.note(hold, sign > 0 && share.is_some());
    }

    /// Counts the changed holds and the next unvisited slots.
    fn go_on(&mut self, ledger: &Ledger) {
        for hold in std::mem::take(&mut self.touched) {
            // The number may be free by now or belong to a hold of another tenant.
            let own = ledger.hold(hold).map(|found| ledger.account(found.account).tenant);
            if own == Some(self.tenant) {
                self.count(ledger, hold, 1);
            }
        }
        let Some(first) = self.next else { return };
        let last = first.saturating_add(COUNT_STEP as u32).min(ledger.holds.places());
        for hold in (first..last).map(HoldNo) {
            if !self.contains(hold) {
                self.count(ledger, hold, 1);
            }
        }
        self.next = (last < ledger.holds.places()).then_some(last);
    }
}

impl Ledger {
    /// Whether there are more holds than one decision may look at.
    pub fn counts_in_steps(&self) -> bool {
        self.holds.places() as usize > MAX_COUNTED_AT_ONCE
    }

    /// Whether a command needs a count that takes several steps.
    pub fn must_count_in_steps(&self, command: &Command) -> bool {
        let Command::SetBudget { path, budget, terms } = command else { return false };
        self.counts_in_steps()
            && self.find_account(path).is_some_and(|account| {
                self.must_count(account, budget, terms) && !self.is_new_in_group(account)
            })
    }

    /// What a group has to have counted in steps, of which accounts and terms, one for each budget. Each
    /// command finds what those before it leave: a budget that was removed is new again.
    pub fn counted_in_group<'a>(
        &self,
        commands: &'a [(Envelope, Command)],
    ) -> Vec<(&'a AccountPath, &'a BudgetTerms)> {
        let mut counted = Vec::new();
        if !self.counts_in_steps() {
            return counted;
        }
        let mut left: BTreeMap<(&AccountPath, &BudgetName), Option<&BudgetTerms>> = BTreeMap::new();
        for (_, command) in commands {
            if let Command::RemoveBudget { path, budget } = command {
                left.insert((path, budget), None);
            } else if let Command::SetBudget { path, budget, terms } = command
                // One that the group opens has no hold of before.
                && let Some(account) = self.find_account(path)
            {
                let alike = match left.insert((path, budget), Some(terms)) {
                    Some(present) => present.is_some_and(|present| present.counts_like(terms)),
                    None => !self.must_count(account, budget, terms),
                };
                if !alike {
                    counted.push((path, terms));
                }
            }
        }
        counted
    }

    /// Brings a finished count up to date. Says whether there is one.
    pub(in crate::ledger) fn keep_up(
        &mut self,
        now: Timestamp,
        path: &AccountPath,
        terms: &BudgetTerms,
    ) -> bool {
        let Some(account) = self.find_account(path) else { return true };
        let of = Counted { account, unit: terms.unit, start: terms.period_of(now).0 };
        let finished = |tally: &Tally| tally.of == of && tally.next.is_none();
        let Some(at) = self.tallies.all.iter().position(finished) else { return false };
        let mut tally = self.tallies.all.swap_remove(at);
        tally.go_on(self);
        self.tallies.all.push(tally);
        true
    }

    /// Continues the count that setting a budget needs. Returns whether it is complete.
    pub(in crate::ledger) fn count_some(
        &mut self,
        now: Timestamp,
        path: &AccountPath,
        terms: &BudgetTerms,
    ) -> bool {
        let Some(account) = self.find_account(path) else { return true };
        let tenant = self.account(account).tenant;
        let of = Counted { account, unit: terms.unit, start: terms.period_of(now).0 };
        self.tallies.asked += 1;
        let present = self.tallies.all.iter().position(|tally| tally.of == of);
        let mut tally = match present {
            Some(at) => self.tallies.all.swap_remove(at),
            None if self.tallies.make_room() => Tally {
                of,
                tenant,
                next: Some(0),
                counted: Vec::new(),
                spent: 0,
                held: 0,
                touched: BTreeSet::new(),
                continued: 0,
            },
            None => return false,
        };
        tally.go_on(self);
        tally.continued = self.tallies.asked;
        let done = tally.next.is_none();
        self.tallies.all.push(tally);
        done
    }

    /// The result of a finished count: spent and held.
    pub(in crate::ledger) fn counted(
        &self,
        now: Timestamp,
        account: AccountNo,
        terms: &BudgetTerms,
    ) -> Option<(i128, i128)> {
        let of = Counted { account, unit: terms.unit, start: terms.period_of(now).0 };
        let finished = |tally: &&Tally| tally.of == of && tally.next.is_none();
        let tally = self.tallies.all.iter().find(finished)?;
        let changed = tally.touched.iter().filter_map(|hold| tally.share_of(self, *hold));
        let sums = (tally.spent, tally.held);
        let (spent, held) = changed.fold(sums, |sums, share| (sums.0 + share.0, sums.1 + share.1));
        Some((spent + self.past_usage.since(account, of.start, terms.unit), held))
    }

    /// Marks a hold that is about to change: counts that contain it count it again.
    pub(in crate::ledger) fn touch_tallies(&mut self, hold: HoldNo) {
        if self.tallies.is_empty() {
            return;
        }
        let mut tallies = std::mem::take(&mut self.tallies.all);
        for tally in &mut tallies {
            if tally.contains(hold) {
                tally.count(self, hold, -1);
                tally.touched.insert(hold);
            }
        }
        tallies.retain(|tally| tally.touched.len() <= MAX_TOUCHED);
        self.tallies.all = tallies;
    }

    /// Adds a new hold of a tenant to the counts of that tenant.
    pub(in crate::ledger) fn enter_tallies(&mut self, tenant: AccountNo, hold: HoldNo) {
        for tally in self.tallies.all.iter_mut().filter(|tally| tally.tenant == tenant) {
            tally.touched.insert(hold);
        }
    }
}
