//! Queries on jobs: by name, by number, newest first; and quotes.

use compact_str::{CompactString, format_compact};

use super::{Job, Offer};
use crate::credits::Credits;
use crate::ledger::command::SubmitJob;
use crate::ledger::id::{AccountNo, JobNo, MAX_JOBS};
use crate::ledger::refusal::{Blocker, Refusal};
use crate::ledger::state::Ledger;
use crate::name::JobName;
use crate::time::Timestamp;

/// The result that a submission would have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Quote {
    /// The cost of each offer.
    pub offers: Vec<QuotedOffer>,
    /// The holds of all its jobs together, at the highest price.
    pub hold: Credits,
    /// All blockers; empty if it would be admitted.
    pub blockers: Vec<Blocker>,
    /// The amount that the account could still spend in the same context; the current amount if it
    /// would not be admitted.
    pub spendable_after: i128,
}

impl Quote {
    /// Whether it would be admitted.
    pub fn is_admissible(&self) -> bool {
        self.blockers.is_empty()
    }
}

/// One offer of a quote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QuotedOffer {
    /// The region, the GPU type, and the price of a whole GPU.
    pub offer: Offer,
    /// The cost of one hour of the job.
    pub per_hour: Credits,
    /// The hold of one of its jobs after it is placed there.
    pub hold: Credits,
}

/// The name of one of the jobs of an array.
pub fn job_of_array(id: &str, index: u32) -> CompactString {
    format_compact!("{id}.{index}")
}

/// The name of the first job of an array.
pub fn first_of_array(id: &str) -> CompactString {
    format_compact!("{id}.0")
}

impl Job {
    /// Whether it is the first of an array. A single job with such an id has a hold without an index.
    pub fn is_first_of_array(&self) -> bool {
        self.order.hold.ends_with(".0")
    }
}

impl Ledger {
    /// The job with this name.
    pub fn find_job(&self, tenant: AccountNo, id: &str) -> Option<JobNo> {
        self.jobs.index.names.get(&(tenant, JobName::unchecked(id))).copied()
    }

    /// The first job of an array, by the id of the array.
    pub fn find_array(&self, tenant: AccountNo, id: &str) -> Option<JobNo> {
        let first = self.find_job(tenant, &first_of_array(id))?;
        self.jobs.all.get(&first).filter(|job| job.is_first_of_array())?;
        Some(first)
    }

    /// The job with this id, or the first of the array with it.
    pub fn find_job_or_array(&self, tenant: AccountNo, id: &str) -> Option<JobNo> {
        self.find_job(tenant, id).or_else(|| self.find_array(tenant, id))
    }

    /// The job with this id, or all jobs of the array with this id that are not forgotten; empty if
    /// there is neither, or the first of the array is forgotten.
    pub(in crate::ledger) fn jobs_named(&self, tenant: AccountNo, id: &str) -> Vec<JobNo> {
        if let Some(job) = self.find_job(tenant, id) {
            return vec![job];
        }
        let Some(first) = self.find_array(tenant, id) else { return Vec::new() };
        self.jobs_of_array(id, first, self.live_job(first).order.fingerprint)
    }

    /// Jobs with this name, or the jobs that are left of an array whose first job is forgotten.
    pub(in crate::ledger) fn jobs_left(&self, tenant: AccountNo, id: &str) -> Vec<JobNo> {
        let named = self.jobs_named(tenant, id);
        if !named.is_empty() {
            return named;
        }
        let Some((index, any)) = self.any_left(tenant, id) else { return Vec::new() };
        let first = JobNo(any.0.saturating_sub(u64::from(index)));
        self.jobs_of_array(id, first, self.live_job(any).order.fingerprint)
    }

    /// A job of the array with this id, whose first job is forgotten.
    pub fn find_left_of_array(&self, tenant: AccountNo, id: &str) -> Option<JobNo> {
        self.any_left(tenant, id).map(|(_, number)| number)
    }

