//! The steps of the protocol: leases, appends, takeover, hand-over, forwarding, courier marks and promotions of a
//! standby, for one ledger and one cell.
//!
//! Time is left out. A lease can expire at any moment after its holder stopped trusting it, or died: that is what two
//! thirds of the lease on a monotonic clock guarantee. A network that delays is an append that has not arrived yet.

use stateright::Model;

use super::state::{
    Append, Batch, CELL, Epoch, Faults, LEDGER, Member, MemberNo, OwnedMachine, RequestNo,
    RequestState, State, delivered, effect,
};

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Acquire { member: MemberNo, machine: usize },
    TrustEnds { member: MemberNo, machine: usize },
    StepDown { member: MemberNo, machine: usize },
    LeaseExpires { machine: usize },
    HandOver { machine: usize, to: MemberNo },
    Send { request: RequestNo, to: MemberNo },
    Forward { request: RequestNo },
    Unavailable { request: RequestNo },
    Decide { request: RequestNo },
    AppendArrives { append: usize },
    Replicate { machine: usize },
    Confirm { member: MemberNo, machine: usize },
    Deliver,
    Crash { member: MemberNo },
    Promote,
    PromoteLossy,
}

/// Known mistakes. The checker must find each of them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The answer is sent when the append is sent.
    AnswersBeforeDurable,
    /// The answer is sent when the primary has the batch.
    AnswersBeforeReplicated,
    /// The database appends whatever arrives.
    AppendsWithoutCheck,
    /// The lease expires while its holder still trusts it.
    TrustOutlivesLease,
    /// A new owner serves without a barrier.
    SkipsBarrier,
    /// A strong read is answered after trust ended.
    ReadsWithoutTrust,
    /// An owner that hands over answers what is in flight.
    HandsOverWithoutFlush,
    /// The courier reads batches that are not durable.
    DeliversBeforeDurable,
    /// The receiver's mark has no hash.
    MarkWithoutHash,
    /// The receiver's mark is lost with its owner.
    MarkNotInCommit,
    /// A repeated request is decided again.
    ForgetsRequestIds,
    /// A member serves a store that is behind what it saw.
    SkipsLossGuard,
}

#[derive(Copy, Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) members: usize,
    pub(crate) requests: usize,
    pub(crate) faults: Faults,
    pub(crate) mistake: Option<Mistake>,
}

impl Protocol {
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Whether a member would answer a strong read of a machine.
    pub(crate) fn answers_reads(&self, owned: &OwnedMachine) -> bool {
        owned.is_serving && (owned.trusts_lease || self.makes(Mistake::ReadsWithoutTrust))
    }

    fn may_acquire(&self, state: &State, member: MemberNo, machine: usize) -> bool {
        let Member { is_alive, owned, seen } = &state.members[member];
        let is_behind = !state.store[machine].batches.starts_with(&seen[machine]);
        *is_alive && owned[machine].is_none() && (!is_behind || self.makes(Mistake::SkipsLossGuard))
    }

    /// Takes the lease, reads the journal and sends the barrier.
    fn take(&self, state: &mut State, member: MemberNo, machine: usize) {
        let stored = &mut state.store[machine];
        stored.epoch += 1;
        stored.holder = Some(member);
        let (epoch, applied) = (stored.epoch, stored.batches.clone());
        let is_serving = self.makes(Mistake::SkipsBarrier);
        let owned =
            OwnedMachine { epoch, trusts_lease: true, is_serving, applied, appending: None };
        state.members[member].owned[machine] = Some(owned);
        if !is_serving {
            state.append(member, machine, Batch::Barrier { epoch });
        }
    }

    /// The line from the ledger to the cell while both are served and the cell can append.
    pub(crate) fn line(&self, state: &State) -> Option<Line> {
        let (_, ledger) = state.serving_owner(LEDGER)?;
        let (receiver, cell) = state.serving_owner(CELL)?;
        if cell.appending.is_some() {
            return None;
        }
        let early = ledger.appending.filter(|_| self.makes(Mistake::DeliversBeforeDurable));
        let sent: Vec<_> = ledger.applied.iter().chain(&early).filter_map(effect).collect();
        let since = match self.makes(Mistake::MarkNotInCommit) {
            true => cell
                .applied
                .iter()
                .rposition(|batch| matches!(batch, Batch::Barrier { .. }))
                .unwrap_or(0),
            false => 0,
        };
        let taken: Vec<_> = cell.applied[since..].iter().filter_map(delivered).collect();
        let hash_differs = taken.last().is_some_and(|last| sent.get(taken.len() - 1) != Some(last));
        let is_stopped = hash_differs && !self.makes(Mistake::MarkWithoutHash);
        Some(Line { receiver, epoch: cell.epoch, sent, taken, is_stopped })
    }
}

