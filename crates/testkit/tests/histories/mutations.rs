//! Histories of servers that break one promise. Each mutation returns none if the history has no
//! place for it.

use bursar_testkit::generate::Random;
use bursar_testkit::histories::{
    CallOutcome, ClientCall, ClientHistory, JournalEntry, MachineJournal, MoneyEffect,
    MoneyRequest, RefusalReason,
};

use crate::honest::RICH;

type Mutation = fn(&mut ClientHistory, &mut Random) -> Option<()>;

pub(crate) const ALL: &[(&str, Mutation)] = &[
    ("an acknowledged effect is not in the journal", lose_an_effect),
    ("the last records are gone", lose_the_end),
    ("an effect stands twice", double_an_effect),
    ("one idempotency key has two effects", double_a_key),
    ("a grant that no client asked for", add_a_grant),
    ("two effects in the wrong order, answers alike", swap_effects),
    ("an effect is before its request", ask_later),
    ("the journal has another amount", change_a_stored_amount),
    ("the answer has another amount", change_an_answered_amount),
    ("the answer has another position", change_a_position),
    ("the answer has another id", change_an_id),
    ("the answer has another rest", change_the_rest),
    ("a read shows an older state", read_the_past),
    ("a read shows a later state", read_the_future),
    ("a read shows too much", read_too_much),
    ("a read shows held credits as free", read_held_as_free),
    ("a read is beyond the journal", read_beyond_the_end),
    ("a key is accepted after its revocation", accept_a_revoked_key),
    ("a key is accepted after it was refused", accept_a_refused_key),
    ("a key is accepted that was never made", accept_an_unknown_key),
    ("a valid key is refused", refuse_a_valid_key),
    ("an effect of a refused key", effect_of_a_refused_key),
    ("refused for credits that are there", refuse_the_rich),
    ("a known hold is not found", forget_a_hold),
    ("done and refused under one key", refuse_what_is_done),
    ("a repeat is answered as new", answer_twice_as_new),
    ("a repeat is answered differently", answer_differently),
    ("a hold draws from another tenant", draw_from_another),
    ("a tenant is in two journals", move_an_effect),
    ("a hold is closed twice", close_twice),
    ("more is held than there is", hold_too_much),
    ("more is refunded than was taken", refund_too_much),
    ("a position stands twice", repeat_a_position),
];

/// The answered change with its journal and the place of its effect.
fn effects(history: &ClientHistory) -> Vec<(usize, usize, usize)> {
    let mut found = Vec::new();
    for (call, at) in history.calls.iter().enumerate().filter_map(|(n, call)| match call.outcome {
        CallOutcome::Done { position, first: true, .. } => Some((n, position)),
        _ => None,
    }) {
        let home = home(history, &history.calls[call].tenant);
        let entries = &history.journals[home].entries;
        if let Ok(entry) = entries.binary_search_by_key(&at, |entry| entry.position) {
            found.push((call, home, entry));
        }
    }
    found
}

fn home(history: &ClientHistory, tenant: &str) -> usize {
    let has = |journal: &MachineJournal| {
        journal.entries.iter().any(|entry| entry.effect.tenant() == tenant)
    };
    history.journals.iter().position(has).expect("every tenant has one")
}

fn choose<T: Copy>(random: &mut Random, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| *random.pick(from))
}

/// Numbers of the calls that pass.
fn calls(history: &ClientHistory, passes: impl Fn(&ClientCall) -> bool) -> Vec<usize> {
    (0..history.calls.len()).filter(|number| passes(&history.calls[*number])).collect()
}

/// Places of the entries that pass.
fn entries(history: &ClientHistory, passes: impl Fn(&MoneyEffect) -> bool) -> Vec<(usize, usize)> {
    let journals = history.journals.iter().enumerate();
    journals
        .flat_map(|(home, journal)| {
            let places = (0..journal.entries.len()).map(move |place| (home, place));
            places.filter(|(_, place)| passes(&journal.entries[*place].effect)).collect::<Vec<_>>()
        })
        .collect()
}

