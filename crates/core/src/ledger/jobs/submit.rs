//! Submission: checks names, dependencies and quotas, then places one hold for each job, all or
//! nothing.

use std::sync::Arc;

use super::{Job, JobOrder, JobState};
use crate::credits::Credits;
use crate::ledger::accounts::account::Path;
use crate::ledger::command::{Envelope, OnExpiry, SubmitJob};
use crate::ledger::event::{Event, HoldPlaced, Pieces};
use crate::ledger::holds::hold::{HoldKind, gpu_time};
use crate::ledger::id::{AccountNo, CellNo, HoldNo, JobNo};
use crate::ledger::refusal::{Conflict, Refusal, Resource};
use crate::ledger::reply::Reply;
use crate::ledger::state::{Ledger, short_fingerprint};
use crate::message::ToCell;
use crate::name::{HoldId, JobName};
use crate::time::Timestamp;

/// The plan of a submission, before credits are drawn.
pub(in crate::ledger) struct SubmissionPlan {
    pub(in crate::ledger) account: AccountNo,
    pub(in crate::ledger) path: Path,
    pub(in crate::ledger) count: u32,
    /// Jobs that must succeed first and have not yet.
    pub(in crate::ledger) after: Vec<JobNo>,
    pub(in crate::ledger) cells: Vec<CellNo>,
    /// The hold of each job, and the GPU time that it covers.
    pub(in crate::ledger) need: Credits,
    pub(in crate::ledger) gpu_ms: u64,
}

impl SubmitJob {
    /// The number of jobs.
    pub(in crate::ledger) fn count(&self) -> u32 {
        self.array.unwrap_or(1)
    }

    /// The names of one of its jobs and of the hold for it.
    pub(in crate::ledger) fn names(&self, index: u32) -> (JobName, HoldId) {
        match self.array {
            None => (self.id.clone(), self.hold.clone()),
            Some(_) => {
                let named = |name: &str| compact_str::format_compact!("{name}.{index}");
                (JobName::unchecked(named(&self.id)), HoldId::unchecked(named(&self.hold)))
            }
        }
    }
}

impl Ledger {
    pub(in crate::ledger) fn decide_submit(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &SubmitJob,
        events: &mut Vec<Event>,
    ) -> Result<Reply, Refusal> {
        let account = self.existing_account(&command.account)?;
        if let Some(reply) = self.submitted_before(account, envelope, command)? {
            return Ok(reply);
        }
        let plan = self.plan_submission(account, command)?;
        if let Err(frozen) = self.require_thawed(&plan.path) {
            return Err(self.with_all_blockers(now, frozen, &plan, command));
        }
        self.require_queue_room(&plan)?;
        let draws = self.draw_for_all(now, &plan, command)?;
        let first = JobNo(self.jobs.next);
        for (index, pieces) in (0..plan.count).zip(draws) {
            let job = JobNo(first.0 + u64::from(index));
            self.push_submitted(now, envelope, command, &plan, (job, index), pieces, events);
        }
        let count = i128::from(plan.count);
        let credits = i128::from(plan.need.micros()) * count;
        let gpu = gpu_time(plan.gpu_ms, command.terms.rate(Credits::ZERO).share_milli) * count;
        self.push_thresholds(now, &plan.path, credits, gpu, events);
        Ok(Reply::Jobs { first, count: plan.count })
    }

    /// The refusal of a frozen account, with all other blockers.
    fn with_all_blockers(
        &self,
        now: Timestamp,
        frozen: Refusal,
        plan: &SubmissionPlan,
        command: &SubmitJob,
    ) -> Refusal {
        let room = self.require_queue_room(plan).err();
        let funds = self.draw_for_all(now, plan, command).err();
        let all = [Some(frozen), room, funds].into_iter().flatten();
        Refusal::AccountFrozen {
            blockers: all.flat_map(|refusal| refusal.blockers().to_vec()).collect(),
        }
    }

