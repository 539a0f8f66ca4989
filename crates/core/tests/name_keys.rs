//! The random keys of name tables have no visible effect.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, IssueGrant, PlaceHold, Refund, RefundOf, Usage,
};
use bursar_core::ledger::{Command, Envelope, Event, Ledger};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

use crate::ledger_builders::short_memory;

const HOUR_MS: i64 = 3_600_000;
const TEAMS: usize = 7;

fn credits(whole: i64) -> Credits {
    Credits::from_whole(whole).expect("a small amount")
}

fn account(round: usize) -> String {
    format!("acme:team-{}", round % TEAMS)
}

/// Hundreds of accounts, grants, holds, refunds and idempotency keys; old ones are forgotten.
fn commands() -> Vec<Command> {
    let open = |path: String, kind| {
        let (path, settings) = (path.into(), AccountSettings::default());
        Command::OpenAccount { path, kind, settings }
    };
    let policy = short_memory();
    let mut all = vec![Command::SetPolicy(policy), open("acme".to_owned(), AccountKind::Org)];
    all.extend((0..TEAMS).map(|team| open(account(team), AccountKind::Team)));
    for round in 0..300 {
        all.push(Command::IssueGrant(IssueGrant::purchase(
            format!("grant-{round}"),
            account(round),
            credits(9),
        )));
        all.push(Command::PlaceHold(PlaceHold {
            ttl_ms: Some(HOUR_MS),
            ..PlaceHold::new(format!("hold-{round}"), account(round), credits(4))
        }));
        let (tenant, hold) = ("acme".into(), format!("hold-{round}").into());
        if round % 3 != 0 {
            let usage = Usage::Total(credits(3));
            all.push(Command::SettleHold { tenant, hold, usage, cause: Cause::Holder });
            all.push(Command::Refund(Refund {
                id: format!("refund-{round}").into(),
                tenant: "acme".into(),
                of: RefundOf::Hold(format!("hold-{round}").into()),
                amount: Some(credits(1)),
                compensate: false,
                note: None,
                recalled: Vec::new(),
            }));
        }
    }
    all
}

struct Ran {
    events: Vec<Event>,
    answers: Vec<String>,
    ledger: Ledger,
}

fn run() -> Ran {
    let mut ran = Ran { events: Vec::new(), answers: Vec::new(), ledger: Ledger::new() };
    ran.ledger.forget_by_age();
    let mut now = Timestamp::from_millis(1_767_225_600_000);
    for (number, command) in commands().iter().enumerate() {
        now = now.plus_millis(60_000);
        advance(&mut ran.ledger, now, |_, events| ran.events.extend_from_slice(events));
        let number = number as u128;
        let key = number.is_multiple_of(2).then_some(number << 40);
        let envelope =
            Envelope { actor: "test".into(), fingerprint: number, key, ..Envelope::default() };
        let answer = execute(&mut ran.ledger, now, &envelope, command, &mut ran.events);
        ran.answers.push(format!("{answer:?}"));
    }
    ran
}

#[test]
fn ledgers_with_different_hash_keys_have_equal_answers_events_and_state() {
    let (one, other) = (run(), run());
    assert!(one.events.iter().any(|event| matches!(event, Event::Forgotten { .. })));
    assert_eq!(one.answers, other.answers);
    assert_eq!(one.events, other.events);
    assert_eq!(one.ledger.digest(), other.ledger.digest());
    assert_eq!(one.ledger.image(), other.ledger.image());
    let restored = Ledger::from_image(one.ledger.image()).expect("its own image");
    assert_eq!(restored.digest(), other.ledger.digest());
    assert_eq!(restored.image(), other.ledger.image());
    for round in 0..300 {
        let tenant = |ledger: &Ledger| ledger.find_account("acme");
        let found = |ledger: &Ledger| {
            let name = format!("grant-{round}");
            tenant(ledger).and_then(|tenant| ledger.find_grant(tenant, &name))
        };
        assert!(found(&restored).is_some());
        assert_eq!(found(&one.ledger), found(&other.ledger));
    }
}