fn append(journal: &mut MachineJournal, repeat: Option<String>, effect: MoneyEffect) {
    journal.last += 1;
    journal.entries.push(JournalEntry { position: journal.last, repeat, effect });
}

fn is_read(call: &ClientCall) -> bool {
    matches!(call.outcome, CallOutcome::Balance { .. })
}

fn position_of(call: &ClientCall) -> Option<u64> {
    match call.outcome {
        CallOutcome::Balance { position, .. } | CallOutcome::Done { position, .. } => {
            Some(position)
        }
        _ => None,
    }
}

/// The highest position that was shown for a journal before a time.
fn shown_before(history: &ClientHistory, journal: usize, time: u64) -> u64 {
    let shown = history.calls.iter().filter(|call| call.returned < time);
    let shown = shown.filter(|call| home(history, &call.tenant) == journal);
    shown.filter_map(position_of).max().unwrap_or(0)
}

fn lose_an_effect(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    history.journals[home].entries.remove(entry);
    Some(())
}

fn lose_the_end(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    let journal = &mut history.journals[home];
    journal.last = journal.entries[entry].position - 1;
    journal.entries.truncate(entry);
    Some(())
}

fn double_an_effect(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    let effect = history.journals[home].entries[entry].effect.clone();
    append(&mut history.journals[home], None, effect);
    Some(())
}

fn double_a_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let grants = entries(history, |effect| matches!(effect, MoneyEffect::Granted { .. }));
    let (home, place) = choose(random, &grants)?;
    let JournalEntry { repeat, effect, .. } = history.journals[home].entries[place].clone();
    let MoneyEffect::Granted { account, amount, .. } = effect else { return None };
    let again = MoneyEffect::Granted { id: "again".into(), account, amount };
    append(&mut history.journals[home], repeat, again);
    Some(())
}

fn add_a_grant(history: &mut ClientHistory, _: &mut Random) -> Option<()> {
    let grant = MoneyEffect::Granted { id: "gift".into(), account: RICH.into(), amount: 7_777_777 };
    append(&mut history.journals[0], None, grant);
    Some(())
}

fn swap_effects(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let all = effects(history);
    let mut pairs = Vec::new();
    for (early, home, first) in &all {
        for (late, other, second) in &all {
            let (before, after) = (&history.calls[*early], &history.calls[*late]);
            let tries = history
                .calls
                .iter()
                .filter(|call| call.request == after.request && call.repeat == after.repeat);
            let invoked = tries.map(|call| call.invoked).min().unwrap_or_default();
            if home == other && before.returned < invoked {
                pairs.push((*home, *first, *second));
            }
        }
    }
    let (home, first, second) = choose(random, &pairs)?;
    let entries = &mut history.journals[home].entries;
    let (low, high) = (entries[first].position, entries[second].position);
    entries.swap(first, second);
    (entries[first].position, entries[second].position) = (low, high);
    let tenants: Vec<String> =
        entries.iter().map(|entry| entry.effect.tenant().to_owned()).collect();
    for call in &mut history.calls {
        if let CallOutcome::Done { position, .. } = &mut call.outcome
            && tenants.contains(&call.tenant)
        {
            match *position {
                at if at == low => *position = high,
                at if at == high => *position = low,
                _ => {}
            }
        }
    }
    Some(())
}

