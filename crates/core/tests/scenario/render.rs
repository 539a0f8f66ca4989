//! Renders events, replies and refusals as text.

use std::fmt::Write;

use bursar_core::credits::format_micros;
use bursar_core::ledger::command::{BudgetUnit, Context, GrantKind};
use bursar_core::ledger::event::{Event, GrantOrigin, Piece, SliceAmount};
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::ledger::id::{AccountNo, GrantNo, HoldNo, JobNo};
use bursar_core::ledger::jobs::Offer;
use bursar_core::ledger::jobs::view::Quote;
use bursar_core::ledger::{Blocker, Ledger, Refusal, Reply};
use bursar_core::time::Timestamp;

fn credits(micros: impl Into<i128>) -> String {
    let mut text = String::new();
    format_micros(micros.into(), &mut text).unwrap();
    text
}

fn account(ledger: &Ledger, account: AccountNo) -> &str {
    &ledger.account(account).path
}

fn hold(ledger: &Ledger, hold: HoldNo) -> &str {
    ledger.hold(hold).map_or("(forgotten)", |hold| &hold.id)
}

fn lots(ledger: &Ledger, pieces: &[Piece]) -> String {
    let lots = ledger.lots(pieces.iter().copied());
    let lots = lots.map(|lot| format!("{}:{}", ledger.grant(lot.grant).id, credits(lot.amount)));
    format!("[{}]", lots.collect::<Vec<_>>().join(" "))
}

/// The amounts taken from slices, by grant.
fn slices(ledger: &Ledger, number: HoldNo, amounts: &[SliceAmount]) -> String {
    let Some(hold) = ledger.hold(number) else { return "[]".into() };
    let of = |amount: &SliceAmount| {
        let slice = hold.slices[amount.slice as usize];
        let rank = ledger.bucket(slice.bucket).rank;
        format!("{:?}/{}:{}", rank.kind, rank.priority, credits(amount.amount))
    };
    format!("[{}]", amounts.iter().map(of).collect::<Vec<_>>().join(" "))
}

fn until(at: Option<Timestamp>) -> String {
    at.map_or("never".into(), |at| at.to_string())
}

