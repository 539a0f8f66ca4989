//! Draws that see what the same decision has moved before: credits that come back, and credits that
//! are already taken. Slower than [`Ledger::draw`], and equal to it once everything is applied.

use fefo::Span;
use smallvec::SmallVec;

use super::account::Path;
use super::bucket::Rank;
use super::draw::Request;
use super::event::{Piece, Pieces};
use super::grant::push_joined;
use super::id::{BucketNo, GrantNo};
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

/// A bucket that may be drawn from: rank, distance of its account, number.
type Candidate = (Rank, u8, BucketNo);

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
        let candidates = self.candidates_after(overlay, request);
        let total = u128::from(amount);
        let mut pieces = Pieces::new();
        let mut left = amount;
        for equals in candidates.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let parts = match equals {
                // One bucket alone is drawn along its line, as it lies there.
                [(_, _, bucket)] => self.parts_of_one(overlay, request, *bucket, (total, left)),
                _ => self.parts_of_equals(overlay, request, equals, (total, left)),
            };
            for Piece { bucket, span } in parts {
                let taken = span.len().min(left);
                if taken > 0 {
                    left -= taken;
                    let span = Span::new(span.start, span.start + taken);
                    push_joined(&mut pieces, Piece { bucket, span });
                }
            }
            if left == 0 {
                return Some(pieces);
            }
        }
        (left == 0).then_some(pieces)
    }

    fn parts_of_one(
        &self,
        overlay: &Overlay,
        request: Request<'_>,
        bucket: BucketNo,
        (total, left): (u128, u64),
    ) -> Vec<Piece> {
        let mut limit = self.limit(request, bucket, total).min(u128::from(left));
        let mut parts = Vec::new();
        for free in self.free_after(overlay, bucket) {
            let taken = u64::try_from(limit).unwrap_or(u64::MAX).min(free.len());
            limit -= u128::from(taken);
            if taken == 0 {
                break;
            }
            parts.push(Piece { bucket, span: Span::new(free.start, free.start + taken) });
        }
        parts
    }

    /// Parts of buckets of equal order, grant by grant.
    fn parts_of_equals(
        &self,
        overlay: &Overlay,
        request: Request<'_>,
        equals: &[Candidate],
        (total, left): (u128, u64),
    ) -> Vec<Piece> {
        let mut parts: Vec<((Timestamp, GrantNo), Piece)> = Vec::new();
        for (_, _, bucket) in equals {
            for Piece { bucket, span } in
                self.parts_of_one(overlay, request, *bucket, (total, left))
            {
                for (span, grant) in self.bucket(bucket).line.packs_in(span) {
                    let order = (self.grant(grant).spendable_from(), grant);
                    parts.push((order, Piece { bucket, span }));
                }
            }
        }
        parts.sort_unstable();
        parts.into_iter().map(|(_, piece)| piece).collect()
    }

    /// The buckets that a draw may take from, in order.
    fn candidates_after(&self, overlay: &Overlay, request: Request<'_>) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (level, account) in (0u8..).zip(request.path) {
            let open = self.account(*account).open.iter();
            candidates.extend(open.map(|((rank, bucket), ())| (*rank, level, *bucket)));
            for piece in &overlay.returned {
                let bucket = self.bucket(piece.bucket);
                if bucket.account == *account && !bucket.expired {
                    candidates.push((bucket.rank, level, piece.bucket));
                }
            }
        }
        candidates.retain(|(_, _, bucket)| {
            request.unrestricted || self.bucket(*bucket).admits(request.context)
        });
        candidates.sort_unstable();
        candidates.dedup();
        candidates
    }

    /// The free units of a bucket, lowest first.
    fn free_after(&self, overlay: &Overlay, bucket: BucketNo) -> Vec<Span> {
        let of_it = |piece: &&Piece| piece.bucket == bucket;
        let mut free: Vec<Span> = self.bucket(bucket).line.free_spans(0).collect();
        free.extend(overlay.returned.iter().filter(of_it).map(|piece| piece.span));
        free.sort_unstable_by_key(|span| span.start);
        for gone in overlay.drawn.iter().filter(of_it) {
            free = free.iter().flat_map(|span| without(*span, gone.span)).collect();
        }
        free
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
