//! The state of the model: flat lists of plain records.

use bursar_core::ledger::command::{
    AccountKind, BudgetTerms, Context, GrantKind, OnExpiry, Restriction,
};
use bursar_core::ledger::credits::price::Rate;
use bursar_core::ledger::holds::hold::HoldState;
use bursar_core::ledger::refusal::Resource;
use bursar_core::name::{AccountPath, BudgetName, GrantId, HoldId, MovementId};

use super::answer::Reply;

/// An amount of micro-credits, or a sum of many.
pub type Micros = i128;

/// An account.
pub(super) struct Account {
    pub(super) path: AccountPath,
    pub(super) kind: AccountKind,
    pub(super) parent: Option<usize>,
    pub(super) frozen: bool,
    pub(super) frozen_by_platform: bool,
    pub(super) uncollected: Micros,
    pub(super) compensation_ttl_ms: Option<i64>,
    pub(super) fingerprint: u128,
}

/// A grant: its terms, and the number of its units in each part.
pub(super) struct Grant {
    pub(super) name: GrantId,
    pub(super) account: usize,
    pub(super) kind: GrantKind,
    pub(super) amount: Micros,
    pub(super) effective_at: i64,
    pub(super) expires_at: Option<i64>,
    pub(super) priority: u8,
    pub(super) restriction: Restriction,
    /// The effective instant or the creation, the later of the two.
    pub(super) spendable_from: i64,
    /// Whether `spendable_from` was reached.
    pub(super) is_active: bool,
    /// Grants of one bucket have the same number.
    pub(super) bucket: usize,
    /// Whether its last instant has passed.
    pub(super) is_expired: bool,
    pub(super) is_revoked: bool,
    pub(super) free: Micros,
    pub(super) held: Micros,
    pub(super) spent: Micros,
    pub(super) expired: Micros,
    pub(super) revoked: Micros,
    pub(super) moved: Micros,
    pub(super) fingerprint: u128,
}

impl Grant {
    /// An empty grant, to be filled in.
    pub(super) fn empty() -> Grant {
        Grant {
            name: GrantId::default(),
            account: 0,
            kind: GrantKind::Grant,
            amount: 0,
            effective_at: 0,
            expires_at: None,
            priority: 0,
            restriction: Restriction::default(),
            spendable_from: 0,
            is_active: false,
            bucket: 0,
            is_expired: false,
            is_revoked: false,
            free: 0,
            held: 0,
            spent: 0,
            expired: 0,
            revoked: 0,
            moved: 0,
            fingerprint: 0,
        }
    }

    pub(super) fn parts(&self) -> [Micros; 6] {
        [self.free, self.held, self.spent, self.expired, self.revoked, self.moved]
    }
}

/// The units that one draw of a hold took from one grant, and their state.
pub(super) struct Lot {
    pub(super) grant: usize,
    pub(super) drawn_at: i64,
    pub(super) drawn: Micros,
    pub(super) captured: Micros,
    /// Units that expired while a strict hold held them.
    pub(super) cut: Micros,
    pub(super) returned: Micros,
    pub(super) refunded: Micros,
}

impl Lot {
    pub(super) fn new(grant: usize, drawn_at: i64, drawn: Micros) -> Lot {
        Lot { grant, drawn_at, drawn, captured: 0, cut: 0, returned: 0, refunded: 0 }
    }

    pub(super) fn kept(&self) -> Micros {
        self.drawn - self.cut
    }

    pub(super) fn held(&self) -> Micros {
        self.kept() - self.captured - self.returned
    }

    pub(super) fn spent(&self) -> Micros {
        self.captured - self.refunded
    }
}

/// The GPU time of one draw of a hold, in GPU-milliseconds.
pub(super) struct GpuLot {
    pub(super) drawn_at: i64,
    pub(super) drawn: Micros,
    pub(super) used: Micros,
}

/// A hold, or a charge, which is a hold that is created settled.
pub(super) struct Hold {
    /// [`Resource::Hold`] or [`Resource::Charge`].
    pub(super) what: Resource,
    pub(super) name: HoldId,
    pub(super) account: usize,
    pub(super) state: HoldState,
    pub(super) lots: Vec<Lot>,
    pub(super) gpu_lots: Vec<GpuLot>,
    /// The largest reported GPU time.
    pub(super) gpu_ms: Micros,
    /// The last accepted cumulative total.
    pub(super) metered: Micros,
    /// The last recorded sequence number and its total.
    pub(super) last_report: Option<(u64, Micros)>,
    pub(super) expires_at: Option<i64>,
    pub(super) closed_at: Option<i64>,
    pub(super) context: Context,
    pub(super) on_expiry: OnExpiry,
    pub(super) rate: Option<Rate>,
    pub(super) fingerprint: u128,
    /// The answer of a charge.
    pub(super) charge_reply: Option<Reply>,
}

impl Hold {
    pub(super) fn amount(&self) -> Micros {
        self.lots.iter().map(Lot::kept).sum()
    }

    pub(super) fn captured(&self) -> Micros {
        self.lots.iter().map(|lot| lot.captured).sum()
    }

    pub(super) fn refunded(&self) -> Micros {
        self.lots.iter().map(|lot| lot.refunded).sum()
    }

    /// The amount drawn from one grant.
    pub(super) fn drawn_from(&self, grant: usize) -> Micros {
        self.lots.iter().filter(|lot| lot.grant == grant).map(Lot::kept).sum()
    }

    /// The amount captured from one grant.
    pub(super) fn captured_from(&self, grant: usize) -> Micros {
        self.lots.iter().filter(|lot| lot.grant == grant).map(|lot| lot.captured).sum()
    }

    /// The share of a GPU that its GPU time counts, in thousandths.
    pub(super) fn share_milli(&self) -> Micros {
        share_milli(self.rate.as_ref())
    }
}

/// The share of a GPU of a rate, in thousandths; a whole GPU without a rate.
pub(super) fn share_milli(rate: Option<&Rate>) -> Micros {
    rate.map_or(1000, |rate| Micros::from(rate.share_milli))
}

/// A refund, transfer or collection.
pub(super) struct Movement {
    pub(super) what: Resource,
    pub(super) tenant: AccountPath,
    pub(super) name: MovementId,
    pub(super) fingerprint: u128,
    pub(super) reply: Reply,
    /// The moved amounts by grant.
    pub(super) lots: Vec<(usize, Micros)>,
}

/// A budget.
pub(super) struct Budget {
    pub(super) account: usize,
    pub(super) name: BudgetName,
    pub(super) terms: BudgetTerms,
    /// The start of the period of `alerted`.
    pub(super) alerted_period: i64,
    /// Thresholds reached in that period.
    pub(super) alerted: Vec<u16>,
}

/// Usage for which no credits were found.
pub(super) struct Shortfall {
    pub(super) account: usize,
    pub(super) at: i64,
    pub(super) amount: Micros,
}
