//! Queries: balances, lots, returned credits.

use fefo::{Part, Span};

use super::account::Path;
use super::effective::FreeCredits;
use crate::ledger::command::{Context, GrantKind, KindAmounts};
use crate::ledger::credits::grant::Grant;
use crate::ledger::credits::spend_order::draw::DrawRequest;
use crate::ledger::event::Piece;
use crate::ledger::holds::hold::Hold;
use crate::ledger::id::{AccountNo, GrantNo};
use crate::ledger::state::Ledger;
use crate::time::Timestamp;

/// The balance of an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Balance {
    /// Free credits of its own grants.
    pub available: i128,
    /// Units of its own grants that open holds of any account still hold.
    pub held: i128,
    /// Free credits by kind.
    pub by_kind: KindAmounts,
    /// The amount that a hold of this account could draw.
    pub spendable: i128,
    /// Credits that will expire, soonest first, at most twenty entries.
    pub expiring: Vec<Expiring>,
    /// Usage for which no credits were found.
    pub uncollected: i128,
}

/// Credits that will expire.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expiring {
    /// The last instant at which they can be spent.
    pub expires_at: Timestamp,
    /// The kind of their grants.
    pub kind: GrantKind,
    /// How much.
    pub amount: i128,
}

/// The amount that one grant contributed to a draw.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lot {
    /// The grant.
    pub grant: GrantNo,
    /// How much.
    pub amount: u64,
    /// Whether the grant had expired when the credits were returned.
    pub expired: bool,
}

const MAX_EXPIRING: usize = 20;

impl Ledger {
    /// The current balance of an account, and the amount that it could spend in a context.
    pub fn balance(&self, account: AccountNo, context: &Context) -> Balance {
        let own = self.account(account);
        let FreeCredits { available, by_kind, expiring, .. } = self.free_credits(account);
        Balance {
            available,
            held: own.held,
            by_kind,
            spendable: self.spendable(account, context),
            expiring,
            uncollected: own.uncollected(),
        }
    }

    /// The amount that a hold of this account could draw.
    pub fn spendable(&self, account: AccountNo, context: &Context) -> i128 {
        let path: Path = self.path(account);
        let amount = self.largest_draw(DrawRequest::new(&path, context), &[], u128::MAX);
        i128::try_from(amount).unwrap_or(i128::MAX)
    }

    /// All grants, in the order in which they were issued.
    pub fn grants_in_order(&self) -> impl Iterator<Item = (GrantNo, &Grant)> {
        (0..).map(GrantNo).zip(self.grants.iter())
    }

    /// The amount of each grant in the pieces, in order.
    pub fn lots(&self, pieces: impl IntoIterator<Item = Piece>) -> impl Iterator<Item = Lot> {
        pieces.into_iter().flat_map(|piece| {
            let bucket = self.bucket(piece.bucket);
            let lots = bucket.line.packs_in(piece.span);
            lots.map(|(span, grant)| Lot {
                grant,
                amount: span.len(),
                expired: bucket.expired && !self.grant(grant).revoked,
            })
        })
    }

    /// The grants from which the first `slices` slices of a hold were drawn.
    pub fn hold_lots(&self, hold: &Hold, slices: u32) -> impl Iterator<Item = Lot> {
        let pieces = hold.slices.iter().take(slices as usize);
        self.lots(pieces.map(|slice| Piece { bucket: slice.bucket, span: slice.span }))
    }

    /// The credits returned when a hold was closed, last drawn first, and whether they expired at
    /// once.
    pub fn returned_lots(&self, hold: &Hold) -> Vec<Lot> {
        let mut lots = Vec::new();
        for slice in hold.slices.iter().rev().filter(|slice| slice.room() > 0) {
            let bucket = self.bucket(slice.bucket);
            // While expiry is suspended, a bucket is not marked as expired at its expiry.
            let expired = bucket.expired && !bucket.rank.is_unexpired_at(hold.closed_at);
            let packs: Vec<(Span, GrantNo)> = bucket.line.packs_in(slice.rest().span).collect();
            for (span, grant) in packs.into_iter().rev() {
                lots.push(Lot { grant, amount: span.len(), expired });
            }
        }
        lots
    }

    /// The number of units of a bucket's line in a state.
    pub(in crate::ledger) fn bucket_sum(
        &self,
        bucket: crate::ledger::id::BucketNo,
        part: Part,
    ) -> u64 {
        let line = &self.bucket(bucket).line;
        line.breakdown(Span::new(0, line.end()))[part as usize]
    }
}

/// The entries that expire soonest. Entries of one instant and kind are joined.
pub(super) fn soonest(mut expiring: Vec<Expiring>) -> Vec<Expiring> {
    expiring.sort_by_key(|entry| (entry.expires_at, entry.kind));
    let mut joined: Vec<Expiring> = Vec::new();
    for entry in expiring {
        let same =
            |last: &&mut Expiring| (last.expires_at, last.kind) == (entry.expires_at, entry.kind);
        if let Some(last) = joined.last_mut().filter(same) {
            last.amount += entry.amount;
        } else if joined.len() == MAX_EXPIRING {
            break;
        } else {
            joined.push(entry);
        }
    }
    joined
}
