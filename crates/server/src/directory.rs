//! The directory as the server sees it: commands go to its machine, reads to a copy.

use std::sync::{Arc, PoisonError, RwLock};

use bursar_core::directory::{Accepted, Command, Directory};
use bursar_core::ledger::Envelope;

use crate::gateway::Gateway;
use crate::problem::Failure;

/// Commands to the directory, and a copy of it that every request reads.
pub struct DirectoryService {
    gateway: Gateway<Directory>,
    copy: RwLock<Arc<Directory>>,
}

impl DirectoryService {
    /// The directory behind a gateway, with a first copy.
    pub async fn new(gateway: Gateway<Directory>) -> Result<DirectoryService, Failure> {
        let copy = gateway.read(Directory::clone).await?.value;
        Ok(DirectoryService { gateway, copy: RwLock::new(Arc::new(copy)) })
    }

    /// The directory as of the last command.
    pub fn current(&self) -> Arc<Directory> {
        Arc::clone(&self.copy.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How many messages wait for their answers.
    pub fn waiting(&self) -> i64 {
        self.gateway.waiting()
    }

    /// Sends a command; when it is answered every request sees what it did. So a revoked key no
    /// longer works by the time that its revocation is confirmed.
    pub async fn submit(&self, envelope: Envelope, command: Command) -> Result<Accepted, Failure> {
        let posted = self.gateway.post(envelope, command);
        let seen = posted.answer().await?;
        let copy = self.gateway.read(|directory| Arc::new(directory.clone())).await?;
        {
            let mut shown = self.copy.write().unwrap_or_else(PoisonError::into_inner);
            use bursar_core::machine::Machine;
            // Of two commands that finish at once the later copy stays.
            if copy.value.now() >= shown.now() {
                *shown = copy.value;
            }
        }
        Ok(seen.value?)
    }
}
