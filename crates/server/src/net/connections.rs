//! How many connections there may be: as many as leave enough file descriptors to the rest of the
//! server, and not all of them from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of connections.
const MAX_CONNECTIONS: u64 = 16_384;
/// The file descriptors that are not for connections: journals, history, segments, output of jobs,
/// and connections to PostgreSQL and to identity providers.
const RESERVED_FILES: u64 = 512;

/// The number of connections that leave enough of so many file descriptors to the rest of the server.
fn places(files: u64) -> u64 {
    (files - RESERVED_FILES.min(files / 2)).clamp(1, MAX_CONNECTIONS)
}

/// Raises the limit of file descriptors as far as the system allows and the server needs, and returns
/// it.
fn raise_file_limit() -> u64 {
    let needed = MAX_CONNECTIONS + RESERVED_FILES;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard.min(needed) => {
            let wanted = hard.min(needed);
            setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_or(soft, |()| wanted)
        }
        Ok((soft, _)) => soft,
        // POSIX guarantees the call; without an answer assume a common default.
        Err(_) => 1_024,
    }
}

/// The places for connections.
pub(super) struct Connections {
    places: Arc<Semaphore>,
    /// The most that one address may have: three quarters, because all clients may be behind one proxy.
    per_address: usize,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A place of a connection, given back when it is dropped.
pub(super) struct ConnectionSlot {
    address: IpAddr,
    by_address: Arc<Mutex<HashMap<IpAddr, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Connections {
    /// As many places as the limit of file descriptors allows, after raising it.
    pub(super) fn within_file_limit() -> Connections {
        let files = raise_file_limit();
        let connections = places(files);
        if connections < MAX_CONNECTIONS {
            tracing::info!(connections, files, "the limit of file descriptors bounds connections");
        }
        Connections::new(usize::try_from(connections).unwrap_or(usize::MAX))
    }

    fn new(places: usize) -> Connections {
        Connections {
            places: Arc::new(Semaphore::new(places)),
            per_address: (places - places / 4).max(1),
            by_address: Arc::default(),
        }
    }

    /// Waits until there is a place for one more connection.
    pub(super) async fn wait_for_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }

    /// Gives the place to a connection from `address`, or `None` if that address has its share.
    pub(super) fn admit(
        &self,
        permit: OwnedSemaphorePermit,
        address: IpAddr,
    ) -> Option<ConnectionSlot> {
        let address = source(address);
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.per_address {
            return None;
        }
        *count += 1;
        Some(ConnectionSlot { address, by_address: Arc::clone(&self.by_address), _permit: permit })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut counts = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The address that connections are counted by: of IPv6 the network, because one host has all of it.
fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !0 << 64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_the_rest_of_the_server() {
        let most = MAX_CONNECTIONS;
        for (files, expected) in [(0, 1), (1, 1), (200, 100), (1_024, 512), (1 << 20, most)] {
            assert_eq!(places(files), expected, "{files} descriptors");
        }
        assert_eq!(places(most + RESERVED_FILES), most);
    }

    #[tokio::test]
    async fn one_address_gets_three_quarters_of_the_places_and_gives_them_back() {
        let connections = Connections::new(8);
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut kept = Vec::new();
        for _ in 0..6 {
            let permit = connections.wait_for_slot().await.expect("a place is free");
            kept.push(connections.admit(permit, address("2001:db8::1")).expect("in its share"));
        }
        let permit = connections.wait_for_slot().await.expect("a place is free");
        assert!(connections.admit(permit, address("2001:db8::2")).is_none(), "the same network");
        let permit = connections.wait_for_slot().await.expect("the refused one took no place");
        let other =
            connections.admit(permit, address("::ffff:192.0.2.1")).expect("another address");
        assert_eq!(other.address, address("192.0.2.1"));
        kept.pop();
        let permit = connections.wait_for_slot().await.expect("a place is free");
        assert!(connections.admit(permit, address("2001:db8::2")).is_some());
        drop((kept, other));
        assert!(connections.by_address.lock().expect("no panic before").is_empty());
    }
}