fn ask_later(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    // A request without an answer whose effect is there, and that was sent once.
    let lost = calls(history, |call| call.outcome == CallOutcome::Unknown);
    let lost: Vec<usize> = lost
        .into_iter()
        .filter(|number| {
            let call = &history.calls[*number];
            let same =
                |other: &&ClientCall| other.repeat == call.repeat && other.request == call.request;
            let journal = &history.journals[home(history, &call.tenant)];
            let stored =
                |entry: &JournalEntry| entry.repeat.is_some() && entry.repeat == call.repeat;
            let found = journal.entries.iter().find(|entry| stored(entry));
            let shown = shown_before(history, home(history, &call.tenant), u64::MAX);
            history.calls.iter().filter(same).count() == 1
                && found.is_some_and(|entry| entry.position <= shown)
        })
        .collect();
    let number = choose(random, &lost)?;
    let end = history.calls.iter().map(|call| call.returned).max()?;
    history.calls[number].invoked = end + 1;
    history.calls[number].returned = end + 2;
    Some(())
}

fn change_a_stored_amount(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    match &mut history.journals[home].entries[entry].effect {
        MoneyEffect::Granted { amount, .. } => *amount += 1,
        MoneyEffect::Held { from: parts, .. }
        | MoneyEffect::Charged { from: parts, .. }
        | MoneyEffect::Refunded { to: parts, .. }
        | MoneyEffect::Settled { taken: parts, .. } => parts.first_mut()?.1 -= 1,
        MoneyEffect::Opened { .. } => return None,
    }
    Some(())
}

fn change_an_answered_amount(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (call, _, _) = choose(random, &effects(history))?;
    let CallOutcome::Done { amount, .. } = &mut history.calls[call].outcome else { return None };
    *amount += 1;
    Some(())
}

fn change_a_position(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (call, _, _) = choose(random, &effects(history))?;
    let CallOutcome::Done { position, .. } = &mut history.calls[call].outcome else { return None };
    *position = if random.chance(50) { *position + 1 } else { *position - 1 };
    Some(())
}

fn change_an_id(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (call, _, _) = choose(random, &effects(history))?;
    let CallOutcome::Done { id, .. } = &mut history.calls[call].outcome else { return None };
    id.push('x');
    Some(())
}

fn change_the_rest(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let charges = calls(history, |call| {
        matches!(call.outcome, CallOutcome::Done { spendable_after: Some(_), .. })
    });
    let call = choose(random, &charges)?;
    let CallOutcome::Done { spendable_after, .. } = &mut history.calls[call].outcome else {
        return None;
    };
    *spendable_after = spendable_after.map(|rest| rest + 1);
    Some(())
}

/// Pairs of reads of one account.
fn pairs_of_reads(
    history: &ClientHistory,
    passes: impl Fn(&ClientCall, u64) -> bool,
) -> Vec<(usize, usize)> {
    let reads = calls(history, is_read);
    let mut pairs = Vec::new();
    for read in &reads {
        for other in &reads {
            let (call, source) = (&history.calls[*read], &history.calls[*other]);
            if call.request == source.request
                && position_of(source).is_some_and(|position| passes(call, position))
            {
                pairs.push((*read, *other));
            }
        }
    }
    pairs
}

fn read_the_past(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let pairs = pairs_of_reads(history, |read, position| {
        position < shown_before(history, home(history, &read.tenant), read.invoked)
    });
    let (read, older) = choose(random, &pairs)?;
    history.calls[read].outcome = history.calls[older].outcome.clone();
    Some(())
}

fn read_the_future(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let all = effects(history);
    let pairs = pairs_of_reads(history, |read, position| {
        all.iter().any(|(call, journal, entry)| {
            let call = &history.calls[*call];
            let tries = history
                .calls
                .iter()
                .filter(|other| other.request == call.request && other.repeat == call.repeat);
            *journal == home(history, &read.tenant)
                && tries.map(|call| call.invoked).min().is_some_and(|sent| sent > read.returned)
                && history.journals[*journal].entries[*entry].position <= position
        })
    });
    let (read, later) = choose(random, &pairs)?;
    history.calls[read].outcome = history.calls[later].outcome.clone();
    Some(())
}

/// Changes a read.
fn misread(
    history: &mut ClientHistory,
    random: &mut Random,
    change: impl Fn(&mut u64, &mut u64, &mut u64) -> Option<()>,
) -> Option<()> {
    let read = choose(random, &calls(history, is_read))?;
    let CallOutcome::Balance { position, available, held, .. } = &mut history.calls[read].outcome
    else {
        return None;
    };
    change(position, available, held)
}

