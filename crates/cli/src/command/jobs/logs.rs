//! `bursar logs`: the output of a job, of all nodes of a gang, or of all jobs of an array.

use std::io::Write;
use std::time::Duration;

use bursar_client::api::jobs::job::LogQuery;
use bursar_client::{ClientError, jobs};
use clap::Args;
use indicatif::ProgressBar;

use super::follow::{POLL_INTERVAL, Show, watch};
use super::select::{self, Selected, attempt_of};
use crate::exit::{Exit, Failure};
use crate::render::format::is_terminal;
use crate::render::output::ChunkEscaper;
use crate::session::Session;

/// Of an array, at most this many jobs are looked at in each interval while it is followed.
const LOOKS_AT_ONCE: usize = 16;

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar logs last\n  \
    bursar logs -f job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n  \
    bursar logs sweep                     all jobs of an array, with their indexes\n  \
    bursar logs --attempt 1 job_01JAB2C3D4E5F6G7H8J9K0MNPQ\n\n\
    Each node of a gang has its own output; that of rank 0 is shown unless --rank or --all-ranks is \
    given.")]
pub(crate) struct LogsArguments {
    /// The job or array: its id, the beginning of it, or `last` for the newest.
    job: String,
    /// Follow the output until the job has ended.
    #[arg(short, long)]
    follow: bool,
    /// The attempt: its id, or its number from 1; the last one if not given.
    #[arg(long, value_name = "ATTEMPT")]
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

/// Shows the output of a job or an array.
pub(crate) async fn logs(session: &Session, arguments: LogsArguments) -> Result<(), Failure> {
    let LogsArguments { job, follow, attempt, rank, all_ranks, raw } = arguments;
    let selected = select::find(session, &job).await?;
    if selected.is_array() && all_ranks {
        let why = format!("{job} is an array: --all-ranks needs one job");
        let first = &selected.job().id;
        return Err(Failure::because(Exit::Usage, why)
            .with_next(format!("bursar logs {first} --all-ranks")));
    }
    if selected.is_array() {
        let of_one = JobOutputOptions { attempt, rank, raw };
        return match follow {
            true => follow_array(session, &selected, &of_one).await,
            false => show_array(session, &selected, &of_one).await,
        };
    }
    let attempt = attempt.map(|attempt| selected.attempt(&attempt)).transpose()?;
    let id = &selected.job().id;
    if all_ranks {
        for rank in 0..selected.job().spec.nodes.unwrap_or(1) {
            let query = LogQuery { follow: None, attempt: attempt.clone(), rank: Some(rank) };
            let mut out = Output::prefixed(raw, format!("[{rank}] "));
            show_once(session, id, &query, &mut out).await?;
        }
        return Ok(());
    }
    let mut out = Output::new(raw);
    if follow && attempt.is_none() && rank.unwrap_or(0) == 0 {
        let quiet = ProgressBar::hidden();
        return watch(session, id, Show::OutputOfLast, POLL_INTERVAL, &quiet, &mut out)
            .await
            .map(|_| ());
    }
    let query = LogQuery { follow: Some(follow), attempt, rank };
    show_once(session, id, &query, &mut out).await
}

/// What is shown of each job of an array.
struct JobOutputOptions {
    attempt: Option<String>,
    rank: Option<u32>,
    raw: bool,
}

/// A job of an array, with the destination of its output. Lines begin with its index.
fn in_array(job_id: &str, raw: bool) -> Output {
    let index = job_id.rsplit_once('.').map_or(job_id, |(_, index)| index);
    Output::prefixed(raw, format!("[{index}] "))
}

/// The output so far of all jobs of an array, one after the other.
async fn show_array(
    session: &Session,
    array: &Selected,
    of_one: &JobOutputOptions,
) -> Result<(), Failure> {
    for job_id in array.job_ids() {
        let mut out = in_array(&job_id, of_one.raw);
        let job = session.send(jobs::show(&job_id)).await?.value;
        if job.attempts.is_empty() {
            continue;
        }
        let attempt = of_one.attempt.as_deref().map(|text| attempt_of(&job, text));
        let attempt = match attempt {
            // Some jobs of the array may have been started less often.
            Some(Err(_)) => continue,
            Some(Ok(id)) => Some(id),
            None => None,
        };
        let query = LogQuery { follow: None, attempt, rank: of_one.rank };
        show_once(session, &job_id, &query, &mut out).await?;
    }
    Ok(())
}

/// Follows all jobs of an array until they have ended.
async fn follow_array(
    session: &Session,
    array: &Selected,
    of_one: &JobOutputOptions,
) -> Result<(), Failure> {
    if of_one.attempt.is_some() || of_one.rank.is_some_and(|rank| rank > 0) {
        let why = "an array is followed without --attempt and --rank";
        return Err(Failure::because(Exit::Usage, why)
            .with_next(format!("bursar logs -f {} for one job of it", array.job().id)));
    }
    let job_ids = array.job_ids();
    let shares = u32::try_from(job_ids.len().div_ceil(LOOKS_AT_ONCE)).unwrap_or(u32::MAX);
    let interval: Duration = POLL_INTERVAL.saturating_mul(shares);
    let followed = job_ids.iter().map(async |job_id| {
        let mut out = in_array(job_id, of_one.raw);
        let quiet = ProgressBar::hidden();
        watch(session, job_id, Show::OutputOfLast, interval, &quiet, &mut out).await
    });
    futures_util::future::try_join_all(followed).await.map(|_| ())
}

async fn show_once(
    session: &Session,
    id: &str,
    query: &LogQuery,
    out: &mut Output,
) -> Result<(), Failure> {
    let shown = show_output(session, id, query, &mut 0, None, out).await;
    shown.map_err(|error| session.explain(&error, None))
}

/// Prints output that was not printed before.
pub(super) async fn show_output(
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
pub(super) struct Output {
    /// On a terminal control characters are escaped.
    sieve: Option<ChunkEscaper>,
    /// What begins each line, and the line that is not complete yet.
    prefix: Option<(String, Vec<u8>)>,
}

impl Output {
    /// Standard output; on a terminal control characters are escaped unless `raw`.
    pub(super) fn new(raw: bool) -> Output {
        Output { sieve: (!raw && is_terminal()).then(ChunkEscaper::default), prefix: None }
    }

    /// The same, in whole lines that begin with a text: other output may come between them.
    fn prefixed(raw: bool, prefix: String) -> Output {
        Output { prefix: Some((prefix, Vec::new())), ..Output::new(raw) }
    }

    fn write(&mut self, bytes: &[u8]) {
        let lines = match &mut self.prefix {
            None => bytes.to_vec(),
            Some((prefix, rest)) => whole_lines(prefix, rest, bytes),
        };
        self.put(&lines);
    }

    fn put(&mut self, bytes: &[u8]) {
        match &mut self.sieve {
            Some(sieve) => write_out(sieve.pass(bytes).as_bytes()),
            None => write_out(bytes),
        }
    }

    /// Ends the output of an attempt.
    fn end(&mut self) {
        let rest = match &mut self.prefix {
            Some((prefix, rest)) if !rest.is_empty() => whole_lines(prefix, rest, b"\n"),
            Some(_) | None => Vec::new(),
        };
        self.put(&rest);
        if let Some(sieve) = &mut self.sieve {
            write_out(sieve.end().as_bytes());
        }
    }
}

/// The complete lines of `rest` and `bytes`, each with the prefix. The last part remains in `rest`.
fn whole_lines(prefix: &str, rest: &mut Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    rest.extend_from_slice(bytes);
    let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let tail = rest.split_off(end + 1);
    let complete = std::mem::replace(rest, tail);
    let lines = complete.split_inclusive(|byte| *byte == b'\n');
    lines.flat_map(|line| [prefix.as_bytes(), line].concat()).collect()
}

fn write_out(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        // The reader has closed the pipe, as `head` does.
        std::process::exit(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_several_jobs_are_never_mixed() {
        let mut rest = Vec::new();
        assert_eq!(whole_lines("[1] ", &mut rest, b"par"), b"");
        assert_eq!(whole_lines("[1] ", &mut rest, b"t\nsecond\nthi"), b"[1] part\n[1] second\n");
        assert_eq!(rest, b"thi");
        assert_eq!(whole_lines("[1] ", &mut rest, b"\n"), b"[1] thi\n");
        assert_eq!(rest, b"");
    }
}
