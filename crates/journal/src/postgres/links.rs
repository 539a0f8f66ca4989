//! The connections of one journal, and how broken ones are replaced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::PostgresOptions;
use super::session::{Appender, Session};
use crate::error::JournalError;

/// How long a new connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a read may take that only follows the journal.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Three connections, so that a long read delays no append and no renewal.
struct Links {
    appender: Arc<Appender>,
    control: Arc<Session>,
    reader: Arc<Session>,
}

/// One of the connections for statements other than appends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// For leases.
    Control,
    /// For batches and snapshots.
    Reader,
}

impl Links {
    fn session(&mut self, link: Link) -> &mut Arc<Session> {
        match link {
            Link::Control => &mut self.control,
            Link::Reader => &mut self.reader,
        }
    }
}

/// State shared by all readers of one journal.
pub(super) struct Shared {
    pub(super) options: PostgresOptions,
    links: Mutex<Option<Links>>,
    follows: AtomicBool,
    // Dropped last: the sessions run on it.
    runtime: Runtime,
}

impl Shared {
    pub(super) fn new(options: PostgresOptions) -> Result<Shared, JournalError> {
        Ok(Shared {
            options,
            links: Mutex::new(None),
            follows: AtomicBool::new(false),
            runtime: runtime()?,
        })
    }

    /// Whether the next reads only follow the journal.
    pub(super) fn set_following(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
    }

    fn links(&self) -> MutexGuard<'_, Option<Links>> {
        // Nothing that holds this lock can panic half way.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects again. Users of the old connections keep them until `check` has passed on the new
    /// ones.
    pub(super) fn connect<T>(
        &self,
        check: impl AsyncFnOnce(&Session) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let (appends, control, reader) = (self.open()?, self.open()?, self.open()?);
        let checked = self.ask(&control, self.options.query_deadline, check(&control))?;
        let deadline = self.options.append_deadline;
        let appender = Appender::start(appends, &self.options.machine, deadline);
        let appender = self.runtime.block_on(appender);
        *self.links() = Some(Links {
            appender: Arc::new(appender),
            control: Arc::new(control),
            reader: Arc::new(reader),
        });
        Ok(checked)
    }

    fn open(&self) -> Result<Session, JournalError> {
        open_session(&self.runtime, &self.options)
    }

    /// The connection for appends. It is replaced only together with all others, because appends
    /// sent on it may or may not have been written.
    pub(super) fn appender(&self) -> Result<Arc<Appender>, JournalError> {
        let links = self.links();
        links.as_ref().map(|links| Arc::clone(&links.appender)).ok_or_else(not_open)
    }

    /// A working connection. A broken or abandoned one is replaced first: every statement on it is
    /// independent and names its epoch.
    pub(super) fn session(&self, link: Link) -> Result<Arc<Session>, JournalError> {
        let kept = match self.links().as_mut() {
            Some(links) => Arc::clone(links.session(link)),
            None => return Err(not_open()),
        };
        if !kept.is_broken() {
            return Ok(kept);
        }
        let fresh = Arc::new(self.open()?);
        if let Some(links) = self.links().as_mut() {
            *links.session(link) = Arc::clone(&fresh);
        }
        Ok(fresh)
    }

    /// Runs a statement on one of the connections within the query deadline.
    pub(super) fn query<T>(
        &self,
        link: Link,
        work: impl AsyncFnOnce(&Session) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let follows = link == Link::Reader && self.follows.load(Ordering::Relaxed);
        let deadline = self.options.query_deadline;
        let deadline = if follows { deadline.min(FOLLOW_TIMEOUT) } else { deadline };
        self.query_within(link, deadline, work)
    }

    /// Like [`Shared::query`], with another deadline.
    pub(super) fn query_within<T>(
        &self,
        link: Link,
        deadline: Duration,
        work: impl AsyncFnOnce(&Session) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let session = self.session(link)?;
        self.ask(&session, deadline, work(&session))
    }

    /// Runs statements on a connection that is not replaced if it breaks.
    pub(super) fn query_on<T>(
        &self,
        session: &Session,
        work: impl AsyncFnOnce(&Session) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.ask(session, self.options.query_deadline, work(session))
    }

    fn ask<T>(
        &self,
        session: &Session,
        deadline: Duration,
        work: impl Future<Output = Result<T, JournalError>>,
    ) -> Result<T, JournalError> {
        ask_within(&self.runtime, session, deadline, work)
    }
}

fn not_open() -> JournalError {
    JournalError::storage("using the journal", "it must be reopened")
}

/// A runtime with its own thread for the connections.
pub(super) fn runtime() -> Result<Runtime, JournalError> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("bursar-postgres")
        .enable_all()
        .build()
        .map_err(|error| JournalError::storage("starting the PostgreSQL thread", error))
}

/// Opens one connection.
pub(super) fn open_session(
    runtime: &Runtime,
    options: &PostgresOptions,
) -> Result<Session, JournalError> {
    let deadline = CONNECT_TIMEOUT.min(options.query_deadline);
    runtime.block_on(async {
        let opened = tokio::time::timeout(deadline, Session::open(options)).await;
        let late = || JournalError::storage("connecting to PostgreSQL", "no answer in time");
        opened.unwrap_or_else(|_| Err(late()))
    })
}

/// Waits for an answer until `deadline`. A connection that did not answer in time is not used
/// again. No cancel request is sent.
pub(super) fn ask_within<T>(
    runtime: &Runtime,
    session: &Session,
    deadline: Duration,
    work: impl Future<Output = Result<T, JournalError>>,
) -> Result<T, JournalError> {
    runtime.block_on(async {
        tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
            session.abandon();
            let reason =
                "no answer in time; while a synchronous standby is gone, commits wait for it";
            Err(JournalError::storage("waiting for PostgreSQL", reason))
        })
    })
}
