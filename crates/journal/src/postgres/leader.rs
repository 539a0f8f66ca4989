//! Which server leads a store. Leases of machines keep two servers from writing to one journal; this
//! one keeps them from owning a part of the machines each. It is taken before any of those.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::PostgresOptions;
use super::links::{ask_within, open_session, runtime};
use super::schema;
use super::session::Session;
use crate::error::JournalError;

/// What became of the wish to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// This server leads, in this term.
    Won {
        /// Rises with every leader.
        term: u64,
    },
    /// Another server leads.
    Held {
        /// Its name and the number of its start.
        holder: String,
        /// Where it is reached.
        url: String,
    },
}

/// The lease of the leader, in the same database as the journals. Must be used and dropped by ordinary
/// threads, never inside an asynchronous runtime.
pub struct PostgresLeader {
    options: PostgresOptions,
    session: Mutex<Arc<Session>>,
    // Dropped last: the session lives on it.
    runtime: Runtime,
}

impl PostgresLeader {
    /// Connects, and creates the tables where they are missing.
    ///
    /// # Errors
    /// Refuses what [`super::PostgresJournal::open`] refuses.
    pub fn open(options: PostgresOptions) -> Result<PostgresLeader, JournalError> {
        let runtime = runtime()?;
        let session = open_session(&runtime, &options)?;
        let prepared = schema::prepare_store(&session, &options);
        ask_within(&runtime, &session, options.query_deadline, prepared)?;
        Ok(PostgresLeader { options, session: Mutex::new(Arc::new(session)), runtime })
    }

    /// Asks to lead for `ttl`. Succeeds if no server leads, or the same holder does.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the server may lose what it acknowledges.
    pub fn claim(&self, holder: &str, url: &str, ttl: Duration) -> Result<Claim, JournalError> {
        self.ask(ttl / 3, async |session, options| {
            schema::check_running(session, options).await?;
            schema::claim_leadership(session, holder, url, ttl).await
        })
    }

    /// What the store's clock says, in milliseconds since 1970, and where the server is reached that
    /// leads now. Nothing is asked for.
    ///
    /// # Errors
    /// If the store does not answer within that time.
    pub fn look(&self, within: Duration) -> Result<(i64, Option<String>), JournalError> {
        self.ask(within, async |session, _| schema::look_at_leadership(session).await)
    }

    /// Leads for another `ttl`; false if another server leads by now.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the server may lose what it acknowledges.
    pub fn renew(&self, term: u64, ttl: Duration) -> Result<bool, JournalError> {
        self.ask(ttl / 3, async |session, options| {
            schema::check_running(session, options).await?;
            schema::extend_leadership(session, term, ttl).await
        })
    }

    /// Lets another server lead at once.
    ///
    /// # Errors
    /// If the store does not answer; then the lease runs out by itself.
    pub fn release(&self, term: u64, ttl: Duration) -> Result<(), JournalError> {
        let ended = async |session: &Session, _: &PostgresOptions| {
            schema::extend_leadership(session, term, Duration::ZERO).await
        };
        self.ask(ttl / 3, ended).map(drop)
    }

    /// Asks on a connection that lives. An answer about the lease that takes longer than a third of it
    /// is of no use any more.
    fn ask<T>(
        &self,
        within: Duration,
        work: impl AsyncFnOnce(&Session, &PostgresOptions) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let mut kept = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_broken() {
            *kept = Arc::new(open_session(&self.runtime, &self.options)?);
        }
        let session = Arc::clone(&kept);
        drop(kept);
        let deadline = self.options.query_deadline.min(within);
        ask_within(&self.runtime, &session, deadline, work(&session, &self.options))
    }
}
