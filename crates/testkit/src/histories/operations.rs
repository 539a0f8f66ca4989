//! Requests that are one: a client repeats a request until it has an answer.

use std::collections::BTreeMap;

use super::{CallOutcome, ClientCall, JournalEntry, MoneyEffect, MoneyRequest, sum};

/// What makes requests one: the tenant, the idempotency key or the caller's id, and the content.
type Identity<'a> = (&'a str, Option<&'a str>, &'a MoneyRequest);

/// All tries of one change.
pub(super) struct Operation<'a> {
    pub(super) tries: Vec<&'a ClientCall>,
    /// The place of its effect among the entries.
    pub(super) entry: Option<usize>,
}

impl<'a> Operation<'a> {
    pub(super) fn request(&self) -> &'a MoneyRequest {
        &self.tries[0].request
    }

    pub(super) fn tenant(&self) -> &'a str {
        &self.tries[0].tenant
    }

    /// When it was first sent: its effect is later.
    pub(super) fn invoked(&self) -> u64 {
        self.tries.iter().map(|call| call.invoked).min().unwrap_or_default()
    }

    /// The answers that say that it is done.
    pub(super) fn done(&self) -> impl Iterator<Item = &'a ClientCall> {
        let done = |call: &&ClientCall| matches!(call.outcome, CallOutcome::Done { .. });
        self.tries.iter().copied().filter(done)
    }

    /// Whether a try may have had an effect that no answer showed.
    fn is_open(&self) -> bool {
        self.done().next().is_none()
            && self.tries.iter().any(|call| call.outcome == CallOutcome::Unknown)
    }

    /// The id that the effect must have: the caller's, or the one in an answer.
    fn id(&self) -> Option<&'a str> {
        let answered = self.done().find_map(|call| match &call.outcome {
            CallOutcome::Done { id, .. } => Some(id.as_str()),
            _ => None,
        });
        match self.request() {
            MoneyRequest::Grant { id, .. }
            | MoneyRequest::Hold { id, .. }
            | MoneyRequest::Charge { id, .. }
            | MoneyRequest::Refund { id, .. } => id.as_deref().or(answered),
            MoneyRequest::Settle { hold, .. } => Some(hold),
            MoneyRequest::Balance { .. } => None,
        }
    }
}

/// The changes among the calls, each with all its tries in the order of their answers.
pub(super) fn group<'a>(calls: &[&'a ClientCall]) -> Vec<Operation<'a>> {
    let mut groups: BTreeMap<Identity<'a>, Vec<&'a ClientCall>> = BTreeMap::new();
    let mut alone = Vec::new();
    for call in calls {
        match &call.request {
            MoneyRequest::Balance { .. } => {}
            request @ MoneyRequest::Settle { .. } => {
                // A hold is settled once, under whatever key.
                groups.entry((&call.tenant, None, request)).or_default().push(call);
            }
            request if own_id(request).is_some() => {
                groups.entry((&call.tenant, None, request)).or_default().push(call);
            }
            request => match &call.repeat {
                Some(key) => {
                    groups.entry((&call.tenant, Some(key), request)).or_default().push(call)
                }
                None => alone.push(vec![*call]),
            },
        }
    }
    let groups = groups.into_values().chain(alone);
    groups
        .map(|mut tries| {
            tries.sort_by_key(|call| call.returned);
            Operation { tries, entry: None }
        })
        .collect()
}

fn own_id(request: &MoneyRequest) -> Option<&str> {
    match request {
        MoneyRequest::Grant { id, .. }
        | MoneyRequest::Hold { id, .. }
        | MoneyRequest::Charge { id, .. }
        | MoneyRequest::Refund { id, .. } => id.as_deref(),
        MoneyRequest::Settle { .. } | MoneyRequest::Balance { .. } => None,
    }
}

/// Whether an effect is what a request asks for, whatever its id.
pub(super) fn fits(effect: &MoneyEffect, tenant: &str, request: &MoneyRequest) -> bool {
    let same = match (effect, request) {
        (
            MoneyEffect::Granted { account, amount, .. },
            MoneyRequest::Grant { account: a, amount: n, .. },
        ) => account == a && amount == n,
        (
            MoneyEffect::Held { account, from, .. },
            MoneyRequest::Hold { account: a, amount: n, .. },
        )
        | (
            MoneyEffect::Charged { account, from, .. },
            MoneyRequest::Charge { account: a, amount: n, .. },
        ) => account == a && sum(from) == *n,
        (MoneyEffect::Settled { hold, taken, .. }, MoneyRequest::Settle { hold: h, total }) => {
            hold == h && sum(taken) == *total
        }
        (MoneyEffect::Refunded { of, to, .. }, MoneyRequest::Refund { of: o, amount, .. }) => {
            of == o && sum(to) == *amount
        }
        _ => false,
    };
    same && effect.tenant() == tenant
}

/// The id of what an effect makes or closes; none for an opened account.
pub(super) fn id_of(effect: &MoneyEffect) -> Option<&str> {
    match effect {
        MoneyEffect::Opened { .. } => None,
        MoneyEffect::Granted { id, .. }
        | MoneyEffect::Held { id, .. }
        | MoneyEffect::Charged { id, .. }
        | MoneyEffect::Refunded { id, .. }
        | MoneyEffect::Settled { hold: id, .. } => Some(id),
    }
}

/// Finds the effect of each operation. Effects whose id no client knows belong to operations of the
/// same content without an answer, each to one. Returns the first effect that belongs to none.
pub(super) fn assign(
    operations: &mut [Operation<'_>],
    entries: &[JournalEntry],
    may_follow: impl Fn(&Operation<'_>, u64) -> bool,
) -> Option<usize> {
    let mut named: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (number, operation) in operations.iter().enumerate() {
        if let Some(id) = operation.id() {
            named.entry((operation.tenant(), id)).or_default().push(number);
        }
    }
    let mut left = None;
    for (index, entry) in entries.iter().enumerate() {
        let Some(id) = id_of(&entry.effect) else { continue };
        let fitting = |number: &usize| {
            let operation = &operations[*number];
            operation.entry.is_none()
                && fits(&entry.effect, operation.tenant(), operation.request())
        };
        let known = named.get(&(entry.effect.tenant(), id));
        let found = known.and_then(|numbers| numbers.iter().copied().find(fitting)).or_else(|| {
            (0..operations.len()).filter(fitting).find(|number| {
                let operation = &operations[*number];
                operation.id().is_none()
                    && operation.is_open()
                    && may_follow(operation, entry.position)
            })
        });
        match found {
            Some(number) => operations[number].entry = Some(index),
            None => left = left.or(Some(index)),
        }
    }
    left
}
