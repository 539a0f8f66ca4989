//! `bursar job`, `bursar ls`, `bursar why` and `bursar cancel`.

use std::time::Duration;

use bursar_client::api::Blocker;
use bursar_client::api::amount::Sum;
use bursar_client::api::jobs::job::{
    Attempt, EndReason, Job, JobFilter, JobHold, JobShare, JobState, SubmitJob, Why,
};
use bursar_client::api::jobs::timeline::{Timeline, TimelineEntry};
use bursar_client::api::words::{counted, gpu_time};
use bursar_client::jobs;
use clap::{Args, Subcommand};

use super::select::{self, Selected};
use super::{array, retry};
use crate::arguments::{in_one_unit, word};
use crate::exit::Failure;
use crate::render::format::Format;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::problem::fix;
use crate::session::{ChangeArguments, ConfirmArguments, ListArguments, Session, WatchArguments};

pub(crate) const JOB_STATES: &[&str] = &[
    "queued",
    "starting",
    "running",
    "stopping",
    "succeeded",
    "failed",
    "cancelled",
    "lost",
    "out_of_credits",
    "timed_out",
];

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// List jobs, newest first; the same as `bursar ls`.
    Ls(LsArguments),
    /// Show a job, its attempts and what they cost; of an array, its state and total cost.
    #[command(after_help = "Example:\n  bursar job show job_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
    Show {
        /// The job: its id, the beginning of it, or `last` for the newest.
        job: String,
        #[command(flatten)]
        watch: WatchArguments,
    },
    /// Show the timeline of a job, oldest first, without the reports of usage.
    #[command(after_help = "Examples:\n  bursar job timeline job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
        bursar job timeline job_01JAB2C3D4E5F6G7H8J9K0MNPQ --all")]
    Timeline {
        /// The job: its id, the beginning of it, or `last` for the newest.
        job: String,
        /// Show the reports of usage too. JSON and YAML always have them.
        #[arg(long)]
        all: bool,
    },
    /// Submit a job that has ended once more, with the same command and resources.
    #[command(after_help = "Examples:\n  bursar job retry job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
        bursar job retry sweep                of an array, every job that did not succeed")]
    Retry {
        /// The job: its id, the beginning of it, or `last` for the newest.
        job: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Stop a running job and queue it again; of an array, every job that runs. Asks on a terminal.
    #[command(after_help = "Examples:\n  bursar job preempt job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
        bursar job preempt sweep --yes")]
    Preempt {
        /// The job: its id, the beginning of it, or `last` for the newest.
        job: String,
        #[command(flatten)]
        confirm: ConfirmArguments,
        #[command(flatten)]
        change: ChangeArguments,
    },
}

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar ls\n  bursar ls acme:nlp --state running --watch\n  \
    bursar ls --label team=nlp --all -o csv")]
