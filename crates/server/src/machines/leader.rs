//! Leader election: of several servers that share a store, one leads and owns every machine; the
//! others are standbys. A thread claims and renews leadership; machines are taken over only while
//! it is held.
//!
//! As with the leases of machines, the store's clock decides which server leads, and the monotonic
//! clock decides how long this server relies on it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_engine::{NotPermitted, Permit};
use bursar_journal::postgres::{Announcement, PostgresLeader};
use tokio::sync::watch;

use super::campaign::Campaign;
use super::losses::{LossWatch, Losses};
use super::trust::{InProgress, Trust};
use crate::telemetry::Metrics;

/// How long a request about the members may take in the store.
pub(crate) const MEMBER_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How long its caller waits, behind others.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Why a member that is draining does not lead.
pub(crate) const DRAINING: &str = "this member is draining";

/// The role of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Not known yet.
    Unknown,
    /// It owns the machines, or takes them over.
    Leader,
    /// It waits for leadership.
    Standby {
        /// The URL of the leader, if known.
        owner: Option<String>,
        /// Why it does not lead.
        reason: String,
    },
}

/// How this server takes part in the election.
pub(crate) struct Candidate {
    /// What it says of itself. It holds leases under the random id of its start, which no two processes share.
    pub member: Announcement,
    /// Whether the server uses the wall clock, which is then compared with the store's clock.
    pub by_wall_clock: bool,
    /// The metrics.
    pub metrics: Arc<Metrics>,
}

/// The thread that claims and renews leadership.
pub(crate) struct Leader {
    member: Announcement,
    trust: Arc<Trust>,
    role: watch::Receiver<Role>,
    gap: watch::Receiver<Option<String>>,
    losses: Arc<LossWatch>,
    requests: Mutex<Option<Sender<MemberRequest>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A request about the members.
type MemberRequest = Box<dyn FnOnce(&PostgresLeader) + Send>;

/// Carries out requests on a connection of their own, so that none delays a renewal. Then the state of this member is
/// read at once: it may have been changed.
fn answer_member_requests(
    store: &PostgresLeader,
    requests: &Receiver<MemberRequest>,
    look: &Sender<()>,
) {
    while let Ok(ask) = requests.recv() {
        ask(store);
        // The other thread ends after this one.
        let _ = look.send(());
    }
}

impl Leader {
    /// Starts to claim leadership.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(
        (store, of_asks): (PostgresLeader, PostgresLeader),
        candidate: Candidate,
    ) -> std::io::Result<Leader> {
        let trust = Arc::new(Trust::new());
        let (show, role) = watch::channel(Role::Unknown);
        let (show_gap, gap) = watch::channel(None);
        let (requests, asked) = channel();
        let member = candidate.member.clone();
        let losses = Arc::<LossWatch>::default();
        let remembered = Losses::new(Arc::clone(&losses));
        let campaign =
            Campaign::new(store, candidate, Arc::clone(&trust), (show, show_gap), remembered);
        let (look, looks) = channel();
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let members = named("bursar-members")
            .spawn(move || answer_member_requests(&of_asks, &asked, &look))?;
        let campaign = named("bursar-leader").spawn(move || campaign.run(&looks))?;
        let (requests, threads) = (Mutex::new(Some(requests)), Mutex::new(vec![members, campaign]));
        Ok(Leader { member, trust, role, gap, losses, requests, threads })
    }

    /// What is known of losses.
    pub(crate) fn losses(&self) -> &LossWatch {
        &self.losses
    }

    /// What this server says of itself.
    pub(crate) fn member(&self) -> &Announcement {
        &self.member
    }

    /// Begins a request if this server leads and does not hand over.
    pub(crate) fn begin(&self) -> Option<InProgress> {
        Trust::begin(&self.trust)
    }

    /// Carries out a request about the members. `None` if the store does not answer.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PostgresLeader) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, answer) = tokio::sync::oneshot::channel();
        let ask: MemberRequest = Box::new(move |store| {
            // The caller may have gone.
            let _ = done.send(work(store));
        });
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
        requests?.send(ask).ok()?;
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok()?.ok()
    }

    /// Whether this server leads, so that no other server can.
    pub(crate) fn leads(&self) -> bool {
        self.trust.holds()
    }

    /// The role of this server, and its changes.
    pub(crate) fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// The error text if the clocks of this server and of the store differ too much.
    pub(crate) fn clock_gap(&self) -> Option<String> {
        self.gap.borrow().clone()
    }

    /// Permits the ownership of machines while this server leads.
    pub(crate) fn permit(&self) -> Permit {
        let trust = Arc::clone(&self.trust);
        Permit::new(move || {
            if trust.holds() { Ok(()) } else { Err(NotPermitted("this server does not lead")) }
        })
    }

    /// Gives up leadership. Call it after all machines were released.
    pub(crate) fn stop(&self) {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // The thread has reported its panic; the lease then expires.
            let _ = thread.join();
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.stop();
    }
}
