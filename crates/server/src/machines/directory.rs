//! The directory for request handlers: commands go to its machine, reads to a copy.
//!
//! The copy is current while the lease under which it was read is valid and no later command has
//! been answered. [`DirectoryService::follow`] reads it again if it is not current; every request
//! calls it before its key is looked up. So a key that another server revoked as the leader is
//! invalid here as well, and so is a key whose revocation was decided although its caller went
//! away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bursar_api::Code;
use bursar_core::directory::{Command, Directory, DirectoryAccepted, Reply};
use bursar_core::ledger::Envelope;
use bursar_engine::LeaseTrust;
use tokio::sync::watch;

use crate::machines::gateway::Gateway;
use crate::request::Failure;
use crate::telemetry::monotonic::Stopwatch;

/// How long a request waits until this server has the lease of the directory, or has it again after a late renewal.
const LEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often it looks.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The lease under which the directory is served, if it is served.
pub type TenureOf = Box<dyn Fn() -> Option<Arc<LeaseTrust>> + Send + Sync>;

/// Commands to the directory, and a copy of it that every request reads.
pub struct DirectoryService {
    gateway: Gateway<Directory>,
    tenure: TenureOf,
    copy: watch::Sender<Arc<Directory>>,
    /// Until when the copy is current; `None` before the first read.
    present: RwLock<Option<Present>>,
    /// The number of commands answered so far.
    answered: Arc<AtomicU64>,
    /// Held by the request that reads the copy; the others wait.
    reading: tokio::sync::Mutex<()>,
}

/// The answer to an accepted command.
#[derive(Clone, Debug)]
pub struct DirectoryAnswer {
    /// The answer.
    pub reply: Reply,
    /// Whether it was stored when this request was first made.
    pub replayed: bool,
    /// The position of its record, if this request made it.
    pub position: Option<u64>,
}

impl From<DirectoryAccepted> for DirectoryAnswer {
    fn from(accepted: DirectoryAccepted) -> DirectoryAnswer {
        let DirectoryAccepted { reply, replayed } = accepted;
        DirectoryAnswer { reply, replayed, position: None }
    }
}

struct Present {
    /// The lease under which the copy was read.
    tenure: Arc<LeaseTrust>,
    /// The number of commands answered before it was read.
    answered: u64,
}

impl DirectoryService {
    /// Creates the service with a first copy.
    pub async fn new(
        gateway: Gateway<Directory>,
        tenure: TenureOf,
    ) -> Result<DirectoryService, Failure> {
        let service = DirectoryService {
            gateway,
            tenure,
            copy: watch::Sender::new(Arc::new(Directory::new())),
            present: RwLock::new(None),
            answered: Arc::default(),
            reading: tokio::sync::Mutex::new(()),
        };
        service.follow().await?;
        Ok(service)
    }

    /// The directory as it was last read.
    pub fn current(&self) -> Arc<Directory> {
        Arc::clone(&self.copy.borrow())
    }

    /// Changes with every new copy.
    pub fn changes(&self) -> watch::Receiver<Arc<Directory>> {
        self.copy.subscribe()
    }

    /// The number of messages that wait for an answer.
    pub fn waiting(&self) -> i64 {
        self.gateway.waiting()
    }

    /// Whether the copy is current.
    pub fn is_present(&self) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.as_ref().is_some_and(|present| {
            present.answered == self.answered.load(Ordering::SeqCst) && present.tenure.holds()
        })
    }

    /// Makes the copy current. Waits for a moment if the lease has ended: the next renewal may bring it back.
    ///
    /// # Errors
    /// While the directory is not served by this server.
    pub async fn follow(&self) -> Result<(), Failure> {
        let watch = Stopwatch::start();
        loop {
            if self.is_present() {
                return Ok(());
            }
            match self.read_again().await {
                Err(failure)
                    if failure.problem.code == Code::Unavailable
                        && watch.elapsed() < LEASE_TIMEOUT =>
                {
                    tokio::time::sleep(LEASE_POLL_INTERVAL).await;
                }
                read => return read,
            }
        }
    }

    /// Reads the copy again.
    async fn read_again(&self) -> Result<(), Failure> {
        let _reading = self.reading.lock().await;
        if self.is_present() {
            return Ok(());
        }
        // Before the read: a command that is answered later may not be in the copy.
        let answered = self.answered.load(Ordering::SeqCst);
        let moved =
            || Failure::new(Code::Unavailable, "the directory is being taken over; try again");
        let tenure = (self.tenure)().filter(|tenure| tenure.holds()).ok_or_else(moved)?;
        let seen = self.gateway.read(|directory| Arc::new(directory.clone())).await?;
        if !(self.tenure)().is_some_and(|now| Arc::ptr_eq(&now, &tenure)) {
            return Err(moved());
        }
        self.copy.send_replace(seen.value);
        let present = Present { tenure, answered };
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = Some(present);
        Ok(())
    }

    /// Sends a command. Once it is answered every request sees its effect, so a revoked key is
    /// invalid by the time that its revocation is confirmed.
    pub async fn submit(
        &self,
        envelope: Envelope,
        command: Command,
    ) -> Result<DirectoryAnswer, Failure> {
        let answered = Arc::clone(&self.answered);
        let posted = self.gateway.post_noted(envelope, command, move || {
            // From now on no request is answered from the old copy, even if this caller has gone.
            answered.fetch_add(1, Ordering::SeqCst);
        });
        let seen = posted.answer().await?;
        // If the copy cannot be read now, it is read before the next request.
        if let Err(failure) = self.follow().await {
            tracing::warn!(detail = %failure.problem.detail, "the directory was not read again");
        }
        let accepted = seen.value?;
        let (reply, replayed) = (accepted.reply, accepted.replayed);
        // The record of a repeat is that of the first request, which is not known here.
        Ok(DirectoryAnswer { reply, replayed, position: (!replayed).then_some(seen.position) })
    }
}
