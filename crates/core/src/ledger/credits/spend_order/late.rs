//! Late usage spends credits that were valid when it happened, including those that have expired
//! unspent since.
//!
//! History is not rewritten: an event reverses the expiry of the units before they are spent.

use fefo::{Part, Span};

use super::draw::{DrawRequest, Stock};
use super::{SpendRank, SpendSupply};
use crate::ledger::command::Charge;
use crate::ledger::credits::grant::push_joined;
use crate::ledger::event::{Piece, Pieces};
use crate::ledger::id::{AccountNo, BucketNo};
use crate::ledger::refusal::{Blocker, Refusal};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// Units that were valid at a past instant and are free or expired unspent.
#[derive(Copy, Clone, Debug)]
struct ValidAt(Timestamp);

impl SpendSupply for ValidAt {
    fn buckets<'a>(
        &'a self,
        ledger: &'a Ledger,
        account: AccountNo,
    ) -> impl Iterator<Item = (SpendRank, BucketNo)> + 'a {
        let account = ledger.account(account);
        let expired = account.details.iter().flat_map(|details| details.expired.iter());
        let all = account.open.iter().chain(expired).map(|(key, ())| *key);
        let mut buckets: Vec<(SpendRank, BucketNo)> =
            all.filter(|(rank, _)| rank.is_unexpired_at(self.0)).collect();
        buckets.sort_unstable();
        buckets.into_iter()
    }

    fn units<'a>(
        &'a self,
        ledger: &'a Ledger,
        bucket: BucketNo,
    ) -> impl Iterator<Item = Span> + 'a {
        let line = &ledger.bucket(bucket).line;
        let runs = line.runs_in(Span::new(0, line.end()));
        let unspent = runs.filter(|(_, part)| matches!(part, Part::Free | Part::Expired));
        let packs = unspent.flat_map(|(run, _)| line.packs_in(run));
        let valid = packs.filter(|(_, grant)| {
            let grant = ledger.grant(*grant);
            grant.effective_at <= self.0 && !grant.revoked
        });
        valid.map(|(span, _)| span)
    }
}

impl Ledger {
    /// Draws for usage that happened at `at`. Returns the units, and those of them that had
    /// expired.
    pub(in crate::ledger) fn draw_late(
        &self,
        now: Timestamp,
        at: Timestamp,
        request: DrawRequest<'_>,
        command: &Charge,
    ) -> Result<(Pieces, Pieces), Refusal> {
        let supply = ValidAt(at);
        let largest = |wanted| self.largest_late(&supply, request, wanted);
        let pieces = if command.allow_partial {
            let amount = self.partial_amount(now, request, command, largest)?;
            self.draw_from(&supply, request, amount).unwrap_or_default()
        } else {
            let requested = command.amount.micros().into();
            let mut blockers = self.blocking_budgets(now, request.path, requested, 0);
            let Some(pieces) = self.draw_from(&supply, request, command.amount.length()) else {
                let spendable = i128::try_from(largest(u128::MAX)).unwrap_or(i128::MAX);
                let account = self.account(request.path[0]).path.clone();
                let credits = Blocker::Credits { account, requested: command.amount, spendable };
                blockers.insert(0, credits);
                return Err(Refusal::InsufficientCredits { blockers });
            };
            if !blockers.is_empty() {
                return Err(Refusal::BudgetExceeded { blockers });
            }
            pieces
        };
        let reversed = self.expired_among(&pieces);
        Ok((pieces, reversed))
    }

    /// The largest charge up to `wanted` that the supply can pay.
    fn largest_late(&self, supply: &ValidAt, request: DrawRequest<'_>, wanted: u128) -> u128 {
        let mut stock = Stock::default();
        for candidate in self.spend_order(supply, request) {
            let units = supply.units(self, candidate.bucket).map(|span| u128::from(span.len()));
            let drawn = request.drawn_from(candidate.bucket);
            stock.add(self.bucket(candidate.bucket).max_share(), units.sum(), drawn);
        }
        stock.largest(wanted, request.drawn())
    }

    /// The units among these that have expired.
    fn expired_among(&self, pieces: &[Piece]) -> Pieces {
        let mut expired = Pieces::new();
        for Piece { bucket, span } in pieces {
            let runs = self.bucket(*bucket).line.runs_in(*span);
            for (span, _) in runs.filter(|(_, part)| *part == Part::Expired) {
                push_joined(&mut expired, Piece { bucket: *bucket, span });
            }
        }
        expired
    }
}
