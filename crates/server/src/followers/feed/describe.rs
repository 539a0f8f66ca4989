//! Renders events for the API.

use bursar_api::amount::Sum;
use bursar_api::system::audit::FeedEvent;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::event::{Event, Pieces, SliceAmount, total};
use bursar_core::ledger::id::{AccountNo, BucketNo, GrantNo, HoldNo, JobNo};
use bursar_core::ledger::jobs::OnExhausted;
use bursar_journal::Record;
use bursar_journal::record::ledger::event_name;
use serde_json::{Value, json};

use super::{Place, event_id};
use crate::render::time;

/// Resolves the numbers in an event. Numbers of accounts, grants, buckets and jobs are never
/// reused; the number of a hold is.
pub(super) trait Names {
    /// The path of an account.
    fn account(&self, account: AccountNo) -> String;
    /// The account and the id of a grant.
    fn grant(&self, grant: GrantNo) -> (AccountNo, String);
    /// The account of a bucket.
    fn bucket(&self, bucket: BucketNo) -> AccountNo;
    /// The account and the id of the hold that has this number at the event.
    fn hold(&self, hold: HoldNo) -> Option<(AccountNo, String)>;
    /// The account and the id of a job.
    fn job(&self, job: JobNo) -> Option<(AccountNo, String)>;
}

/// The state right after the event.
impl Names for Ledger {
    fn account(&self, account: AccountNo) -> String {
        self.account(account).path.to_string()
    }

    fn grant(&self, grant: GrantNo) -> (AccountNo, String) {
        let grant = self.grant(grant);
        (grant.account, grant.id.to_string())
    }

    fn bucket(&self, bucket: BucketNo) -> AccountNo {
        self.bucket(bucket).account
    }

    fn hold(&self, hold: HoldNo) -> Option<(AccountNo, String)> {
        self.hold(hold).map(|hold| (hold.account, hold.id.to_string()))
    }

    fn job(&self, job: JobNo) -> Option<(AccountNo, String)> {
        self.job(job).map(|job| (job.order.account, job.order.id.to_string()))
    }
}

fn amount(units: u64) -> Sum {
    Sum::from_micros(units.into())
}

/// A rendered event: its account and its data.
type Described = Option<(Option<AccountNo>, Value)>;

/// Renders an event; `None` for one that is not public.
pub(super) fn describe(
    names: &impl Names,
    record: &Record<'_>,
    place: Place,
    event: &Event,
) -> Option<FeedEvent> {
    let (account, data) = event_data(names, event)?;
    Some(FeedEvent {
        id: event_id(place),
        kind: event_name(event).to_owned(),
        at: time(record.time),
        position: record.position,
        account: account.map(|account| names.account(account)),
        data,
    })
}

