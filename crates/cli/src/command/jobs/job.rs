//! `bursar job`, `bursar ls`, `bursar why` and `bursar cancel`.

use bursar_client::api::jobs::job::{JobFilter, JobState};
use bursar_client::api::words::counted;
use bursar_client::jobs;
use clap::{Args, Subcommand};

use super::layout::left;
use super::select::{self, Selected};
use super::{array, retry};
use crate::arguments::word;
use crate::exit::Failure;
use crate::render::format::Format;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_that_is_offered_is_one_that_the_server_knows() {
        let written: Vec<&str> = JobState::ALL.iter().map(|state| state.as_str()).collect();
        assert_eq!(written, JOB_STATES);
    }
}
