//! Arrays of jobs: one state line, total amounts, and the jobs.

use std::collections::BTreeMap;
use std::fmt;

use bursar_client::api::amount::Sum;
use bursar_client::api::jobs::job::{Job, JobState, Why};
use bursar_client::api::words::gpu_time;
use bursar_client::api::{Blocker, Time};
use bursar_client::jobs;
use serde::Serialize;

use super::layout::left;
use super::select::Selected;
use crate::exit::{Exit, Failure};
use crate::render::sheet::{Cell, Column, Row, Sheet, View, numbers, words};
use crate::session::Session;
use crate::session::problem::fix;

/// The sums of an array.
#[derive(Serialize)]
pub(crate) struct Totals {
    /// How many jobs are in each state.
    #[serde(serialize_with = "by_state")]
    states: Vec<(JobState, usize)>,
    gpu_ms: u64,
    /// What the open holds of its jobs still have.
    held: Sum,
    charged: Sum,
    /// What its jobs cost so far, with usage that is not charged yet.
    cost_so_far: Sum,
    returned: Sum,
}

fn by_state<S: serde::Serializer>(
    states: &[(JobState, usize)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let states: BTreeMap<&str, usize> =
        states.iter().map(|(state, count)| (state.as_str(), *count)).collect();
    states.serialize(serializer)
}

impl Totals {
    /// Sums up jobs.
    pub(crate) fn of(jobs: &[Job]) -> Totals {
        let count = |state: JobState| jobs.iter().filter(|job| job.state == state).count();
        let states = JobState::ALL.iter().map(|state| (*state, count(*state)));
        let sum = |amount: fn(&Job) -> Sum| {
            Sum::from_micros(jobs.iter().map(|job| amount(job).micros()).sum())
        };
        Totals {
            states: states.filter(|(_, count)| *count > 0).collect(),
            gpu_ms: jobs.iter().flat_map(|job| &job.attempts).map(|attempt| attempt.gpu_ms).sum(),
            held: sum(held),
            charged: sum(|job| job.charged),
            cost_so_far: sum(|job| job.cost_so_far.unwrap_or(job.charged)),
            returned: sum(|job| job.returned),
        }
    }

    /// How many jobs are in each state, such as `2 succeeded, 1 failed`.
    fn state_line(&self) -> String {
        let states = self.states.iter().map(|(state, count)| format!("{count} {}", state.as_str()));
        states.collect::<Vec<_>>().join(", ")
    }
}

/// What the hold of a job that has not ended still has.
fn held(job: &Job) -> Sum {
    let open = job.hold.as_ref().filter(|_| !job.state.is_final());
    open.map_or(Sum::from_micros(0), left)
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, time) = (self.state_line(), gpu_time(self.gpu_ms));
        let (charged, returned) = (self.charged, self.returned);
        write!(f, "{states}: {time} of GPU time, {charged} charged, {returned} returned")
    }
}

/// An array as it is shown.
#[derive(Serialize)]
pub(crate) struct JobArray {
    id: String,
    account: String,
    #[serde(flatten)]
    totals: Totals,
    created_at: Time,
    jobs: Vec<Job>,
}

/// Reads the jobs of an array.
pub(crate) async fn read(session: &Session, array: &Selected) -> Result<JobArray, Failure> {
    let first = array.job();
    let mut all = Vec::new();
    for job_id in array.job_ids() {
        all.push(session.send(jobs::show(&job_id)).await?.value);
    }
    Ok(JobArray {
        id: array.id.clone(),
        account: first.account.clone(),
        totals: Totals::of(&all),
        created_at: first.created_at,
        jobs: all,
    })
}

/// Shows an array: its state and cost, then its jobs.
pub(crate) async fn show(session: &Session, array: &Selected) -> Result<(), Failure> {
    session.show_value(&read(session, array).await?)
}

