//! Every answer against the journal, and the journal's order against real time.

use std::collections::BTreeMap;

use super::PromiseKind::{
    Doubled, Lost, RealTime, StaleRead, Unasked, UnfoundedRefusal, WrongAnswer, WrongRead,
};
use super::books::Books;
use super::operations::{self, Operation, fits};
use super::{
    BrokenPromise, CallOutcome, ClientCall, Compared, JournalEntry, MachineJournal, MoneyEffect,
    MoneyRequest, RefusalReason, broken,
};

/// The highest position that any answer had shown by a time.
struct KnownPositions(Vec<(u64, u64)>);

impl KnownPositions {
    fn of(calls: &[&ClientCall]) -> KnownPositions {
        let shown = |call: &&ClientCall| match call.outcome {
            CallOutcome::Done { position, .. } | CallOutcome::Balance { position, .. } => {
                Some((call.returned, position))
            }
            CallOutcome::Unknown | CallOutcome::Unauthenticated | CallOutcome::Refused(_) => None,
        };
        let mut shown: Vec<(u64, u64)> = calls.iter().filter_map(shown).collect();
        shown.sort_unstable();
        let mut highest = 0;
        for (_, position) in &mut shown {
            highest = highest.max(*position);
            *position = highest;
        }
        KnownPositions(shown)
    }

    /// What was known before a request was sent.
    fn before(&self, invoked: u64) -> u64 {
        let later = self.0.partition_point(|(returned, _)| *returned < invoked);
        later.checked_sub(1).map_or(0, |index| self.0[index].1)
    }
}

/// One shard's calls.
struct Shard<'a> {
    journal: &'a MachineJournal,
    books: &'a Books,
    known: KnownPositions,
    /// For operations sent after a time, the lowest position of their effects.
    later: Vec<(u64, u64)>,
}

/// Verifies the calls of the tenants of one shard.
pub(super) fn check(
    journal: &MachineJournal,
    books: &Books,
    calls: &[&ClientCall],
    compared: &mut Compared,
) -> Result<(), BrokenPromise> {
    let known = KnownPositions::of(calls);
    check_keys(&journal.entries)?;
    let mut changes = operations::group(calls);
    let follows =
        |operation: &Operation<'_>, position| position > known.before(operation.invoked());
    let unasked = operations::assign(&mut changes, &journal.entries, follows);
    if let Some(entry) = unasked.map(|index| &journal.entries[index]) {
        let detail = format!("{:?} at {}", entry.effect, entry.position);
        return broken(Unasked, detail);
    }
    let effects = changes.iter().filter_map(|change| {
        change.entry.map(|index| (change.invoked(), journal.entries[index].position))
    });
    let shard = Shard { journal, books, later: lowest_later(effects.collect()), known };
    for change in &changes {
        shard.check_change(change, compared)?;
    }
    for call in calls {
        match call.outcome {
            CallOutcome::Unknown => compared.unanswered += 1,
            CallOutcome::Balance { .. } => {
                compared.reads += 1;
                shard.check_read(call)?;
            }
            CallOutcome::Refused(_) | CallOutcome::Done { .. } | CallOutcome::Unauthenticated => {}
        }
    }
    Ok(())
}

/// No idempotency key has two effects.
fn check_keys(entries: &[JournalEntry]) -> Result<(), BrokenPromise> {
    let mut seen = BTreeMap::new();
    for entry in entries {
        let Some(key) = &entry.repeat else { continue };
        if let Some(first) = seen.insert((entry.effect.tenant(), key), entry.position) {
            let detail = format!("one idempotency key at {first} and {}", entry.position);
            return broken(Doubled, detail);
        }
    }
    Ok(())
}

/// Sorts by time; each entry then has the lowest position of itself and of all later ones.
fn lowest_later(mut effects: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    effects.sort_unstable();
    let mut lowest = u64::MAX;
    for (_, position) in effects.iter_mut().rev() {
        lowest = lowest.min(*position);
        *position = lowest;
    }
    effects
}

