//! The servers of an agent. It uses one of them until that one does not answer, then the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bursar_client::{Client, ClientError};

/// One server or several of one store. Cheap to clone; all clones use the same one.
#[derive(Clone, Debug)]
pub struct Servers {
    clients: Arc<[Client]>,
    /// Counts the changes; the rest by the number of servers is the one in use.
    used: Arc<AtomicUsize>,
}

/// The server that a call was sent to.
#[derive(Clone, Debug)]
pub struct ChosenServer {
    /// The connection.
    pub client: Client,
    turn: usize,
}

impl Servers {
    /// The first of the servers is used first.
    pub fn new(first: Client, others: impl IntoIterator<Item = Client>) -> Servers {
        let clients = std::iter::once(first).chain(others).collect();
        Servers { clients, used: Arc::default() }
    }

    /// The server in use.
    pub fn chosen(&self) -> ChosenServer {
        let turn = self.used.load(Ordering::Relaxed);
        ChosenServer { client: self.clients[turn % self.clients.len()].clone(), turn }
    }

    /// Goes on to the next server if this one did not answer, or cannot serve now. One that answered
    /// anything else stays in use. Several calls that failed together move on once.
    pub fn note(&self, chosen: &ChosenServer, error: &ClientError) {
        let may_help = matches!(error.status(), None | Some(500..));
        if self.clients.len() > 1 && may_help {
            let (old, new) = (chosen.turn, chosen.turn.wrapping_add(1));
            let moved = self.used.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
            if moved.is_ok() {
                let (from, to) = (chosen.client.server(), self.chosen().client);
                tracing::warn!(from, to = to.server(), "uses the next server");
            }
        }
    }
}
