//! One connection, and the task that keeps the appends on it in order.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Socket, Statement};

use super::address::{Address, hosts};
use super::{PIPELINE_DEPTH, PostgresOptions, tls};
use crate::chain::{Epoch, Head};
use crate::error::{AppendError, JournalError};
use crate::journal::Pending;
use crate::record::Batch;

/// A number as PostgreSQL stores it: all 64 bits, in two's complement.
pub(super) fn stored(number: u64) -> i64 {
    number.cast_signed()
}

/// One connection to the server.
pub(super) struct Session {
    pub(super) client: Client,
    warned: Arc<AtomicBool>,
    /// An answer did not arrive in time.
    abandoned: AtomicBool,
    /// The task that reads and writes the connection.
    driver: AbortHandle,
}

impl Session {
    /// Connects, and applies the settings that this journal relies on.
    pub(super) async fn open(options: &PostgresOptions) -> Result<Session, JournalError> {
        let address = Address::read(&options.url, options.unsafe_plaintext)?;
        let Connected { client, warned, driver } = match tls::connector(&address)? {
            None => connect(&address.config, NoTls).await?,
            Some(tls) => connect(&address.config, tls).await?,
        };
        client
            .batch_execute(
                "SET synchronous_commit = on; SET client_min_messages = warning;
                 SET default_transaction_isolation = 'read committed'; SET statement_timeout = 0",
            )
            .await
            .map_err(|error| described("setting up the session", &error))?;
        // A statement that waits for a lock ends when its client is gone, so that abandoned
        // statements do not accumulate. Servers without this setting are used without it.
        let _ = client.batch_execute("SET client_connection_check_interval = 1000").await;
        warned.store(false, Ordering::SeqCst);
        Ok(Session { client, warned, abandoned: AtomicBool::new(false), driver })
    }

    /// Whether the server has sent a warning since the connection was set up.
    pub(super) fn warned(&self) -> bool {
        self.warned.load(Ordering::SeqCst)
    }

    /// Closes the connection without waiting for an answer. This is not a cancel: a commit that
    /// waits for its standby keeps waiting.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::SeqCst);
        self.driver.abort();
    }

    /// Whether the connection ended or can no longer be trusted.
    pub(super) fn is_broken(&self) -> bool {
        self.client.is_closed() || self.warned() || self.abandoned.load(Ordering::SeqCst)
    }

    /// Runs one statement and rejects an answer that came with a warning.
    pub(super) async fn query(
        &self,
        doing: &'static str,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, JournalError> {
        let rows = self.client.query(sql, params).await.map_err(|e| described(doing, &e))?;
        if self.warned() {
            return Err(JournalError::storage(doing, "the server answered with a warning"));
        }
        Ok(rows)
    }
}

/// Connects, of several hosts to the one that was promoted last.
async fn connect<T>(config: &Config, tls: T) -> Result<Connected, JournalError>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: Send> + Clone + Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let hosts = hosts::each_host(config);
    if hosts.len() < 2 {
        return connect_one(config, tls).await;
    }
    let connect = |one| {
        let tls = tls.clone();
        Box::pin(async move {
            let connected = connect_one(one, tls).await?;
            let timeline = hosts::timeline(&connected.client).await;
            let timeline = timeline.map_err(|e| described("reading the timeline", &e))?;
            Ok((timeline, connected))
        }) as Pin<Box<dyn Future<Output = Result<_, JournalError>> + Send>>
    };
    let (mut best, mut refused) = (None::<(Option<u32>, Connected)>, None);
    let is_primary = |(timeline, _): &(Option<u32>, Connected)| timeline.is_some();
    for found in hosts::first_ones(hosts.iter().map(connect).collect(), is_primary).await {
        match found {
            Ok((timeline, connected)) => {
                if best.as_ref().is_none_or(|(known, _)| timeline > *known) {
                    best = Some((timeline, connected));
                }
            }
            Err(error) => refused = Some(error),
        }
    }
    best.map(|(_, connected)| connected).ok_or_else(|| {
        let none = || JournalError::storage("connecting to PostgreSQL", "no host answered");
        refused.unwrap_or_else(none)
    })
}

/// A new connection, whether it got a warning, and the task that reads and writes it.
struct Connected {
    client: Client,
    warned: Arc<AtomicBool>,
    driver: AbortHandle,
}