impl Shard<'_> {
    fn check_change(
        &self,
        change: &Operation<'_>,
        compared: &mut Compared,
    ) -> Result<(), BrokenPromise> {
        let entry = change.entry.map(|index| &self.journal.entries[index]);
        if let Some(entry) = entry {
            let before = self.known.before(change.invoked());
            if entry.position <= before {
                let detail =
                    format!("{} at {}, sent after {before}", named(change), entry.position);
                return broken(RealTime, detail);
            }
            if change.tries.iter().all(|call| call.outcome == CallOutcome::Unauthenticated) {
                return broken(Unasked, format!("{} of a refused key", named(change)));
            }
        }
        let mut firsts = 0;
        for call in change.done() {
            compared.changes += 1;
            let Some(entry) = entry else {
                return broken(
                    Lost,
                    format!("{} was answered at {}", named(change), call.returned),
                );
            };
            self.check_answer(change, entry, call)?;
            firsts += usize::from(matches!(call.outcome, CallOutcome::Done { first: true, .. }));
        }
        if firsts > 1 && !matches!(change.request(), MoneyRequest::Settle { .. }) {
            return broken(Doubled, format!("{} was answered as new twice", named(change)));
        }
        self.check_refusals(change, entry, compared)
    }

    fn check_answer(
        &self,
        change: &Operation<'_>,
        entry: &JournalEntry,
        call: &ClientCall,
    ) -> Result<(), BrokenPromise> {
        let CallOutcome::Done { position, id, amount, spendable_after, first } = &call.outcome
        else {
            return Ok(());
        };
        let wrong = |what: &str| {
            let detail = format!("{what} of {}: {:?}, {:?}", named(change), call.outcome, entry);
            broken(WrongAnswer, detail)
        };
        if operations::id_of(&entry.effect) != Some(id) {
            return wrong("id");
        }
        let is_its_own =
            if *first { *position == entry.position } else { *position >= entry.position };
        if !is_its_own || *position > self.journal.last {
            return wrong("position");
        }
        let asked = match &call.request {
            MoneyRequest::Grant { amount, .. }
            | MoneyRequest::Hold { amount, .. }
            | MoneyRequest::Charge { amount, .. }
            | MoneyRequest::Refund { amount, .. }
            | MoneyRequest::Settle { total: amount, .. } => amount,
            MoneyRequest::Balance { .. } => return wrong("kind"),
        };
        if amount != asked || !fits(&entry.effect, &call.tenant, &call.request) {
            return wrong("amount");
        }
        match (&entry.effect, spendable_after) {
            (MoneyEffect::Charged { spendable_after: stored, .. }, Some(said))
                if stored != said =>
            {
                wrong("spendable_after")
            }
            _ => Ok(()),
        }
    }

    /// A refusal needs a reason at some position of its time.
    fn check_refusals(
        &self,
        change: &Operation<'_>,
        entry: Option<&JournalEntry>,
        compared: &mut Compared,
    ) -> Result<(), BrokenPromise> {
        for call in &change.tries {
            let CallOutcome::Refused(reason) = call.outcome else { continue };
            compared.refusals += 1;
            if call.repeat.is_some() && entry.is_some() && stored(reason) {
                // The first answer under a key is kept.
                let same_key = change.done().any(|done| done.repeat == call.repeat);
                if same_key {
                    return broken(WrongAnswer, format!("{} is done and refused", named(change)));
                }
            }
            // A repeat under a key is answered as the first try was.
            let same = change.tries.iter().filter(|other| other.repeat == call.repeat);
            let invoked = match call.repeat {
                Some(_) => same.map(|other| other.invoked).min().unwrap_or(call.invoked),
                None => call.invoked,
            };
            let positions = self.between(invoked, call.returned);
            if !positions.into_iter().any(|at| self.is_refused(call, reason, at)) {
                let detail = format!("{reason:?} for {} at {}", named(change), call.returned);
                return broken(UnfoundedRefusal, detail);
            }
        }
        Ok(())
    }

    /// Every state that an answer may show: from what was known when it was sent, up to the first
    /// effect of a later request.
    fn between(&self, invoked: u64, returned: u64) -> Vec<u64> {
        let from = self.known.before(invoked);
        let next = self.later.partition_point(|(sent, _)| *sent <= returned);
        let until = self.later.get(next).map_or(u64::MAX, |(_, position)| *position);
        let entries = self.journal.entries.iter().map(|entry| entry.position);
        [from].into_iter().chain(entries.filter(|at| (from..until).contains(at))).collect()
    }

    fn is_refused(&self, call: &ClientCall, reason: RefusalReason, at: u64) -> bool {
        let spending = |id: &str| {
            let found = self.books.spendings.get(&(call.tenant.clone(), id.to_owned()));
            found.filter(|found| found.placed <= at)
        };
        match (reason, &call.request) {
            (
                RefusalReason::InsufficientCredits,
                MoneyRequest::Hold { account, amount, .. }
                | MoneyRequest::Charge { account, amount, .. },
            ) => self.books.spendable(account, at).is_some_and(|free| free < *amount),
            (RefusalReason::HoldClosed, MoneyRequest::Settle { hold, total }) => spending(hold)
                .and_then(|hold| hold.closed)
                .is_some_and(|(closed, taken)| closed <= at && taken != *total),
            (
                RefusalReason::NotFound,
                MoneyRequest::Settle { hold: id, .. } | MoneyRequest::Refund { of: id, .. },
            ) => spending(id).is_none(),
            (
                RefusalReason::NotFound,
                MoneyRequest::Grant { account, .. }
                | MoneyRequest::Hold { account, .. }
                | MoneyRequest::Charge { account, .. },
            ) => self.books.at(account, at).is_none(),
            (RefusalReason::RefundTooLarge, MoneyRequest::Refund { of, amount, .. }) => {
                let spent = spending(of).map_or(0, |spending| {
                    let later = spending.spent.partition_point(|(from, _)| *from <= at);
                    later.checked_sub(1).map_or(0, |index| spending.spent[index].1)
                });
                spent < *amount
            }
            _ => false,
        }
    }

    fn check_read(&self, call: &ClientCall) -> Result<(), BrokenPromise> {
        let CallOutcome::Balance { position, available, held, spendable } = call.outcome else {
            return Ok(());
        };
        let MoneyRequest::Balance { account } = &call.request else {
            return broken(WrongRead, format!("a balance for {:?}", call.request));
        };
        let before = self.known.before(call.invoked);
        let whose = format!("{account} by client {} at {position}", call.client);
        if position < before {
            return broken(StaleRead, format!("{whose}, sent after {before}"));
        }
        if position > self.journal.last {
            return broken(Lost, format!("{whose}, and the journal ends at {}", self.journal.last));
        }
        let sums = self.books.at(account, position).map(|sums| (sums.available, sums.held));
        if sums != Some((available, held))
            || self.books.spendable(account, position) != Some(spendable)
        {
            let detail = format!("{whose}: {:?}, the journal says {sums:?}", call.outcome);
            return broken(WrongRead, detail);
        }
        Ok(())
    }
}

/// Whether the answer is kept under an idempotency key.
fn stored(reason: RefusalReason) -> bool {
    match reason {
        RefusalReason::InsufficientCredits
        | RefusalReason::HoldClosed
        | RefusalReason::RefundTooLarge => true,
        RefusalReason::NotFound => false,
    }
}

fn named(change: &Operation<'_>) -> String {
    format!("{:?} of {}", change.request(), change.tenant())
}
