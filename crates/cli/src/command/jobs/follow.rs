//! `bursar wait`, and the following of `bursar run`: output of the job on standard output, state and
//! cost on standard error, and the exit code of the job.

use std::time::Duration;

use bursar_client::api::jobs::job::{Job, JobState, LogQuery};
use bursar_client::api::terminal::escaped;
use bursar_client::api::words::gpu_time;
use bursar_client::{ClientError, jobs};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::array::Totals;
use super::efficiency::efficiency;
use super::job::JOB_STATES;
use super::logs::{Output, show_output};
use super::select;
use crate::arguments::{duration, in_one_unit, word};
use crate::exit::{Exit, Failure};
use crate::render::format::Format;
use crate::render::note;
use crate::session::Session;

/// The interval between reads of a job.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar wait job_01JAB2C3D4E5F6G7H8J9K0MNPQ && echo done\n  \
    bursar wait sweep\n  bursar wait sweep.3-8\n  bursar wait --for running job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar wait last --timeout 2h\n\n\
    The id of an array stands for all of its jobs. Ends as the job does, as `bursar run` would; of \
    several jobs, as the first that did not succeed. With --for it ends once every job has \
    reached the state, and fails if a job ends without it.")]
pub(crate) struct WaitArguments {
    /// The jobs and arrays: ids, beginnings of ids, some of an array (`sweep.3-8`), or `last` for the
    /// newest.
    #[arg(required = true)]
    jobs: Vec<String>,
    /// Wait for this state instead of the end.
    #[arg(long = "for", value_name = "STATE", value_parser = word::<JobState>(JOB_STATES))]
    until: Option<JobState>,
    /// Wait no longer than this, and exit with 6 then. The jobs continue.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
}

/// Waits for jobs.
pub(crate) async fn wait(session: &Session, arguments: WaitArguments) -> Result<(), Failure> {
    let WaitArguments { jobs, until, timeout } = arguments;
    let reached = wait_for(session, &jobs, until);
    let Some(timeout) = timeout else { return reached.await };
    tokio::time::timeout(timeout, reached).await.unwrap_or_else(|_| {
        let (time, jobs) = (in_one_unit(timeout), jobs.join(" "));
        let why = format!("{jobs}: not reached after {time}; the wait ended, not the job");
        Err(Failure::because(Exit::Unavailable, why).with_next(format!("bursar why {jobs}")))
    })
}

async fn wait_for(
    session: &Session,
    ids: &[String],
    until: Option<JobState>,
) -> Result<(), Failure> {
    let mut reached = Vec::new();
    let mut all = Vec::new();
    for id in ids {
        all.extend(select::find_all(session, id).await?);
    }
    for selected in all {
        let mut of_id = Vec::new();
        for job_id in selected.job_ids() {
            of_id.push(end_of(session, &job_id, until).await?);
        }
        match (session.format(), of_id.as_slice()) {
            (Format::Table, [job]) => say_end(job),
            (Format::Table, several) => {
                note(&format!("{}: {}", selected.id, Totals::of(several)));
            }
            (Format::Json | Format::Yaml | Format::Csv, several) => {
                several.iter().try_for_each(|job| session.show_value(job))?;
            }
        }
        reached.extend(of_id);
    }
    let is_good = |job: &Job| match until {
        Some(state) => has_reached(job, state),
        None => job.state == JobState::Succeeded,
    };
    match reached.iter().find(|job| !is_good(job)) {
        Some(job) => Err(failure_of(job)),
        None => Ok(()),
    }
}

