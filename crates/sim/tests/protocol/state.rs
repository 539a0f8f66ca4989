//! The state of the protocol: journals and leases in the database, members, requests, and appends on the network.

/// The number of a member.
pub(crate) type MemberNo = usize;
/// Rises with every owner of a machine.
pub(crate) type Epoch = u8;
/// The number of a client's request. It is also its id: a repetition has the same one.
pub(crate) type RequestNo = usize;

pub(crate) const LEDGER: usize = 0;
pub(crate) const CELL: usize = 1;

/// A batch of a journal. Two batches are equal only if their hashes would be.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Batch {
    /// Shows that a new owner can write, and that everything before it is on the standby.
    Barrier { epoch: Epoch },
    /// The effect of a request. In the ledger's journal it is also the next message to the cell.
    Effect { request: RequestNo, epoch: Epoch },
    /// The cell's effect of a message, with the hash of the ledger's batch that contained it.
    Delivered { request: RequestNo, sent_in: Epoch, epoch: Epoch },
}

/// The journal and the lease of a machine, in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StoredMachine {
    pub(crate) batches: Vec<Batch>,
    /// How many of the batches the synchronous standby has.
    pub(crate) replicated: usize,
    pub(crate) epoch: Epoch,
    /// The holder of a lease that has not expired.
    pub(crate) holder: Option<MemberNo>,
}

/// What an owner knows of its machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnedMachine {
    pub(crate) epoch: Epoch,
    pub(crate) trusts_lease: bool,
    /// Whether its barrier is durable.
    pub(crate) is_serving: bool,
    /// The batches that it has applied and knows to be durable.
    pub(crate) applied: Vec<Batch>,
    /// The batch whose outcome is not known yet.
    pub(crate) appending: Option<Batch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    pub(crate) is_alive: bool,
    pub(crate) owned: [Option<OwnedMachine>; 2],
    /// The highest durable head that it saw of each machine.
    pub(crate) seen: [Vec<Batch>; 2],
}

/// An append on its way to the database.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Append {
    pub(crate) machine: usize,
    pub(crate) epoch: Epoch,
    pub(crate) expected_head: usize,
    pub(crate) batch: Batch,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestState {
    /// Not sent, or sent without an answer: the client sends it, maybe again.
    Unanswered,
    /// A member has it.
    At(MemberNo),
    Acknowledged,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) store: [StoredMachine; 2],
    pub(crate) members: Vec<Member>,
    pub(crate) requests: Vec<RequestState>,
    pub(crate) appends: Vec<Append>,
    /// How often each fault may still occur.
    pub(crate) left: Faults,
    /// Whether a standby was promoted that lacked acknowledged batches.
    pub(crate) has_lost_batches: bool,
}

/// How often each fault occurs at most.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    pub(crate) crashes: u8,
    pub(crate) expiries: u8,
    pub(crate) hand_overs: u8,
    pub(crate) promotions: u8,
    pub(crate) lossy_promotions: u8,
}

/// The message in a batch of the ledger.
pub(crate) fn effect(batch: &Batch) -> Option<(RequestNo, Epoch)> {
    match *batch {
        Batch::Effect { request, epoch } => Some((request, epoch)),
        Batch::Barrier { .. } | Batch::Delivered { .. } => None,
    }
}

/// The message that a batch of the cell has taken.
pub(crate) fn delivered(batch: &Batch) -> Option<(RequestNo, Epoch)> {
    match *batch {
        Batch::Delivered { request, sent_in, .. } => Some((request, sent_in)),
        Batch::Barrier { .. } | Batch::Effect { .. } => None,
    }
}

impl State {
    pub(crate) fn append(&mut self, member: MemberNo, machine: usize, batch: Batch) {
        let Some(owned) = &mut self.members[member].owned[machine] else { return };
        owned.appending = Some(batch);
        let append =
            Append { machine, epoch: owned.epoch, expected_head: owned.applied.len(), batch };
        self.appends.push(append);
        // The network has no order: equal sets are equal states.
        self.appends.sort();
    }

    pub(crate) fn serving_owner(&self, machine: usize) -> Option<(MemberNo, &OwnedMachine)> {
        let owners = self.members.iter().enumerate();
        let mut owners =
            owners.filter_map(|(no, member)| Some((no, member.owned[machine].as_ref()?)));
        owners.find(|(_, owned)| owned.trusts_lease && owned.is_serving)
    }

    /// The client of an unfinished request hears nothing, or 503, and sends it again.
    pub(crate) fn abandon_requests_at(&mut self, member: MemberNo) {
        for request in &mut self.requests {
            if *request == RequestState::At(member) {
                *request = RequestState::Unanswered;
            }
        }
    }

    pub(crate) fn acknowledge(&mut self, member: MemberNo, batch: Batch) {
        if let Some((request, _)) = effect(&batch)
            && self.requests[request] == RequestState::At(member)
        {
            self.requests[request] = RequestState::Acknowledged;
        }
    }

    /// A standby with the first `kept` batches of each journal becomes the primary. Connections break.
    pub(crate) fn promote(&mut self, kept: [usize; 2]) {
        for (stored, kept) in self.store.iter_mut().zip(kept) {
            stored.batches.truncate(kept);
            stored.replicated = kept;
        }
        self.appends.clear();
    }

    /// The member that has an unfinished request.
    pub(crate) fn member_of(&self, request: RequestNo) -> Option<MemberNo> {
        match self.requests[request] {
            RequestState::At(member) => Some(member),
            RequestState::Unanswered | RequestState::Acknowledged => None,
        }
    }
}
