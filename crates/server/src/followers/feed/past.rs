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

use super::describe::{Names, describe};
use super::{Feed, Place};
use crate::app::App;
use crate::followers::timeline::ReadBackError;
use crate::request::Failure;
use crate::telemetry::monotonic::Stopwatch;

/// The most records that are read at once.
const MAX_RECORDS: u64 = 512;
/// Reading stops with the record that reaches this number of events. A slow reader keeps them until
/// they are sent.
const MAX_EVENTS: usize = 64;
/// Of one record with many events so many are read at once.
const MAX_EVENTS_OF_RECORD: usize = 256;

/// Some of the events after a place.
#[derive(Debug, PartialEq)]
pub struct PastEvents {
    /// The events, oldest first.
    pub events: Vec<(Place, FeedEvent)>,
    /// The place up to which everything was read.
    pub reached: Place,
}

impl App {
    /// Reads some of the events after a place and up to a position that the caller may see. A few such
    /// reads run at once, of one tenant one; others wait for their turn. No thread waits for the caller.
    pub async fn past_events(
        self: &Arc<App>,
        tenant: u64,
        (place, until): (Place, u64),
        sees: impl Fn(&FeedEvent) -> bool + Send + 'static,
    ) -> Result<PastEvents, Failure> {
        let internal = |detail: String| Failure::new(Code::Internal, detail);
        let turn = self.feed.past_readings.take_for(tenant).await?;
        let until = place.0.saturating_add(MAX_RECORDS).min(until);
        let app = Arc::clone(self);
        // The turn is of the reading, which goes on when its caller goes away.
        let read = move |history: &History<Sqlite>| {
            let reading = Stopwatch::start();
            let past = app.feed.read_past(history, place, until, &sees);
            turn.end_after(reading.elapsed());
            Ok(past)
        };
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
        sees: &dyn Fn(&FeedEvent) -> bool,
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
                let mut rendered = self.render_past(history, &record, &bodies, place, sees)?;
                if rendered.len() > MAX_EVENTS_OF_RECORD {
                    // The rest of the record is read next time.
                    rendered.truncate(MAX_EVENTS_OF_RECORD);
                    past.events.append(&mut rendered);
                    past.reached = past.events.last().map_or(past.reached, |(place, _)| *place);
                    return Ok(past);
                }
                past.events.append(&mut rendered);
            }
        }
        Ok(past)
    }

    /// Renders the events of one record that lie after a place, as many as are read at once and one
    /// more.
    fn render_past(
        &self,
        history: &History<Sqlite>,
        record: &Record<'_>,
        bodies: &[LedgerBody],
        place: Place,
        sees: &dyn Fn(&FeedEvent) -> bool,
    ) -> Result<Vec<(Place, FeedEvent)>, ReadBackError> {
        let mut described = Vec::new();
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
                if at <= place || described.len() > MAX_EVENTS_OF_RECORD {
                    continue;
                }
                let names = PastNames { feed: self, history, hold, failed: RefCell::default() };
                let event = describe(&names, record, at, event);
                if let Some(failed) = names.failed.into_inner() {
                    return Err(failed.into());
                }
                described.extend(event.filter(sees).map(|event| (at, event)));
            }
        }
        Ok(described)
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

#[cfg(test)]
mod tests {
    use bursar_core::ledger::Envelope;
    use bursar_core::ledger::command::{AccountKind, AccountSettings, Command};
    use bursar_engine::{Engine, EngineOptions, LedgerCodec, WallClock};
    use bursar_journal::memory::MemoryJournal;
    use bursar_journal::{Journal, JournalId};

    use super::*;
    use crate::followers::history::HistoryService;

    fn open(number: u32) -> Command {
        let (path, kind) = (format!("org-{number}").into(), AccountKind::Org);
        Command::OpenAccount { path, kind, settings: AccountSettings::default() }
    }

    /// Reads everything step by step: the events that `sees` admits, and the number of steps.
    async fn read_all(
        (feed, history): (&Arc<Feed>, &HistoryService),
        position: u64,
        sees: fn(&FeedEvent) -> bool,
    ) -> (Vec<Place>, usize) {
        let (mut place, mut places, mut steps): (Place, _, _) = ((0, u32::MAX), Vec::new(), 0);
        while place < (position, u32::MAX) {
            let (reader, until) = (Arc::clone(feed), (place.0 + MAX_RECORDS).min(position));
            let read =
                move |history: &History<Sqlite>| Ok(reader.read_past(history, place, until, &sees));
            let asked = history.ask(until, read).await.map_err(|failure| failure.problem.detail);
            let past = asked.expect("history is fed").0.expect("the journal is whole");
            assert!(past.reached > place, "every step goes on");
            assert!(past.events.len() < MAX_EVENTS + MAX_EVENTS_OF_RECORD, "{}", past.events.len());
            places.extend(past.events.iter().map(|(place, _)| *place));
            place = past.reached;
            steps += 1;
        }
        (places, steps)
    }

    #[tokio::test]
    async fn old_events_are_read_in_small_steps_also_within_a_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let journal: Arc<dyn Journal> = Arc::new(MemoryJournal::new(JournalId([7; 16])));
        let (options, clock) = (EngineOptions::default(), Arc::new(WallClock::new()));
        let observer = options.observer.clone();
        let engine = Engine::start(Arc::clone(&journal), Arc::new(LedgerCodec), clock, options);
        let handle = engine.handle();
        for number in 0..700 {
            let seen = handle.execute(Envelope::default(), open(number)).expect("it serves");
            seen.value.expect("a new account");
        }
        let group = (1000..1700).map(|number| (Envelope::default(), open(number))).collect();
        let position = handle.execute_group(group).expect("it serves").position;
        let journals = (Arc::clone(&journal), Arc::clone(&journal));
        let path = folder.path().join("history.db");
        let history = HistoryService::start(journals, engine.durable(), &path).expect("a new file");
        let feed = Feed::start(journal, &engine, u64::MAX, observer).expect("a feed");
        let feed = Arc::new(feed);
        let mut reached = feed.reached();
        reached.wait_for(|reached| *reached >= position).await.expect("it follows");
        let (places, steps) = read_all((&feed, &history), position, |_| true).await;
        assert!(places.is_sorted_by(|one, next| one < next), "each once, in order");
        assert_eq!(places.len(), 1400);
        assert!(steps >= 700 / MAX_EVENTS + 700 / MAX_EVENTS_OF_RECORD, "{steps}");
        let last = |event: &FeedEvent| event.account.as_deref() == Some("org-1699");
        let (places, steps) = read_all((&feed, &history), position, last).await;
        assert_eq!((places.len(), steps), (1, 2), "events of others are not kept");
    }
}