    /// The reply to an earlier submission under these names, if the same request made it.
    fn submitted_before(
        &self,
        account: AccountNo,
        envelope: &Envelope,
        command: &SubmitJob,
    ) -> Result<Option<Reply>, Refusal> {
        let tenant = self.account(account).tenant;
        // A job and an array cannot have the same id.
        let other = match command.array {
            Some(_) => self.find_job(tenant, &command.id),
            None => self.find_array(tenant, &command.id),
        };
        if other.is_some() {
            let name = command.id.clone().into();
            return Err(Refusal::AlreadyExists { what: Resource::Job, name });
        }
        for index in 0..command.count() {
            let (id, hold) = command.names(index);
            let taken = |what, name| Err(Refusal::AlreadyExists { what, name });
            if let Some(first) = self.find_job(tenant, &id) {
                let first_print = short_fingerprint(self.live_job(first).order.fingerprint);
                let same = envelope.made(first_print);
                return if same && index == 0 {
                    Ok(Some(Reply::Jobs { first, count: command.count() }))
                } else {
                    taken(Resource::Job, id.into())
                };
            }
            if self.find_hold(tenant, HoldKind::Hold, &hold).is_some() {
                return taken(Resource::Hold, hold.into());
            }
        }
        Ok(None)
    }

    /// Whether a job belongs to an account at or below this one.
    fn is_in_scope(&self, job: JobNo, scope: Option<&str>) -> bool {
        let path = self.account(self.live_job(job).order.account).path.as_str();
        scope.is_none_or(|scope| {
            path.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }

    /// Plans a submission, or refuses it because of missing dependencies, regions or limits.
    pub(in crate::ledger) fn plan_submission(
        &self,
        account: AccountNo,
        command: &SubmitJob,
    ) -> Result<SubmissionPlan, Refusal> {
        let tenant = self.account(account).tenant;
        let mut after = Vec::new();
        for name in &command.after {
            let awaited = self.jobs_named(tenant, name);
            // A job outside the caller's scope is answered like one that does not exist.
            let is_hidden = |job: &JobNo| !self.is_in_scope(*job, command.scope.as_deref());
            if awaited.is_empty() || awaited.iter().any(is_hidden) {
                return Err(Refusal::NotFound { what: Resource::Job, name: name.clone().into() });
            }
            for awaited in awaited {
                let state = self.live_job(awaited).state;
                if !state.is_ended() {
                    after.push(awaited);
                } else if state != JobState::Succeeded {
                    return Err(Refusal::Conflict(Conflict::DependencyFailed));
                }
            }
        }
        after.sort_unstable();
        after.dedup();
        if after.len().saturating_mul(command.count() as usize) > MAX_DEPENDENCIES {
            return Err(Refusal::InvalidField {
                field: "after",
                reason: "its jobs would wait for more than 50000 jobs together; let one job wait for \
                         all of them, and the others for that one",
            });
        }
        let mut cells = Vec::new();
        for offer in &command.offers {
            let missing = || Refusal::NotFound {
                what: Resource::Region,
                name: offer.region.clone().into_text(),
            };
            cells.push(self.find_cell(&offer.region).ok_or_else(missing)?);
        }
        cells.sort_unstable();
        cells.dedup();
        if command.terms.external {
            cells.clear();
        }
        require_small(command, cells.len())?;
        let costliest = command.offers.iter().map(|offer| offer.per_gpu_hour).max();
        let window = command.terms.first_window();
        let need = command.terms.hold_at(costliest.unwrap_or(Credits::ZERO), window);
        // Cannot fail: validation checked the cost of the whole run.
        let need = need.unwrap_or(Credits::MAX);
        Ok(SubmissionPlan {
            account,
            path: self.path(account),
            count: command.count(),
            after,
            cells,
            need,
            gpu_ms: command.terms.funded_gpu_ms(window),
        })
    }

    pub(in crate::ledger) fn require_queue_room(
        &self,
        plan: &SubmissionPlan,
    ) -> Result<(), Refusal> {
        let blockers = self.blocking_quotas(&plan.path, &plan.cells, plan.count);
        if blockers.is_empty() { Ok(()) } else { Err(Refusal::QuotaExceeded { blockers }) }
    }

    #[allow(clippy::too_many_arguments, reason = "one function pushes all events of a job")]
    fn push_submitted(
        &self,
        now: Timestamp,
        envelope: &Envelope,
        command: &SubmitJob,
        plan: &SubmissionPlan,
        (job, index): (JobNo, u32),
        pieces: Pieces,
        events: &mut Vec<Event>,
    ) {
        let (id, hold_name) = command.names(index);
        let order = Arc::new(JobOrder {
            id,
            account: plan.account,
            terms: command.terms.clone(),
            offers: command.offers.clone(),
            payload: command.payload.clone(),
            submitted: command.submitted.clone(),
            hold: hold_name.clone(),
            fingerprint: envelope.fingerprint,
        });
        events.push(Event::JobSubmitted {
            job,
            order: Arc::clone(&order),
            after: plan.after.clone(),
        });
        if !pieces.is_empty() {
            let hold = HoldNo(self.holds.next_after(index as usize));
            events.push(hold_for(&order, job, hold, hold_name, pieces, plan.gpu_ms));
        }
        if plan.after.is_empty() {
            for cell in &plan.cells {
                self.push_admission(now, *cell, job, &order, events);
            }
        }
    }

    /// Admits a new job to a cell.
    fn push_admission(
        &self,
        now: Timestamp,
        cell: CellNo,
        job: JobNo,
        order: &JobOrder,
        events: &mut Vec<Event>,
    ) {
        let book = &self.cells[cell.index()];
        let id = job.in_cell(book.shard);
        let account = &self.account(order.account).path;
        let spec = order.spec(id, &book.region, account, now, 0);
        self.send(cell, ToCell::JobAdmitted(Box::new(spec)), events);
    }

    /// Admits a job to every cell of its offers where it is not admitted or waits for admission.
    pub(in crate::ledger) fn push_admissions(
        &self,
        number: JobNo,
        job: &Job,
        events: &mut Vec<Event>,
    ) {
        for cell in self.cells_of(&job.order) {
            let standing = job.standings.iter().find(|standing| standing.cell == cell);
            let attempts_before = match standing {
                Some(standing) if !standing.waits => continue,
                Some(standing) => standing.after,
                None if job.attempts.is_empty() && job.highest == 0 => 0,
                // A proposal of an earlier admission may still be in transit, at most one for each,
                // and its number is at most this one.
                None => job.highest.saturating_add(1),
            };
            let book = &self.cells[cell.index()];
            let id = number.in_cell(book.shard);
            let account = &self.account(job.order.account).path;
            let order = &job.order;
            let spec = order.spec(id, &book.region, account, job.submitted_at, attempts_before);
            self.send(cell, ToCell::JobAdmitted(Box::new(spec)), events);
        }
    }
}

/// The most dependencies of all jobs of one submission together.
const MAX_DEPENDENCIES: usize = 50_000;

/// The most text of all jobs of one submission together, in bytes: the stored text of each, and the
/// text sent to each cell.
const MAX_SUBMISSION_TEXT: u64 = 8 << 20;

/// Refuses an array whose jobs together have too much text for one decision.
fn require_small(command: &SubmitJob, cells: usize) -> Result<(), Refusal> {
    let (payload, submitted) = (command.payload.len() as u64, command.submitted.len() as u64);
    let cells = u64::try_from(cells).unwrap_or(u64::MAX);
    let each = payload.saturating_mul(cells.saturating_add(1)).saturating_add(submitted);
    if each.saturating_mul(command.count().into()) <= MAX_SUBMISSION_TEXT || command.array.is_none()
    {
        return Ok(());
    }
    Err(Refusal::InvalidField {
        field: "array",
        reason: "its jobs have more than 8 MiB of command, env, workdir and labels together; submit \
                 smaller arrays, or put what they share into a file",
    })
}

/// The hold of a job. It has no lease until a placement is confirmed.
pub(in crate::ledger) fn hold_for(
    order: &JobOrder,
    job: JobNo,
    hold: HoldNo,
    id: HoldId,
    pieces: Pieces,
    gpu_ms: u64,
) -> Event {
    Event::HoldPlaced(Box::new(HoldPlaced {
        hold,
        id,
        account: order.account,
        pieces,
        expires_at: None,
        context: order.context(),
        on_expiry: OnExpiry::HonorHold,
        rate: Some(order.terms.rate(order.costliest())),
        gpu_ms,
        reference: None,
        fingerprint: 0,
        job: Some(job),
    }))
}

mod draw;
#[cfg(test)]
mod tests;
