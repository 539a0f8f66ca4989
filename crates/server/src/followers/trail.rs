//! The decisions of a cell or of the directory, read back from its journal, newest first.
//!
//! History has those of the ledger. A cell decides far more often than it is audited, so nothing is
//! kept of it beside its journal: a list reads the newest batches, and says where it stopped.

use bursar_api::system::audit::{AuditSubject, AuditSubjectType};
use bursar_core::cell::NodeKey;
use bursar_core::cell::ids::JobId;
use bursar_core::cell::nodes::node::NodeId;
use bursar_core::name::{AccountPath, KeyId};
use bursar_core::time::Timestamp;
use bursar_core::{cell, directory};
use bursar_journal::record::cell::{Author, CellOutcome, event_name as cell_event_name};
use bursar_journal::record::directory::event_name as directory_event_name;
use bursar_journal::record::{
    cell as stored_cell, directory as stored_directory, ledger as stored_ledger,
};
use bursar_journal::{Head, Journal, Record, RecordKind};
use compact_str::CompactString;

use crate::followers::timeline::{ReadBackError, batch_before};

/// The most records that are read for one answer.
const MAX_READ: u64 = 20_000;
/// The batches that are read at once, backwards.
const BATCHES_PER_READ: u64 = 256;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrailEntry {
    /// The position of its record.
    pub position: u64,
    /// Its place in the record.
    pub item: u32,
    /// When it was made.
    pub at: Timestamp,
    /// The key or component that sent the command; `None` for a timer.
    pub actor: Option<String>,
    /// The name of the command; `None` for a timer and in the directory.
    pub command: Option<&'static str>,
    /// Whether it was refused.
    pub is_refused: bool,
    /// The id of the request; zero if it is not known.
    pub request: u128,
    /// The names of the events, in order.
    pub events: Vec<&'static str>,
    /// What it is about.
    pub about: Vec<About>,
}

/// Something that a decision is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// A job, by its number.
    Job(JobId),
    /// A node, by its number, which is used again once the node is removed.
    Node(NodeId),
    /// A node by its full name, from an operator's command.
    NodeNamed(CompactString),
    /// Something by its name, and the account that it belongs to; `None`: to the platform.
    Named(AuditSubject, Option<AccountPath>),
    /// The platform, and nothing that has a name.
    Platform,
}

/// Which machine's decisions are read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrailOf {
    /// A cell.
    Cell,
    /// The directory.
    Directory,
}

/// Which part of a journal.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TrailSpan {
    /// Only what comes before this record and item.
    pub before: Option<TrailPlace>,
    /// Only records after this position.
    pub after: u64,
}

/// Where an entry is: the position of its record, and the item within it.
type TrailPlace = (u64, u32);

/// Reads the newest decisions of a span that `choose` accepts, at most `limit`. It gets them in
/// order, the newest first, and returns those that are meant. The second part says where to continue, if
/// there may be more.
pub(crate) fn newest<T>(
    journal: &dyn Journal,
    of: TrailOf,
    span: TrailSpan,
    limit: usize,
    mut choose: impl FnMut(Vec<TrailEntry>) -> Vec<(TrailPlace, T)>,
) -> Result<(Vec<T>, Option<TrailPlace>), ReadBackError> {
    let head = journal.head()?;
    let mut last = match span.before {
        None => head.sequence,
        Some((position, _)) => (journal.head_before(position)?.sequence + 1).min(head.sequence),
    };
    let (mut found, mut read) = (Vec::new(), 0);
    while last > 0 {
        let start = journal.head_at(last.saturating_sub(BATCHES_PER_READ))?;
        let (entries, records) = entries_of(journal, of, (start, last), span)?;
        read += records;
        let mut chosen = choose(entries).into_iter();
        for (place, one) in chosen.by_ref() {
            found.push(one);
            if found.len() == limit {
                let is_first = place.0 <= span.after.saturating_add(1) && place.1 == 0;
                return Ok((found, Some(place).filter(|_| !is_first)));
            }
        }
        if start.position <= span.after {
            return Ok((found, None));
        }
        if read >= MAX_READ {
            return Ok((found, Some((start.position + 1, 0))));
        }
        last = start.sequence;
    }
    Ok((found, None))
}

/// The decisions of some batches within a span, newest first, and how many records were read.
fn entries_of(
    journal: &dyn Journal,
    of: TrailOf,
    (start, last): (Head, u64),
    span: TrailSpan,
) -> Result<(Vec<TrailEntry>, u64), ReadBackError> {
    let (mut entries, mut records) = (Vec::new(), 0);
    for batch in journal.read(start)? {
        let batch = batch?;
        if batch.sequence > last {
            break;
        }
        for record in batch.frames() {
            let record = record?;
            records += 1;
            if record.position <= span.after {
                continue;
            }
            if span.before.is_some_and(|(position, _)| record.position > position) {
                break;
            }
            for (item, body) in (0u32..).zip(bodies(&record)?) {
                let place = (record.position, item);
                if span.before.is_none_or(|before| place < before) {
                    entries.push(entry(of, place, record.time, body)?);
                }
            }
        }
    }
    entries.reverse();
    Ok((entries, records))
}

