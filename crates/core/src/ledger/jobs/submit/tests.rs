use proptest::prelude::*;

use super::draw::split;
use super::*;
use crate::ledger::command::{
    AccountKind, AccountSettings, Cause, Command, Context, IssueGrant, PlaceHold, Restriction,
};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::machine::execute;

fn run(ledger: &mut Ledger, command: &Command) {
    let now = Timestamp::from_millis(1_577_836_800_000);
    let answer = execute(ledger, now, &Envelope::default(), command, &mut Vec::new());
    answer.expect("the command is accepted");
}

fn credits(micros: u64) -> Credits {
    Credits::from_length(micros).expect("a small amount")
}

fn context() -> Context {
    let (types, regions) = (vec!["H100".into()], vec!["eu".into()]);
    Context { gpu_types: Some(types), regions: Some(regions), class: None }
}

/// Two accounts with fragmented grants of equal and of different order.
fn fragmented(amounts: &[(u8, u64)]) -> Ledger {
    let mut ledger = Ledger::new();
    for (path, kind) in [("acme", AccountKind::Org), ("acme:nlp", AccountKind::Team)] {
        let settings = AccountSettings::default();
        run(&mut ledger, &Command::OpenAccount { path: path.into(), kind, settings });
    }
    for (number, (kind, amount)) in amounts.iter().enumerate() {
        let restriction = match kind % 3 {
            0 => None,
            1 => {
                Some(Restriction { gpu_types: Some(vec!["H100".into()]), ..Restriction::default() })
            }
            _ => Some(Restriction { regions: Some(vec!["eu".into()]), ..Restriction::default() }),
        };
        run(
            &mut ledger,
            &Command::IssueGrant(IssueGrant {
                restriction,
                ..IssueGrant::purchase(
                    format!("g{number}"),
                    if kind & 4 == 0 { "acme" } else { "acme:nlp" },
                    credits(*amount),
                )
            }),
        );
    }
    let total: u64 = amounts.iter().map(|(_, amount)| amount).sum();
    let names = |number: u64| HoldId::unchecked(format!("h{number}"));
    let count = total / 3;
    for number in 0..count {
        run(
            &mut ledger,
            &Command::PlaceHold(PlaceHold {
                context: context(),
                ..PlaceHold::new(names(number), "acme:nlp", credits(2))
            }),
        );
    }
    for number in (0..count).filter(|number| number % 3 != 0) {
        let (tenant, hold) = ("acme".into(), names(number));
        run(&mut ledger, &Command::ReleaseHold { tenant, hold, cause: Cause::Holder });
    }
    ledger
}

#[test]
fn an_array_that_would_walk_too_many_pieces_is_refused() {
    let ledger = fragmented(&[(0, 12_000)]);
    let account = ledger.find_account("acme:nlp").expect("the account exists");
    let (path, context) = (ledger.path(account), context());
    let request = DrawRequest::new(&path, &context);
    let refused = ledger.require_few_pieces(request, 1000);
    assert!(matches!(refused, Err(Refusal::InvalidField { field: "array", .. })), "{refused:?}");
    assert_eq!(ledger.require_few_pieces(request, 100), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_array_draws_what_its_jobs_would_draw_in_sequence(
        amounts in prop::collection::vec((any::<u8>(), 1u64..40), 1..12),
        each in 1u64..30, count in 1u32..12,
    ) {
        let ledger = fragmented(&amounts);
        let account = ledger.find_account("acme:nlp").expect("the account exists");
        let (path, context) = (ledger.path(account), context());
        let request = DrawRequest::new(&path, &context);
        prop_assert!(ledger.draws_add_up(request));
        let at_once = ledger.draw(request, each * u64::from(count));
        let at_once = at_once.map(|pieces| split(&pieces, each));
        prop_assert_eq!(at_once, ledger.draw_one_by_one(request, each, count));
    }
}
