//! Jobs and cells in scenarios: parsing of lines, and rendering of results.

use std::fmt::Write;

use bursar_core::cell::command::{GroupSpec, Verdict};
use bursar_core::cell::event::{AttemptOutcome, JobOutcome, StopReason};
use bursar_core::cell::ids::{AttemptId, JobId};
use bursar_core::cell::schedule::shape::GpuDemand;
use bursar_core::credits::format_micros;
use bursar_core::ledger::accounts::quota::Quota;
use bursar_core::ledger::command::{SubmitJob, UsageEnd, UsageOf};
use bursar_core::ledger::event::Event;
use bursar_core::ledger::id::{CellNo, JobNo, Name};
use bursar_core::ledger::jobs::{
    Job, JobTerms, Offer, OnExhausted, ROLLING_WINDOW_MS, Reserve, WARN_AHEAD_MS,
};
use bursar_core::ledger::{Command, Ledger};
use bursar_core::message::{ProposedNode, ToCell, ToLedger};
use bursar_core::name::{AccountPath, GpuModel, HoldId, JobName, Region};
use bursar_core::time::Timestamp;

use super::parse::{Words, amount, duration};

/// Parses a line about jobs or cells; `None` if it is about something else.
pub(crate) fn command(ledger: &Ledger, tenant: &AccountPath, words: &Words<'_>) -> Option<Command> {
    Some(match words.verb() {
        "region" => Command::OpenRegion {
            region: Region::unchecked(words.word(1)),
            shard: words.value("shard").map_or(0, |shard| shard.parse().unwrap()),
        },
        "quota" => Command::SetQuota {
            path: words.name(1),
            region: words.value("region").map(Region::unchecked),
            quota: quota(words),
        },
        "unquota" => Command::RemoveQuota {
            path: words.name(1),
            region: words.value("region").map(Region::unchecked),
        },
        "submit" => Command::SubmitJob(Box::new(submit(words))),
        "cancel" => Command::CancelJob { tenant: tenant.clone(), job: words.name(1) },
        "usage" => Command::ReportUsage {
            tenant: tenant.clone(),
            of: match words.word(1) {
                "job" => UsageOf::Job(words.name(2)),
                "hold" => UsageOf::Hold(words.name(2)),
                other => panic!("usage is of a job or a hold, not {other}"),
            },
            seq: words.value("seq").unwrap().parse().unwrap(),
            usage: words.usage_at(3),
            ended: words.has("ended").then_some(UsageEnd::Ended),
        },
        "cell" => receive(ledger, tenant, words),
        _ => return None,
    })
}

fn quota(words: &Words<'_>) -> Quota {
    let number = |name: &str| words.value(name).map(|number| number.parse().unwrap());
    let gpus = words.value("gpus").unwrap_or("");
    let gpus = gpus.split(',').filter(|limit| !limit.is_empty()).map(|limit| {
        let (name, count) = limit.split_once(':').unwrap();
        (Name::from(name), count.parse().unwrap())
    });
    Quota { gpus: gpus.collect(), running_jobs: number("running"), waiting_jobs: number("waiting") }
}

/// `submit j acme gpus=4 runtime=1h offers=H100@eu:2.5,A100@us:1`.
pub(crate) fn submit(words: &Words<'_>) -> SubmitJob {
    let offers: Vec<Offer> = words
        .value("offers")
        .unwrap()
        .split(',')
        .map(|offer| {
            let (place, price) = offer.split_once(':').unwrap();
            let (gpu_type, region) = place.split_once('@').unwrap();
            let (gpu_type, region) = (GpuModel::unchecked(gpu_type), Region::unchecked(region));
            Offer { gpu_type, region, per_gpu_hour: amount(price) }
        })
        .collect();
    let mut gpu_types: Vec<GpuModel> = offers.iter().map(|offer| offer.gpu_type.clone()).collect();
    gpu_types.dedup();
    let number = |name: &str| words.value(name).map(|number| number.parse::<u16>().unwrap());
    let id: JobName = words.name(1);
    let rolling = words.value("rolling").map(duration);
    let rolling = rolling.or(words.has("rolling").then_some(ROLLING_WINDOW_MS));
    let stop = if words.has("overdraft") { OnExhausted::Overdraft } else { OnExhausted::Stop };
    let gpu = match number("share") {
        Some(share) => GpuDemand::Share(share),
        None => GpuDemand::Whole(number("gpus").unwrap_or(1)),
    };
    SubmitJob {
        scope: None,
        account: words.name(2),
        terms: JobTerms {
            class: words.value("class").unwrap_or("normal").into(),
            gpu_types,
            nodes: number("nodes").unwrap_or(1),
            max_runtime_ms: words.value("runtime").map(duration),
            grace_ms: 60_000,
            reserve: rolling.map_or(Reserve::Full, |window_ms| Reserve::Rolling { window_ms }),
            on_exhausted: stop,
            group: words.value("group").map(|name| GroupSpec { name: name.into(), limit: 1 }),
            max_requeues: number("requeues").map_or(3, u32::from),
            warn_ahead_ms: words.value("warn").map_or(WARN_AHEAD_MS, duration),
            ..JobTerms::new(gpu)
        },
        offers,
        payload: "{}".into(),
        submitted: "{}".into(),
        hold: words.value("hold").map_or_else(|| format!("hold-{id}").into(), HoldId::from),
        array: words.value("array").map(|count| count.parse().unwrap()),
        after: words
            .value("after")
            .map_or_else(Vec::new, |list| list.split(',').map(JobName::from).collect()),
        id,
    }
}