    fn any_left(&self, tenant: AccountNo, id: &str) -> Option<(u32, JobNo)> {
        // All names of an id, a dot and a digit.
        let name = |end: &str| (tenant, JobName::unchecked(format_compact!("{id}.{end}")));
        let named = self.jobs.index.names.range(name("0")..name(":"));
        named.take(MAX_JOBS as usize).find_map(|((_, name), number)| {
            let index: u32 = name.rsplit_once('.')?.1.parse().ok()?;
            let hold = &self.live_job(*number).order.hold;
            let is_of_array = **name == *job_of_array(id, index)
                && hold.strip_suffix(&*format_compact!("{index}"))?.ends_with('.');
            is_of_array.then_some((index, *number))
        })
    }

    fn jobs_of_array(&self, id: &str, first: JobNo, fingerprint: u128) -> Vec<JobNo> {
        let numbers = (0..MAX_JOBS).filter_map(|index| {
            let number = JobNo(first.0 + u64::from(index));
            let order = &self.jobs.all.get(&number)?.order;
            let is_of_array = order.fingerprint == fingerprint
                && order.id.strip_prefix(id) == Some(&*format_compact!(".{index}"));
            is_of_array.then_some(number)
        });
        numbers.collect()
    }

    /// The number that the next job gets.
    pub fn next_job(&self) -> JobNo {
        JobNo(self.jobs.next)
    }

    /// A job that is not forgotten.
    pub fn job(&self, job: JobNo) -> Option<&Job> {
        self.jobs.all.get(&job)
    }

    /// Jobs of a tenant with a number below `before`, newest first; all if absent. The caller
    /// filters them by account and state.
    pub fn jobs_of(
        &self,
        tenant: AccountNo,
        before: Option<JobNo>,
    ) -> impl Iterator<Item = (JobNo, &Job)> {
        let before = before.unwrap_or(JobNo(u64::MAX));
        let range = (tenant, JobNo(0))..(tenant, before);
        let numbers = self.jobs.index.by_tenant.range(range).rev();
        numbers.map(|(_, number)| (*number, self.live_job(*number)))
    }

    /// Jobs of all tenants with a number below `before`, newest first.
    pub fn jobs_before(&self, before: Option<JobNo>) -> impl Iterator<Item = (JobNo, &Job)> {
        let before = before.unwrap_or(JobNo(u64::MAX));
        self.jobs.all.range(..before).rev().map(|(number, job)| (*number, job))
    }

    /// The amount that the job's open hold has captured so far.
    pub fn captured_so_far(&self, job: &Job) -> u64 {
        job.hold.and_then(|hold| self.hold(hold)).map_or(0, |hold| hold.captured)
    }

    /// The result that this submission would have now. Changes nothing.
    ///
    /// # Errors
    /// If it would be refused for another reason than credits, budgets, quotas or a freeze.
    pub fn quote(&self, now: Timestamp, command: &SubmitJob) -> Result<Quote, Refusal> {
        crate::ledger::validate::validate_submit(command)?;
        let account = self.existing_account(&command.account)?;
        let plan = self.plan_submission(account, command)?;
        let terms = &command.terms;
        let hour = terms.gpu_ms(3_600_000);
        let quoted = |offer: &Offer| QuotedOffer {
            offer: offer.clone(),
            per_hour: terms.hourly(offer.per_gpu_hour, hour),
            hold: terms.hold_at(offer.per_gpu_hour, terms.first_window()).unwrap_or(Credits::MAX),
        };
        let mut blockers = Vec::new();
        let checks = [
            self.require_thawed(&plan.path),
            self.require_queue_room(&plan),
            self.draw_for_all(now, &plan, command).map(|_| ()),
        ];
        for refusal in checks.into_iter().filter_map(Result::err) {
            if refusal.blockers().is_empty() {
                return Err(refusal);
            }
            blockers.extend_from_slice(refusal.blockers());
        }
        let context = super::context(terms, &command.offers);
        let spendable = self.spendable(account, &context);
        // Cannot fail: the sum was checked above.
        let hold = plan.need.micros().saturating_mul(i64::from(plan.count));
        let hold = Credits::from_micros(hold).unwrap_or(Credits::MAX);
        let taken = if blockers.is_empty() { i128::from(hold.micros()) } else { 0 };
        Ok(Quote {
            offers: command.offers.iter().map(quoted).collect(),
            hold,
            blockers,
            spendable_after: spendable - taken,
        })
    }
}
