//! Late usage: it spends what was valid when it happened, also what has expired unspent since.
//!
//! History is not rewritten: an explicit event brings the expired units back before they are spent.

use fefo::{Part, Span};

use super::bucket::{Rank, share_of};
use super::command::Charge;
use super::draw::{Request, largest_feasible};
use super::event::{Piece, Pieces};
use super::grant::push_joined;
use super::id::{BucketNo, GrantNo};
use super::refusal::{Blocker, Refusal};
use super::state::Ledger;
use crate::time::Timestamp;

/// Units that were valid at a past instant and that nobody has taken.
struct Supply {
    order: (Rank, u8, Timestamp, GrantNo),
    piece: Piece,
    part: Part,
    share_micro: Option<u32>,
}

impl Ledger {
    /// Draws for usage that happened at `at`. Returns the units, and those that had expired.
    pub(super) fn draw_late(
        &self,
        now: Timestamp,
        at: Timestamp,
        request: Request<'_>,
        command: &Charge,
    ) -> Result<(Pieces, Pieces), Refusal> {
        let supply = self.late_supply(at, request);
        let wanted = u128::from(command.amount.length());
        let largest = |wanted| largest_late(&supply, wanted);
        let amount = if command.allow_partial {
            u128::from(self.partial_amount(now, request, command, largest)?)
        } else {
            let requested = command.amount.micros().into();
            let mut blockers = self.blocking_budgets(now, request.path, requested, 0);
            if walk(&supply, wanted, |_, _| {}) > 0 {
                let spendable = largest(u128::MAX);
                let account = self.account(request.path[0]).path.clone();
                let spendable = i128::try_from(spendable).unwrap_or(i128::MAX);
                let credits = Blocker::Credits { account, requested: command.amount, spendable };
                blockers.insert(0, credits);
                return Err(Refusal::InsufficientCredits { blockers });
            }
            if !blockers.is_empty() {
                return Err(Refusal::BudgetExceeded { blockers });
            }
            wanted
        };
        Ok(take_late(&supply, amount))
    }

    /// All that was valid at `at` and is free, or expired unspent, in the order of spending.
    fn late_supply(&self, at: Timestamp, request: Request<'_>) -> Vec<Supply> {
        let mut supply = Vec::new();
        for (level, account) in (0u8..).zip(request.path) {
            let account = self.account(*account);
            let expired = account.rare.iter().flat_map(|rare| rare.expired.iter());
            for ((rank, bucket), ()) in account.open.iter().chain(expired) {
                let admitted = self.bucket(*bucket).admits(request.context);
                if admitted && rank.is_unexpired_at(at) {
                    self.late_supply_of(at, (*rank, level), *bucket, &mut supply);
                }
            }
        }
        supply.sort_by_key(|part| (part.order, part.piece.span.start));
        supply
    }

    fn late_supply_of(
        &self,
        at: Timestamp,
        (rank, level): (Rank, u8),
        bucket: BucketNo,
        supply: &mut Vec<Supply>,
    ) {
        let line = &self.bucket(bucket).line;
        for (run, part) in line.runs_in(Span::new(0, line.end())) {
            if !matches!(part, Part::Free | Part::Expired) {
                continue;
            }
            for (span, grant) in line.packs_in(run) {
                let granted = self.grant(grant);
                if granted.effective_at <= at && !granted.revoked {
                    supply.push(Supply {
                        order: (rank, level, granted.spendable_from(), grant),
                        piece: Piece { bucket, span },
                        part,
                        share_micro: self.bucket(bucket).max_share(),
                    });
                }
            }
        }
    }
}

/// What one part may give to a charge of `amount` in all, after `taken` from the same bucket.
fn allowed(part: &Supply, amount: u128, taken: u128) -> u64 {
    let length = part.piece.span.len();
    match part.share_micro {
        None => length,
        Some(share) => {
            let left = share_of(share, amount).saturating_sub(taken);
            u64::try_from(left).unwrap_or(u64::MAX).min(length)
        }
    }
}

/// Walks the supply for a charge of `amount` and hands each part what it gives.
fn walk(supply: &[Supply], amount: u128, mut give: impl FnMut(&Supply, u64)) -> u128 {
    let mut left = amount;
    let mut taken: Vec<(BucketNo, u128)> = Vec::new();
    for part in supply {
        if left == 0 {
            break;
        }
        let at = taken.iter().position(|(bucket, _)| *bucket == part.piece.bucket);
        let before = at.map_or(0, |at| taken[at].1);
        let given = u64::try_from(left).unwrap_or(u64::MAX).min(allowed(part, amount, before));
        if given == 0 {
            continue;
        }
        left -= u128::from(given);
        if part.share_micro.is_some() {
            match at {
                Some(at) => taken[at].1 += u128::from(given),
                None => taken.push((part.piece.bucket, given.into())),
            }
        }
        give(part, given);
    }
    left
}

/// The largest charge up to `wanted` that the supply can pay.
fn largest_late(supply: &[Supply], wanted: u128) -> u128 {
    let all: u128 = supply.iter().map(|part| u128::from(part.piece.span.len())).sum();
    if supply.iter().all(|part| part.share_micro.is_none()) {
        return wanted.min(all);
    }
    largest_feasible(wanted.min(all), |amount| amount - walk(supply, amount, |_, _| {}))
}

fn take_late(supply: &[Supply], amount: u128) -> (Pieces, Pieces) {
    let (mut pieces, mut reversed) = (Pieces::new(), Pieces::new());
    walk(supply, amount, |part, given| {
        let start = part.piece.span.start;
        let piece = Piece { span: Span::new(start, start + given), ..part.piece };
        push_joined(&mut pieces, piece);
        if part.part == Part::Expired {
            push_joined(&mut reversed, piece);
        }
    });
    (pieces, reversed)
}