/// The id of a job that no scenario has.
const ANOTHERS: JobId = JobId(1 << 40);

fn job_id(ledger: &Ledger, tenant: &AccountPath, name: &str) -> JobId {
    let tenant = ledger.find_account(tenant).unwrap();
    let job = ledger.find_job(tenant, name).unwrap_or_else(|| panic!("there is no job {name}"));
    job.in_cell(0)
}

/// `cell eu proposes j 1 H100 a:4` and so on: the next message of a cell unless `number=` is given.
fn receive(ledger: &Ledger, tenant: &AccountPath, words: &Words<'_>) -> Command {
    let region = words.word(1);
    let cell = ledger.find_cell(region).unwrap_or(CellNo(u16::MAX));
    let mark = ledger.cell(cell).map_or(0, |book| book.mark.number);
    let number = words.value("number").map_or(mark + 1, |number| number.parse().unwrap());
    let job = || job_id(ledger, tenant, words.word(3));
    let attempt = || AttemptId { job: job(), number: words.word(4).parse().unwrap() };
    // The preempting job: a named one belongs to the same tenant, otherwise it belongs to another.
    let taker = || words.value("by").map_or(ANOTHERS, |name| job_id(ledger, tenant, name));
    let message = match words.word(2) {
        "proposes" => ToLedger::PlacementProposed {
            attempt: attempt(),
            gpu_type: Some(GpuModel::unchecked(words.word(5))),
            nodes: words.rest(6).iter().map(|node| proposed(node)).collect(),
        },
        "started" => ToLedger::AttemptStarted { attempt: attempt() },
        "metered" => ToLedger::UsageMetered(metered(ledger, tenant, words)),
        "needs" => ToLedger::FundsNeeded { attempt: attempt() },
        "stops" => ToLedger::StopOrdered {
            attempt: attempt(),
            reason: stop_reason(words.word(5), taker()),
        },
        "ended" => ToLedger::AttemptEnded {
            attempt: attempt(),
            outcome: outcome(words.word(5), taker()),
            gpu_ms: words.value("gpu").map_or(0, |time| duration(time).unsigned_abs()),
            exit_code: words.value("exit").map(|code| code.parse().unwrap()),
            requeued: words.has("requeued").then_some(Timestamp::from_millis(0)),
        },
        "left" => ToLedger::JobEnded {
            job: job(),
            outcome: match words.word(4) {
                "withdrawn" => JobOutcome::Withdrawn,
                "cancelled" => JobOutcome::Cancelled,
                "succeeded" => JobOutcome::Succeeded,
                "waiting_quota" => JobOutcome::WaitingQuota,
                other => panic!("{other} is no way to leave a cell"),
            },
        },
        other => panic!("unknown message of a cell: {other}"),
    };
    Command::Receive { cell, number, position: number * 10, message: Box::new(message) }
}

fn proposed(node: &str) -> ProposedNode {
    let (node, gpus) = node.split_once(':').unwrap();
    ProposedNode { node: node.into(), gpus: gpus.parse().unwrap() }
}

/// `metered j 1 30m k 2 1h`: three words for each attempt.
fn metered(ledger: &Ledger, tenant: &AccountPath, words: &Words<'_>) -> Vec<(AttemptId, u64)> {
    let usage = |three: &[&str]| {
        let number = three[1].parse().unwrap();
        let attempt = AttemptId { job: job_id(ledger, tenant, three[0]), number };
        (attempt, duration(three[2]).unsigned_abs())
    };
    words.rest(3).chunks(3).map(usage).collect()
}