/// The records of the ledger that a request made, oldest first. Older journals do not name requests: there
/// `is_exact` is false, and the records are those of commands that were decided in the span.
pub(crate) struct RequestRecords {
    /// The positions.
    pub positions: Vec<u64>,
    /// Whether the records name the request.
    pub is_exact: bool,
}

/// Looks for the records of a request in a span of time, in at most so many records.
pub(crate) fn ledger_records_of(
    journal: &dyn Journal,
    request: u128,
    (from, to): (Timestamp, Timestamp),
    limit: usize,
) -> Result<RequestRecords, ReadBackError> {
    use stored_ledger::CommandKind as Kind;
    let (mut exact, mut unnamed, mut read) = (Vec::new(), Vec::new(), 0);
    'journal: for batch in journal.read(batch_before(journal, from)?)? {
        for record in batch?.frames() {
            let record = record?;
            read += 1;
            if record.time > to || read > MAX_READ || exact.len() == limit {
                break 'journal;
            }
            if record.time < from {
                continue;
            }
            for body in bodies(&record)? {
                let Some(header) = stored_ledger::decode_body(body)?.header else { continue };
                let by_server = matches!(header.command, Kind::Receive | Kind::Forget);
                if header.request == request {
                    exact.push(record.position);
                } else if header.request == 0 && !by_server && unnamed.len() < limit {
                    unnamed.push(record.position);
                }
            }
        }
    }
    let is_exact = !exact.is_empty();
    let mut positions = if is_exact { exact } else { unnamed };
    positions.dedup();
    Ok(RequestRecords { positions, is_exact })
}

/// Looks for the records of a request in the directory, newest first.
pub(crate) fn directory_records_of(
    journal: &dyn Journal,
    request: u128,
    limit: usize,
) -> Result<Vec<TrailEntry>, ReadBackError> {
    let span = TrailSpan { before: None, after: 0 };
    let (found, _) = newest(journal, TrailOf::Directory, span, limit, |entries| {
        let meant = entries.into_iter().filter(|entry| entry.request == request);
        meant.map(|entry| ((entry.position, entry.item), entry)).collect()
    })?;
    Ok(found)
}

/// The bodies of the decisions of a record.
pub(crate) fn bodies<'a>(record: &Record<'a>) -> Result<Vec<&'a [u8]>, ReadBackError> {
    match record.kind {
        RecordKind::Barrier => Ok(Vec::new()),
        RecordKind::Decision | RecordKind::Due => Ok(vec![record.body]),
        RecordKind::Group => {
            let (mut found, mut rest) = (Vec::new(), record.body);
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
                let (one, after) = after.split_at_checked(length).ok_or(ReadBackError::CutOff)?;
                found.push(one);
                rest = after;
            }
            Ok(found)
        }
    }
}

fn entry(
    of: TrailOf,
    (position, item): (u64, u32),
    at: Timestamp,
    body: &[u8],
) -> Result<TrailEntry, ReadBackError> {
    match of {
        TrailOf::Cell => {
            let decoded = stored_cell::decode_body(body)?;
            let header = decoded.header.as_ref();
            let named = header.and_then(|header| header.node.clone()).map(About::NodeNamed);
            let by_name = named.is_some();
            let mut about: Vec<About> = named.into_iter().collect();
            decoded.events.iter().for_each(|event| of_cell(event, &mut about));
            // The name says it better than the number.
            about.retain(|one| !(by_name && matches!(one, About::Node(_))));
            Ok(TrailEntry {
                position,
                item,
                at,
                actor: header.map(|header| match &header.author {
                    Author::Actor(actor) => actor.to_string(),
                    Author::Ledger { shard } => format!("ledger-{shard}"),
                }),
                command: header.map(|header| header.command.name()),
                is_refused: header.is_some_and(|header| header.outcome == CellOutcome::Refused),
                request: 0,
                events: decoded.events.iter().map(cell_event_name).collect(),
                about,
            })
        }
        TrailOf::Directory => {
            let mut events = Vec::new();
            let header = stored_directory::decode_body_into(body, &mut events)?;
            let mut about = Vec::new();
            events.iter().for_each(|event| of_directory(event, &mut about));
            Ok(TrailEntry {
                position,
                item,
                at,
                actor: header.actor,
                command: None,
                is_refused: false,
                request: header.request,
                events: events.iter().map(directory_event_name).collect(),
                about,
            })
        }
    }
}