pub(crate) struct LsArguments {
    /// Only jobs of this account and all below it.
    account: Option<String>,
    /// The same, as other lists take it.
    #[arg(long = "account", value_name = "ACCOUNT", conflicts_with = "account")]
    of_account: Option<String>,
    /// Only jobs in this state.
    #[arg(long, value_parser = word::<JobState>(JOB_STATES))]
    state: Option<JobState>,
    /// Only jobs with this label: `name`, or `name=value`.
    #[arg(long)]
    label: Option<String>,
    #[command(flatten)]
    list: ListArguments,
    #[command(flatten)]
    watch: WatchArguments,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar why job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar why sweep                      all jobs of an array")]
pub(crate) struct WhyArguments {
    /// The job or array: its id, the beginning of it, or `last` for the newest.
    job: String,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar cancel job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar cancel sweep                   all jobs of an array\n  \
    bursar cancel sweep.3-8               some of them\n\n\
    Asks on a terminal if it means several jobs, or one that is not named by its whole id.")]
pub(crate) struct CancelArguments {
    /// The jobs and arrays: ids, beginnings of ids, or `last` for the newest.
    #[arg(required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    confirm: ConfirmArguments,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Ls(arguments) => ls(session, arguments).await,
        JobCommand::Show { job, watch } => show(session, &job, &watch).await,
        JobCommand::Timeline { job, all } => timeline(session, &job, all).await,
        JobCommand::Retry { job, change } => retry::retry(session, &job, &change).await,
        JobCommand::Preempt { job, confirm, change } => {
            preempt(session, &job, &confirm, &change).await
        }
    }
}

async fn show(session: &Session, id: &str, watch: &WatchArguments) -> Result<(), Failure> {
    let selected = select::find(session, id).await?;
    match (selected.is_array(), watch.is_on()) {
        (true, _) => {
            let read = async || session.rendered_value(&array::read(session, &selected).await?);
            session.refresh(watch, read).await
        }
        (false, true) => session.watch(jobs::show(&selected.id), watch).await,
        (false, false) => session.show(&selected.answer),
    }
}

/// Preempts a job; of an array, every job that is placed.
async fn preempt(
    session: &Session,
    id: &str,
    confirm: &ConfirmArguments,
    change: &ChangeArguments,
) -> Result<(), Failure> {
    let selected = select::find(session, id).await?;
    let job_ids = match selected.is_array() {
        true => array::placed(session, &selected).await?,
        false => selected.job_ids(),
    };
    let question = format!(
        "preempt {}? It stops {} and queues it again",
        selected.id,
        counted(job_ids.len(), "job")
    );
    confirm.ask(change, &question)?;
    for (number, job) in job_ids.iter().enumerate() {
        let effect = async |session: &Session| now(session, job).await;
        session.change(jobs::preempt(job), &change.of_part(number), effect).await?;
    }
    Ok(())
}

/// Entries that repeat with every report of a node.
const OF_METERING: &[&str] = &[
    "usage_metered",
    "hold_captured",
    "hold_extended",
    "attempt_funded",
    "funding_set",
    "funds_needed",
];

async fn timeline(session: &Session, job: &str, all: bool) -> Result<(), Failure> {
    let selected = select::find(session, job).await?;
    array::one_job(&selected, "job timeline")?;
    let mut answer = session.send(jobs::timeline(&selected.id)).await?;
    if all || matches!(session.format(), Format::Json | Format::Yaml) {
        return session.show(&answer);
    }
    let before = answer.value.data.len();
    answer.value.data.retain(|entry| !OF_METERING.contains(&entry.kind.as_str()));
    session.show(&answer)?;
    let hidden = before - answer.value.data.len();
    let remark = format!("without {} of usage: --all shows all", counted(hidden, "report"));
    session.remark((hidden > 0).then_some(remark.as_str()));
    Ok(())
}

pub(crate) async fn ls(session: &Session, arguments: LsArguments) -> Result<(), Failure> {
    let LsArguments { account, of_account, state, label, list, watch } = arguments;
    let account = account.or(of_account);
    let (limit, cursor) = (list.limit, list.cursor.clone());
    let call = jobs::list(&JobFilter { account, state, label, limit, cursor });
    if watch.is_on() { session.watch(call, &watch).await } else { session.list(call, &list).await }
}

pub(crate) async fn why(session: &Session, arguments: WhyArguments) -> Result<(), Failure> {
    let selected = select::find(session, &arguments.job).await?;
    if selected.is_array() {
        return array::why(session, &selected).await;
    }
    session.read(jobs::why(&selected.id)).await
}

pub(crate) async fn cancel(session: &Session, arguments: CancelArguments) -> Result<(), Failure> {
    let CancelArguments { jobs: named, confirm, change } = arguments;
    let mut selected = Vec::new();
    for job in &named {
        selected.extend(select::find_all(session, job).await?);
    }
    if let Some(question) = question(&named, &selected) {
        confirm.ask(&change, &question)?;
    }
    let mut failures = Vec::new();
    for (number, one) in selected.iter().enumerate() {
        match cancel_one(session, one, &change.of_part(number)).await {
            Err(failure) if selected.len() > 1 => failures.push((one.id.clone(), failure)),
            outcome => outcome?,
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::of_several(failures, selected.len())) }
}

async fn cancel_one(
    session: &Session,
    one: &Selected,
    change: &ChangeArguments,
) -> Result<(), Failure> {
    let job = &one.id;
    if one.is_array() && !change.is_dry_run() {
        session.send_change(jobs::cancel(job), change).await?;
        return array::show(session, one).await;
    }
    let effect = async |session: &Session| now(session, job).await;
    session.change(jobs::cancel(job), change, effect).await
}

/// Asked before more than one job is cancelled, or one that was not named by its whole id.
fn question(named: &[String], selected: &[Selected]) -> Option<String> {
    let count: usize = selected.iter().map(|one| one.job_ids().len()).sum();
    let ids: Vec<&str> = selected.iter().map(|one| one.id.as_str()).collect();
    let is_plain = count == 1 && named.iter().map(String::as_str).eq(ids.iter().copied());
    (!is_plain).then(|| format!("cancel {}? {}", ids.join(", "), counted(count, "job")))
}

/// The present state of a job, for --dry-run.
async fn now(session: &Session, job: &str) -> Result<Vec<String>, Failure> {
    let job = session.send(jobs::show(job)).await?.value;
    let held = job.hold.as_ref().map_or_else(String::new, |hold| format!(", {} held", left(hold)));
    Ok(vec![format!("it is {} now, {} charged{held}", job.state.as_str(), job.charged)])
}

/// A state in its colour.
pub(crate) fn state_cell(state: JobState) -> Cell {
    let tone = match state {
        JobState::Running | JobState::Succeeded => Tone::Good,
        JobState::Queued | JobState::Starting | JobState::Stopping => Tone::Warning,
        JobState::Failed | JobState::Lost | JobState::OutOfCredits | JobState::TimedOut => {
            Tone::Bad
        }
        JobState::Cancelled => Tone::Plain,
    };
    Cell::new(state.as_str()).with_tone(tone)
}

/// `4 × H100,A100`, with the nodes if there are several.
pub(crate) fn gpus(spec: &SubmitJob) -> String {
    let types = spec.gpus.types.as_deref().map(|types| types.join(",")).unwrap_or_default();
    let types = if types.is_empty() { "any".to_owned() } else { types };
    let amount = match (spec.gpus.share, spec.gpus.count) {
        (Some(share), _) => share.to_string(),
        (None, count) => count.unwrap_or(1).to_string(),
    };
    let nodes = spec.nodes.filter(|nodes| *nodes > 1);
    let nodes = nodes.map(|nodes| format!(" × {nodes} nodes")).unwrap_or_default();
    format!("{amount} × {types}{nodes}")
}

impl Row for Job {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("account"),
        words("name"),
        words("state"),
        words("gpus"),
        words("region"),
        numbers("cost"),
        words("created_at"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::new(&self.account),
            Cell::maybe(self.spec.name.as_ref()),
            state_cell(self.state),
            Cell::new(gpus(&self.spec)),
            Cell::maybe(self.region.as_ref()),
            Cell::new(self.cost_so_far.unwrap_or(self.charged)),
            Cell::time(self.created_at),
        ]
    }
}

