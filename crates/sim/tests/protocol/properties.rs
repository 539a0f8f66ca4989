//! What must hold in every state of the protocol, and what must be possible.

use std::collections::BTreeSet;

use stateright::Property;

use super::model::Protocol;
use super::state::{Batch, CELL, LEDGER, OwnedMachine, RequestState, State, delivered, effect};

pub(crate) const NOTHING_LOST: &str = "acknowledged requests are in the journal of the standby";
pub(crate) const NOTHING_TWICE: &str = "a request has at most one effect";
pub(crate) const ONE_OWNER: &str = "at most one member trusts the lease of a machine";
pub(crate) const READS_ARE_CURRENT: &str = "a strong read sees every acknowledged request";
pub(crate) const STATE_IS_JOURNAL: &str = "the state of a trusting owner is the journal's";
pub(crate) const MESSAGES_ONCE: &str =
    "a message takes effect at most once, and only if it is durable";
pub(crate) const LOSS_IS_NOT_SERVED: &str = "a member serves no journal that lacks what it saw";

pub(crate) const LINE_GOES_ON: &str = "a line that goes on has delivered what its sender sent";

/// All properties.
pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(NOTHING_LOST, |_, state: &State| {
            let ledger = &state.store[LEDGER];
            state.has_lost_batches
                || holds_all_acknowledged(state, &ledger.batches[..ledger.replicated])
        }),
        Property::always(NOTHING_TWICE, |_, state: &State| {
            is_distinct(
                state.store[LEDGER].batches.iter().filter_map(effect).map(|(request, _)| request),
            )
        }),
        Property::always(ONE_OWNER, |_, state: &State| {
            [LEDGER, CELL].iter().all(|machine| {
                let owners = owners(state, *machine);
                owners.filter(|owned| owned.trusts_lease).count() <= 1
            })
        }),
        Property::always(READS_ARE_CURRENT, |protocol: &Protocol, state: &State| {
            let mut readable = owners(state, LEDGER).filter(|owned| protocol.answers_reads(owned));
            state.has_lost_batches
                || readable.all(|owned| holds_all_acknowledged(state, &owned.applied))
        }),
        Property::always(STATE_IS_JOURNAL, |_, state: &State| {
            [LEDGER, CELL].iter().all(|machine| {
                let mut serving =
                    owners(state, *machine).filter(|owned| owned.trusts_lease && owned.is_serving);
                let journal = &state.store[*machine].batches;
                state.has_lost_batches || serving.all(|owned| journal.starts_with(&owned.applied))
            })
        }),
        Property::always(MESSAGES_ONCE, |_, state: &State| {
            let taken: Vec<_> = state.store[CELL].batches.iter().filter_map(delivered).collect();
            let ledger = &state.store[LEDGER];
            let durable = ledger.batches[..ledger.replicated].iter().filter_map(effect);
            let sent: Vec<_> = durable.collect();
            is_distinct(taken.iter().map(|(request, _)| *request))
                && (state.has_lost_batches || sent.starts_with(&taken))
        }),
        Property::always(LINE_GOES_ON, |protocol: &Protocol, state: &State| {
            let line = protocol.line(state).filter(|line| !line.is_stopped);
            line.is_none_or(|line| line.sent.starts_with(&line.taken))
        }),
        Property::always(LOSS_IS_NOT_SERVED, |_, state: &State| {
            state.members.iter().all(|member| {
                [LEDGER, CELL].iter().all(|machine| {
                    let owned = member.owned[*machine].as_ref();
                    owned.is_none_or(|owned| owned.applied.starts_with(&member.seen[*machine]))
                })
            })
        }),
        // The faults leave a way to the end.
        Property::sometimes(
            "every request is acknowledged and delivered",
            |protocol: &Protocol, state: &State| {
                let is_acknowledged =
                    |request: &RequestState| *request == RequestState::Acknowledged;
                let taken = state.store[CELL].batches.iter().filter_map(delivered).count();
                state.requests.iter().all(is_acknowledged) && taken == protocol.requests
            },
        ),
        Property::sometimes("a second owner acknowledges", |_, state: &State| {
            let ledger = &state.store[LEDGER].batches;
            let barriers =
                ledger.iter().filter(|batch| matches!(batch, Batch::Barrier { .. })).count();
            barriers > 1 && ledger.last().and_then(effect).is_some()
        }),
    ]
}

fn owners(state: &State, machine: usize) -> impl Iterator<Item = &OwnedMachine> {
    state.members.iter().filter_map(move |member| member.owned[machine].as_ref())
}

fn holds_all_acknowledged(state: &State, batches: &[Batch]) -> bool {
    let requests = state.requests.iter().enumerate();
    let mut acknowledged = requests.filter(|(_, sent)| **sent == RequestState::Acknowledged);
    acknowledged
        .all(|(request, _)| batches.iter().filter_map(effect).any(|(found, _)| found == request))
}

fn is_distinct(requests: impl Iterator<Item = usize>) -> bool {
    let mut seen = BTreeSet::new();
    requests.into_iter().all(|request| seen.insert(request))
}