fn named(kind: AuditSubjectType, id: &impl ToString, owner: Option<&AccountPath>) -> About {
    About::Named(AuditSubject { kind, id: id.to_string() }, owner.cloned())
}

/// Adds something once. Neighbours are compared: a decision has many events of one thing in a row.
fn add(about: &mut Vec<About>, one: About) {
    if about.last() != Some(&one) {
        about.push(one);
    }
}

/// What an event of a cell is about. Attempts are about their job, not about the nodes of others.
fn of_cell(event: &cell::Event, about: &mut Vec<About>) {
    use cell::Event as CellEvent;
    match event {
        CellEvent::JobQueued(spec) => add(about, About::Job(spec.job)),
        CellEvent::JobFunded { job, .. }
        | CellEvent::JobReleased { job }
        | CellEvent::JobHeldByGroup { job }
        | CellEvent::JobEnded { job, .. }
        | CellEvent::ReservationMade { job, .. }
        | CellEvent::ReservationKept { job }
        | CellEvent::ReservationDropped { job } => add(about, About::Job(*job)),
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
        | CellEvent::FenceLifted { attempt, .. } => add(about, About::Job(attempt.job)),
        CellEvent::UsageMetered { node, usage } => {
            add(about, About::Node(*node));
            usage.iter().for_each(|(attempt, _)| add(about, About::Job(attempt.job)));
        }
        CellEvent::NodeRegistered { offer, .. } => {
            let id = NodeKey::of(offer).full();
            add(about, named(AuditSubjectType::Node, &id, offer.scope.as_ref()));
        }
        CellEvent::NodeReported { node, .. }
        | CellEvent::NodeLost { node }
        | CellEvent::NodeDrained { node }
        | CellEvent::NodeResumed { node }
        | CellEvent::NodeRemoved { node }
        | CellEvent::NodeCleared { node } => add(about, About::Node(*node)),
        CellEvent::PriceSet { model, .. } => {
            add(about, named(AuditSubjectType::Price, model, None))
        }
        CellEvent::ClassSet { class, .. } => {
            add(about, named(AuditSubjectType::Class, class, None))
        }
        CellEvent::AccountSet(policy) => {
            add(about, named(AuditSubjectType::Account, &policy.path, Some(&policy.path)));
        }
        CellEvent::Configured(_)
        | CellEvent::MaintenancePlanned { .. }
        | CellEvent::MaintenanceBegan { .. }
        | CellEvent::MaintenanceEnded { .. }
        | CellEvent::SetAside { .. }
        | CellEvent::Rewound { .. } => add(about, About::Platform),
        CellEvent::MessageReceived { .. }
        | CellEvent::LedgerMessageSent { .. }
        | CellEvent::RequestParked { .. }
        | CellEvent::RequestBlocked { .. }
        | CellEvent::ReservationsDone { .. }
        | CellEvent::ReviewBegan
        | CellEvent::ReviewPassed { .. }
        | CellEvent::PassEnded
        | CellEvent::RequestDone { .. }
        | CellEvent::AnswerKept { .. }
        | CellEvent::RequestsForgotten { .. } => {}
    }
}

/// What an event of the directory is about.
fn of_directory(event: &directory::Event, about: &mut Vec<About>) {
    use AuditSubjectType as Kind;
    use directory::Event as DirectoryEvent;
    let key = |id: &KeyId, owner: Option<&AccountPath>| named(Kind::Key, id, owner);
    match event {
        DirectoryEvent::KeyCreated { id, key: terms } => add(about, key(id, terms.scope.as_ref())),
        DirectoryEvent::KeyRevoked { id, tenant, .. } => {
            let owner =
                tenant.as_ref().filter(|tenant| tenant.as_str() != directory::event::PLATFORM_KEYS);
            add(about, key(id, owner));
        }
        DirectoryEvent::RegionAdded { region } => add(about, named(Kind::Region, region, None)),
        DirectoryEvent::OrgAssigned { org, .. } => add(about, named(Kind::Account, org, None)),
        DirectoryEvent::PriceSet { gpu_type, .. } => add(about, named(Kind::Price, gpu_type, None)),
        DirectoryEvent::ClassSet { name, .. } => add(about, named(Kind::Class, name, None)),
        DirectoryEvent::QuotaSet { account, .. } | DirectoryEvent::QuotaRemoved { account, .. } => {
            add(about, named(Kind::Account, account, Some(account)));
        }
        DirectoryEvent::ClockNoted
        | DirectoryEvent::AttemptSecretSet { .. }
        | DirectoryEvent::ShardSet { .. } => add(about, About::Platform),
        DirectoryEvent::Answered { .. } | DirectoryEvent::AnswersForgotten { .. } => {}
    }
}