fn stop_reason(text: &str, by: JobId) -> StopReason {
    match text {
        "cancelled" => StopReason::Cancelled,
        "preempted" => StopReason::Preempted { by, for_share: false, cause: None },
        "operator" => StopReason::Operator { by_platform: false },
        "drained" => StopReason::Drained,
        "timed_out" => StopReason::MaxRuntime,
        "out_of_credits" => StopReason::OutOfCredits,
        other => panic!("{other} is no reason to stop"),
    }
}

fn outcome(text: &str, by: JobId) -> AttemptOutcome {
    match text {
        "succeeded" => AttemptOutcome::Succeeded,
        "failed" => AttemptOutcome::Failed,
        "lost" => AttemptOutcome::Lost,
        reason => AttemptOutcome::Stopped(stop_reason(reason, by)),
    }
}

fn credits(micros: impl Into<i128>) -> String {
    let mut text = String::new();
    format_micros(micros.into(), &mut text).unwrap();
    text
}

fn time(ms: i64) -> String {
    match ms % 1000 {
        0 => format!("{}s", ms / 1000),
        rest => format!("{}.{rest:03}s", ms / 1000),
    }
}

fn funded(funded_ms: Option<i64>) -> String {
    funded_ms.map_or("all".into(), time)
}

pub(crate) fn name(ledger: &Ledger, job: JobNo) -> String {
    ledger.job(job).map_or("(forgotten)".into(), |job| job.order.id.to_string())
}

fn region(ledger: &Ledger, cell: CellNo) -> &str {
    ledger.cell(cell).map_or("(unknown)", |book| &book.region)
}

/// Renders an event of jobs or cells.
pub(crate) fn event(ledger: &Ledger, event: &Event) -> String {
    match event {
        Event::RegionOpened { cell, region, shard } => {
            format!("RegionOpened {region} cell {cell} shard {shard}")
        }
        Event::QuotaSet { account, region, quota } => {
            let path = &ledger.account(*account).path;
            format!("QuotaSet {path} in {} {quota:?}", region.as_deref().unwrap_or("each"))
        }
        Event::QuotaRemoved { account, region } => {
            let path = &ledger.account(*account).path;
            format!("QuotaRemoved {path} in {}", region.as_deref().unwrap_or("each"))
        }
        Event::JobSubmitted { order, after, .. } => {
            let path = &ledger.account(order.account).path;
            let after: Vec<String> = after.iter().map(|job| name(ledger, *job)).collect();
            let after = if after.is_empty() {
                String::new()
            } else {
                format!(" after {}", after.join(" "))
            };
            format!("JobSubmitted {} {path}{after}", order.id)
        }
        Event::HoldPinned { hold, rate, returned, expires_at } => {
            let hold = ledger.hold(*hold).map_or("(forgotten)", |hold| &hold.id);
            let returned: u64 = returned.iter().map(|slice| slice.amount).sum();
            let until = expires_at.map_or("never".into(), |at| at.to_string());
            let price = rate.per_gpu_hour;
            format!("HoldPinned {hold} at {price} returned {} lapses {until}", credits(returned))
        }
        Event::AttemptConfirmed(confirmed) => {
            let place = confirmed.cell.map_or("elsewhere", |cell| region(ledger, cell));
            let nodes: Vec<String> =
                confirmed.nodes.iter().map(|on| format!(" {}:{}", on.node, on.gpus)).collect();
            format!(
                "AttemptConfirmed {} {} in {place}{} at {} funded {}",
                name(ledger, confirmed.job),
                confirmed.number,
                nodes.concat(),
                confirmed.per_gpu_hour,
                funded(confirmed.funded_ms)
            )
        }
        Event::AttemptStarted { job } => format!("AttemptStarted {}", name(ledger, *job)),
        Event::AttemptFunded { job, funded_ms, overdraft, short, credits_ms } => {
            let (job, overdraft) = (name(ledger, *job), credits(*overdraft));
            let paid = credits_ms.map_or(String::new(), |ms| format!(" credits {}", time(ms)));
            let short = if *short { " short" } else { "" };
            let time = funded(*funded_ms);
            format!("AttemptFunded {job} funded {time} overdraft {overdraft}{paid}{short}")
        }
        Event::ExhaustionWarned { job, ends_at, then } => {
            format!("ExhaustionWarned {} ends {ends_at} then {then:?}", name(ledger, *job))
        }
        Event::AttemptStopping { job } => format!("AttemptStopping {}", name(ledger, *job)),
        Event::AttemptEnded { job, end } => format!(
            "AttemptEnded {} {:?} gpu {}ms charged {} uncollected {} returned {}",
            name(ledger, *job),
            end.reason,
            end.gpu_ms,
            credits(end.charged),
            credits(end.uncollected),
            credits(end.returned)
        ),
        Event::CancelRequested { job } => format!("CancelRequested {}", name(ledger, *job)),
        Event::DependenciesMet { job, met } => {
            let met: Vec<String> = met.iter().map(|job| name(ledger, *job)).collect();
            format!("DependenciesMet {} {}", name(ledger, *job), met.join(" "))
        }
        Event::JobEnded { job, state } => format!("JobEnded {} {state:?}", name(ledger, *job)),
        Event::BlockedJobsRechecked { tenant, next } => {
            let path = &ledger.account(*tenant).path;
            let next = next.map_or("none".into(), |next| next.at.to_string());
            format!("BlockedJobsRechecked {path} next {next}")
        }
        Event::RegionPoliciesSent { cell, next } => {
            format!("RegionPoliciesSent {} next {next:?}", region(ledger, *cell))
        }
        Event::SetAside { what, digest: _ } => format!("SetAside {what:?}"),
        Event::CellMessageSent { cell, number, message } => {
            format!(
                "CellMessageSent {} #{number} {}",
                region(ledger, *cell),
                message_text(ledger, message)
            )
        }
        Event::MessageReceived { cell, number, position } => {
            format!("MessageReceived {} #{number} from {position}", region(ledger, *cell))
        }
        other => panic!("{other:?} is not about jobs"),
    }
}