fn read_too_much(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    misread(history, random, |_, available, _| {
        *available += 1;
        Some(())
    })
}

fn read_held_as_free(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    misread(history, random, |_, available, held| {
        *held = held.checked_sub(1)?;
        *available += 1;
        Some(())
    })
}

fn read_beyond_the_end(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    misread(history, random, |position, _, _| {
        *position += 1_000_000;
        Some(())
    })
}

/// Sends a read that was answered again under another key.
fn read_under(
    history: &mut ClientHistory,
    random: &mut Random,
    bearer: &str,
    after: u64,
) -> Option<()> {
    let later = calls(history, |call| is_read(call) && call.invoked > after);
    let read = choose(random, &later)?;
    let call = ClientCall { bearer: bearer.into(), ..history.calls[read].clone() };
    history.calls.push(call);
    Some(())
}

fn accept_a_revoked_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, answered) = history.keys[1].revoked?;
    read_under(history, random, "guest", answered?)
}

fn accept_a_refused_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    // The revocation itself has no answer yet.
    history.keys[1].revoked.as_mut()?.1 = None;
    let refused = calls(history, |call| call.outcome == CallOutcome::Unauthenticated);
    let first = refused.iter().map(|call| history.calls[*call].returned).min()?;
    read_under(history, random, "guest", first)
}

fn accept_an_unknown_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    read_under(history, random, "stranger", 0)
}

fn refuse_a_valid_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let reads = calls(history, |call| is_read(call) && call.bearer == "root");
    let read = choose(random, &reads)?;
    history.calls[read].outcome = CallOutcome::Unauthenticated;
    Some(())
}

fn effect_of_a_refused_key(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let refused = calls(history, |call| {
        call.outcome == CallOutcome::Unauthenticated
            && matches!(call.request, MoneyRequest::Grant { id: Some(_), .. })
    });
    let only = |number: &usize| {
        let request = &history.calls[*number].request;
        let same = history.calls.iter().filter(|call| call.request == *request);
        same.into_iter().all(|call| call.outcome == CallOutcome::Unauthenticated)
    };
    let refused: Vec<usize> = refused.into_iter().filter(only).collect();
    let call = &history.calls[choose(random, &refused)?];
    let MoneyRequest::Grant { id: Some(id), account, amount } = call.request.clone() else {
        return None;
    };
    let (home, repeat) = (home(history, &call.tenant), call.repeat.clone());
    append(&mut history.journals[home], repeat, MoneyEffect::Granted { id, account, amount });
    Some(())
}

/// A refused request in the place of a read.
fn refuse(
    history: &mut ClientHistory,
    random: &mut Random,
    request: MoneyRequest,
    reason: RefusalReason,
    after: u64,
) -> Option<()> {
    let reads =
        calls(history, |call| is_read(call) && call.tenant == "acme" && call.invoked > after);
    let read = history.calls[choose(random, &reads)?].clone();
    let outcome = CallOutcome::Refused(reason);
    history.calls.push(ClientCall { request, outcome, repeat: Some("refused".into()), ..read });
    Some(())
}

fn refuse_the_rich(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    // After its first grant was acknowledged.
    let granted = calls(history, |call| {
        position_of(call).is_some()
            && matches!(call.request, MoneyRequest::Grant { amount, .. } if amount == 1 << 40)
    });
    let after = granted.iter().map(|call| history.calls[*call].returned).min()?;
    let request = MoneyRequest::Charge { id: None, account: RICH.into(), amount: 1 };
    refuse(history, random, request, RefusalReason::InsufficientCredits, after)
}

