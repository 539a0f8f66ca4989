//! While the clock is implausible, no credits expire.

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, Charge, Command, Context, Envelope, IssueGrant, PlaceHold,
    Policy, Refund, RefundOf, Usage,
};
use bursar_core::ledger::{Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::time::Timestamp;

const HOUR_MS: i64 = 3_600_000;

fn hours(hours: i64) -> Timestamp {
    Timestamp::from_millis(1_577_836_800_000).plus_millis(hours * HOUR_MS)
}

fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros).expect("a small amount")
}

fn run(ledger: &mut Ledger, at: Timestamp, command: &Command) -> Vec<Event> {
    advance(ledger, at, |_, _| {});
    let mut events = Vec::new();
    let answer = execute(ledger, at, &Envelope::default(), command, &mut events);
    answer.expect("the command is accepted");
    invariant::check(ledger).expect("the invariants hold");
    events
}

/// A tenant with 1000 units that can be spent between two instants.
fn with_grant(from: i64, until: i64) -> Ledger {
    let mut ledger = Ledger::new();
    let settings = AccountSettings::default();
    let open = Command::OpenAccount { path: "acme".into(), kind: AccountKind::Org, settings };
    run(&mut ledger, hours(0), &open);
    let grant = IssueGrant {
        effective_at: Some(hours(from)),
        expires_at: Some(hours(until)),
        ..IssueGrant::purchase("g", "acme", credits(1_000))
    };
    run(&mut ledger, hours(0), &Command::IssueGrant(grant));
    ledger
}

fn place(ledger: &mut Ledger, id: &str, ttl_hours: i64) {
    let hold =
        PlaceHold { ttl_ms: Some(ttl_hours * HOUR_MS), ..PlaceHold::new(id, "acme", credits(100)) };
    run(ledger, hours(0), &Command::PlaceHold(hold));
}

fn doubt(ledger: &mut Ledger, at: Timestamp) {
    let mut events = Vec::new();
    ledger.doubt_clock(&mut events);
    events.iter().for_each(|event| ledger.apply(at, event));
}

fn available(ledger: &Ledger) -> i128 {
    let account = ledger.find_account("acme").expect("the account was opened");
    ledger.account(account).available
}

fn accept(ledger: &mut Ledger, at: Timestamp) {
    let policy = Policy { expiry_waits: false, ..*ledger.policy() };
    run(ledger, at, &Command::SetPolicy(policy));
    advance(ledger, at, |_, _| {});
    invariant::check(ledger).expect("the invariants hold");
}

#[test]
fn credits_returned_while_expiry_is_suspended_do_not_expire() {
    let mut ledger = with_grant(0, 24);
    place(&mut ledger, "settled", 9_000);
    place(&mut ledger, "released", 9_000);
    place(&mut ledger, "lapsed", 600);
    let charge = Charge {
        id: "c".into(),
        account: "acme".into(),
        amount: credits(100),
        allow_partial: false,
        context: Context::default(),
        effective_at: None,
    };
    run(&mut ledger, hours(0), &Command::Charge(charge));
    doubt(&mut ledger, hours(1));
    let ahead = hours(500);
    let usage = Usage::Total(credits(40));
    let (tenant, cause) = ("acme", Cause::Platform);
    let settle =
        Command::SettleHold { tenant: tenant.into(), hold: "settled".into(), usage, cause };
    let release = Command::ReleaseHold { tenant: tenant.into(), hold: "released".into(), cause };
    let refund = Command::Refund(Refund {
        id: "r".into(),
        tenant: tenant.into(),
        of: RefundOf::Charge("c".into()),
        amount: None,
        compensate: true,
        note: None,
        recalled: Vec::new(),
    });
    for (command, left) in [(settle, 660), (release, 760), (refund, 860)] {
        let events = run(&mut ledger, ahead, &command);
        let gone = events
            .iter()
            .any(|event| matches!(event, Event::ReturnExpired { .. } | Event::GrantIssued(_)));
        assert!(!gone, "{events:?}");
        assert_eq!(available(&ledger), left, "{events:?}");
    }
    advance(&mut ledger, hours(601), |_, events| {
        let gone = events.iter().any(|event| matches!(event, Event::ReturnExpired { .. }));
        assert!(!gone, "{events:?}");
    });
    assert_eq!(available(&ledger), 960, "everything except the spent credits");
    let account = ledger.find_account("acme").expect("the account was opened");
    assert_eq!(
        ledger.balance_forecast(account, &Context::default(), hours(601)).available,
        960,
        "nothing expires before the clock is accepted"
    );
    invariant::check(&ledger).expect("the invariants hold");
    accept(&mut ledger, hours(601));
    assert_eq!(available(&ledger), 0, "the clock was right");
}

#[test]
fn a_pending_grant_with_an_expiry_is_enough_to_suspend_expiry() {
    let mut ledger = with_grant(10, 24);
    doubt(&mut ledger, hours(1));
    assert!(ledger.policy().expiry_waits);
    advance(&mut ledger, hours(500), |_, _| {});
    assert_eq!(available(&ledger), 1_000, "the grant became active and did not expire");
    invariant::check(&ledger).expect("the invariants hold");
    accept(&mut ledger, hours(500));
    assert_eq!(available(&ledger), 0);
    doubt(&mut ledger, hours(500));
    assert!(!ledger.policy().expiry_waits, "there is nothing left that could expire");
}
