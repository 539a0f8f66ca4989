//! How servers of one store divide its machines while each of them serves only if it owns all. With a leader that is
//! elected first, one server ends up with all machines. Without it two servers can each own some, renew, and serve
//! nothing for ever.

use stateright::{Checker, Model, Property};

/// Servers that start at the same instant.
#[derive(Copy, Clone, Debug)]
struct Election {
    servers: usize,
    machines: usize,
    /// Whether a server takes machines only while it leads.
    has_leader: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leases {
    leader: Option<usize>,
    machines: Vec<Option<usize>>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Claim {
    Leadership { server: usize },
    Machine { server: usize, machine: usize },
}

impl Model for Election {
    type State = Leases;
    type Action = Claim;

    fn init_states(&self) -> Vec<Leases> {
        vec![Leases { leader: None, machines: vec![None; self.machines] }]
    }

    fn actions(&self, leases: &Leases, claims: &mut Vec<Claim>) {
        for server in 0..self.servers {
            if self.has_leader && leases.leader.is_none() {
                claims.push(Claim::Leadership { server });
            }
            if !self.has_leader || leases.leader == Some(server) {
                let free = (0..self.machines).filter(|machine| leases.machines[*machine].is_none());
                claims.extend(free.map(|machine| Claim::Machine { server, machine }));
            }
        }
    }

    fn next_state(&self, leases: &Leases, claim: Claim) -> Option<Leases> {
        let mut leases = leases.clone();
        match claim {
            Claim::Leadership { server } => leases.leader = Some(server),
            Claim::Machine { server, machine } => leases.machines[machine] = Some(server),
        }
        Some(leases)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::eventually(SERVES, |election: &Election, leases: &Leases| {
            (0..election.servers)
                .any(|server| leases.machines.iter().all(|owner| *owner == Some(server)))
        })]
    }
}

const SERVES: &str = "one server owns every machine";

#[test]
fn with_a_leader_one_server_owns_every_machine() {
    let election = Election { servers: 4, machines: 3, has_leader: true };
    election.checker().spawn_bfs().join().assert_properties();
}

#[test]
fn leases_that_are_taken_separately_are_split() {
    let election = Election { servers: 2, machines: 3, has_leader: false };
    let checker = election.checker().spawn_bfs().join();
    let split = checker.assert_any_discovery(SERVES);
    let owners: std::collections::BTreeSet<_> =
        split.last_state().machines.iter().copied().collect();
    assert_eq!(owners.len(), 2, "two servers own some machines each");
}
