//! Projects events to rows.

mod accounts;
mod cache;
mod events;
mod follow;
mod grants;
mod holds;
mod jobs;
mod levels;
mod live;
mod movements;
mod numbered_holds;
mod spend;
mod usage;

use bursar_core::ledger::id::{JobNo, Name};
use bursar_core::name::MovementId;
use bursar_core::time::Timestamp;
use bursar_journal::record::ledger::{LedgerBody, Outcome, event_name};
use smallvec::SmallVec;

use crate::database::{Columns, Database};
use crate::entry::EntryType;
use crate::error::HistoryError;
use crate::lists::{ListOf, decision};
pub(crate) use accounts::{Totals, decode_rest};
use cache::Cache;
use live::HoldNumbers;
pub(crate) use movements::decode_pieces;
pub(crate) use numbered_holds::{decode_holds, encode_holds};
pub(crate) use spend::Purpose;
pub(crate) use usage::{Usage, hour_of};

/// The maximum number of records whose rows are not written yet: enough that rows which change in
/// several of them are written once, few enough that a reader waits only a few milliseconds for the
/// last of them.
const MAX_UNWRITTEN: u64 = 4096;

/// One record to apply.
#[derive(Copy, Clone, Debug)]
pub struct FedRecord<'a> {
    /// Its position in the journal.
    pub position: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The commands with their events: none for a barrier, several for a group.
    pub bodies: &'a [LedgerBody],
}

/// A history, to apply records and to run queries.
pub struct History<D> {
    pub(crate) database: D,
    cache: Cache,
    /// Whether there are records that are not committed yet.
    begun: bool,
}

/// A decision while it is applied.
pub(crate) struct Step {
    position: u64,
    item: u32,
    at: Timestamp,
    /// The accounts that it concerns.
    touched: SmallSet<u32>,
    /// The jobs that it concerns.
    jobs: SmallSet<JobNo>,
    /// For each event that names a hold by its number only, the number of that hold in history.
    holds: SmallVec<[i64; 2]>,
    /// The transfer whose new grants follow.
    transfer: Option<MovementId>,
}

/// A small set of distinct values, in order of insertion.
#[derive(Default)]
struct SmallSet<T>(SmallVec<[T; 4]>);

impl<T: PartialEq> SmallSet<T> {
    /// Adds a value. Returns whether it is new.
    fn insert(&mut self, thing: T) -> bool {
        let new = !self.0.contains(&thing);
        if new {
            self.0.push(thing);
        }
        new
    }

    fn extend(&mut self, things: impl IntoIterator<Item = T>) {
        for thing in things {
            self.insert(thing);
        }
    }
}

/// One movement to enter.
pub(crate) struct Movement<'a> {
    account: u32,
    kind: EntryType,
    amount: i128,
    grant: Option<u32>,
    hold: Option<HoldNumbers>,
    spender: Option<u32>,
    name: Option<&'a str>,
}

impl<D: Database> History<D> {
    /// A history in this store.
    pub fn new(database: D) -> History<D> {
        History { database, cache: Cache::default(), begun: false }
    }

    /// The last committed record, 0 before the first.
    pub fn position(&self) -> Result<u64, HistoryError> {
        let rows = self.database.query("SELECT position FROM progress WHERE only = 1", &[])?;
        let row = rows.into_iter().next().ok_or_else(no_progress)?;
        Columns::of(row).integer().map(i64::cast_unsigned)
    }

    /// The time of the last committed record.
    pub fn reached(&self) -> Result<Timestamp, HistoryError> {
        let rows = self.database.query("SELECT at FROM progress WHERE only = 1", &[])?;
        let row = rows.into_iter().next().ok_or_else(no_progress)?;
        Columns::of(row).integer().map(Timestamp::from_millis)
    }