fn event_data(names: &impl Names, event: &Event) -> Described {
    let grant = |number: GrantNo| {
        let (account, id) = names.grant(number);
        (Some(account), id)
    };
    let hold = |number: HoldNo| match names.hold(number) {
        Some((account, id)) => (Some(account), id),
        None => (None, String::new()),
    };
    let of_pieces = |pieces: &Pieces| {
        let first = pieces.first().map(|piece| names.bucket(piece.bucket));
        (first, json!({ "amount": amount(total(pieces)) }))
    };
    let on_hold = |number: HoldNo, data: Value| {
        let (account, id) = hold(number);
        let mut data = data;
        data["hold"] = id.into();
        (account, data)
    };
    let on_job = |number: JobNo, data: Value| {
        let mut data = data;
        let job = names.job(number);
        data["job"] = job.as_ref().map(|(_, id)| id.clone()).into();
        (job.map(|(account, _)| account), data)
    };
    Some(match event {
        Event::PolicySet(_)
        | Event::Answered { .. }
        | Event::Forgotten { .. }
        | Event::RegionOpened { .. }
        | Event::RegionPoliciesSent { .. }
        | Event::SetAside { .. }
        | Event::BlockedJobsRechecked { .. }
        | Event::CellMessageSent { .. }
        | Event::MessageReceived { .. } => return None,
        Event::AccountOpened { account, .. }
        | Event::AccountChanged { account, .. }
        | Event::AccountFrozen { account, by_platform: _ }
        | Event::AccountUnfrozen { account } => (Some(*account), json!({})),
        Event::GrantIssued(issued) => {
            let data =
                json!({ "grant": issued.id.as_str(), "amount": amount(issued.amount.length()) });
            (Some(issued.account), data)
        }
        Event::GrantActivated { grant: number } => {
            let (account, id) = grant(*number);
            (account, json!({ "grant": id }))
        }
        Event::GrantRevoked { grant: number, amount: units } => {
            let (account, id) = grant(*number);
            (account, json!({ "grant": id, "amount": amount(*units) }))
        }
        Event::BucketExpired { bucket, amount: units } => {
            (Some(names.bucket(*bucket)), json!({ "amount": amount(*units) }))
        }
        Event::ExpiryReversed { pieces } => of_pieces(pieces),
        Event::ReturnExpired { hold, pieces } | Event::ReturnRevoked { hold, pieces } => {
            let (_, data) = of_pieces(pieces);
            on_hold(*hold, data)
        }
        Event::HoldPlaced(placed) => {
            let data = json!({
                "hold": placed.id.as_str(), "amount": amount(total(&placed.pieces))
            });
            (Some(placed.account), data)
        }
        Event::HoldExtended { hold, pieces, .. } => {
            on_hold(*hold, json!({ "amount": amount(total(pieces)) }))
        }
        Event::HoldCaptured { hold, total, uncollected, .. } => {
            let data = json!({ "total": total.to_string(), "uncollected": amount(*uncollected) });
            on_hold(*hold, data)
        }
        Event::HoldCut { hold, cut } => {
            on_hold(*hold, json!({ "amount": amount(SliceAmount::total(cut)) }))
        }
        Event::HoldClosed { hold, state, returned, .. } => {
            let state = crate::render::hold_state(*state);
            on_hold(*hold, json!({ "state": state, "returned": amount(*returned) }))
        }
        Event::Charged(charged) => {
            let data = json!({
                "charge": charged.id.as_str(), "amount": amount(total(&charged.pieces))
            });
            (Some(charged.account), data)
        }
        Event::Refunded { movement, hold, note } => {
            let mut data = json!({
                "refund": movement.id.as_str(), "amount": amount(total(&movement.pieces))
            });
            if let Some(note) = note {
                data["reason"] = json!(note.reason);
                data["reference"] = json!(note.reference);
            }
            on_hold(*hold, data)
        }
        Event::CreditsMoved { movement, from, to, note } => {
            let mut data = json!({
                "transfer": movement.id.as_str(), "amount": amount(total(&movement.pieces)),
                "to": names.account(*to)
            });
            if let Some(note) = note {
                data["reason"] = json!(note.reason);
                data["reference"] = json!(note.reference);
            }
            (Some(*from), data)
        }
        Event::DebtRepaid { movement, account } => {
            let data = json!({
                "collection": movement.id.as_str(), "amount": amount(total(&movement.pieces))
            });
            (Some(*account), data)
        }
        Event::BudgetSet { account, budget, .. } | Event::BudgetRemoved { account, budget } => {
            (Some(*account), json!({ "budget": budget.as_str() }))
        }
        Event::BudgetThresholdReached { account, budget, percent, .. } => {
            (Some(*account), json!({ "budget": budget.as_str(), "percent": percent }))
        }
        Event::CreditsDenied { account, refusal } => {
            (Some(*account), json!({ "code": refusal.code() }))
        }
        Event::HoldRestored { hold, .. } => on_hold(*hold, json!({})),
        Event::QuotaSet { account, .. } | Event::QuotaRemoved { account, .. } => {
            (Some(*account), json!({}))
        }
        Event::JobSubmitted { order, .. } => {
            (Some(order.account), json!({ "job": order.id.as_str() }))
        }
        Event::HoldPinned { hold, rate, returned, .. } => {
            let units = SliceAmount::total(returned);
            let price = rate.per_gpu_hour.to_string();
            on_hold(*hold, json!({ "per_gpu_hour": price, "returned": amount(units) }))
        }
        Event::AttemptConfirmed(confirmed) => on_job(confirmed.job, json!({})),
        Event::AttemptStarted { job }
        | Event::AttemptStopping { job }
        | Event::CancelRequested { job }
        | Event::DependenciesMet { job, .. } => on_job(*job, json!({})),
        Event::AttemptFunded { job, funded_ms, .. } => {
            on_job(*job, json!({ "funded_seconds": funded_ms.map(|ms| ms / 1000) }))
        }
        Event::ExhaustionWarned { job, ends_at, then } => {
            let then = match then {
                OnExhausted::Stop => "stop",
                OnExhausted::Overdraft => "overdraft",
            };
            on_job(*job, json!({ "ends_at": ends_at.to_string(), "then": then }))
        }
        Event::AttemptEnded { job, end } => {
            on_job(*job, json!({ "gpu_ms": end.gpu_ms, "charged": amount(end.charged) }))
        }
        Event::JobEnded { job, state } => {
            on_job(*job, json!({ "state": crate::render::job::state(*state).as_str() }))
        }
    })
}
