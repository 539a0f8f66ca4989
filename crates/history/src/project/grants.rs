//! Grants and their buckets, with the numbers of the ledger.

use bursar_core::ledger::command::{GrantKind, Restriction};
use bursar_core::ledger::event::{GrantIssued, GrantOrigin, Piece};
use bursar_core::time::Timestamp;
use smallvec::SmallVec;

use super::cache::{BucketRow, GrantUnits};
use super::live::HoldNumbers;
use super::{History, Movement, Step};
use crate::database::{Columns, Database};
use crate::entry::EntryType;
use crate::error::HistoryError;

/// Units of one account, in the order in which accounts were found.
pub(super) struct Owned {
    pub(super) account: u32,
    pub(super) amount: i128,
    /// The grant, if all units belong to one.
    pub(super) grant: Option<u32>,
}

impl<D: Database> History<D> {
    pub(super) fn grant_issued(
        &mut self,
        step: &mut Step,
        issued: &GrantIssued,
    ) -> Result<(), HistoryError> {
        let shared = issued.restriction.as_ref().is_none_or(|r| r.max_share_micro.is_none());
        let terms = terms_key(issued);
        self.database.execute(
            "INSERT INTO grants VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL, NULL, ?11)",
            &[
                issued.grant.0.into(),
                issued.id.as_str().into(),
                issued.account.0.into(),
                (issued.kind as u32).into(),
                i128::from(issued.amount.micros()).into(),
                step.at.millis().into(),
                issued.effective_at.millis().into(),
                issued.expires_at.map(Timestamp::millis).into(),
                terms.into(),
                i64::from(shared).into(),
                issued.reference.as_deref().into(),
            ],
        )?;
        let hold = match issued.origin {
            GrantOrigin::Issued | GrantOrigin::Transfer { .. } => None,
            GrantOrigin::Compensation { hold } => {
                Some(HoldNumbers { ledger: hold.0, here: self.live_hold(hold.0)?.hold })
            }
        };
        let kind = match issued.origin {
            GrantOrigin::Issued => EntryType::Granted,
            GrantOrigin::Compensation { .. } => EntryType::Reissued,
            GrantOrigin::Transfer { .. } => EntryType::Received,
        };
        let transfer = match issued.origin {
            GrantOrigin::Transfer { .. } => step.transfer.clone(),
            GrantOrigin::Issued | GrantOrigin::Compensation { .. } => None,
        };
        let now = issued.effective_at <= step.at;
        if now {
            self.lay_grant(step.at, issued.grant.0)?;
        }
        self.enter(
            step,
            &Movement {
                account: issued.account.0,
                kind: if now { kind } else { EntryType::Scheduled },
                amount: issued.amount.micros().into(),
                grant: Some(issued.grant.0),
                hold,
                spender: None,
                name: transfer.as_deref(),
            },
        )
    }

    /// Lays a scheduled grant on its line: its credits become valid now.
    pub(super) fn grant_activated(
        &mut self,
        step: &mut Step,
        grant: u32,
    ) -> Result<(), HistoryError> {
        let (account, amount) = self.lay_grant(step.at, grant)?;
        self.enter(step, &grant_movement(account, EntryType::Granted, amount, grant))
    }

    pub(super) fn grant_revoked(
        &mut self,
        step: &mut Step,
        grant: u32,
        amount: u64,
    ) -> Result<(), HistoryError> {
        let (account, mut bucket) = self.place_of_grant(grant)?;
        if bucket.is_none() {
            // The grant is activated and revoked at once, so that the entries add up.
            self.grant_activated(step, grant)?;
            (_, bucket) = self.place_of_grant(grant)?;
        }
        if let Some(bucket) = bucket {
            self.shift(step.at, bucket, -i128::from(amount))?;
        }
        self.enter(step, &grant_movement(account, EntryType::Revoked, amount.into(), grant))
    }

