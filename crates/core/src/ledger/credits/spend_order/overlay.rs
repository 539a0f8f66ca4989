//! Draws that take earlier changes of the same decision into account: returned credits and drawn
//! credits. Slower than [`Ledger::draw`], with the same result as a draw after everything is
//! applied.

use std::collections::BTreeMap;

use fefo::Span;
use smallvec::SmallVec;

use super::draw::DrawRequest;
use super::{SpendRank, SpendSupply};
use crate::ledger::accounts::account::Path;
use crate::ledger::credits::grant::push_joined;
use crate::ledger::event::{Piece, Pieces};
use crate::ledger::id::{AccountNo, BucketNo};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The changes of a decision so far.
#[derive(Clone, Debug, Default)]
pub(in crate::ledger) struct Overlay {
    /// Units that were returned and become free.
    pub(in crate::ledger) returned: Pieces,
    /// Units that were drawn.
    pub(in crate::ledger) drawn: Pieces,
    /// The drawn units by bucket, joined.
    drawn_of: BTreeMap<BucketNo, Vec<Span>>,
    /// Amounts to subtract from budgets: the instant of the draw, credits, and GPU time.
    pub(in crate::ledger) relief: SmallVec<[(Timestamp, i128, i128); 2]>,
    /// Whether some returned units have expired and may be re-issued. The re-issued credits are
    /// visible only after this decision.
    pub(in crate::ledger) expired: bool,
}

impl Overlay {
    /// Records a draw.
    pub(in crate::ledger) fn take(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            push_joined(&mut self.drawn, *piece);
            let spans = self.drawn_of.entry(piece.bucket).or_default();
            match spans.last_mut().filter(|last| last.end == piece.span.start) {
                Some(last) => last.end = piece.span.end,
                None => spans.push(piece.span),
            }
        }
    }

    /// The units drawn from accounts on a path.
    pub(in crate::ledger) fn drawn_on(&self, ledger: &Ledger, path: &Path) -> Pieces {
        let on_path = |piece: &&Piece| path.contains(&ledger.bucket(piece.bucket).account);
        self.drawn.iter().filter(on_path).copied().collect()
    }
}

impl SpendSupply for Overlay {
    fn buckets<'a>(
        &'a self,
        ledger: &'a Ledger,
        account: AccountNo,
    ) -> impl Iterator<Item = (SpendRank, BucketNo)> + 'a {
        let open = ledger.account(account).open.iter();
        let mut buckets: Vec<(SpendRank, BucketNo)> = open.map(|(key, ())| *key).collect();
        for piece in &self.returned {
            let bucket = ledger.bucket(piece.bucket);
            if bucket.account == account && !bucket.expired {
                buckets.push((bucket.rank, piece.bucket));
            }
        }
        buckets.sort_unstable();
        buckets.dedup();
        buckets.into_iter()
    }

    fn units<'a>(
        &'a self,
        ledger: &'a Ledger,
        bucket: BucketNo,
    ) -> impl Iterator<Item = Span> + 'a {
        let of_it = |piece: &&Piece| piece.bucket == bucket;
        let mut free: Vec<Span> = ledger.bucket(bucket).line.free_spans(0).collect();
        free.extend(self.returned.iter().filter(of_it).map(|piece| piece.span));
        free.sort_unstable_by_key(|span| span.start);
        let mut drawn = self.drawn_of.get(&bucket).cloned().unwrap_or_default();
        drawn.sort_unstable_by_key(|span| span.start);
        without(&free, &drawn).into_iter()
    }
}

impl Ledger {
    /// Draws `amount` as [`Ledger::draw`] would after the decision so far, all or nothing.
    pub(in crate::ledger) fn draw_after(
        &self,
        overlay: &Overlay,
        request: DrawRequest<'_>,
        amount: u64,
    ) -> Option<Pieces> {
        if overlay.returned.is_empty() && overlay.drawn.is_empty() {
            return self.draw(request, amount);
        }
        self.draw_from(overlay, request, amount)
    }
}

/// The parts of `spans` that are not in `gone`. Both are sorted.
fn without(spans: &[Span], gone: &[Span]) -> Vec<Span> {
    let mut left = Vec::with_capacity(spans.len() + gone.len());
    let mut next = 0;
    for span in spans {
        let mut start = span.start;
        // A gone span that ends beyond this span may overlap the next one too.
        while next < gone.len() && gone[next].end <= start {
            next += 1;
        }
        let mut at = next;
        while at < gone.len() && gone[at].start < span.end {
            if start < gone[at].start {
                left.push(Span::new(start, gone[at].start));
            }
            start = start.max(gone[at].end);
            at += 1;
        }
        if start < span.end {
            left.push(Span::new(start, span.end));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The spans of the set units.
    fn spans(units: &[bool]) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for at in (0..units.len()).filter(|at| units[*at]) {
            let at = at as u64;
            match spans.last_mut().filter(|last| last.end == at && !at.is_multiple_of(7)) {
                Some(last) => last.end = at + 1,
                None => spans.push(Span::new(at, at + 1)),
            }
        }
        spans
    }

    fn units(spans: &[Span]) -> Vec<u64> {
        spans.iter().flat_map(|span| span.start..span.end).collect()
    }

    proptest! {
        #[test]
        fn the_difference_is_every_unit_that_is_not_gone(
            all in proptest::collection::vec(any::<(bool, bool)>(), 40),
        ) {
            let (there, gone): (Vec<bool>, Vec<bool>) = all.iter().copied().unzip();
            let left = without(&spans(&there), &spans(&gone));
            let expected = (0..40).filter(|at| there[*at as usize] && !gone[*at as usize]);
            prop_assert_eq!(units(&left), expected.collect::<Vec<u64>>());
            prop_assert!(left.iter().all(|span| span.start < span.end));
        }
    }
}
