//! The directory as the server sees it: commands go to its machine, reads to a copy.

use std::sync::Arc;

use bursar_core::directory::{Accepted, Command, Directory};
use bursar_core::ledger::Envelope;
use bursar_core::machine::Machine;
use tokio::sync::watch;

use crate::gateway::Gateway;
use crate::problem::Failure;

/// Commands to the directory, and a copy of it that every request reads.
pub struct DirectoryService {
    gateway: Gateway<Directory>,
    copy: watch::Sender<Arc<Directory>>,
}

impl DirectoryService {
    /// The directory behind a gateway, with a first copy.
    pub async fn new(gateway: Gateway<Directory>) -> Result<DirectoryService, Failure> {
        let copy = gateway.read(Directory::clone).await?.value;
        Ok(DirectoryService { gateway, copy: watch::Sender::new(Arc::new(copy)) })
    }

    /// The directory as of the last command.
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

    /// Sends a command; when it is answered every request sees what it did. So a revoked key no
    /// longer works by the time that its revocation is confirmed.
    pub async fn submit(&self, envelope: Envelope, command: Command) -> Result<Accepted, Failure> {
        let posted = self.gateway.post(envelope, command);
        let seen = posted.answer().await?;
        let copy = self.gateway.read(|directory| Arc::new(directory.clone())).await?;
        self.copy.send_if_modified(|shown| {
            // Of two commands that finish at once the later copy stays.
            let is_later = copy.value.now() >= shown.now();
            if is_later {
                *shown = copy.value;
            }
            is_later
        });
        Ok(seen.value?)
    }
}