/// Connects, and watches for warnings from then on.
async fn connect_one<T>(config: &Config, tls: T) -> Result<Connected, JournalError>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static>,
{
    let (client, mut connection) = config.connect(tls).await.map_err(|error| {
        tls::certificate_rejection(&error)
            .unwrap_or_else(|| described("connecting to PostgreSQL", &error))
    })?;
    let warned = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&warned);
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notice(notice) = message
                && is_warning(&notice)
            {
                // Set before the answer that follows on the wire is delivered.
                seen.store(true, Ordering::SeqCst);
            }
        }
    });
    Ok(Connected { client, warned, driver: driver.abort_handle() })
}

/// Whether a notice is a warning, by its untranslated severity: messages are in the server's
/// language. A notice without it counts as a warning.
fn is_warning(notice: &DbError) -> bool {
    match notice.parsed_severity() {
        Some(Severity::Notice | Severity::Debug | Severity::Info | Severity::Log) => false,
        Some(Severity::Warning | Severity::Error | Severity::Fatal | Severity::Panic) | None => {
            true
        }
    }
}

/// The server's own error text, which the driver keeps in `source`.
pub(super) fn described(doing: &'static str, error: &tokio_postgres::Error) -> JournalError {
    match error.as_db_error() {
        Some(reason) => JournalError::storage(doing, reason),
        None => match std::error::Error::source(error) {
            Some(cause) => JournalError::storage(doing, format!("{error}: {cause}")),
            None => JournalError::storage(doing, error),
        },
    }
}

/// One statement: moves the head if epoch and head are as expected, and only then inserts.
const APPEND: &str = "
WITH moved AS (
  UPDATE bursar_head SET sequence = $3::bigint, position = $4, hash = $5
  WHERE machine = $1 AND epoch = $2 AND sequence = $3::bigint - 1 AND hash = $6
  RETURNING machine)
INSERT INTO bursar_batch
  (machine, sequence, first_position, records, epoch, time, previous, hash, payload)
SELECT machine, $3::bigint, $7::bigint, $8::integer, $2, $9::bigint, $6, $5, $10::bytea FROM moved";

type AppendOutcome = Result<Head, AppendError>;

struct Job {
    epoch: Epoch,
    expected: Head,
    batch: Batch,
    answer: blocking::Sender<AppendOutcome>,
}

/// Sends appends on one connection, in the order in which they were begun.
pub(super) struct Appender {
    jobs: mpsc::Sender<Job>,
    /// Dropped after an unknown outcome.
    session: Weak<Session>,
}

impl Appender {
    /// Starts the task that owns `session`. The task and its connection end at the first unknown
    /// outcome.
    pub(super) async fn start(session: Session, machine: &str, deadline: Duration) -> Appender {
        let statement = session.client.prepare(APPEND).await;
        let (jobs, queue) = mpsc::channel(PIPELINE_DEPTH);
        // Before the first open the tables may be missing. The statement is then prepared when
        // used.
        let statement = statement.ok();
        let session = Arc::new(session);
        let kept = Arc::downgrade(&session);
        let lane = Lane {
            session,
            machine: machine.to_owned(),
            deadline,
            statement,
            flying: VecDeque::new(),
        };
        tokio::spawn(lane.run(queue));
        Appender { jobs, session: kept }
    }

    /// Whether no further append is possible.
    pub(super) fn is_broken(&self) -> bool {
        self.session.upgrade().is_none_or(|session| session.is_broken())
    }

    pub(super) fn begin(&self, epoch: Epoch, expected: Head, batch: Batch) -> Pending {
        let (answer, outcome) = blocking::channel();
        match self.jobs.blocking_send(Job { epoch, expected, batch, answer }) {
            Ok(()) => Pending::Waiting(outcome),
            Err(_) => {
                let reason = "the connection to the store ended".into();
                Pending::Done(Err(AppendError::Unknown(reason)))
            }
        }
    }
}

type Sent = Pin<Box<dyn Future<Output = AppendOutcome> + Send>>;

struct AppendInFlight {
    outcome: Sent,
    answer: blocking::Sender<AppendOutcome>,
}

struct Lane {
    session: Arc<Session>,
    machine: String,
    deadline: Duration,
    statement: Option<Statement>,
    flying: VecDeque<AppendInFlight>,
}