    /// Applies records in one transaction and returns the new position. Records that are already
    /// applied are skipped.
    ///
    /// # Errors
    /// After any error nothing has changed since the last [`keep`](Self::keep), and feeding can be
    /// retried.
    pub fn apply(&mut self, records: &[FedRecord<'_>]) -> Result<u64, HistoryError> {
        self.take_in(|history| records.iter().try_for_each(|record| history.apply_record(record)))?;
        self.keep()
    }

    /// Commits everything applied so far and returns the position. Until then only this history
    /// sees it. Rows and pages that change several times are written once.
    ///
    /// # Errors
    /// As for [`apply`](Self::apply).
    pub fn keep(&mut self) -> Result<u64, HistoryError> {
        if !self.begun {
            return self.position();
        }
        self.roll_back_on_error(|history| {
            history.flush()?;
            history.cache.trim();
            history.database.commit()?;
            history.begun = false;
            Ok(history.cache.progress.position)
        })
    }

    /// Runs `work` on records without a commit. Rows that change several times are written once.
    fn take_in(
        &mut self,
        work: impl FnOnce(&mut History<D>) -> Result<(), HistoryError>,
    ) -> Result<u64, HistoryError> {
        self.roll_back_on_error(|history| {
            if !history.begun {
                history.database.begin()?;
                history.begun = true;
                history.load_progress()?;
            }
            work(history)?;
            let position = history.cache.progress.position;
            if position >= history.cache.written + MAX_UNWRITTEN {
                history.flush()?;
                history.cache.trim();
            }
            Ok(position)
        })
    }

    fn roll_back_on_error<T>(
        &mut self,
        work: impl FnOnce(&mut History<D>) -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        let done = work(self);
        if done.is_err() {
            self.cache = Cache::default();
            self.begun = false;
            // The first error is returned. If the rollback fails, the transaction ends with the
            // connection.
            let _ = self.database.rollback();
        }
        done
    }

    /// Applies one record, unless it is already applied.
    fn apply_record(&mut self, record: &FedRecord<'_>) -> Result<(), HistoryError> {
        let applied = self.cache.progress.position;
        if record.position <= applied {
            return Ok(());
        }
        if record.position != applied + 1 {
            return Err(HistoryError::Gap { applied, fed: record.position });
        }
        for (item, body) in (0..).zip(record.bodies) {
            let (touched, jobs) = (SmallSet::default(), SmallSet::default());
            let (position, at) = (record.position, record.at);
            let (holds, transfer) = (SmallVec::new(), None);
            let mut step = Step { position, item, at, touched, jobs, holds, transfer };
            for event in &body.events {
                self.apply_event(&mut step, event)?;
                if let Some(hold) = event.subject().hold() {
                    step.holds.push(self.live_hold(hold.0)?.hold);
                }
            }
            self.record(&step, body)?;
        }
        self.cache.progress.position = record.position;
        self.cache.progress.at = self.cache.progress.at.max(record.at);
        Ok(())
    }

    /// Accounts and all their ancestors: a decision concerns the whole path.
    fn with_ancestors(&mut self, touched: &SmallSet<u32>) -> Result<SmallSet<u32>, HistoryError> {
        let mut all = SmallSet::default();
        for account in &touched.0 {
            let mut next = Some(*account);
            while let Some(account) = next.filter(|account| all.insert(*account)) {
                next = self.account(account)?.parent;
            }
        }
        Ok(all)
    }

    /// Records the actor, the command and the outcome.
    fn record(&mut self, step: &Step, body: &LedgerBody) -> Result<(), HistoryError> {
        let header = body.header.as_ref();
        let refusal = header.and_then(|header| match header.outcome {
            Outcome::Accepted => None,
            Outcome::Refused(code) => Some(code as u32),
        });
        let mut events = Name::default();
        for event in &body.events {
            events.push_str(if events.is_empty() { "" } else { " " });
            events.push_str(event_name(event));
        }
        let number = decision(step.position, step.item);
        let row = [
            step.at.millis().into(),
            header.map(|header| header.actor.as_str()).into(),
            header.map(|header| header.command as u32).into(),
            refusal.into(),
            events.into(),
            encode_holds(&step.holds),
        ];
        self.cache.decisions.push(number, row);
        for account in self.with_ancestors(&step.touched)?.0 {
            self.cache.lists.push_decision(account, number);
        }
        for job in &step.jobs.0 {
            self.database.execute(
                "INSERT INTO record_jobs VALUES (?1, ?2, ?3)",
                &[job.0.cast_signed().into(), step.position.cast_signed().into(), step.item.into()],
            )?;
        }
        Ok(())
    }

    /// Enters one movement and updates the balance of its account.
    fn enter(&mut self, step: &mut Step, movement: &Movement<'_>) -> Result<(), HistoryError> {
        let Movement { account, kind, amount, grant, hold, spender, name } = *movement;
        step.touched.insert(account);
        step.touched.extend(spender);
        let (available, held) = kind.effect();
        let own = self.account(account)?;
        own.state.available += available * amount;
        own.state.held += held * amount;
        own.dirty = true;
        let (available, held) = (own.state.available, own.state.held);
        if available < 0 || held < 0 {
            return Err(HistoryError::inconsistent(format!("account {account} went below zero")));
        }
        self.count_funds(step.at, account, kind, amount)?;
        self.cache.progress.entries += 1;
        let entry = self.cache.progress.entries;
        let lists = &mut self.cache.lists;
        match spender {
            None => lists.push(ListOf::Unspent(account), entry),
            Some(spender) if spender == account => {
                lists.push_own(account, decision(step.position, step.item), entry);
            }
            Some(spender) => {
                lists.push(ListOf::SpentByOthers(account), entry);
                lists.push(ListOf::SpentOfOthers(spender), entry);
            }
        }
        if let Some(hold) = hold {
            self.note_entry(hold, entry)?;
        }
        let row = [
            step.position.cast_signed().into(),
            step.at.millis().into(),
            account.into(),
            (kind as u32).into(),
            amount.into(),
            grant.into(),
            hold.map(|hold| hold.here).into(),
            spender.into(),
            name.into(),
            available.into(),
            held.into(),
        ];
        self.cache.entries.push(entry, row);
        Ok(())
    }
}

fn no_progress() -> HistoryError {
    HistoryError::inconsistent("the progress row is missing")
}
