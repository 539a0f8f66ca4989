//! The events with many fields, and what they contain.

use smallvec::SmallVec;

use super::pieces::Pieces;
use crate::credits::Credits;
use crate::ledger::command::{Context, GrantKind, OnExpiry, Restriction};
use crate::ledger::credits::price::Rate;
use crate::ledger::id::{AccountNo, BucketNo, CellNo, GrantNo, HoldNo, JobNo};
use crate::message::ProposedNode;
use crate::name::{GpuModel, GrantId, HoldId, MovementId};
use crate::time::Timestamp;

/// The origin of a grant.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum GrantOrigin {
    /// A command.
    Issued,
    /// Returned credits had expired, and the platform was the cause.
    Compensation {
        /// The hold or charge that returned them.
        hold: HoldNo,
    },
    /// A transfer out of this bucket.
    Transfer {
        /// The bucket the credits were moved out of.
        from: BucketNo,
    },
}

/// A grant as it was issued.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantIssued {
    /// Its number.
    pub grant: GrantNo,
    /// Its name.
    pub id: GrantId,
    /// The account that has it.
    pub account: AccountNo,
    /// Its kind.
    pub kind: GrantKind,
    /// How much.
    pub amount: Credits,
    /// The first instant at which it can be spent.
    pub effective_at: Timestamp,
    /// The last instant at which it can be spent; `None` never expires.
    pub expires_at: Option<Timestamp>,
    /// Lower is spent first.
    pub priority: u8,
    /// What it may be spent on.
    pub restriction: Option<Restriction>,
    /// Its origin.
    pub origin: GrantOrigin,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// Free-form text, stored unchanged.
    pub metadata: Option<Box<str>>,
    /// The hash of the request that issued it; zero if none did.
    pub fingerprint: u128,
}

/// A hold as it was placed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldPlaced {
    /// Its number.
    pub hold: HoldNo,
    /// Its name.
    pub id: HoldId,
    /// The account that spends.
    pub account: AccountNo,
    /// What was drawn for it.
    pub pieces: Pieces,
    /// The last instant before it lapses; `None` if it has no lease.
    pub expires_at: Option<Timestamp>,
    /// What it is for.
    pub context: Context,
    /// What happens to held credits whose grant expires.
    pub on_expiry: OnExpiry,
    /// The pinned rate.
    pub rate: Option<Rate>,
    /// The GPU time that it stands for, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// The caller's own reference.
    pub reference: Option<Box<str>>,
    /// The hash of the request that placed it.
    pub fingerprint: u128,
    /// The job that it pays for.
    pub job: Option<JobNo>,
}

/// An attempt as it was confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptConfirmed {
    /// The job.
    pub job: JobNo,
    /// The cell that proposed it; `None` if it runs outside Bursar.
    pub cell: Option<CellNo>,
    /// Its number there.
    pub number: u32,
    /// The GPU type.
    pub gpu_type: Option<GpuModel>,
    /// Where it runs.
    pub nodes: SmallVec<[ProposedNode; 1]>,
    /// The pinned price.
    pub per_gpu_hour: Credits,
    /// The running time that is paid for; `None` if all of it is.
    pub funded_ms: Option<i64>,
}

/// A charge as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Charged {
    /// Its number, among the holds.
    pub hold: HoldNo,
    /// Its name.
    pub id: HoldId,
    /// The account that spent.
    pub account: AccountNo,
    /// What was spent.
    pub pieces: Pieces,
    /// The requested amount.
    pub requested: Credits,
    /// When the usage happened, if it was reported late.
    pub late_for: Option<Timestamp>,
    /// What the account could still spend in the same context afterwards.
    pub spendable_after: i128,
    /// The hash of the request that made it.
    pub fingerprint: u128,
}

/// A named movement: refund, transfer or collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NamedMovement {
    /// Its number among the movements.
    pub movement: u32,
    /// Its name.
    pub id: MovementId,
    /// The units that moved, in order.
    pub pieces: Pieces,
    /// The hash of the request.
    pub fingerprint: u128,
}

/// Forgetting what the archive has durably. Places count from zero over the holds that were examined, those of the
/// window first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Forgetting {
    /// The position of the archive.
    pub through: u64,
    /// How many closed holds were examined that stayed for the whole retention, oldest first.
    pub old_holds: u32,
    /// The places of holds that stay, because they have changed or an answer refers to them.
    pub kept: Vec<u32>,
    /// The places of holds that stay for the whole retention.
    pub longer: Vec<u32>,
    /// The places of movements that stay.
    pub kept_movements: Vec<u32>,
    /// How many ended jobs, oldest first.
    pub jobs: u32,
}