/// What a hold still has: held means the same here as in a balance.
pub(super) fn left(hold: &JobHold) -> Sum {
    Sum::from_micros(hold.amount.micros() - hold.captured.micros())
}

impl View for Job {
    fn sheet(&self) -> Sheet {
        let hold = self.hold.as_ref();
        let fields = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("name", Cell::maybe(self.spec.name.as_ref())),
            ("account", Cell::new(&self.account)),
            ("state", state_cell(self.state)),
            ("gpus", Cell::new(gpus(&self.spec))),
            ("class", Cell::maybe(self.spec.class.as_ref())),
            ("region", Cell::maybe(self.region.as_ref())),
            ("command", Cell::maybe(self.spec.command.as_ref().map(|words| words.join(" ")))),
            ("hold", Cell::maybe(hold.map(|hold| &hold.id))),
            ("held", Cell::maybe(hold.filter(|_| !self.state.is_final()).map(left))),
            ("charged", Cell::new(self.charged)),
            ("cost_so_far", Cell::maybe(self.cost_so_far)),
            ("returned", Cell::new(self.returned)),
            ("position", Cell::maybe(self.position)),
            ("estimated_start_at", Cell::maybe_time(self.estimated_start_at)),
            ("created_at", Cell::time(self.created_at)),
            ("ended_at", Cell::maybe_time(self.ended_at)),
        ]);
        let blockers = self.blockers.as_deref().unwrap_or_default();
        let array: Vec<ArrayJob> = self.array.iter().flatten().cloned().map(ArrayJob).collect();
        fields
            .with_section("attempts", Sheet::list(&numbered(&self.attempts)))
            .with_section("waits for", Sheet::list(blockers))
            .with_section("jobs", Sheet::list(&array))
    }
}

/// A job of an array.
struct ArrayJob(String);

impl Row for ArrayJob {
    const COLUMNS: &'static [Column] = &[words("id")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.0)]
    }
}

/// An attempt and its number from 1, as `bursar logs --attempt` takes it.
struct NumberedAttempt<'a>(usize, &'a Attempt);

