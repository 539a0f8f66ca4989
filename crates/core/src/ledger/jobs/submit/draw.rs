//! Draws the credits of all jobs of a submission.

use fefo::Span;

use super::SubmissionPlan;
use crate::credits::Credits;
use crate::ledger::command::SubmitJob;
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::credits::spend_order::overlay::Overlay;
use crate::ledger::event::{Piece, Pieces};
use crate::ledger::holds::hold::gpu_time;
use crate::ledger::refusal::Refusal;
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The most free pieces that all jobs of one array may walk together.
const MAX_PIECES_LOOKED_AT: usize = 1_000_000;

impl Ledger {
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
        let context = crate::ledger::jobs::context(&command.terms, &command.offers);
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
    pub(super) fn draws_add_up(&self, request: DrawRequest<'_>) -> bool {
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
    pub(super) fn require_few_pieces(
        &self,
        request: DrawRequest<'_>,
        count: u32,
    ) -> Result<(), Refusal> {
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
    pub(super) fn draw_one_by_one(
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
}

/// Divides pieces into draws of `each`, in order.
pub(super) fn split(pieces: &[Piece], each: u64) -> Vec<Pieces> {
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
