//! The events of a job, read from the journals of the ledger and of the cells and merged into one
//! order: by time, and within an instant by the messages between the machines.

use std::ops::RangeInclusive;

use bursar_core::cell;
use bursar_core::cell::ids::JobId;
use bursar_core::ledger::event::Event;
use bursar_core::ledger::event::subject::Subject;
use bursar_core::ledger::id::{HoldNo, JobNo};
use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_engine::{CellCodec, Codec, CodecError, LedgerCodec};
use bursar_history::HistoryError;
use bursar_journal::record::codec::FormatError;
use bursar_journal::record::directory::LineError;
use bursar_journal::{Head, Journal, JournalError, Record, RecordError};

use crate::followers::trail::bodies;

/// Why records could not be read back from a journal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadBackError {
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record has another form.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The body of a record has another form.
    #[error(transparent)]
    Body(#[from] CodecError),
    /// A value in a body has another form.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// History failed.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A group of decisions ends in the middle of one.
    #[error("a group is cut off")]
    CutOff,
    /// A line of the directory has another form.
    #[error(transparent)]
    Line(#[from] LineError),
    /// There is no record at this position.
    #[error("record {0} is not there")]
    Missing(u64),
}

/// The most steps of one timeline.
const MAX_ENTRIES: usize = 10_000;

/// One event, its position, and the positions that its machine knew of the others.
#[derive(Clone, Debug)]
pub(crate) struct Step<E> {
    /// The time of the record.
    pub at: Timestamp,
    /// The position of the record.
    pub position: u64,
    /// For each stream, the last of its records that was known then.
    pub heard: Vec<(usize, u64)>,
    /// The event.
    pub event: E,
}

/// An event of one of the machines.
#[derive(Clone, Debug)]
pub(crate) enum MachineEvent {
    /// In the ledger.
    Ledger(Box<Event>),
    /// In a cell.
    Cell(Box<cell::Event>),
}

/// The events of one machine that concern a job, oldest first.
pub(crate) type Stream = Vec<Step<MachineEvent>>;

/// The last batch without a record at or after `since`.
pub(super) fn batch_before(journal: &dyn Journal, since: Timestamp) -> Result<Head, ReadBackError> {
    let newest = journal.head()?;
    let (mut low, mut high) = (0, newest.sequence);
    while low < high {
        let middle = low + (high - low) / 2;
        let head = journal.head_at(middle)?;
        let next = journal.read(head)?.next();
        let later = match next {
            Some(batch) => {
                let batch = batch?;
                let mut first = batch.frames();
                match first.next() {
                    Some(record) => record?.time >= since,
                    None => false,
                }
            }
            None => true,
        };
        if later { high = middle } else { low = middle + 1 }
    }
    // Later records of the batch before may be of the instant itself.
    Ok(journal.head_at(low.saturating_sub(1))?)
}

type EventOf<C> = <<C as Codec>::Machine as Machine>::Event;

/// The events of one record.
fn events_of<C: Codec>(codec: &C, record: &Record<'_>) -> Result<Vec<EventOf<C>>, ReadBackError> {
    let mut events = Vec::new();
    for body in bodies(record)? {
        codec.decode(body, &mut events)?;
    }
    Ok(events)
}

/// A span of time, both ends included.
pub(crate) type Span = RangeInclusive<Timestamp>;

/// Reads the records of a span of time and passes on the events of each.
fn scan<C: Codec>(
    journal: &dyn Journal,
    codec: &C,
    span: &Span,
    mut each: impl FnMut(&Record<'_>, Vec<EventOf<C>>),
) -> Result<(), ReadBackError> {
    let from = batch_before(journal, *span.start())?;
    for batch in journal.read(from)? {
        let batch = batch?;
        for record in batch.frames() {
            let record = record?;
            if record.time > *span.end() {
                return Ok(());
            }
            let events = events_of(codec, &record)?;
            each(&record, events);
        }
    }
    Ok(())
}

/// The events of single records of the ledger's journal, in the order of `positions`.
pub(crate) fn ledger_events_at(
    journal: &dyn Journal,
    positions: &[u64],
) -> Result<Vec<(Timestamp, Event)>, ReadBackError> {
    let mut found = Vec::new();
    for position in positions {
        let before = journal.head_before(*position)?;
        let mut batches = journal.read(before)?;
        let batch = batches.next().ok_or(ReadBackError::Missing(*position))?;
        let batch = batch?;
        for record in batch.frames() {
            let record = record?;
            if record.position == *position {
                let events = events_of(&LedgerCodec, &record)?;
                found.extend(events.into_iter().map(|event| (record.time, event)));
            }
        }
    }
    Ok(found)
}

/// Collects the steps of one machine.
struct Collecting {
    heard: Vec<(usize, u64)>,
    steps: Stream,
}

impl Collecting {
    fn new() -> Collecting {
        Collecting { heard: Vec::new(), steps: Vec::new() }
    }

    fn hear(&mut self, stream: usize, position: u64) {
        match self.heard.iter_mut().find(|(of, _)| *of == stream) {
            Some(known) => known.1 = position,
            None => self.heard.push((stream, position)),
        }
    }

    fn add(&mut self, record: &Record<'_>, event: MachineEvent) {
        if self.steps.len() < MAX_ENTRIES {
            let heard = self.heard.clone();
            self.steps.push(Step { at: record.time, position: record.position, heard, event });
        }
    }
}

/// The events of a job in the ledger's journal. Streams of cells are numbered from 1, in the order
/// of their numbers.
pub(crate) fn of_ledger(
    journal: &dyn Journal,
    job: JobNo,
    span: &Span,
) -> Result<Stream, ReadBackError> {
    let mut collecting = Collecting::new();
    let mut holds: Vec<HoldNo> = Vec::new();
    scan(journal, &LedgerCodec, span, |record, events| {
        let closes = events
            .iter()
            .any(|event| matches!(event, Event::HoldClosed { hold, .. } if holds.contains(hold)));
        for event in events {
            if let Event::MessageReceived { cell, position, .. } = &event {
                collecting.hear(cell.index() + 1, *position);
            }
            if let Event::HoldPlaced(placed) = &event {
                // Another hold may have had this number before.
                holds.retain(|hold| *hold != placed.hold);
                holds.extend((placed.job == Some(job)).then_some(placed.hold));
            }
            if concerns(&event, job, &holds, closes) {
                collecting.add(record, MachineEvent::Ledger(Box::new(event)));
            }
        }
    })?;
    Ok(collecting.steps)
}

/// Whether an event of the ledger is about a job or one of its holds.
fn concerns(event: &Event, job: JobNo, holds: &[HoldNo], closes: bool) -> bool {
    match event {
        // Credits that expired while they were returned are issued again in the same record.
        Event::GrantIssued(_) => closes,
        // A revived hold is another hold: it takes a free number.
        Event::HoldRestored { .. } => false,
        _ => match event.subject() {
            Subject::Job(of) => of == job,
            Subject::Hold(hold) => holds.contains(&hold),
            Subject::Other => false,
        },
    }
}

/// The events of a job in a cell's journal.
pub(crate) fn of_cell(
    journal: &dyn Journal,
    job: JobId,
    span: &Span,
) -> Result<Stream, ReadBackError> {
    let mut collecting = Collecting::new();
    scan(journal, &CellCodec, span, |record, events| {
        for event in events {
            if let cell::Event::MessageReceived { position, .. } = &event {
                collecting.hear(0, *position);
            }
            if is_about(&event, job) {
                collecting.add(record, MachineEvent::Cell(Box::new(event)));
            }
        }
    })?;
    Ok(collecting.steps)
}

/// Whether an event of a cell is about a job.
fn is_about(event: &cell::Event, job: JobId) -> bool {
    use cell::Event as CellEvent;
    match event {
        CellEvent::JobQueued(spec) => spec.job == job,
        CellEvent::JobFunded { job: of, .. }
        | CellEvent::JobReleased { job: of }
        | CellEvent::JobHeldByGroup { job: of }
        | CellEvent::JobEnded { job: of, .. }
        | CellEvent::ReservationMade { job: of, .. }
        | CellEvent::ReservationDropped { job: of } => *of == job,
        CellEvent::PlacementProposed { attempt, .. }
        | CellEvent::PlacementConfirmed { attempt, .. }
        | CellEvent::PlacementRefused { attempt, .. }
        | CellEvent::AttemptStartedOnNode { attempt, .. }
        | CellEvent::AttemptEndedOnNode { attempt, .. }
        | CellEvent::FundingSet { attempt, .. }
        | CellEvent::FundsNeeded { attempt }
        | CellEvent::FundingEnded { attempt }
        | CellEvent::StopOrdered { attempt, .. }
        | CellEvent::CancelNoted { attempt }
        | CellEvent::KillOrdered { attempt, .. }
        | CellEvent::AttemptEnded { attempt, .. }
        | CellEvent::FenceLifted { attempt, .. } => attempt.job == job,
        CellEvent::UsageMetered { usage, .. } => {
            usage.iter().any(|(attempt, _)| attempt.job == job)
        }
        CellEvent::MessageReceived { .. }
        | CellEvent::LedgerMessageSent { .. }
        | CellEvent::Configured(_)
        | CellEvent::PriceSet { .. }
        | CellEvent::ClassSet { .. }
        | CellEvent::AccountSet(_)
        | CellEvent::NodeRegistered { .. }
        | CellEvent::NodeReported { .. }
        | CellEvent::NodeLost { .. }
        | CellEvent::NodeDrained { .. }
        | CellEvent::NodeResumed { .. }
        | CellEvent::NodeRemoved { .. }
        | CellEvent::MaintenancePlanned { .. }
        | CellEvent::MaintenanceBegan { .. }
        | CellEvent::MaintenanceEnded { .. }
        | CellEvent::RequestParked { .. }
        | CellEvent::RequestBlocked { .. }
        | CellEvent::ReservationKept { .. }
        | CellEvent::ReservationsDone { .. }
        | CellEvent::ReviewBegan
        | CellEvent::ReviewPassed { .. }
        | CellEvent::PassEnded
        | CellEvent::RequestDone { .. }
        | CellEvent::AnswerKept { .. }
        | CellEvent::RequestsForgotten { .. }
        | CellEvent::SetAside { .. }
        | CellEvent::Rewound { .. }
        | CellEvent::NodeCleared { .. } => false,
    }
}

/// Merges all streams into one order. No event comes before one that its machine knew of. Otherwise
/// the earlier instant is first, and the ledger before the cells.
pub(crate) fn merge<E>(streams: Vec<Vec<Step<E>>>) -> Vec<(usize, Step<E>)> {
    let mut queues: Vec<std::collections::VecDeque<Step<E>>> =
        streams.into_iter().map(Into::into).collect();
    let mut merged = Vec::new();
    loop {
        let fronts = queues.iter().enumerate();
        let fronts = fronts.filter_map(|(stream, queue)| Some((stream, queue.front()?)));
        let ready = |step: &Step<E>| {
            step.heard.iter().all(|(of, position)| {
                let waiting = queues.get(*of).and_then(|queue| queue.front());
                waiting.is_none_or(|waiting| waiting.position > *position)
            })
        };
        // Messages never form a cycle, so the first step of one queue is ready. If a journal
        // contradicts this, time decides.
        let key = |(stream, step): &(usize, &Step<E>)| (!ready(step), step.at, *stream);
        let Some((stream, _)) = fronts.min_by_key(key) else { return merged };
        let step = queues[stream].pop_front().expect("it was just looked at");
        merged.push((stream, step));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(
        at: i64,
        position: u64,
        heard: &[(usize, u64)],
        event: &'static str,
    ) -> Step<&'static str> {
        Step { at: Timestamp::from_millis(at), position, heard: heard.to_vec(), event }
    }

    #[test]
    fn within_one_instant_steps_follow_the_messages() {
        let ledger = vec![
            step(5, 10, &[], "submitted"),
            step(5, 11, &[(1, 4)], "confirmed"),
            step(9, 14, &[(1, 8)], "ended"),
        ];
        let cell = vec![
            step(5, 3, &[(0, 10)], "queued"),
            step(5, 4, &[(0, 10)], "proposed"),
            step(5, 5, &[(0, 11)], "ordered"),
            step(9, 8, &[(0, 11)], "finished"),
        ];
        let order: Vec<&str> = merge(vec![ledger, cell]).iter().map(|(_, s)| s.event).collect();
        assert_eq!(
            order,
            ["submitted", "queued", "proposed", "confirmed", "ordered", "finished", "ended"]
        );
    }
}