impl Lane {
    async fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut healthy = true;
        while healthy {
            let full = self.flying.len() >= PIPELINE_DEPTH;
            healthy = match next_step(&mut self.flying, &mut queue, full).await {
                Step::Begin(job) => self.begin(job).await,
                Step::Landed(outcome) => self.finish_append(outcome),
                Step::Closed => return,
            };
        }
        // Appends in progress or queued are not answered: their outcome is unknown.
        self.session.abandon();
    }

    /// Sends one append, after those before it.
    async fn begin(&mut self, job: Job) -> bool {
        let Job { epoch, expected, batch, answer } = job;
        let statement = match &self.statement {
            Some(statement) => statement.clone(),
            None => match self.session.client.prepare(APPEND).await {
                Ok(statement) => self.statement.insert(statement).clone(),
                Err(error) => {
                    let reason = described("preparing an append", &error).to_string();
                    // The receiver may have stopped waiting.
                    let _ = answer.send(Err(AppendError::Unknown(reason)));
                    return false;
                }
            },
        };
        let session = Arc::clone(&self.session);
        let append = append(session, statement, self.machine.clone(), epoch, expected, batch);
        let deadline = self.deadline;
        let mut outcome: Sent = Box::pin(async move {
            tokio::time::timeout(deadline, append).await.unwrap_or_else(|_| {
                let reason = format!("no answer within {} ms", deadline.as_millis());
                Err(AppendError::Unknown(reason))
            })
        });
        // The first poll sends the statement. Polling in this order keeps the order on the wire.
        match poll_fn(|cx| Poll::Ready(outcome.as_mut().poll(cx))).await {
            Poll::Pending => {
                self.flying.push_back(AppendInFlight { outcome, answer });
                true
            }
            Poll::Ready(done) => {
                let known = !matches!(done, Err(AppendError::Unknown(_)));
                let _ = answer.send(done);
                known
            }
        }
    }

    /// Sends the outcome of the oldest append. After an unknown outcome nothing may follow.
    fn finish_append(&mut self, outcome: AppendOutcome) -> bool {
        let known = !matches!(outcome, Err(AppendError::Unknown(_)));
        if let Some(landed) = self.flying.pop_front() {
            // The receiver may have stopped waiting.
            let _ = landed.answer.send(outcome);
        }
        known
    }
}

enum Step {
    Begin(Job),
    Landed(AppendOutcome),
    Closed,
}

/// Waits for the oldest append in progress or, unless there are enough, for a new one.
async fn next_step(
    flying: &mut VecDeque<AppendInFlight>,
    queue: &mut mpsc::Receiver<Job>,
    full: bool,
) -> Step {
    poll_fn(|cx: &mut Context<'_>| {
        if let Some(oldest) = flying.front_mut()
            && let Poll::Ready(outcome) = oldest.outcome.as_mut().poll(cx)
        {
            return Poll::Ready(Step::Landed(outcome));
        }
        if full {
            return Poll::Pending;
        }
        match queue.poll_recv(cx) {
            Poll::Ready(Some(job)) => Poll::Ready(Step::Begin(job)),
            // No sender is left. Appends in progress are still waited for.
            Poll::Ready(None) if flying.is_empty() => Poll::Ready(Step::Closed),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn append(
    session: Arc<Session>,
    statement: Statement,
    machine: String,
    epoch: Epoch,
    expected: Head,
    batch: Batch,
) -> AppendOutcome {
    let head = expected.after(epoch, &batch);
    let records = i32::try_from(batch.records()).unwrap_or(i32::MAX);
    let appended = session
        .client
        .execute(
            &statement,
            &[
                &machine,
                &stored(epoch.0),
                &stored(head.sequence),
                &stored(head.position),
                &&head.hash.0[..],
                &&expected.hash.0[..],
                &stored(expected.position + 1),
                &records,
                &batch.time().millis(),
                &batch.payload(),
            ],
        )
        .await;
    match appended {
        Ok(_) if session.warned() => Err(AppendError::Unknown(
            "the server committed with a warning: the batch may not be replicated".into(),
        )),
        Ok(1) => Ok(head),
        Ok(_) => Err(AppendError::Fenced { epoch }),
        Err(error) => Err(refused(&error)),
    }
}

/// Only a full disk is a known outcome: PostgreSQL has aborted the statement.
fn refused(error: &tokio_postgres::Error) -> AppendError {
    match error.as_db_error() {
        Some(reason) if *reason.code() == SqlState::DISK_FULL => {
            AppendError::Full(reason.to_string())
        }
        _ => AppendError::Unknown(described("appending a batch", error).to_string()),
    }
}
