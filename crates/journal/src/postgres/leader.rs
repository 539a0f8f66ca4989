//! The leader of a store. Leases of machines prevent that two servers write to one journal. This
//! lease prevents that each of two servers owns some of the machines. It is taken before any of
//! those.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::PostgresOptions;
use super::links::{ask_within, open_session, runtime};
use super::session::Session;
use super::{fitness, leases, schema};
use crate::error::JournalError;

/// The result of a request to lead.
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
        /// The URL at which it is reached.
        url: String,
    },
}

/// The lead as it is stored. Every claim and renewal changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadRow {
    /// Rises with every leader.
    pub term: u64,
    /// The holder of the last claim.
    pub holder: String,
    /// How long the lead lasts without a renewal. It only grows while one server leads.
    pub lease: Duration,
    /// When the lead ends by the store's clock.
    pub until: String,
    /// Whether the last leader gave it up, or there was none.
    pub is_free: bool,
}

/// What the store says of the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLead {
    /// The store's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// The URL of the current leader.
    pub owner: Option<String>,
    /// The lead as it is stored.
    pub row: LeadRow,
}

/// The lease of the leader, in the same database as the journals. Must be used and dropped by
/// ordinary threads, never inside an asynchronous runtime.
pub struct PostgresLeader {
    options: PostgresOptions,
    session: Mutex<Arc<Session>>,
    // Dropped last: the session runs on it.
    runtime: Runtime,
}

impl PostgresLeader {
    /// Connects, and creates missing tables.
    ///
    /// # Errors
    /// The same as those of [`super::PostgresJournal::open`].
    pub fn open(options: PostgresOptions) -> Result<PostgresLeader, JournalError> {
        let runtime = runtime()?;
        let session = open_session(&runtime, &options)?;
        let prepared = schema::prepare_store(&session, &options);
        ask_within(&runtime, &session, options.query_deadline, prepared)?;
        Ok(PostgresLeader { options, session: Mutex::new(Arc::new(session)), runtime })
    }

    /// Another connection to the same store, whose slow answers do not concern this one.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn another(&self) -> Result<PostgresLeader, JournalError> {
        let (runtime, options) = (runtime()?, self.options.clone());
        let session = open_session(&runtime, &options)?;
        Ok(PostgresLeader { options, session: Mutex::new(Arc::new(session)), runtime })
    }

    /// Requests to lead for `ttl`, under a name and a URL. Succeeds if the lead has expired and is still stored as it
    /// was seen, or if the same holder has it.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the server may lose acknowledged data.
    pub fn claim(
        &self,
        (holder, url): (&str, &str),
        ttl: Duration,
        seen: &LeadRow,
    ) -> Result<Claim, JournalError> {
        self.ask(ttl / 3, async |session, options| {
            fitness::check_running(session, options).await?;
            let newest = options.newest_form;
            leases::claim_leadership(session, (holder, url), (ttl, newest), seen).await
        })
    }

    /// Reads the lead. Changes nothing.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn look(&self, within: Duration) -> Result<StoredLead, JournalError> {
        self.ask(within, async |session, _| leases::look_at_leadership(session).await)
    }

    /// Leads for another `ttl`. Returns false if another server leads by now.
    ///
    /// # Errors
    /// [`JournalError::Unfit`] if the server may lose acknowledged data.
    pub fn renew(&self, term: u64, ttl: Duration) -> Result<bool, JournalError> {
        self.ask(ttl / 3, async |session, options| {
            fitness::check_running(session, options).await?;
            leases::extend_leadership(session, term, (ttl, options.newest_form)).await
        })
    }

    /// Lets another server lead at once.
    ///
    /// # Errors
    /// The store does not answer. The lease then expires.
    pub fn release(&self, term: u64, ttl: Duration) -> Result<(), JournalError> {
        let ended = async |session: &Session, options: &PostgresOptions| {
            let until = (Duration::ZERO, options.newest_form);
            leases::extend_leadership(session, term, until).await
        };
        self.ask(ttl / 3, ended).map(drop)
    }

    /// Queries on a working connection. An answer that takes longer than a third of the lease is
    /// too late to be useful.
    pub(super) fn ask<T>(
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