    /// The account of a grant, and its bucket if it is laid.
    fn place_of_grant(&self, grant: u32) -> Result<(u32, Option<u32>), HistoryError> {
        let rows = self
            .database
            .query("SELECT account, bucket FROM grants WHERE number = ?1", &[grant.into()])?;
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(|| no_grant(grant))?);
        Ok((row.number()?, row.maybe_number()?))
    }

    /// Gives a grant its units on the line of its bucket.
    fn lay_grant(&mut self, at: Timestamp, grant: u32) -> Result<(u32, i128), HistoryError> {
        let rows = self.database.query(
            "SELECT account, amount, terms, shared FROM grants WHERE number = ?1",
            &[grant.into()],
        )?;
        let mut row = Columns::of(rows.into_iter().next().ok_or_else(|| no_grant(grant))?);
        let (account, amount) = (row.number()?, row.sum()?);
        let (terms, shared) = (row.bytes()?, row.integer()? != 0);
        let present = if shared { self.open_bucket(&terms)? } else { None };
        let room = match present {
            Some(number) => {
                let length = self.bucket(number)?.length;
                (length + amount <= i128::from(u64::MAX)).then_some((number, length))
            }
            None => None,
        };
        let (number, start) = match room {
            Some(found) => found,
            None => (self.new_bucket(account, &terms, shared)?, 0),
        };
        let bucket = self.bucket(number)?;
        bucket.length += amount;
        bucket.grants += 1;
        bucket.dirty = true;
        self.shift(at, number, amount)?;
        self.database.execute(
            "UPDATE grants SET bucket = ?2, start = ?3 WHERE number = ?1",
            &[grant.into(), number.into(), start.into()],
        )?;
        Ok((account, amount))
    }

    /// The bucket that accepts further grants with these terms.
    fn open_bucket(&mut self, terms: &[u8]) -> Result<Option<u32>, HistoryError> {
        let rows = self.database.query(
            "SELECT number FROM buckets WHERE terms = ?1 AND shared = 1
             ORDER BY number DESC LIMIT 1",
            &[terms.to_vec().into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let number = Columns::of(row).number()?;
        Ok((!self.bucket(number)?.expired).then_some(number))
    }

    fn new_bucket(
        &mut self,
        account: u32,
        terms: &[u8],
        shared: bool,
    ) -> Result<u32, HistoryError> {
        let number = self.cache.progress.buckets;
        self.cache.progress.buckets += 1;
        let row = BucketRow {
            account,
            expired: false,
            grants: 0,
            length: 0,
            free: 0,
            known: None,
            dirty: true,
        };
        self.database.execute(
            "INSERT INTO buckets VALUES (?1, ?2, ?3, ?4, 0, 0, ?5)",
            &[
                number.into(),
                account.into(),
                terms.to_vec().into(),
                i64::from(shared).into(),
                0i128.into(),
            ],
        )?;
        self.cache.insert_bucket(number, row);
        Ok(number)
    }

    pub(super) fn bucket_expired(
        &mut self,
        step: &mut Step,
        number: u32,
        amount: u64,
    ) -> Result<(), HistoryError> {
        let bucket = self.bucket(number)?;
        bucket.expired = true;
        bucket.dirty = true;
        let (account, grants) = (bucket.account, bucket.grants);
        step.touched.insert(account);
        if amount == 0 {
            return Ok(());
        }
        let grant =
            if grants == 1 { self.grant_at(number, 0)?.map(|laid| laid.grant) } else { None };
        let amount = i128::from(amount);
        self.shift(step.at, number, -amount)?;
        let movement = Movement {
            account,
            kind: EntryType::Expired,
            amount,
            grant,
            hold: None,
            spender: None,
            name: None,
        };
        self.enter(step, &movement)
    }

    /// The grant that owns a unit.
    fn grant_at(&self, bucket: u32, unit: u64) -> Result<Option<GrantUnits>, HistoryError> {
        let rows = self.database.query(
            "SELECT number, start, amount FROM grants WHERE bucket = ?1 AND start <= ?2
             ORDER BY start DESC LIMIT 1",
            &[bucket.into(), i128::from(unit).into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(None) };
        let mut row = Columns::of(row);
        let (grant, start, amount) = (row.number()?, row.sum()?, row.sum()?);
        Ok(Some(GrantUnits { grant, units: start..start + amount }))
    }

    /// The accounts that own the units of pieces.
    pub(super) fn owners(
        &mut self,
        pieces: &[Piece],
    ) -> Result<SmallVec<[Owned; 1]>, HistoryError> {
        let mut owners: SmallVec<[Owned; 1]> = SmallVec::new();
        for piece in pieces {
            let (number, span) = (piece.bucket.0, &piece.span);
            let bucket = self.bucket(number)?;
            let account = bucket.account;
            let known = bucket.known.as_ref().filter(|laid| laid.owns(span.start, span.end));
            let of_one = match known {
                Some(laid) => Some(laid.grant),
                None => {
                    let found = self.grant_at(number, span.start)?;
                    self.bucket(number)?.known.clone_from(&found);
                    found.filter(|laid| laid.owns(span.start, span.end)).map(|laid| laid.grant)
                }
            };
            let amount = i128::from(piece.span.len());
            match owners.iter_mut().find(|owner| owner.account == account) {
                Some(owner) => {
                    owner.amount += amount;
                    owner.grant = owner.grant.filter(|grant| Some(*grant) == of_one);
                }
                None => owners.push(Owned { account, amount, grant: of_one }),
            }
        }
        Ok(owners)
    }
}

fn grant_movement(account: u32, kind: EntryType, amount: i128, grant: u32) -> Movement<'static> {
    Movement { account, kind, amount, grant: Some(grant), hold: None, spender: None, name: None }
}

fn no_grant(grant: u32) -> HistoryError {
    HistoryError::inconsistent(format!("there is no grant {grant}"))
}

/// The common terms of the grants of one bucket, as bytes. [`crate::query`] decodes them.
fn terms_key(issued: &GrantIssued) -> Vec<u8> {
    let kind: GrantKind = issued.kind;
    let mut key = issued.account.0.to_be_bytes().to_vec();
    key.extend([issued.priority, kind as u8]);
    key.extend(issued.expires_at.map_or(i64::MAX, Timestamp::millis).to_be_bytes());
    if let Some(restriction) = &issued.restriction {
        let Restriction { gpu_types, regions, classes, max_share_micro } = restriction;
        push_list(&mut key, gpu_types.as_deref());
        push_list(&mut key, regions.as_deref());
        push_list(&mut key, classes.as_deref());
        key.extend(max_share_micro.map_or(i64::MAX, i64::from).to_be_bytes());
    }
    key
}

fn push_list(key: &mut Vec<u8>, list: Option<&[impl AsRef<str>]>) {
    // A length cannot begin with byte 255: a list that long would not fit into a record.
    let Some(list) = list else { return key.push(255) };
    key.extend((list.len() as u64).to_be_bytes());
    for name in list.iter().map(AsRef::as_ref) {
        key.extend((name.len() as u64).to_be_bytes());
        key.extend(name.as_bytes());
    }
}
