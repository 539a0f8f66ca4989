//! Draws that see what the same decision has moved before: credits that come back, and credits that
//! are already taken. Slower than [`Ledger::draw`], and equal to it once everything is applied.

use fefo::Span;
use smallvec::SmallVec;

use super::account::Path;
use super::draw::Request;
use super::event::{Piece, Pieces};
use super::grant::push_joined;
use super::id::{AccountNo, BucketNo};
use super::spend_order::{Rank, Supply};
use super::state::Ledger;
use crate::time::Timestamp;

/// What a decision has moved so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    /// Units that came back and stay.
    pub(super) returned: Pieces,
    /// Units that were drawn.
    pub(super) drawn: Pieces,
    /// What budgets are relieved of: when it was drawn, credits, and GPU time.
    pub(super) relief: SmallVec<[(Timestamp, i128, i128); 2]>,
    /// Whether some of what came back has expired and may be issued anew: only a look after this
    /// decision sees all there is to draw.
    pub(super) expired: bool,
}

impl Overlay {
    /// Notes a draw.
    pub(super) fn take(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            push_joined(&mut self.drawn, *piece);
        }
    }

    /// What was drawn of the accounts on a path.
    pub(super) fn drawn_on(&self, ledger: &Ledger, path: &Path) -> Pieces {
        let on_path = |piece: &&Piece| path.contains(&ledger.bucket(piece.bucket).account);
        self.drawn.iter().filter(on_path).copied().collect()
    }
}

impl Supply for Overlay {
    fn buckets<'a>(
        &'a self,
        ledger: &'a Ledger,
        account: AccountNo,
    ) -> impl Iterator<Item = (Rank, BucketNo)> + 'a {
        let open = ledger.account(account).open.iter();
        let mut buckets: Vec<(Rank, BucketNo)> = open.map(|(key, ())| *key).collect();
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
        for gone in self.drawn.iter().filter(of_it) {
            free = free.iter().flat_map(|span| without(*span, gone.span)).collect();
        }
        free.into_iter()
    }
}

impl Ledger {
    /// Draws `amount` as [`Ledger::draw`] would after the decision so far, all or nothing.
    pub(super) fn draw_after(
        &self,
        overlay: &Overlay,
        request: Request<'_>,
        amount: u64,
    ) -> Option<Pieces> {
        if overlay.returned.is_empty() && overlay.drawn.is_empty() {
            return self.draw(request, amount);
        }
        self.draw_from(overlay, request, amount)
    }
}

/// What is left of a span, before and behind what is gone.
fn without(span: Span, gone: Span) -> impl Iterator<Item = Span> {
    let before = (span.start, span.end.min(gone.start));
    let behind = (span.start.max(gone.end), span.end);
    [before, behind]
        .into_iter()
        .filter(|(start, end)| start < end)
        .map(|(start, end)| Span::new(start, end))
}