pub(crate) fn event(ledger: &Ledger, event: &Event) -> String {
    match event {
        Event::PolicySet(policy) => format!("PolicySet {policy:?}"),
        Event::AccountOpened { path, kind, .. } => format!("AccountOpened {path} {kind:?}"),
        Event::AccountChanged { account: number, .. } => {
            format!("AccountChanged {}", account(ledger, *number))
        }
        Event::AccountFrozen { account: number, by_platform: _ } => {
            format!("AccountFrozen {}", account(ledger, *number))
        }
        Event::AccountUnfrozen { account: number } => {
            format!("AccountUnfrozen {}", account(ledger, *number))
        }
        Event::GrantIssued(issued) => {
            let origin = match issued.origin {
                GrantOrigin::Issued => String::new(),
                GrantOrigin::Compensation { hold: number } => {
                    format!(" for what expired under {}", hold(ledger, number))
                }
                GrantOrigin::Transfer { .. } => " by transfer".into(),
            };
            format!(
                "GrantIssued {} {} {} {:?} expires {}{origin}",
                issued.id,
                account(ledger, issued.account),
                issued.amount,
                issued.kind,
                until(issued.expires_at)
            )
        }
        Event::GrantActivated { grant } => format!("GrantActivated {}", ledger.grant(*grant).id),
        Event::GrantRevoked { grant, amount } => {
            format!("GrantRevoked {} {}", ledger.grant(*grant).id, credits(*amount))
        }
        Event::BucketExpired { bucket, amount } => {
            let path = account(ledger, ledger.bucket(*bucket).account);
            let kind = ledger.bucket(*bucket).rank.kind;
            format!("BucketExpired {path} {kind:?} {}", credits(*amount))
        }
        Event::ExpiryReversed { pieces } => format!("ExpiryReversed {}", lots(ledger, pieces)),
        Event::ReturnExpired { hold: number, pieces } => {
            format!("ReturnExpired {} {}", hold(ledger, *number), lots(ledger, pieces))
        }
        Event::ReturnRevoked { hold: number, pieces } => {
            format!("ReturnRevoked {} {}", hold(ledger, *number), lots(ledger, pieces))
        }
        Event::HoldPlaced(placed) => format!(
            "HoldPlaced {} {} lots {} lapses {}",
            placed.id,
            account(ledger, placed.account),
            lots(ledger, &placed.pieces),
            until(placed.expires_at)
        ),
        Event::HoldExtended { hold: number, pieces, expires_at, .. } => format!(
            "HoldExtended {} lots {} lapses {}",
            hold(ledger, *number),
            lots(ledger, pieces),
            until(*expires_at)
        ),
        Event::HoldCaptured { hold: number, seq, total, taken, uncollected, .. } => {
            let seq = seq.map_or(String::new(), |seq| format!(" seq {seq}"));
            let short = match uncollected {
                0 => String::new(),
                amount => format!(" uncollected {}", credits(*amount)),
            };
            let taken = slices(ledger, *number, taken);
            format!("HoldCaptured {} total {total}{seq} from {taken}{short}", hold(ledger, *number))
        }
        Event::HoldCut { hold: number, cut } => {
            format!("HoldCut {} {}", hold(ledger, *number), slices(ledger, *number, cut))
        }
        Event::HoldClosed { hold: number, state, cause, returned } => format!(
            "HoldClosed {} {state:?} by {cause:?} returned {}",
            hold(ledger, *number),
            credits(*returned)
        ),
        Event::Charged(charged) => format!(
            "Charged {} {} lots {}{}",
            charged.id,
            account(ledger, charged.account),
            lots(ledger, &charged.pieces),
            charged.late_for.map_or(String::new(), |at| format!(" for usage at {at}"))
        ),
        Event::Refunded { movement, hold: number, note: _ } => format!(
            "Refunded {} of {} lots {}",
            movement.id,
            hold(ledger, *number),
            lots(ledger, &movement.pieces)
        ),
        Event::CreditsMoved { movement, from, to, note: _ } => format!(
            "CreditsMoved {} {} -> {} lots {}",
            movement.id,
            account(ledger, *from),
            account(ledger, *to),
            lots(ledger, &movement.pieces)
        ),
        Event::DebtRepaid { movement, account: number } => format!(
            "DebtRepaid {} {} lots {}",
            movement.id,
            account(ledger, *number),
            lots(ledger, &movement.pieces)
        ),
        Event::BudgetSet { account: number, budget, spent, held, .. } => format!(
            "BudgetSet {} {budget} spent {} held {}",
            account(ledger, *number),
            credits(*spent),
            credits(*held)
        ),
        Event::BudgetRemoved { account: number, budget } => {
            format!("BudgetRemoved {} {budget}", account(ledger, *number))
        }
        Event::BudgetThresholdReached { account: number, budget, percent, used } => format!(
            "BudgetThresholdReached {} {budget} {percent} % used {}",
            account(ledger, *number),
            credits(*used)
        ),
        Event::Answered { answer, .. } => match &**answer {
            Ok(_) => "Answered".into(),
            Err(refusal) => format!("Answered {}", refusal.code()),
        },
        Event::CreditsDenied { account: number, refusal } => {
            format!("CreditsDenied {} {}", account(ledger, *number), refusal.code())
        }
        Event::Forgotten { answers, holds, movements, buckets, jobs, archived } => {
            let jobs = jobs + archived.as_ref().map_or(0, |archived| archived.jobs);
            let jobs = if jobs > 0 { format!(" jobs {jobs}") } else { String::new() };
            let through =
                archived.as_ref().map(|archived| format!(" through {}", archived.through));
            let through = through.unwrap_or_default();
            format!(
                "Forgotten answers {answers} holds {holds} movements {movements} buckets \
                 {buckets}{jobs}{through}"
            )
        }
        Event::HoldRestored { record, .. } => format!("HoldRestored {}", record.hold.id),
        Event::RegionOpened { .. }
        | Event::RegionPoliciesSent { .. }
        | Event::SetAside { .. }
        | Event::QuotaSet { .. }
        | Event::QuotaRemoved { .. }
        | Event::JobSubmitted { .. }
        | Event::HoldPinned { .. }
        | Event::AttemptConfirmed(_)
        | Event::AttemptStarted { .. }
        | Event::AttemptFunded { .. }
        | Event::ExhaustionWarned { .. }
        | Event::AttemptStopping { .. }
        | Event::AttemptEnded { .. }
        | Event::CancelRequested { .. }
        | Event::DependenciesMet { .. }
        | Event::JobEnded { .. }
        | Event::BlockedJobsRechecked { .. }
        | Event::CellMessageSent { .. }
        | Event::MessageReceived { .. } => super::job::event(ledger, event),
    }
}

