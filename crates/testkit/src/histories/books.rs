//! The sums of every account at every position, and whether each effect was possible there.

use std::collections::BTreeMap;

use super::PromiseKind::{Doubled, IllegalEffect, JournalOrder};
use super::{
    BrokenPromise, MachineJournal, MicroCredits, MoneyEffect, Parts, broken, sum, tenant_of,
};

/// What an account has, from a position on.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) available: MicroCredits,
    pub(super) held: MicroCredits,
}

/// A hold or a charge, by the positions at which it changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Spending {
    pub(super) placed: u64,
    /// What was drawn from each account.
    drawn: BTreeMap<String, MicroCredits>,
    /// Where it was closed, and what was taken in all.
    pub(super) closed: Option<(u64, MicroCredits)>,
    /// What is taken from each account and not refunded.
    taken: BTreeMap<String, MicroCredits>,
    /// What is taken in all and not refunded, from each position on.
    pub(super) spent: Vec<(u64, MicroCredits)>,
}

/// The whole course of a journal.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// What each account has, from each position at which it changed.
    accounts: BTreeMap<String, Vec<(u64, Sums)>>,
    /// Holds and charges by tenant and id.
    pub(super) spendings: BTreeMap<(String, String), Spending>,
    /// Kind, tenant and id of what was made.
    made: BTreeMap<(&'static str, String, String), u64>,
}

impl Books {
    /// Follows a journal.
    pub(super) fn replay(journal: &MachineJournal) -> Result<Books, BrokenPromise> {
        let (mut books, mut last) = (Books::default(), 0);
        for entry in &journal.entries {
            if entry.position <= last || entry.position > journal.last {
                let detail =
                    format!("position {} follows {last} of {}", entry.position, journal.last);
                return broken(JournalOrder, detail);
            }
            last = entry.position;
            books.apply(last, &entry.effect)?;
        }
        Ok(books)
    }

    fn apply(&mut self, at: u64, effect: &MoneyEffect) -> Result<(), BrokenPromise> {
        match effect {
            MoneyEffect::Opened { account } => {
                if self.accounts.insert(account.clone(), vec![(at, Sums::default())]).is_some() {
                    return broken(Doubled, format!("{account} is opened again at {at}"));
                }
                Ok(())
            }
            MoneyEffect::Granted { id, account, amount } => {
                self.make("grant", tenant_of(account), id, at)?;
                self.change(at, account, |sums| add(&mut sums.available, *amount))
            }
            MoneyEffect::Held { id, account, from } => {
                self.make("spending", tenant_of(account), id, at)?;
                self.draw(at, account, from)?;
                for (owner, amount) in from {
                    self.change(at, owner, |sums| add(&mut sums.held, *amount))?;
                }
                let placed = Spending { placed: at, drawn: collect(from), ..Spending::default() };
                self.spendings.insert((tenant_of(account).to_owned(), id.clone()), placed);
                Ok(())
            }
            MoneyEffect::Settled { tenant, hold, taken } => self.settle(at, tenant, hold, taken),
            MoneyEffect::Charged { id, account, from, spendable_after } => {
                self.make("spending", tenant_of(account), id, at)?;
                self.draw(at, account, from)?;
                let charged = Spending {
                    placed: at,
                    drawn: collect(from),
                    closed: Some((at, sum(from))),
                    taken: collect(from),
                    spent: vec![(at, sum(from))],
                };
                self.spendings.insert((tenant_of(account).to_owned(), id.clone()), charged);
                let left = self.spendable(account, at);
                if left != Some(*spendable_after) {
                    let detail =
                        format!("after charge {id} at {at}: {spendable_after}, not {left:?}");
                    return broken(IllegalEffect, detail);
                }
                Ok(())
            }
            MoneyEffect::Refunded { id, tenant, of, to } => {
                self.make("refund", tenant, id, at)?;
                self.refund(at, tenant, of, to)
            }
        }
    }

    fn make(
        &mut self,
        kind: &'static str,
        tenant: &str,
        id: &str,
        at: u64,
    ) -> Result<(), BrokenPromise> {
        match self.made.insert((kind, tenant.to_owned(), id.to_owned()), at) {
            None => Ok(()),
            Some(first) => broken(Doubled, format!("{kind} {id} of {tenant} at {first} and {at}")),
        }
    }