impl View for JobArray {
    fn sheet(&self) -> Sheet {
        let totals = &self.totals;
        let fields = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("account", Cell::new(&self.account)),
            ("jobs", Cell::new(self.jobs.len())),
            ("state", Cell::new(totals.state_line())),
            ("gpu_time", Cell::new(gpu_time(totals.gpu_ms))),
            ("held", Cell::new(totals.held)),
            ("charged", Cell::new(totals.charged)),
            ("cost_so_far", Cell::new(totals.cost_so_far)),
            ("returned", Cell::new(totals.returned)),
            ("created_at", Cell::time(self.created_at)),
        ]);
        fields.with_section("jobs", Sheet::list(&self.jobs))
    }
}

/// What the jobs of an array wait for.
#[derive(Serialize)]
struct ArrayWhy {
    id: String,
    data: Vec<Why>,
}

/// Shows what the jobs of an array wait for.
pub(crate) async fn why(session: &Session, array: &Selected) -> Result<(), Failure> {
    let mut data = Vec::new();
    for job_id in array.job_ids() {
        data.push(session.send(jobs::why(&job_id)).await?.value);
    }
    session.show_value(&ArrayWhy { id: array.id.clone(), data })
}

/// A blocker, and the jobs that it blocks.
struct SharedBlocker<'a> {
    blocker: &'a Blocker,
    jobs: Vec<&'a str>,
}

impl View for ArrayWhy {
    fn sheet(&self) -> Sheet {
        let mut shared: Vec<SharedBlocker<'_>> = Vec::new();
        for why in &self.data {
            for blocker in &why.blockers {
                match shared.iter_mut().find(|one| one.blocker == blocker) {
                    Some(known) => known.jobs.push(&why.job),
                    None => shared.push(SharedBlocker { blocker, jobs: vec![&why.job] }),
                }
            }
        }
        let waiting = self.data.iter().filter(|why| !why.blockers.is_empty()).count();
        let fields = Sheet::record([
            ("id", Cell::new(&self.id)),
            ("jobs", Cell::new(self.data.len())),
            ("waiting", Cell::new(waiting)),
            ("position", Cell::maybe(self.data.iter().filter_map(|why| why.position).min())),
            (
                "estimated_start_at",
                Cell::maybe_time(self.data.iter().filter_map(|why| why.estimated_start_at).min()),
            ),
        ]);
        fields.with_section("waits for", Sheet::list(&shared))
    }
}

impl Row for SharedBlocker<'_> {
    const COLUMNS: &'static [Column] =
        &[words("what"), numbers("jobs"), words("first"), words("detail"), words("fix")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::word(&self.blocker.kind),
            Cell::new(self.jobs.len()),
            Cell::maybe(self.jobs.first()),
            Cell::new(&self.blocker.detail),
            Cell::new(fix(self.blocker)),
        ]
    }
}

/// The jobs of an array that are on nodes.
pub(crate) async fn placed(session: &Session, array: &Selected) -> Result<Vec<String>, Failure> {
    let jobs = read(session, array).await?.jobs.into_iter();
    let is_placed = |job: &Job| matches!(job.state, JobState::Starting | JobState::Running);
    let placed: Vec<String> = jobs.filter(is_placed).map(|job| job.id).collect();
    if placed.is_empty() {
        let why = format!("no job of {} is running", array.id);
        return Err(
            Failure::because(Exit::Refused, why).with_next(format!("bursar job show {}", array.id))
        );
    }
    Ok(placed)
}

/// Refuses an array where one job is needed.
pub(crate) fn one_job(selected: &Selected, command: &str) -> Result<(), Failure> {
    if !selected.is_array() {
        return Ok(());
    }
    let (id, first) = (&selected.id, &selected.job().id);
    let why = format!("{id} is an array of {} jobs: name one of them", selected.job_ids().len());
    Err(Failure::because(Exit::Usage, why).with_next(format!("bursar {command} {first}")))
}
