//! Submission: checks names, dependencies and quotas, then places one hold for each job, all or
//! nothing.

use std::sync::Arc;

use fefo::Span;

use super::{Job, JobOrder, JobState};
use crate::credits::Credits;
use crate::ledger::accounts::account::Path;
use crate::ledger::command::{Envelope, OnExpiry, SubmitJob};
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::credits::spend_order::overlay::Overlay;
use crate::ledger::event::{Event, HoldPlaced, Piece, Pieces};
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

    /// Draws for all jobs of a submission, or returns all blockers.
    pub(in crate::ledger) fn draw_for_all(
        &self,
        now: Timestamp,
        plan: &SubmissionPlan,
        command: &SubmitJob,
    ) -> Result<Vec<Pieces>, Refusal> {
        if plan.need.is_zero() {
            return Ok(vec![Pieces::new(); plan.count as usize]);
        }
        let context = super::context(&command.terms, &command.offers);
        let request = DrawRequest::new(&plan.path, &context);
        let share = command.terms.rate(Credits::ZERO).share_milli;
        let all = i64::from(plan.count).checked_mul(plan.need.micros());
        let all = all.and_then(Credits::from_micros).ok_or(Refusal::InvalidField {
            field: "array",
            reason: "would reserve more than the largest amount",
        })?;
        let gpu = gpu_time(plan.gpu_ms, share) * i128::from(plan.count);
        // Budgets are checked against the sum of all jobs.
        if plan.count == 1 {
            return self.draw_within_budgets(now, request, all, gpu).map(|pieces| vec![pieces]);
        }
        let draws = if self.draws_add_up(request) {
            self.draw(request, all.length()).map(|pieces| split(&pieces, plan.need.length()))
        } else {
            self.require_few_pieces(request, plan.count)?;
            self.draw_one_by_one(request, plan.need.length(), plan.count)
        };
        let Some(draws) = draws else { return Err(self.denied(now, request, all, gpu)) };
        let blockers = self.blocking_budgets(now, &plan.path, all.micros().into(), gpu);
        if blockers.is_empty() { Ok(draws) } else { Err(Refusal::BudgetExceeded { blockers }) }
    }

    /// Whether several draws take the same units as one draw of their sum. Only share limits depend
    /// on the size of a draw.
    fn draws_add_up(&self, request: DrawRequest<'_>) -> bool {
        request.path.iter().all(|account| {
            let own = self.account(*account);
            own.restricted_open == 0
                || own
                    .open
                    .iter()
                    .all(|((_, bucket), ())| self.bucket(*bucket).max_share().is_none())
        })
    }

    /// Refuses an array that would be too expensive: each of its jobs walks all free pieces.
    fn require_few_pieces(&self, request: DrawRequest<'_>, count: u32) -> Result<(), Refusal> {
        let open = request.path.iter().flat_map(|account| self.account(*account).open.iter());
        let pieces = open.flat_map(|((_, bucket), ())| self.bucket(*bucket).line.free_spans(0));
        let most = MAX_PIECES_LOOKED_AT / count.max(1) as usize;
        if pieces.take(most + 1).count() <= most {
            return Ok(());
        }
        Err(Refusal::InvalidField {
            field: "array",
            reason: "is too large while the account's credits are in so many pieces and a grant limits \
                     its share; submit fewer jobs at once",
        })
    }

    /// Draws the same amount `count` times in sequence. Used for grants with a share limit. Walks
    /// the free pieces of all buckets once for each job.
    fn draw_one_by_one(
        &self,
        request: DrawRequest<'_>,
        each: u64,
        count: u32,
    ) -> Option<Vec<Pieces>> {
        let mut overlay = Overlay::default();
        let draws = (0..count).map(|_| {
            let pieces = self.draw_after(&overlay, request, each)?;
            overlay.take(&pieces);
            Some(pieces)
        });
        draws.collect()
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

/// The most free pieces that all jobs of one array may walk together.
const MAX_PIECES_LOOKED_AT: usize = 1_000_000;

/// The most dependencies of all jobs of one submission together.
const MAX_DEPENDENCIES: usize = 50_000;

/// The most text of all jobs of one submission together, in bytes: the stored text of each, and the
/// text sent to each cell.
const MAX_SUBMISSION_TEXT: u64 = 8 << 20;

/// Divides pieces into draws of `each`, in order.
fn split(pieces: &[Piece], each: u64) -> Vec<Pieces> {
    let (mut draws, mut draw, mut left) = (Vec::new(), Pieces::new(), each);
    for Piece { bucket, mut span } in pieces.iter().copied() {
        while !span.is_empty() {
            let end = span.start + span.len().min(left);
            left -= end - span.start;
            draw.push(Piece { bucket, span: Span::new(span.start, end) });
            span.start = end;
            if left == 0 {
                draws.push(std::mem::take(&mut draw));
                left = each;
            }
        }
    }
    draws
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ledger::command::{
        AccountKind, AccountSettings, Cause, Command, Context, GrantKind, IssueGrant, PlaceHold,
        Restriction,
    };
    use crate::machine::execute;

    fn run(ledger: &mut Ledger, command: &Command) {
        let now = Timestamp::from_millis(1_577_836_800_000);
        let answer = execute(ledger, now, &Envelope::default(), command, &mut Vec::new());
        answer.expect("the command is accepted");
    }

    fn credits(micros: u64) -> Credits {
        Credits::from_length(micros).expect("a small amount")
    }

    fn context() -> Context {
        let (types, regions) = (vec!["H100".into()], vec!["eu".into()]);
        Context { gpu_types: Some(types), regions: Some(regions), class: None }
    }

    /// Two accounts with fragmented grants of equal and of different order.
    fn fragmented(amounts: &[(u8, u64)]) -> Ledger {
        let mut ledger = Ledger::new();
        for (path, kind) in [("acme", AccountKind::Org), ("acme:nlp", AccountKind::Team)] {
            let settings = AccountSettings::default();
            run(&mut ledger, &Command::OpenAccount { path: path.into(), kind, settings });
        }
        for (number, (kind, amount)) in amounts.iter().enumerate() {
            let restriction = match kind % 3 {
                0 => None,
                1 => Some(Restriction {
                    gpu_types: Some(vec!["H100".into()]),
                    ..Restriction::default()
                }),
                _ => {
                    Some(Restriction { regions: Some(vec!["eu".into()]), ..Restriction::default() })
                }
            };
            run(
                &mut ledger,
                &Command::IssueGrant(IssueGrant {
                    id: format!("g{number}").as_str().into(),
                    account: if kind & 4 == 0 { "acme" } else { "acme:nlp" }.into(),
                    amount: credits(*amount),
                    kind: GrantKind::Purchase,
                    effective_at: None,
                    expires_at: None,
                    priority: 100,
                    restriction,
                    reference: None,
                    metadata: None,
                }),
            );
        }
        let total: u64 = amounts.iter().map(|(_, amount)| amount).sum();
        let names = |number: u64| HoldId::unchecked(format!("h{number}"));
        let count = total / 3;
        for number in 0..count {
            run(
                &mut ledger,
                &Command::PlaceHold(PlaceHold {
                    id: names(number),
                    account: "acme:nlp".into(),
                    amount: credits(2),
                    ttl_ms: None,
                    context: context(),
                    on_expiry: OnExpiry::HonorHold,
                    rate: None,
                    gpu_ms: 0,
                    reference: None,
                }),
            );
        }
        for number in (0..count).filter(|number| number % 3 != 0) {
            let (tenant, hold) = ("acme".into(), names(number));
            run(&mut ledger, &Command::ReleaseHold { tenant, hold, cause: Cause::Holder });
        }
        ledger
    }

    #[test]
    fn an_array_that_would_walk_too_many_pieces_is_refused() {
        let ledger = fragmented(&[(0, 12_000)]);
        let account = ledger.find_account("acme:nlp").expect("the account exists");
        let (path, context) = (ledger.path(account), context());
        let request = DrawRequest::new(&path, &context);
        let refused = ledger.require_few_pieces(request, 1000);
        assert!(
            matches!(refused, Err(Refusal::InvalidField { field: "array", .. })),
            "{refused:?}"
        );
        assert_eq!(ledger.require_few_pieces(request, 100), Ok(()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn an_array_draws_what_its_jobs_would_draw_in_sequence(
            amounts in prop::collection::vec((any::<u8>(), 1u64..40), 1..12),
            each in 1u64..30, count in 1u32..12,
        ) {
            let ledger = fragmented(&amounts);
            let account = ledger.find_account("acme:nlp").expect("the account exists");
            let (path, context) = (ledger.path(account), context());
            let request = DrawRequest::new(&path, &context);
            prop_assert!(ledger.draws_add_up(request));
            let at_once = ledger.draw(request, each * u64::from(count));
            let at_once = at_once.map(|pieces| split(&pieces, each));
            prop_assert_eq!(at_once, ledger.draw_one_by_one(request, each, count));
        }
    }
}
