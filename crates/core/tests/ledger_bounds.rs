//! The work of one instant is done in steps of bounded size, and timers and messages that fail
//! repeatedly are skipped.

use bursar_core::cell::ids::{JobId, MaintenanceId};
use bursar_core::cell::{self, Cell, Origin};
use bursar_core::credits::Credits;
use bursar_core::ledger::accounts::account::MAX_ACCOUNTS_PER_TENANT;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Command, Envelope, IssueGrant, OnExpiry, PlaceHold,
};
use bursar_core::ledger::id::{CellNo, HoldNo};
use bursar_core::ledger::index::aside::LedgerAside;
use bursar_core::ledger::refusal::Refusal;
use bursar_core::ledger::{Event, Ledger, invariant};
use bursar_core::machine::{Machine, Stuck, advance, execute};
use bursar_core::message::{ToCell, ToLedger};
use bursar_core::time::Timestamp;

fn start() -> Timestamp {
    Timestamp::from_millis(1_577_836_800_000)
}

const HOUR_MS: i64 = 3_600_000;

fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros).expect("a small amount")
}

fn run(ledger: &mut Ledger, command: &Command) -> Vec<Event> {
    let mut events = Vec::new();
    let answer = execute(ledger, start(), &Envelope::default(), command, &mut events);
    answer.expect("the command is accepted");
    events
}

fn open(ledger: &mut Ledger, path: &str, kind: AccountKind, settings: AccountSettings) {
    run(ledger, &Command::OpenAccount { path: path.into(), kind, settings });
}

#[test]
fn a_tenant_has_so_many_accounts_and_others_are_not_affected() {
    let mut ledger = Ledger::new();
    for org in ["acme", "umbra"] {
        open(&mut ledger, org, AccountKind::Org, AccountSettings::default());
    }
    for number in 1..MAX_ACCOUNTS_PER_TENANT {
        let path = format!("acme:t{number}");
        open(&mut ledger, &path, AccountKind::Team, AccountSettings::default());
    }
    let rebuilt = Ledger::from_image(ledger.image()).expect("the image of a ledger");
    for mut ledger in [ledger, rebuilt] {
        let more = |path: &str| Command::OpenAccount {
            path: path.into(),
            kind: AccountKind::Team,
            settings: AccountSettings::default(),
        };
        let envelope = Envelope::default();
        let refused = execute(&mut ledger, start(), &envelope, &more("acme:more"), &mut Vec::new());
        let Err(refused) = refused else { panic!("{refused:?}") };
        let Refusal::InvalidField { field, reason } = refused.refusal else {
            panic!("{refused:?}")
        };
        assert_eq!(field, "id");
        assert!(reason.contains(&MAX_ACCOUNTS_PER_TENANT.to_string()), "{reason}");
        open(&mut ledger, "umbra:t1", AccountKind::Team, AccountSettings::default());
    }
}

fn with_grant(expires_at: Timestamp) -> Ledger {
    let mut ledger = Ledger::new();
    open(&mut ledger, "acme", AccountKind::Org, AccountSettings::default());
    let grant = IssueGrant {
        expires_at: Some(expires_at),
        ..IssueGrant::purchase("g", "acme", credits(1_000_000))
    };
    run(&mut ledger, &Command::IssueGrant(grant));
    ledger
}

fn place(ledger: &mut Ledger, id: &str, on_expiry: OnExpiry, ttl_ms: i64) {
    let hold =
        PlaceHold { ttl_ms: Some(ttl_ms), on_expiry, ..PlaceHold::new(id, "acme", credits(10)) };
    run(ledger, &Command::PlaceHold(hold));
}

#[test]
fn an_expiry_that_cuts_thousands_of_strict_holds_takes_several_steps() {
    let expires_at = start().plus_millis(HOUR_MS);
    let mut ledger = with_grant(expires_at);
    for number in 0..5_000 {
        place(&mut ledger, &format!("h{number}"), OnExpiry::Strict, 100 * HOUR_MS);
    }
    let (mut steps, mut cuts) = (Vec::new(), 0);
    let mut middle = None;
    let mut live = ledger.clone();
    advance(&mut live, expires_at.plus_millis(1), |at, events| {
        assert_eq!(at, expires_at.plus_millis(1), "every step is at the expiry instant");
        steps.push(events.len());
        cuts += events.iter().filter(|event| matches!(event, Event::HoldCut { .. })).count();
        for event in events {
            ledger.apply(at, event);
        }
        // A ledger restored from a snapshot between two steps continues there.
        if steps.len() == 2 {
            middle = Some(Ledger::from_image(ledger.image()).expect("a valid image"));
        }
    });
    assert_eq!(cuts, 5_000);
    assert!(steps.len() >= 5 && steps.iter().all(|step| *step <= 1_025), "{steps:?}");
    invariant::check(&live).expect("the invariants hold");
    assert_eq!(live.digest(), ledger.digest());
    let mut middle = middle.expect("there were more than two steps");
    advance(&mut middle, expires_at.plus_millis(1), |_, _| {});
    assert_eq!(middle.digest(), live.digest());
}

