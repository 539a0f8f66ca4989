//! `bursar job`, `bursar ls`, `bursar why` and `bursar cancel`.

use bursar_client::api::Blocker;
use bursar_client::api::jobs::job::{Attempt, EndReason, Job, JobFilter, JobState, SubmitJob, Why};
use bursar_client::api::jobs::timeline::{Timeline, TimelineEntry};
use bursar_client::jobs;
use clap::{Args, Subcommand};

use super::array;
use crate::arguments::word;
use crate::exit::{Exit, Failure};
use crate::render::format::Format;
use crate::render::sheet::{Cell, Column, Row, Sheet, Tone, View, numbers, words};
use crate::session::problem::fix;
use crate::session::{ChangeArguments, ListArguments, Session, WatchArguments, no_more_known};

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
        /// The job.
        job: String,
        #[command(flatten)]
        watch: WatchArguments,
    },
    /// Show the timeline of a job, oldest first, without the reports of usage.
    #[command(after_help = "Examples:\n  bursar job timeline job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
        bursar job timeline job_01JAB2C3D4E5F6G7H8J9K0MNPQ --all")]
    Timeline {
        /// The job.
        job: String,
        /// Show the reports of usage too. JSON and YAML always have them.
        #[arg(long)]
        all: bool,
    },
    /// Submit a job that has ended once more, with the same command and resources.
    #[command(after_help = "Example:\n  bursar job retry job_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
    Retry {
        /// The job.
        job: String,
        #[command(flatten)]
        change: ChangeArguments,
    },
    /// Stop a running job and queue it again.
    #[command(after_help = "Example:\n  bursar job preempt job_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
    Preempt {
        /// The job.
        job: String,
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
#[command(after_help = "Example:\n  bursar why job_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
pub(crate) struct WhyArguments {
    /// The job.
    job: String,
}

#[derive(Args)]
#[command(after_help = "Example:\n  bursar cancel job_01JAB2C3D4E5F6G7H8J9K0MNPQ")]
pub(crate) struct CancelArguments {
    /// The jobs.
    #[arg(required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

pub(crate) async fn run(session: &Session, command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Ls(arguments) => ls(session, arguments).await,
        JobCommand::Show { job, watch } if watch.is_on() => {
            session.watch(jobs::show(&job), &watch).await
        }
        JobCommand::Show { job, .. } => show(session, &job).await,
        JobCommand::Timeline { job, all } => timeline(session, &job, all).await,
        JobCommand::Retry { job, change } => retry(session, &job, &change).await,
        JobCommand::Preempt { job, change } => {
            session
                .change(jobs::preempt(&job), &change, async |session: &Session| {
                    now(session, &job).await
                })
                .await
        }
    }
}

async fn show(session: &Session, id: &str) -> Result<(), Failure> {
    let answer = session.send(jobs::show(id)).await?;
    let is_array = answer.value.array.is_some() && answer.value.id != id;
    if is_array && session.format() == Format::Table {
        return array::show(session, id, &answer.value).await;
    }
    session.show(&answer)
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
    let mut answer = session.send(jobs::timeline(job)).await?;
    if all || matches!(session.format(), Format::Json | Format::Yaml) {
        return session.show(&answer);
    }
    let before = answer.value.data.len();
    answer.value.data.retain(|entry| !OF_METERING.contains(&entry.kind.as_str()));
    session.show(&answer)?;
    let hidden = before - answer.value.data.len();
    let remark = format!("{hidden} reports of usage are not shown: --all");
    session.remark((hidden > 0).then_some(remark.as_str()));
    Ok(())
}

/// Submits an ended job again, under a new id.
async fn retry(session: &Session, id: &str, change: &ChangeArguments) -> Result<(), Failure> {
    let job = session.send(jobs::show(id)).await?.value;
    if !job.state.is_final() {
        let state = job.state.as_str();
        let why = format!("{id} is {state}: only a job that has ended can be retried");
        return Err(Failure::because(Exit::Refused, why)
            .with_next(format!("bursar cancel {id}, or bursar job preempt {id} to restart it")));
    }
    let again = SubmitJob { id: None, array: None, ..job.spec };
    session.change(jobs::submit(&again), change, no_more_known).await
}

pub(crate) async fn ls(session: &Session, arguments: LsArguments) -> Result<(), Failure> {
    let LsArguments { account, state, label, list, watch } = arguments;
    let (limit, cursor) = (list.limit, list.cursor.clone());
    let call = jobs::list(&JobFilter { account, state, label, limit, cursor });
    if watch.is_on() { session.watch(call, &watch).await } else { session.list(call, &list).await }
}

pub(crate) async fn why(session: &Session, arguments: WhyArguments) -> Result<(), Failure> {
    session.read(jobs::why(&arguments.job)).await
}

pub(crate) async fn cancel(session: &Session, arguments: CancelArguments) -> Result<(), Failure> {
    for (number, job) in arguments.jobs.iter().enumerate() {
        let change = arguments.change.of_part(number);
        let effect = async |session: &Session| now(session, job).await;
        session.change(jobs::cancel(job), &change, effect).await?;
    }
    Ok(())
}

/// The present state of a job, for --dry-run.
async fn now(session: &Session, job: &str) -> Result<Vec<String>, Failure> {
    let job = session.send(jobs::show(job)).await?.value;
    let held = job.hold.map_or_else(String::new, |hold| format!(", {} held", hold.amount));
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

/// Milliseconds of GPU time in a readable form.
pub(crate) fn gpu_time(gpu_ms: u64) -> String {
    let seconds = gpu_ms / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}.{:03}s", gpu_ms % 1000),
        (0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (hours, minutes, _) => format!("{hours}h{minutes:02}m"),
    }
}

impl Row for Job {
    const COLUMNS: &'static [Column] = &[
        words("id"),
        words("account"),
        words("name"),
        words("state"),
        words("gpus"),
        words("region"),
        numbers("charged"),
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
            Cell::new(self.charged),
            Cell::time(self.created_at),
        ]
    }
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
            ("held", Cell::maybe(hold.filter(|_| !self.state.is_final()).map(|hold| hold.amount))),
            ("charged", Cell::new(self.charged)),
            ("returned", Cell::new(self.returned)),
            ("position", Cell::maybe(self.position)),
            ("estimated_start_at", Cell::maybe_time(self.estimated_start_at)),
            ("created_at", Cell::time(self.created_at)),
            ("ended_at", Cell::maybe_time(self.ended_at)),
        ]);
        let blockers = self.blockers.as_deref().unwrap_or_default();
        let array: Vec<Member> = self.array.iter().flatten().cloned().map(Member).collect();
        fields
            .with_section("attempts", Sheet::list(&self.attempts))
            .with_section("waits for", Sheet::list(blockers))
            .with_section("jobs", Sheet::list(&array))
    }
}

/// A job of an array.
struct Member(String);

impl Row for Member {
    const COLUMNS: &'static [Column] = &[words("id")];

    fn cells(&self) -> Vec<Cell> {
        vec![Cell::new(&self.0)]
    }
}

impl Row for Attempt {
    const COLUMNS: &'static [Column] = &[
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
        vec![
            Cell::new(&self.id),
            Cell::joined(Some(&self.nodes)),
            Cell::new(&self.gpu_type),
            Cell::new(self.per_gpu_hour),
            Cell::maybe_time(self.started_at),
            Cell::maybe_time(self.ended_at),
            self.end_reason.map_or_else(|| Cell::new(""), end_cell),
            Cell::maybe(self.exit_code),
            Cell::new(gpu_time(self.gpu_ms)),
            Cell::new(self.charged),
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
        ]);
        fields.with_section("waits for", Sheet::list(&self.blockers))
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
    fn gpu_time_is_written_as_people_read_it() {
        assert_eq!(gpu_time(1_234), "1.234s");
        assert_eq!(gpu_time(61_000), "1m01s");
        assert_eq!(gpu_time(7_260_000), "2h01m");
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