fn forget_a_hold(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let placed = calls(history, |call| {
        call.tenant == "acme"
            && matches!(call.request, MoneyRequest::Hold { .. })
            && matches!(call.outcome, CallOutcome::Done { .. })
    });
    let call = &history.calls[choose(random, &placed)?];
    let CallOutcome::Done { id, .. } = call.outcome.clone() else { return None };
    let request = MoneyRequest::Settle { hold: id, total: 12_345_678 };
    let after = call.returned;
    refuse(history, random, request, RefusalReason::NotFound, after)
}

fn refuse_what_is_done(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let done = calls(history, |call| {
        matches!(call.outcome, CallOutcome::Done { .. })
            && matches!(call.request, MoneyRequest::Charge { .. } | MoneyRequest::Hold { .. })
    });
    let call = history.calls[choose(random, &done)?].clone();
    let outcome = CallOutcome::Refused(RefusalReason::InsufficientCredits);
    let (invoked, returned) = (call.returned + 1, call.returned + 2);
    history.calls.push(ClientCall { invoked, returned, outcome, ..call });
    Some(())
}

/// Changes an answer to a repeat.
fn misrepeat(
    history: &mut ClientHistory,
    random: &mut Random,
    change: impl Fn(&mut bool, &mut u64),
) -> Option<()> {
    let repeats = calls(history, |call| {
        let same = |other: &&ClientCall| {
            other.repeat == call.repeat
                && other.request == call.request
                && matches!(other.outcome, CallOutcome::Done { first: true, .. })
        };
        matches!(call.outcome, CallOutcome::Done { first: false, .. })
            && !matches!(call.request, MoneyRequest::Settle { .. })
            && history.calls.iter().any(|other| same(&other))
    });
    let call = choose(random, &repeats)?;
    let CallOutcome::Done { first, amount, .. } = &mut history.calls[call].outcome else {
        return None;
    };
    change(first, amount);
    Some(())
}

fn answer_twice_as_new(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    misrepeat(history, random, |first, _| *first = true)
}

fn answer_differently(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    misrepeat(history, random, |_, amount| *amount += 1)
}

fn draw_from_another(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let holds = entries(history, |effect| {
        matches!(effect, MoneyEffect::Held { .. }) && effect.tenant() == "umbra"
    });
    let (home, place) = choose(random, &holds)?;
    let MoneyEffect::Held { from, .. } = &mut history.journals[home].entries[place].effect else {
        return None;
    };
    from.first_mut()?.0 = "zeta".into();
    Some(())
}

fn move_an_effect(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    let JournalEntry { repeat, effect, .. } = history.journals[home].entries.remove(entry);
    append(&mut history.journals[1 - home], repeat, effect);
    Some(())
}

fn close_twice(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let closed = entries(history, |effect| matches!(effect, MoneyEffect::Settled { .. }));
    let (home, place) = choose(random, &closed)?;
    let effect = history.journals[home].entries[place].effect.clone();
    append(&mut history.journals[home], None, effect);
    Some(())
}

fn hold_too_much(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let holds = entries(history, |effect| matches!(effect, MoneyEffect::Held { .. }));
    let (home, place) = choose(random, &holds)?;
    let MoneyEffect::Held { from, .. } = &mut history.journals[home].entries[place].effect else {
        return None;
    };
    from.first_mut()?.1 += 1 << 50;
    Some(())
}

fn refund_too_much(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let refunds = entries(history, |effect| matches!(effect, MoneyEffect::Refunded { .. }));
    let (home, place) = choose(random, &refunds)?;
    let MoneyEffect::Refunded { to, .. } = &mut history.journals[home].entries[place].effect else {
        return None;
    };
    to.first_mut()?.1 += 1 << 50;
    Some(())
}

fn repeat_a_position(history: &mut ClientHistory, random: &mut Random) -> Option<()> {
    let (_, home, entry) = choose(random, &effects(history))?;
    let entries = &mut history.journals[home].entries;
    entries[entry].position = entries.get(entry.checked_sub(1)?)?.position;
    Some(())
}
