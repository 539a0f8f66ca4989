//! How the output of attempts is sent to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::{Agent, AgentOptions};
use crate::logs::LogShipper;
use crate::reconcile::Local;
use crate::runner::Observed;

/// The interval of output checks.
const OUTPUT_INTERVAL: Duration = Duration::from_millis(300);

/// The pause after output that the server rejected: it may be overloaded.
const OUTPUT_BACKOFF: Duration = Duration::from_secs(2);

/// How long the end of an attempt may be delayed until its output is sent.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(5);

impl Agent {
    /// Sends output while the registration is valid.
    pub(super) fn send_output(&self, incarnation: u32) -> tokio::task::JoinHandle<()> {
        let logs = Arc::clone(&self.logs);
        let folder = self.runner.folder().clone();
        tokio::spawn(async move {
            loop {
                let mut pause = OUTPUT_INTERVAL;
                for (attempt, place) in folder.all_attempts().unwrap_or_default() {
                    let mut logs = logs.lock().await;
                    if let Err(error) = logs.ship(incarnation, &attempt, &place).await {
                        tracing::debug!(attempt, %error, "its output was not sent");
                        pause = OUTPUT_BACKOFF;
                    }
                }
                tokio::time::sleep(pause).await;
            }
        })
    }

    /// Sends the remaining output of ended attempts before their end is reported: clients that follow
    /// the output see all of it. The time is limited, because the end is more important.
    pub(super) async fn ship_ended(&mut self, incarnation: u32, observed: &[Observed]) {
        let ended = observed.iter().filter(|one| one.local == Local::Ended);
        let fresh: Vec<&String> =
            ended.map(|one| &one.attempt).filter(|id| self.shipped.insert((*id).clone())).collect();
        let send = async {
            for attempt in fresh {
                let place = self.runner.folder().attempt(attempt);
                let mut logs = self.logs.lock().await;
                if let Err(error) = logs.ship(incarnation, attempt, &place).await {
                    tracing::warn!(attempt, %error, "its output was not sent before its end");
                }
            }
        };
        if tokio::time::timeout(OUTPUT_TIMEOUT, send).await.is_err() {
            tracing::warn!("ends are reported before all output was sent");
        }
    }
}

pub(super) fn shipper(options: &AgentOptions) -> Arc<Mutex<LogShipper>> {
    let shipper = LogShipper::new(options.servers.clone(), options.offer.id.clone());
    Arc::new(Mutex::new(shipper))
}
