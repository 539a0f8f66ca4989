//! The directory as the server sees it: commands go to its machine, reads to a copy.
//!
//! The copy is the present for as long as the lease holds under which it was read, and until another
//! command is answered. [`DirectoryService::follow`] reads it again where it is not; every request asks
//! for that before its key is looked up. So a key that another server revoked while that one led works
//! here no more, and neither does one whose revocation has lost its caller half way.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bursar_api::Code;
use bursar_core::directory::{Accepted, Command, Directory};
use bursar_core::ledger::Envelope;
use bursar_engine::LeaseTrust;
use tokio::sync::watch;

use crate::http::problem::Failure;
use crate::machines::gateway::Gateway;

/// The lease under which the directory is served, if it is.
pub type TenureOf = Box<dyn Fn() -> Option<Arc<LeaseTrust>> + Send + Sync>;

/// Commands to the directory, and a copy of it that every request reads.
pub struct DirectoryService {
    gateway: Gateway<Directory>,
    tenure: TenureOf,
    copy: watch::Sender<Arc<Directory>>,
    /// Until when the copy is the present; nothing before it was read first.
    present: RwLock<Option<Present>>,
    /// Commands that were answered so far.
    answered: Arc<AtomicU64>,
    /// One reads it again, the others wait for that.
    reading: tokio::sync::Mutex<()>,
}

struct Present {
    /// The lease under which the copy was read.
    tenure: Arc<LeaseTrust>,
    /// Commands that were answered before it was read.
    answered: u64,
}

impl DirectoryService {
    /// The directory behind a gateway, with a first copy.
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

    /// Changes whenever there is another copy.
    pub fn changes(&self) -> watch::Receiver<Arc<Directory>> {
        self.copy.subscribe()
    }

    /// How many messages wait for their answers.
    pub fn waiting(&self) -> i64 {
        self.gateway.waiting()
    }

    /// Whether the copy is the present.
    pub fn is_present(&self) -> bool {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.as_ref().is_some_and(|present| {
            present.answered == self.answered.load(Ordering::SeqCst) && present.tenure.holds()
        })
    }

    /// Sees to it that the copy is the present.
    ///
    /// # Errors
    /// While the directory is not served by this server.
    pub async fn follow(&self) -> Result<(), Failure> {
        if self.is_present() {
            return Ok(());
        }
        let _reading = self.reading.lock().await;
        if self.is_present() {
            return Ok(());
        }
        // Before the look: what is answered later may not be in it.
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

    /// Sends a command; when it is answered every request sees what it did. So a revoked key no
    /// longer works by the time that its revocation is confirmed.
    pub async fn submit(&self, envelope: Envelope, command: Command) -> Result<Accepted, Failure> {
        let answered = Arc::clone(&self.answered);
        let posted = self.gateway.post_noted(envelope, command, move || {
            // From now on no request is answered from the old copy, even if this caller has gone.
            answered.fetch_add(1, Ordering::SeqCst);
        });
        let seen = posted.answer().await?;
        // If it cannot be read now, it is read before the next request.
        if let Err(failure) = self.follow().await {
            tracing::warn!(detail = %failure.problem.detail, "the directory was not read again");
        }
        Ok(seen.value?)
    }
}