/// The job once it has ended, or has reached a state.
async fn end_of(session: &Session, id: &str, until: Option<JobState>) -> Result<Job, Failure> {
    loop {
        let job = session.send(jobs::show(id)).await?.value;
        if job.state.is_final() || until.is_some_and(|state| has_reached(&job, state)) {
            return Ok(job);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Whether a job is in a state, or was: a short job may have left it before it is looked at.
fn has_reached(job: &Job, state: JobState) -> bool {
    match state {
        JobState::Queued => true,
        JobState::Starting => !job.attempts.is_empty(),
        JobState::Running => job.attempts.iter().any(|attempt| attempt.started_at.is_some()),
        JobState::Stopping
        | JobState::Succeeded
        | JobState::Failed
        | JobState::Cancelled
        | JobState::Lost
        | JobState::OutOfCredits
        | JobState::TimedOut => job.state == state,
    }
}

/// Follows a job to its end and returns its exit code. An interrupt does not affect the job.
pub(crate) async fn to_the_end(session: &Session, id: &str, raw: bool) -> Result<(), Failure> {
    let mut out = Output::new(raw);
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("it is well-formed");
    bar.set_style(style);
    let job = tokio::select! {
        job = watch(session, id, Show::Everything, POLL_INTERVAL, &bar, &mut out) => job?,
        _ = tokio::signal::ctrl_c() => {
            bar.finish_and_clear();
            return Err(Failure::because(Exit::Failed, format!("detached; {id} continues"))
                .with_code(130)
                .with_next(format!("bursar logs -f {id}, or bursar cancel {id}")));
        }
    };
    bar.finish_and_clear();
    if session.format() != Format::Table {
        session.show_value(&job)?;
    }
    say_end(&job);
    if job.state == JobState::Succeeded { Ok(()) } else { Err(failure_of(&job)) }
}

/// What is shown of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// State, cost, and the output of all attempts.
    Everything,
    /// The output of the last attempt and later ones.
    OutputOfLast,
}

/// Shows a job until it has ended, attempt after attempt, and looks at it in an interval. Waits while
/// the server is unreachable.
pub(super) async fn watch(
    session: &Session,
    id: &str,
    show: Show,
    interval: Duration,
    bar: &ProgressBar,
    out: &mut Output,
) -> Result<Job, Failure> {
    let mut said = String::new();
    let mut job = session.send(jobs::show(id)).await?.value;
    let mut at = match show {
        Show::Everything => 0,
        Show::OutputOfLast => job.attempts.len().saturating_sub(1),
    };
    let mut shown = 0;
    loop {
        if show == Show::Everything {
            say(&job, bar, &mut said);
        }
        let attempt = job.attempts.get(at).map(|attempt| attempt.id.clone());
        if has_moved_on(&job, at) {
            if attempt.is_none() {
                return Ok(job);
            }
            let query = LogQuery { follow: Some(false), attempt, rank: None };
            let rest = show_output(session, id, &query, &mut shown, Some(bar), out).await;
            rest.map_err(|error| session.explain(&error, None))?;
            (at, shown) = (at + 1, 0);
            continue;
        }
        let is_there = attempt.is_some();
        let query = LogQuery { follow: Some(true), attempt, rank: None };
        let output = show_output(session, id, &query, &mut shown, Some(bar), out);
        tokio::pin!(output);
        // An interrupted stream is resumed with the next read of the job.
        let mut flows = is_there;
        loop {
            tokio::select! {
                _ = &mut output, if flows => flows = false,
                news = next(session, id, interval) => {
                    job = news?;
                    if show == Show::Everything {
                        say(&job, bar, &mut said);
                    }
                    if !flows || has_moved_on(&job, at) {
                        break;
                    }
                }
            }
        }
    }
}

/// Whether the output of an attempt is complete: the job has ended, or another attempt runs.
fn has_moved_on(job: &Job, at: usize) -> bool {
    job.state.is_final() || at + 1 < job.attempts.len()
}

/// The job after the interval. Retries while there is no answer.
async fn next(session: &Session, id: &str, interval: Duration) -> Result<Job, Failure> {
    loop {
        tokio::time::sleep(interval).await;
        match session.client().send(jobs::show(id)).await {
            Ok(answer) => return Ok(answer.value),
            Err(ClientError::Unreachable { .. }) => {}
            Err(error) => return Err(session.explain(&error, None)),
        }
    }
}

/// The state of a job: on the progress line of a terminal, else on a separate line.
fn say(job: &Job, bar: &ProgressBar, said: &mut String) {
    let place = job.attempts.last().filter(|_| job.state != JobState::Queued);
    let place = place.map(|attempt| format!(" on {}", attempt.nodes.join(","))).unwrap_or_default();
    let state = format!("{} {}{place}", job.id, job.state.as_str());
    bar.set_message(escaped(&format!("{state}, {} credits so far", job.charged)).into_owned());
    bar.tick();
    if *said != state && bar.is_hidden() && !job.state.is_final() {
        let reasons = job.blockers.as_deref().unwrap_or_default().iter();
        let reasons: Vec<&str> = reasons.map(|blocker| blocker.detail.as_str()).collect();
        let why = if reasons.is_empty() { "" } else { ": " };
        note(&format!("{state}{why}{}", reasons.join("; ")));
    }
    *said = state;
}

/// Says how a job ended, and what it did with the time that it asked for.
fn say_end(job: &Job) {
    note(&summary(job));
    if let Some(line) = efficiency(job).filter(|_| job.state.is_final()) {
        note(&format!("  {line}"));
    }
    // Of a job that did not succeed it is part of the error.
    let message = job.attempts.last().and_then(|attempt| attempt.message.as_deref());
    if let Some(message) = message.filter(|_| job.state == JobState::Succeeded) {
        note(&format!("  {message}"));
    }
}

/// How a job ended, on one line.
fn summary(job: &Job) -> String {
    let gpu_ms = job.attempts.iter().map(|attempt| attempt.gpu_ms).sum();
    let attempts = match job.attempts.len() {
        0 | 1 => String::new(),
        several => format!(" in {several} attempts"),
    };
    let (id, state, time) = (&job.id, job.state.as_str(), gpu_time(gpu_ms));
    let (charged, returned) = (job.charged, job.returned);
    format!("{id} {state}{attempts}: {time} of GPU time, {charged} charged, {returned} returned")
}

/// A job that did not succeed.
fn failure_of(job: &Job) -> Failure {
    let last = job.attempts.last();
    let exit_code = last.and_then(|attempt| attempt.exit_code);
    let code = match job.state {
        JobState::Cancelled => 130,
        JobState::TimedOut => 124,
        JobState::Queued
        | JobState::Starting
        | JobState::Running
        | JobState::Stopping
        | JobState::Succeeded
        | JobState::Failed
        | JobState::Lost
        | JobState::OutOfCredits => exit_code
            .and_then(|code| u8::try_from(code).ok())
            .filter(|code| *code != 0)
            .unwrap_or(1),
    };
    let why = match exit_code {
        Some(number) if job.state == JobState::Failed => {
            format!("{} failed with exit code {number}", job.id)
        }
        Some(_) | None => format!("{} ended as {}", job.id, job.state.as_str()),
    };
    let mut failure = Failure::because(Exit::Failed, why).with_code(code);
    if let Some(message) = last.and_then(|attempt| attempt.message.as_ref()) {
        failure = failure.with_particular(escaped(message));
    }
    failure.with_next(format!("bursar job show {}, bursar logs {}", job.id, job.id))
}
