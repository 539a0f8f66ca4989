//! `bursar logs` and `bursar wait`, and the following of `bursar run`: output of the job on standard
//! output, state and cost on standard error, and the exit code of the job.

use std::io::Write;
use std::time::Duration;

use bursar_client::api::jobs::job::{Job, JobState, LogQuery};
use bursar_client::api::terminal::escaped;
use bursar_client::{ClientError, jobs};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::array::{self, Totals};
use super::job::{JOB_STATES, gpu_time};
use crate::arguments::word;
use crate::exit::{Exit, Failure};
use crate::render::format::{Format, is_terminal};
use crate::render::note;
use crate::render::output::Sieve;
use crate::session::Session;

/// The interval between reads of a job.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar logs job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar logs -f job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar logs --rank 3 job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n\n\
    Each node of a gang has its own output; that of the first, rank 0, is shown unless you say.")]
pub(crate) struct LogsArguments {
    /// The job.
    job: String,
    /// Follow the output until the job has ended.
    #[arg(short, long)]
    follow: bool,
    /// The attempt; the last one if not given.
    #[arg(long)]
    attempt: Option<String>,
    /// The rank of the node in a multi-node job, as in BURSAR_RANK; 0 if not given.
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Show the output of all nodes so far, one after the other, each line prefixed with its rank.
    #[arg(long, conflicts_with_all = ["rank", "follow"])]
    all_ranks: bool,
    /// Print control characters unchanged on a terminal, such as colours. Without it they are
    /// escaped. Files and pipes always receive the output unchanged.
    #[arg(long)]
    raw: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar wait job_01JAB2C3D4E5F6G7H8J9K0MNPQ && echo done\n  \
    bursar wait sweep\n  bursar wait --for running job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n\n\
    The id of an array stands for all of its jobs. Ends as the job does, as `bursar run` would; of \
    several jobs, as the first that did not succeed. With --for it ends once every job has \
    reached the state, and fails if a job ends without it.")]
pub(crate) struct WaitArguments {
    /// The jobs and arrays.
    #[arg(required = true)]
    jobs: Vec<String>,
    /// Wait for this state instead of the end.
    #[arg(long = "for", value_name = "STATE", value_parser = word::<JobState>(JOB_STATES))]
    until: Option<JobState>,
}

/// Shows the output of a job.
pub(crate) async fn logs(session: &Session, arguments: LogsArguments) -> Result<(), Failure> {
    let LogsArguments { job, follow, attempt, rank, all_ranks, raw } = arguments;
    let mut out = Output::new(raw);
    if all_ranks {
        return show_all_ranks(session, &job, attempt, &mut out).await;
    }
    if follow && attempt.is_none() && rank.unwrap_or(0) == 0 {
        let quiet = ProgressBar::hidden();
        return watch(session, &job, Show::OutputOfLast, &quiet, &mut out).await.map(|_| ());
    }
    let query = LogQuery { follow: Some(follow), attempt, rank };
    let shown = show_output(session, &job, &query, &mut 0, None, &mut out).await;
    shown.map_err(|error| session.explain(&error, None))
}

/// The output of every node of a job, in the order of their ranks.
async fn show_all_ranks(
    session: &Session,
    id: &str,
    attempt: Option<String>,
    out: &mut Output,
) -> Result<(), Failure> {
    let explain = |error: ClientError| session.explain(&error, None);
    let job = session.send(jobs::show(id)).await?.value;
    for rank in 0..job.spec.nodes.unwrap_or(1) {
        let query = LogQuery { follow: Some(false), attempt: attempt.clone(), rank: Some(rank) };
        let mut stream = session.client().stream(jobs::logs(id, &query)).await.map_err(explain)?;
        let mut output = Vec::new();
        while let Some(piece) = stream.next().await.map_err(explain)? {
            output.extend_from_slice(&piece);
        }
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            out.write(&[format!("[{rank}] ").as_bytes(), line].concat());
        }
        if output.last().is_some_and(|last| *last != b'\n') {
            out.write(b"\n");
        }
    }
    Ok(())
}

/// Waits for jobs.
pub(crate) async fn wait(session: &Session, arguments: WaitArguments) -> Result<(), Failure> {
    let WaitArguments { jobs: ids, until } = arguments;
    let mut reached = Vec::new();
    for id in &ids {
        let first = session.send(jobs::show(id)).await?.value;
        let mut of_id = Vec::new();
        for member in array::members(id, &first) {
            of_id.push(end_of(session, &member, until).await?);
        }
        match (session.format(), of_id.as_slice()) {
            (Format::Table, [job]) => note(&summary(job)),
            (Format::Table, several) => note(&format!("{id}: {}", Totals::of(several))),
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
        tokio::time::sleep(LOOK).await;
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
        job = watch(session, id, Show::Everything, &bar, &mut out) => job?,
        _ = tokio::signal::ctrl_c() => {
            bar.finish_and_clear();
            return Err(Failure::because(Exit::Failed, format!("detached; {id} is still running"))
                .with_code(130)
                .with_next(format!("bursar logs -f {id}, or bursar cancel {id}")));
        }
    };
    bar.finish_and_clear();
    if session.format() != Format::Table {
        session.show_value(&job)?;
    }
    note(&summary(&job));
    if job.state == JobState::Succeeded { Ok(()) } else { Err(failure_of(&job)) }
}

/// What is shown of a job.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Show {
    /// State, cost, and the output of all attempts.
    Everything,
    /// The output of the last attempt and later ones.
    OutputOfLast,
}

/// Shows a job until it has ended, attempt after attempt. Waits while the server is unreachable.
async fn watch(
    session: &Session,
    id: &str,
    show: Show,
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
                news = next(session, id) => {
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
async fn next(session: &Session, id: &str) -> Result<Job, Failure> {
    loop {
        tokio::time::sleep(LOOK).await;
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

/// Prints output that was not printed before.
async fn show_output(
    session: &Session,
    id: &str,
    query: &LogQuery,
    shown: &mut usize,
    bar: Option<&ProgressBar>,
    out: &mut Output,
) -> Result<(), ClientError> {
    let mut stream = session.client().stream(jobs::logs(id, query)).await?;
    let mut skip = *shown;
    while let Some(piece) = stream.next().await? {
        let known = skip.min(piece.len());
        skip -= known;
        let fresh = &piece[known..];
        if !fresh.is_empty() {
            *shown += fresh.len();
            match bar {
                Some(bar) => bar.suspend(|| out.write(fresh)),
                None => out.write(fresh),
            }
        }
    }
    out.end();
    Ok(())
}

/// The destination of job output.
struct Output(Option<Sieve>);

impl Output {
    /// Standard output; on a terminal control characters are escaped unless `raw`.
    fn new(raw: bool) -> Output {
        Output((!raw && is_terminal()).then(Sieve::default))
    }

    fn write(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Some(sieve) => write_out(sieve.pass(bytes).as_bytes()),
            None => write_out(bytes),
        }
    }

    /// Ends the output.
    fn end(&mut self) {
        if let Some(sieve) = &mut self.0 {
            write_out(sieve.end().as_bytes());
        }
    }
}

fn write_out(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // The reader has closed the pipe, as `head` does.
        std::process::exit(0);
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