fn message_text(ledger: &Ledger, message: &ToCell) -> String {
    let job = |job: JobId| name(ledger, JobNo::of_cell(job));
    let attempt = |attempt: &AttemptId| format!("{} {}", job(attempt.job), attempt.number);
    match message {
        ToCell::AccountPolicyChanged(policy) => format!(
            "AccountPolicyChanged {} weight {} frozen {} {:?}",
            policy.path, policy.weight, policy.frozen, policy.quota
        ),
        ToCell::JobAdmitted(spec) => {
            format!("JobAdmitted {} attempts_before {}", job(spec.job), spec.attempts_before)
        }
        ToCell::PlacementConfirmed { attempt: id, price, funded_ms } => format!(
            "PlacementConfirmed {} at {} funded {}",
            attempt(id),
            credits(*price),
            funded(*funded_ms)
        ),
        ToCell::PlacementRefused { attempt: id, verdict } => {
            let verdict = match verdict {
                Verdict::Withdraw => "Withdraw".into(),
                Verdict::Wait(blocker) => format!("Wait {blocker:?}"),
            };
            format!("PlacementRefused {} {verdict}", attempt(id))
        }
        ToCell::FundingChanged { attempt: id, funded_ms } => {
            format!("FundingChanged {} funded {}", attempt(id), funded(*funded_ms))
        }
        ToCell::FundsRefused { attempt: id } => format!("FundsRefused {}", attempt(id)),
        ToCell::CancelRequested { job: id } => format!("CancelRequested {}", job(*id)),
        ToCell::JobWithdrawn { job: id } => format!("JobWithdrawn {}", job(*id)),
    }
}

/// All jobs of a tenant, newest first.
pub(crate) fn jobs(ledger: &Ledger, tenant: &str) -> String {
    let tenant = ledger.find_account(tenant).unwrap();
    let mut text = String::new();
    for (_, job) in ledger.jobs_of(tenant, None) {
        let hold = job.hold.and_then(|hold| ledger.hold(hold));
        let hold = hold.map_or("no hold".into(), |hold| {
            format!("hold {} of {}", hold.id, credits(hold.amount))
        });
        let charged = i128::try_from(job.charged()).unwrap();
        writeln!(text, "  {} {:?} {hold} charged {}", job.order.id, job.state, credits(charged))
            .unwrap();
        blockers(ledger, job, &mut text);
    }
    text
}

fn blockers(ledger: &Ledger, job: &Job, text: &mut String) {
    for blocker in ledger.job_blockers(job) {
        writeln!(text, "    waits: {}", super::render::blocker(&blocker)).unwrap();
    }
}