fn numbered(attempts: &[Attempt]) -> Vec<NumberedAttempt<'_>> {
    attempts
        .iter()
        .enumerate()
        .map(|(index, attempt)| NumberedAttempt(index + 1, attempt))
        .collect()
}

impl Row for NumberedAttempt<'_> {
    const COLUMNS: &'static [Column] = &[
        numbers("attempt"),
        words("id"),
        words("nodes"),
        words("gpu_type"),
        numbers("per_gpu_hour"),
        words("started_at"),
        words("ended_at"),
        words("end"),
        numbers("exit"),
        numbers("gpu_time"),
        numbers("charged"),
    ];

    fn cells(&self) -> Vec<Cell> {
        let NumberedAttempt(number, attempt) = self;
        vec![
            Cell::new(number),
            Cell::new(&attempt.id),
            Cell::joined(Some(&attempt.nodes)),
            Cell::new(&attempt.gpu_type),
            Cell::new(attempt.per_gpu_hour),
            Cell::maybe_time(attempt.started_at),
            Cell::maybe_time(attempt.ended_at),
            attempt.end_reason.map_or_else(|| Cell::new(""), end_cell),
            Cell::maybe(attempt.exit_code),
            Cell::new(gpu_time(attempt.gpu_ms)),
            Cell::new(attempt.charged),
        ]
    }
}

fn end_cell(reason: EndReason) -> Cell {
    let tone = match reason {
        EndReason::Succeeded => Tone::Good,
        EndReason::Cancelled => Tone::Plain,
        EndReason::Preempted | EndReason::Drained => Tone::Warning,
        EndReason::Failed | EndReason::TimedOut | EndReason::OutOfCredits | EndReason::Lost => {
            Tone::Bad
        }
    };
    Cell::word(&reason).with_tone(tone)
}

impl Row for Blocker {
    const COLUMNS: &'static [Column] = &[words("what"), words("detail"), words("fix")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::word(&self.kind), Cell::new(&self.detail), Cell::new(fix(self))]
    }
}

impl View for Why {
    fn sheet(&self) -> Sheet {
        let fields = Sheet::record([
            ("job", Cell::new(&self.job)),
            ("state", state_cell(self.state)),
            ("position", Cell::maybe(self.position)),
            ("estimated_start_at", Cell::maybe_time(self.estimated_start_at)),
            ("preempted", Cell::maybe(self.preempted.as_ref().map(|cause| &cause.detail))),
        ]);
        let sheet = fields.with_section("waits for", Sheet::list(&self.blockers));
        sheet.with_section("fair shares", Sheet::list(&self.shares))
    }
}

impl Row for JobShare {
    const COLUMNS: &'static [Column] = &[
        words("region"),
        words("account"),
        numbers("weight"),
        numbers("entitled"),
        numbers("received"),
        numbers("usage"),
        words("half_life"),
    ];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.region),
            Cell::new(&self.account),
            Cell::new(self.weight),
            Cell::new(self.entitled),
            Cell::new(self.received),
            Cell::new(self.usage),
            Cell::new(in_one_unit(Duration::from_secs(self.half_life_seconds))),
        ]
    }
}

impl Row for TimelineEntry {
    const COLUMNS: &'static [Column] =
        &[words("at"), words("source"), words("what"), numbers("amount"), words("detail")];

    fn cells(&self) -> Vec<Cell> {
        let slices = self.slices.as_deref().unwrap_or_default();
        let slices: Vec<String> =
            slices.iter().map(|slice| format!("{} {}", slice.grant, slice.amount)).collect();
        let detail = match slices.is_empty() {
            true => self.detail.clone(),
            false => format!("{} ({})", self.detail, slices.join(", ")),
        };
        vec![
            Cell::time(self.at),
            Cell::new(&self.source),
            Cell::new(&self.kind),
            Cell::maybe(self.amount),
            Cell::new(detail),
        ]
    }
}

impl View for Timeline {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_that_is_offered_is_one_that_the_server_knows() {
        let written: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(written, JOB_STATES);
    }

    #[test]
    fn what_a_job_needs_is_one_short_text() {
        let mut spec = SubmitJob::default();
        assert_eq!(gpus(&spec), "1 × any");
        spec.gpus.types = Some(vec!["H100".into(), "A100".into()]);
        spec.gpus.count = Some(4);
        spec.nodes = Some(2);
        assert_eq!(gpus(&spec), "4 × H100,A100 × 2 nodes");
    }
}