/// The messages of the ledger and what the cell has taken of them.
pub(crate) struct Line {
    pub(crate) receiver: MemberNo,
    pub(crate) epoch: Epoch,
    pub(crate) sent: Vec<(RequestNo, Epoch)>,
    pub(crate) taken: Vec<(RequestNo, Epoch)>,
    /// Whether the hash in the receiver's mark is not in the sender's journal. An operator must decide.
    pub(crate) is_stopped: bool,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let member = Member { is_alive: true, owned: [None, None], seen: [Vec::new(), Vec::new()] };
        vec![State {
            store: Default::default(),
            members: vec![member; self.members],
            requests: vec![RequestState::Unanswered; self.requests],
            appends: Vec::new(),
            left: self.faults,
            has_lost_batches: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for machine in [LEDGER, CELL] {
            let stored = &state.store[machine];
            for (member, Member { is_alive, owned, .. }) in state.members.iter().enumerate() {
                if stored.holder.is_none() && self.may_acquire(state, member, machine) {
                    actions.push(Action::Acquire { member, machine });
                }
                if let Some(owned) = owned[machine].as_ref().filter(|_| *is_alive) {
                    if owned.trusts_lease && state.left.expiries > 0 {
                        actions.push(Action::TrustEnds { member, machine });
                    }
                    actions.push(Action::Confirm { member, machine });
                    actions.push(Action::StepDown { member, machine });
                    if owned.trusts_lease && owned.is_serving && state.left.hand_overs > 0 {
                        let others =
                            (0..self.members).filter(|to| self.may_acquire(state, *to, machine));
                        actions.extend(others.map(|to| Action::HandOver { machine, to }));
                    }
                }
            }
            actions.push(Action::LeaseExpires { machine });
            if stored.replicated < stored.batches.len() {
                actions.push(Action::Replicate { machine });
            }
        }
        for (request, sent) in state.requests.iter().enumerate() {
            match *sent {
                RequestState::Unanswered => {
                    let alive = (0..self.members).filter(|member| state.members[*member].is_alive);
                    actions.extend(alive.map(|to| Action::Send { request, to }));
                }
                RequestState::At(_) => {
                    actions.push(Action::Decide { request });
                    actions.push(Action::Forward { request });
                    actions.push(Action::Unavailable { request });
                }
                RequestState::Acknowledged => {}
            }
        }
        actions.extend((0..state.appends.len()).map(|append| Action::AppendArrives { append }));
        actions.push(Action::Deliver);
        if state.left.crashes > 0 {
            actions.extend((0..self.members).map(|member| Action::Crash { member }));
        }
        if state.left.promotions > 0 {
            actions.push(Action::Promote);
        }
        if state.left.lossy_promotions > 0 && state.store[LEDGER].replicated > 0 {
            actions.push(Action::PromoteLossy);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Acquire { member, machine } => self.take(&mut state, member, machine),
            Action::TrustEnds { member, machine } => {
                state.left.expiries -= 1;
                state.members[member].owned[machine].as_mut()?.trusts_lease = false;
            }
            // After trust ended, or when an append has failed or its outcome is unknown.
            Action::StepDown { member, machine } => {
                let owned = last.members[member].owned[machine].as_ref()?;
                let is_stuck = owned.appending.is_some_and(|batch| {
                    let waits = last.appends.iter().any(|append| append.batch == batch);
                    let arrived =
                        last.store[machine].batches.get(owned.applied.len()) == Some(&batch);
                    !waits && !arrived
                });
                if owned.trusts_lease && !is_stuck {
                    return None;
                }
                state.members[member].owned[machine] = None;
                if machine == LEDGER {
                    state.abandon_requests_at(member);
                }
            }
            Action::LeaseExpires { machine } => {
                let holder = last.store[machine].holder?;
                let owned = last.members[holder].owned[machine].as_ref();
                if owned.is_some_and(|owned| owned.trusts_lease)
                    && !self.makes(Mistake::TrustOutlivesLease)
                {
                    return None;
                }
                state.store[machine].holder = None;
            }
            Action::HandOver { machine, to } => {
                let (from, owned) = last.serving_owner(machine)?;
                if let Some(batch) = owned.appending {
                    if !self.makes(Mistake::HandsOverWithoutFlush) {
                        return None;
                    }
                    state.acknowledge(from, batch);
                }
                state.left.hand_overs -= 1;
                state.members[from].owned[machine] = None;
                self.take(&mut state, to, machine);
                if machine == LEDGER {
                    // The queue moves to the successor.
                    for request in &mut state.requests {
                        if *request == RequestState::At(from) {
                            *request = RequestState::At(to);
                        }
                    }
                }
            }
            Action::Send { request, to } => state.requests[request] = RequestState::At(to),
            Action::Forward { request } => {
                let (at, owner) = (last.member_of(request)?, last.store[LEDGER].holder?);
                if at == owner || !last.members[owner].is_alive {
                    return None;
                }
                state.requests[request] = RequestState::At(owner);
            }
            Action::Unavailable { request } => {
                let at = last.member_of(request)?;
                if last.members[at].owned[LEDGER].is_some() {
                    return None;
                }
                state.requests[request] = RequestState::Unanswered;
            }
            Action::Decide { request } => {
                let at = last.member_of(request)?;
                let owned = last.members[at].owned[LEDGER].as_ref()?;
                if !owned.trusts_lease || !owned.is_serving || owned.appending.is_some() {
                    return None;
                }
                let is_known =
                    owned.applied.iter().filter_map(effect).any(|(known, _)| known == request);
                if is_known && !self.makes(Mistake::ForgetsRequestIds) {
                    state.requests[request] = RequestState::Acknowledged;
                } else {
                    state.append(at, LEDGER, Batch::Effect { request, epoch: owned.epoch });
                    if self.makes(Mistake::AnswersBeforeDurable) {
                        state.requests[request] = RequestState::Acknowledged;
                    }
                }
            }
            Action::AppendArrives { append } => {
                let Append { machine, epoch, expected_head, batch } = state.appends.remove(append);
                let stored = &mut state.store[machine];
                let fits = stored.epoch == epoch && stored.batches.len() == expected_head;
                if fits || self.makes(Mistake::AppendsWithoutCheck) {
                    stored.batches.push(batch);
                }
            }
            Action::Replicate { machine } => state.store[machine].replicated += 1,
            Action::Confirm { member, machine } => {
                let stored = &last.store[machine];
                let owned = state.members[member].owned[machine].as_mut()?;
                let batch = owned.appending?;
                let durable = match self.makes(Mistake::AnswersBeforeReplicated) {
                    true => stored.batches.len(),
                    false => stored.replicated,
                };
                let at = owned.applied.len();
                if at >= durable || stored.batches.get(at) != Some(&batch) {
                    return None;
                }
                owned.applied.push(batch);
                owned.appending = None;
                owned.is_serving = true;
                state.members[member].seen[machine] = stored.batches[..=at].to_vec();
                state.acknowledge(member, batch);
            }
            Action::Deliver => {
                let line = self.line(last).filter(|line| !line.is_stopped)?;
                let (request, sent_in) = *line.sent.get(line.taken.len())?;
                state.append(
                    line.receiver,
                    CELL,
                    Batch::Delivered { request, sent_in, epoch: line.epoch },
                );
            }
            // The member starts again at once, with no memory.
            Action::Crash { member } => {
                state.left.crashes -= 1;
                state.members[member].owned = [None, None];
                state.members[member].seen = [Vec::new(), Vec::new()];
                state.abandon_requests_at(member);
            }
            Action::Promote => {
                state.left.promotions -= 1;
                state.promote([last.store[LEDGER].replicated, last.store[CELL].replicated]);
            }
            Action::PromoteLossy => {
                state.left.lossy_promotions -= 1;
                state.has_lost_batches = true;
                state.promote([last.store[LEDGER].replicated - 1, last.store[CELL].replicated]);
            }
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        super::properties::all()
    }
}
