//! Old events, a few records at a time: the journal has the events, and history resolves the
//! numbers in them. Memory and time depend on the records read, never on how many precede them.

use std::cell::RefCell;
use std::sync::Arc;

use bursar_api::Code;
use bursar_api::system::audit::FeedEvent;
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo, JobNo};
use bursar_history::query::Named;
use bursar_history::{History, HistoryError, Sqlite};
use bursar_journal::Record;
use bursar_journal::record::ledger::{LedgerBody, decode_record};

use super::describe::{Names, tell};
use super::{Feed, Place};
use crate::app::App;
use crate::followers::timeline::ReadBackError;
use crate::request::Failure;

/// The most records that are read at once. The first is always read whole.
const MAX_RECORDS: u64 = 512;
/// Reading stops with the record that reaches this number of events.
const MAX_EVENTS: usize = 1024;

/// Some of the events after a place.
#[derive(Debug, PartialEq)]
pub struct PastEvents {
    /// The events, oldest first.
    pub events: Vec<(Place, FeedEvent)>,
    /// The place up to which everything was read.
    pub reached: Place,
}

impl App {
    /// Reads some of the events after a place and up to a position. A few such reads run at once;
    /// others wait for their turn. No thread waits for the caller.
    pub async fn past_events(
        self: &Arc<App>,
        place: Place,
        until: u64,
    ) -> Result<PastEvents, Failure> {
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        let turn = self.feed.past_readings.acquire().await;
        let _turn = turn.map_err(|error| internal(error.to_string()))?;
        let until = place.0.saturating_add(MAX_RECORDS).min(until);
        let app = Arc::clone(self);
        let read = move |history: &History<Sqlite>| Ok(app.feed.read_past(history, place, until));
        let (past, _) = self.history.ask(until, read).await?;
        past.map_err(|error| internal(error.to_string()))
    }
}

impl Feed {
    /// Reads events after a place up to a position that history has. Blocks.
    fn read_past(
        &self,
        history: &History<Sqlite>,
        place: Place,
        until: u64,
    ) -> Result<PastEvents, ReadBackError> {
        let mut past = PastEvents { events: Vec::new(), reached: (until, u32::MAX) };
        let first = place.0.max(1);
        let before = self.journal.head_before(first)?;
        for batch in self.journal.read(before)? {
            let batch = batch?;
            for record in batch.frames() {
                let record = record?;
                if record.position > until {
                    return Ok(past);
                }
                if record.position < first {
                    continue;
                }
                if past.events.len() >= MAX_EVENTS {
                    past.reached = (record.position - 1, u32::MAX);
                    return Ok(past);
                }
                let bodies = decode_record(record.kind, record.body)?;
                self.tell_past(history, &record, &bodies, place, &mut past.events)?;
            }
        }
        Ok(past)
    }

    /// Renders the events of one record that lie after a place.
    fn tell_past(
        &self,
        history: &History<Sqlite>,
        record: &Record<'_>,
        bodies: &[LedgerBody],
        place: Place,
        described: &mut Vec<(Place, FeedEvent)>,
    ) -> Result<(), ReadBackError> {
        let with_holds =
            |body: &LedgerBody| body.events.iter().any(|e| e.subject().hold().is_some());
        let decided: Vec<(u64, u32)> = (0..)
            .zip(bodies)
            .filter(|(_, body)| with_holds(body))
            .map(|(item, _)| (record.position, item))
            .collect();
        let mut holds = history.holds_of(&decided)?.into_iter();
        let mut number = 0;
        for body in bodies {
            let own = if with_holds(body) { holds.next().unwrap_or_default() } else { Vec::new() };
            let mut own = own.into_iter();
            for event in &body.events {
                let hold = event.subject().hold().and_then(|_| own.next());
                let at = (record.position, number);
                number += 1;
                if at <= place {
                    continue;
                }
                let names = PastNames { feed: self, history, hold, failed: RefCell::default() };
                let event = tell(&names, record, at, event);
                if let Some(failed) = names.failed.into_inner() {
                    return Err(failed.into());
                }
                described.extend(event.map(|event| (at, event)));
            }
        }
        Ok(())
    }
}

/// Resolves the numbers in an old event.
struct PastNames<'a> {
    /// Numbers of accounts, grants and buckets are never reused, so the copy knows them.
    feed: &'a Feed,
    history: &'a History<Sqlite>,
    /// The hold of this event.
    hold: Option<Named>,
    failed: RefCell<Option<HistoryError>>,
}

fn named(named: Named) -> (AccountNo, String) {
    (AccountNo(named.account), named.name)
}

impl Names for PastNames<'_> {
    fn account(&self, account: AccountNo) -> String {
        self.feed.look(|ledger| Names::account(ledger, account)).value
    }

    fn grant(&self, grant: GrantNo) -> (AccountNo, String) {
        self.feed.look(|ledger| Names::grant(ledger, grant)).value
    }

    fn bucket(&self, bucket: BucketNo) -> AccountNo {
        self.feed.look(|ledger| Names::bucket(ledger, bucket)).value
    }

    fn hold(&self, _: HoldNo) -> Option<(AccountNo, String)> {
        self.hold.clone().map(named)
    }

    fn job(&self, job: JobNo) -> Option<(AccountNo, String)> {
        if let Some(known) = self.feed.look(|ledger| Names::job(ledger, job)).value {
            return Some(known);
        }
        match self.history.named_job(job) {
            Ok(found) => found.map(named),
            Err(error) => {
                *self.failed.borrow_mut() = Some(error);
                None
            }
        }
    }
}