    /// Takes free credits of the account or of accounts above it.
    fn draw(&mut self, at: u64, account: &str, from: &Parts) -> Result<(), BrokenPromise> {
        for (owner, amount) in from {
            if owner != account && !account.starts_with(&format!("{owner}:")) {
                return broken(IllegalEffect, format!("{account} draws from {owner} at {at}"));
            }
            self.change(at, owner, |sums| subtract(&mut sums.available, *amount))?;
        }
        Ok(())
    }

    fn settle(
        &mut self,
        at: u64,
        tenant: &str,
        hold: &str,
        taken: &Parts,
    ) -> Result<(), BrokenPromise> {
        let key = (tenant.to_owned(), hold.to_owned());
        let Some(spending) = self.spendings.get_mut(&key) else {
            return broken(IllegalEffect, format!("hold {hold} is settled at {at} and unknown"));
        };
        if spending.closed.is_some() {
            return broken(Doubled, format!("hold {hold} is closed again at {at}"));
        }
        let captured = sum(taken);
        spending.closed = Some((at, captured));
        spending.taken = collect(taken);
        spending.spent.push((at, captured));
        let (drawn, taken) = (spending.drawn.clone(), spending.taken.clone());
        if taken.keys().any(|owner| !drawn.contains_key(owner)) {
            return broken(IllegalEffect, format!("hold {hold} takes what it does not hold"));
        }
        for (owner, amount) in &drawn {
            let kept = taken.get(owner).copied().unwrap_or_default();
            self.change(at, owner, |sums| {
                subtract(&mut sums.held, *amount)
                    && amount.checked_sub(kept).is_some_and(|back| add(&mut sums.available, back))
            })?;
        }
        Ok(())
    }

    fn refund(&mut self, at: u64, tenant: &str, of: &str, to: &Parts) -> Result<(), BrokenPromise> {
        let key = (tenant.to_owned(), of.to_owned());
        let Some(spending) = self.spendings.get_mut(&key) else {
            return broken(IllegalEffect, format!("{of} is refunded at {at} and unknown"));
        };
        for (owner, amount) in to {
            let taken = spending.taken.get_mut(owner);
            if !taken.is_some_and(|taken| subtract(taken, *amount)) {
                return broken(
                    IllegalEffect,
                    format!("{of} is refunded beyond what it took, at {at}"),
                );
            }
        }
        let left = spending.taken.values().sum();
        spending.spent.push((at, left));
        to.iter().try_for_each(|(owner, amount)| {
            self.change(at, owner, |sums| add(&mut sums.available, *amount))
        })
    }

    fn change(
        &mut self,
        at: u64,
        account: &str,
        change: impl FnOnce(&mut Sums) -> bool,
    ) -> Result<(), BrokenPromise> {
        let Some(course) = self.accounts.get_mut(account) else {
            return broken(IllegalEffect, format!("{account} is not open at {at}"));
        };
        let mut sums = course.last().map(|(_, sums)| *sums).unwrap_or_default();
        if !change(&mut sums) {
            return broken(IllegalEffect, format!("{account} has {sums:?} at {at}: not enough"));
        }
        course.push((at, sums));
        Ok(())
    }

    /// What an account had at a position, if it was open.
    pub(super) fn at(&self, account: &str, position: u64) -> Option<Sums> {
        let course = self.accounts.get(account)?;
        let later = course.partition_point(|(from, _)| *from <= position);
        later.checked_sub(1).map(|index| course[index].1)
    }

    /// What an account could spend at a position: its own free credits and those above it.
    pub(super) fn spendable(&self, account: &str, position: u64) -> Option<MicroCredits> {
        self.at(account, position)?;
        let ends = account.match_indices(':').map(|(end, _)| end).chain([account.len()]);
        let free = ends.filter_map(|end| self.at(&account[..end], position));
        Some(free.map(|sums| sums.available).sum())
    }
}

fn collect(parts: &Parts) -> BTreeMap<String, MicroCredits> {
    let mut all = BTreeMap::new();
    for (owner, amount) in parts {
        *all.entry(owner.clone()).or_default() += amount;
    }
    all
}

fn add(to: &mut MicroCredits, amount: MicroCredits) -> bool {
    to.checked_add(amount).map(|sum| *to = sum).is_some()
}

fn subtract(from: &mut MicroCredits, amount: MicroCredits) -> bool {
    from.checked_sub(amount).map(|rest| *from = rest).is_some()
}