pub(crate) fn reply(ledger: &Ledger, reply: &Reply) -> String {
    match reply {
        Reply::Done => "done".into(),
        Reply::Account(reply) => format!("account {}", account(ledger, reply.account)),
        Reply::Grant { grant, parts } => {
            format!("grant {} {}", ledger.grant(*grant).id, parts_text(*parts))
        }
        Reply::Hold(hold) => {
            let present = ledger.hold(hold.hold).unwrap();
            let drawn: Vec<Piece> = present
                .slices
                .iter()
                .take(hold.slices as usize)
                .map(|slice| Piece { bucket: slice.bucket, span: slice.span })
                .collect();
            format!(
                "hold {} {:?} amount {} captured {} uncollected {} lots {}",
                present.id,
                hold.state,
                hold.amount,
                hold.captured,
                hold.uncollected,
                lots(ledger, &drawn)
            )
        }
        Reply::Charge { hold, requested, charged, spendable_after } => {
            let present = ledger.hold(*hold).unwrap();
            assert_eq!(present.kind, HoldKind::Charge);
            format!(
                "charge {} {charged} of {requested}, spendable after {}",
                present.id,
                credits(*spendable_after)
            )
        }
        Reply::Movement { movement, amount } => {
            let made = ledger.movement(*movement).unwrap();
            format!("{:?} {} {amount}", made.what, made.movement.id)
        }
        Reply::Budget(reply) => {
            format!("budget {} of {}", reply.budget, account(ledger, reply.account))
        }
        Reply::Jobs { first, count } => {
            let names: Vec<String> = (first.0..first.0 + u64::from(*count))
                .map(|job| super::job::name(ledger, JobNo(job)))
                .collect();
            format!("jobs {}", names.join(" "))
        }
        Reply::Job { job, state } => format!("job {} {state:?}", super::job::name(ledger, *job)),
        Reply::Region(cell) => format!("cell {cell}"),
        Reply::Received { taken } => if *taken { "taken" } else { "taken before" }.into(),
        Reply::Archived(record) => format!("archived {record:?}"),
    }
}

pub(crate) fn refusal(refusal: &Refusal) -> String {
    let mut text = format!("{} {}", status(refusal.code()), refusal.code());
    let blockers: &[Blocker] = match refusal {
        Refusal::AccountFrozen { blockers }
        | Refusal::QuotaExceeded { blockers }
        | Refusal::InsufficientCredits { blockers }
        | Refusal::BudgetExceeded { blockers } => blockers,
        Refusal::InvalidField { field, reason } => {
            write!(text, " {field}: {reason}").unwrap();
            &[]
        }
        Refusal::Conflict(conflict) => {
            write!(text, " {conflict:?}").unwrap();
            &[]
        }
        Refusal::HoldClosed { state } => {
            write!(text, " {state:?}").unwrap();
            &[]
        }
        Refusal::TooLate { earliest } => {
            write!(text, " earliest {earliest}").unwrap();
            &[]
        }
        Refusal::NotFound { .. }
        | Refusal::AlreadyExists { .. }
        | Refusal::IdempotencyKeyReused
        | Refusal::SequenceConflict { .. }
        | Refusal::FrozenByPlatform { .. }
        | Refusal::Forgotten { .. }
        | Refusal::BatchAborted { .. } => &[],
    };
    for one in blockers {
        write!(text, "; {}", blocker(one)).unwrap();
    }
    text
}