#[test]
fn a_new_region_receives_thousands_of_policies_in_several_steps() {
    let mut ledger = Ledger::new();
    open(&mut ledger, "acme", AccountKind::Org, AccountSettings::default());
    for number in 0..3_000 {
        let settings = AccountSettings { weight_milli: Some(2_000), ..AccountSettings::default() };
        open(&mut ledger, &format!("acme:t{number}"), AccountKind::Team, settings);
    }
    let opened = run(&mut ledger, &Command::OpenRegion { region: "eu".into(), shard: 0 });
    let messages = |events: &[Event]| {
        let messages = events.iter().filter(|event| {
            matches!(event, Event::CellMessageSent { message, .. }
                if matches!(**message, ToCell::AccountPolicyChanged(_)))
        });
        messages.count()
    };
    assert!(opened.len() <= 1_026, "{} events", opened.len());
    let mut heard = messages(&opened);
    advance(&mut ledger, start(), |_, events| {
        assert!(events.len() <= 1_025, "{} events", events.len());
        heard += messages(events);
    });
    assert_eq!(heard, 3_000, "each policy is sent once");
    assert_eq!(ledger.next_deadline(), None);
    invariant::check(&ledger).expect("the invariants hold");
    let again = Ledger::from_image(ledger.image()).expect("a valid image");
    assert_eq!(again.digest(), ledger.digest());
}

#[test]
fn a_timer_that_is_set_aside_is_skipped_and_later_ones_run() {
    let mut ledger = with_grant(start().plus_millis(100 * HOUR_MS));
    place(&mut ledger, "a", OnExpiry::HonorHold, HOUR_MS);
    place(&mut ledger, "b", OnExpiry::HonorHold, 2 * HOUR_MS);
    let deadline = ledger.next_deadline().expect("the first lapses");
    let mut events = Vec::new();
    ledger.decide_set_aside(Stuck::Due, &mut events);
    let [Event::SetAside { what, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert!(matches!(what, LedgerAside::Lapse { hold: HoldNo(0), .. }), "{what:?}");
    events.iter().for_each(|event| ledger.apply(deadline, event));
    assert_eq!(ledger.set_aside_count(), 1);
    let mut again = Ledger::from_image(ledger.image()).expect("a valid image");
    for ledger in [&mut ledger, &mut again] {
        let mut closed = 0;
        advance(ledger, start().plus_millis(3 * HOUR_MS), |_, events| {
            closed +=
                events.iter().filter(|event| matches!(event, Event::HoldClosed { .. })).count();
        });
        assert_eq!(closed, 1, "the other hold lapsed");
        invariant::check(ledger).expect("the invariants hold");
    }
    assert_eq!(again.digest(), ledger.digest(), "a snapshot contains what was set aside");
}

#[test]
fn a_message_that_is_set_aside_counts_as_taken() {
    let mut ledger = Ledger::new();
    run(&mut ledger, &Command::OpenRegion { region: "eu".into(), shard: 0 });
    let message = Box::new(ToLedger::UsageMetered(Vec::new()));
    let cell = CellNo(0);
    let receive = |number| Command::Receive { cell, number, position: 7, message: message.clone() };
    let envelope = Envelope::default();
    assert_eq!(Ledger::message_name(&envelope, &receive(1)), Some((0, 1)));
    let mut events = Vec::new();
    ledger.decide_set_aside(Stuck::Message(&envelope, &receive(2)), &mut events);
    assert!(events.is_empty(), "only the next expected message is set aside");
    ledger.decide_set_aside(Stuck::Message(&envelope, &receive(1)), &mut events);
    events.iter().for_each(|event| ledger.apply(start(), event));
    assert_eq!(ledger.cell(cell).map(|book| book.mark.number), Some(1));
    run(&mut ledger, &receive(2));
    assert_eq!(ledger.cell(cell).map(|book| book.mark.number), Some(2));
}

#[test]
fn a_cell_and_its_snapshot_skip_what_is_set_aside() {
    let mut cell = Cell::new();
    let window = cell::Command::PlanMaintenance {
        id: MaintenanceId(1),
        from: start().plus_millis(HOUR_MS),
        to: start().plus_millis(2 * HOUR_MS),
        nodes: Vec::new(),
    };
    let mut events = Vec::new();
    let planned = execute(&mut cell, start(), &Origin::component("test"), &window, &mut events);
    planned.expect("the command is accepted");
    advance(&mut cell, start(), |_, _| {});
    let deadline = cell.next_deadline().expect("the window begins");
    let origin = Origin::Ledger { shard: 0, number: 1, position: 5 };
    let command = cell::Command::WithdrawJob { job: JobId(7) };
    assert_eq!(Cell::message_name(&origin, &command), Some((0, 1)));
    events.clear();
    cell.decide_set_aside(Stuck::Due, &mut events);
    cell.decide_set_aside(Stuck::Message(&origin, &command), &mut events);
    events.iter().for_each(|event| cell.apply(deadline, event));
    assert_eq!(cell.set_aside_count(), 2);
    assert_eq!(cell.mark(0).number, 1, "the message counts as taken");
    advance(&mut cell, deadline, |_, _| {});
    assert!(cell.next_deadline().is_none_or(|next| next > deadline), "the window never begins");
    let again = Cell::from_image(cell.image()).expect("a valid image");
    assert_eq!((again.digest(), again.next_deadline()), (cell.digest(), cell.next_deadline()));
}
