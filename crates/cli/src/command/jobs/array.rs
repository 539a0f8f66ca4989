//! Arrays of jobs: one line for all of them.

use std::fmt;

use bursar_client::api::amount::Sum;
use bursar_client::api::jobs::job::{Job, JobState};
use bursar_client::jobs;

use super::job::gpu_time;
use super::select::Selected;
use crate::exit::Failure;
use crate::render::format::{colours, print_styled};
use crate::render::sheet::{Cell, Sheet};
use crate::session::Session;

/// The sums of an array.
pub(crate) struct Totals {
    /// How many jobs are in each state, in the order of the states.
    states: Vec<(JobState, usize)>,
    gpu_ms: u64,
    charged: Sum,
    returned: Sum,
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
            charged: sum(|job| job.charged),
            returned: sum(|job| job.returned),
        }
    }

    /// How many jobs are in each state, such as `2 succeeded, 1 failed`.
    fn state_line(&self) -> String {
        let states = self.states.iter().map(|(state, count)| format!("{count} {}", state.as_str()));
        states.collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (states, time) = (self.state_line(), gpu_time(self.gpu_ms));
        let (charged, returned) = (self.charged, self.returned);
        write!(f, "{states}: {time} of GPU time, {charged} charged, {returned} returned")
    }
}

/// Shows an array: its state and cost, then its jobs.
pub(crate) async fn show(session: &Session, array: &Selected) -> Result<(), Failure> {
    let first = array.job();
    let mut all = Vec::new();
    for member in array.members() {
        all.push(session.send(jobs::show(&member)).await?.value);
    }
    let totals = Totals::of(&all);
    let fields = Sheet::record([
        ("id", Cell::new(&array.id)),
        ("account", Cell::new(&first.account)),
        ("jobs", Cell::new(all.len())),
        ("state", Cell::new(totals.state_line())),
        ("gpu_time", Cell::new(gpu_time(totals.gpu_ms))),
        ("charged", Cell::new(totals.charged)),
        ("returned", Cell::new(totals.returned)),
        ("created_at", Cell::time(first.created_at)),
    ]);
    print_styled(&fields.with_section("jobs", Sheet::list(&all)).text(colours()))
}