pub(crate) fn blocker(blocker: &Blocker) -> String {
    match blocker {
        Blocker::Frozen { account } => format!("{account} is frozen"),
        Blocker::Credits { account, requested, spendable } => {
            format!("{account} wants {requested}, can spend {}", credits(*spendable))
        }
        Blocker::Budget { account, budget, unit, limit, spent, held, requested, .. } => {
            // GPU time is counted in thousandths of milliseconds; a GPU-hour is easier to read.
            let shown = |units: i128| match unit {
                BudgetUnit::Credits => credits(units),
                BudgetUnit::GpuHours => format!("{}h", credits(units / 3600)),
            };
            format!(
                "{account} budget {budget} limit {} spent {} held {} requested {}",
                shown(*limit),
                shown(*spent),
                shown(*held),
                shown(*requested)
            )
        }
        Blocker::WaitingJobs { account, region, limit, waiting, requested } => {
            format!("{account} in {region}: {waiting} jobs wait, {limit} may, {requested} more")
        }
        Blocker::Dependency { job, state } => format!("{job} is {state:?}"),
    }
}

pub(crate) fn quote(quote: &Quote) -> String {
    let mut text = String::new();
    for offer in &quote.offers {
        let Offer { gpu_type, region, per_gpu_hour } = &offer.offer;
        let (hour, hold) = (offer.per_hour, offer.hold);
        writeln!(text, "  {gpu_type} in {region} at {per_gpu_hour}: {hour} an hour, hold {hold}")
            .unwrap();
    }
    let admitted = if quote.is_admissible() { "admissible" } else { "not admissible" };
    let after = credits(quote.spendable_after);
    writeln!(text, "  {admitted}, hold {}, spendable after {after}", quote.hold).unwrap();
    for one in &quote.blockers {
        writeln!(text, "    blocked: {}", blocker(one)).unwrap();
    }
    text
}

fn parts_text(parts: [u64; 6]) -> String {
    let names = ["available", "held", "spent", "expired", "revoked", "moved"];
    let shown = names.iter().zip(parts).filter(|(_, amount)| *amount > 0);
    let shown = shown.map(|(name, amount)| format!("{name} {}", credits(amount)));
    shown.collect::<Vec<_>>().join(" ")
}

pub(crate) fn balance(ledger: &Ledger, path: &str) -> String {
    let number = ledger.find_account(path).unwrap();
    let balance = ledger.balance(number, &Context::default());
    let mut text = format!(
        "  {path} available {} held {} spendable {} uncollected {}\n",
        credits(balance.available),
        credits(balance.held),
        credits(balance.spendable),
        credits(balance.uncollected)
    );
    for (kind, amount) in GrantKind::ALL.iter().zip(balance.by_kind) {
        if amount > 0 {
            writeln!(text, "    {kind:?} {}", credits(amount)).unwrap();
        }
    }
    for entry in balance.expiring {
        let amount = credits(entry.amount);
        writeln!(text, "    {:?} {amount} until {}", entry.kind, entry.expires_at).unwrap();
    }
    text
}

pub(crate) fn grants(ledger: &Ledger, tenant: &str) -> String {
    let tenant = ledger.find_account(tenant).unwrap();
    let mut text = String::new();
    for (number, grant) in ledger.grants_in_order() {
        if ledger.account(grant.account).tenant == tenant {
            let parts: [u64; 6] = ledger.grant_parts(number);
            let GrantNo(_) = number;
            writeln!(text, "  {} of {}: {}", grant.id, grant.amount, parts_text(parts)).unwrap();
        }
    }
    text
}

pub(crate) fn budgets(ledger: &Ledger, path: &str, now: Timestamp) -> String {
    let account = ledger.account(ledger.find_account(path).unwrap());
    let mut text = String::new();
    for budget in account.budgets() {
        let (spent, held) = budget.numbers(now);
        let scale = if budget.terms.unit == BudgetUnit::Credits { 1 } else { 3600 };
        let (start, end) = budget.terms.period_of(now);
        writeln!(
            text,
            "  {} limit {} spent {} held {} from {start} to {}",
            budget.name,
            budget.terms.limit,
            credits(spent / scale),
            credits(held / scale),
            until(end)
        )
        .unwrap();
    }
    text
}

/// The status of a code in the API.
fn status(code: &str) -> u16 {
    match code {
        "insufficient_credits" | "budget_exceeded" => 402,
        "forbidden" => 403,
        "not_found" => 404,
        "invalid_field" | "too_late" => 422,
        "unavailable" => 503,
        _ => 409,
    }
}
