//! Refunds, transfers and collections under their names, and the lists of charges, refunds and
//! transfers.

use bursar_core::ledger::command::MovementNote;
use bursar_core::ledger::event::{NamedMovement, Piece, Pieces};
use bursar_core::ledger::id::BucketNo;
use bursar_core::ledger::refusal::Resource;
use fefo::Span;

use super::{History, SmallSet, Step};
use crate::blocks::{Bytes, write_length};
use crate::database::Database;
use crate::error::HistoryError;
use crate::lists::{EVERY_ACCOUNT, ListOf};

/// What is known of a movement besides its name and units.
pub(super) struct Made<'a> {
    what: Resource,
    account: u32,
    target: Option<u32>,
    hold: Option<i64>,
    note: Option<&'a MovementNote>,
}

impl<'a> Made<'a> {
    /// A movement of the credits that an account spent, owns or owes.
    pub(super) fn new(what: Resource, account: u32) -> Made<'static> {
        Made { what, account, target: None, hold: None, note: None }
    }

    pub(super) fn to(self, account: u32) -> Made<'a> {
        Made { target: Some(account), ..self }
    }

    pub(super) fn of(self, hold: i64) -> Made<'a> {
        Made { hold: Some(hold), ..self }
    }

    pub(super) fn with<'n>(self, note: Option<&'n MovementNote>) -> Made<'n>
    where
        'a: 'n,
    {
        Made { note, ..self }
    }
}

impl<D: Database> History<D> {
    /// Records a movement whose entries follow. The ledger forgets its name.
    pub(super) fn note_movement(
        &mut self,
        step: &Step,
        made: Made<'_>,
        movement: &NamedMovement,
    ) -> Result<(), HistoryError> {
        let Made { what, account, target, hold, note } = made;
        let tenant = self.account(account)?.tenant;
        let entry = self.cache.progress.entries + 1;
        self.database.execute(
            "INSERT OR REPLACE INTO movements VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            &[
                tenant.into(),
                (what as u32).into(),
                movement.id.as_str().into(),
                step.position.cast_signed().into(),
                entry.into(),
                account.into(),
                target.into(),
                hold.into(),
                encode_pieces(&movement.pieces).into(),
                note.and_then(|note| note.reason.as_deref()).into(),
                note.and_then(|note| note.reference.as_deref()).into(),
            ],
        )?;
        // Clients cannot choose a name with this character: it is a later part of a refund.
        let is_part = movement.id.contains('/');
        if what == Resource::Refund && !is_part {
            self.list_next_entry(ListOf::Refunds, &[account])?;
        }
        if let Some(target) = target {
            self.list_next_entry(ListOf::Transfers, &[account, target])?;
        }
        Ok(())
    }

    /// Adds the next entry to the lists of accounts, of all above them, and of all accounts.
    pub(super) fn list_next_entry(
        &mut self,
        list: impl Fn(u32) -> ListOf,
        accounts: &[u32],
    ) -> Result<(), HistoryError> {
        self.list_number(list, accounts, self.cache.progress.entries + 1)
    }

    /// Adds a number to the lists of accounts, of all above them, and of all accounts.
    pub(super) fn list_number(
        &mut self,
        list: impl Fn(u32) -> ListOf,
        accounts: &[u32],
        number: i64,
    ) -> Result<(), HistoryError> {
        let mut touched = SmallSet::default();
        touched.extend(accounts.iter().copied());
        for account in self.with_ancestors(&touched)?.0 {
            self.cache.lists.push(list(account), number);
        }
        self.cache.lists.push(list(EVERY_ACCOUNT), number);
        Ok(())
    }
}

fn encode_pieces(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for Piece { bucket, span } in pieces {
        write_length(&mut bytes, bucket.0.into());
        write_length(&mut bytes, span.start);
        write_length(&mut bytes, span.len());
    }
    bytes
}

/// The inverse of `encode_pieces`.
pub(crate) fn decode_pieces(bytes: &[u8]) -> Result<Pieces, HistoryError> {
    let (mut bytes, mut pieces) = (Bytes(bytes), Pieces::new());
    while !bytes.0.is_empty() {
        let bucket = u32::try_from(bytes.length()?).map_err(HistoryError::inconsistent)?;
        let (start, length) = (bytes.length()?, bytes.length()?);
        let end = start.checked_add(length).ok_or_else(|| HistoryError::inconsistent("units"))?;
        pieces.push(Piece { bucket: BucketNo(bucket), span: Span::new(start, end) });
    }
    Ok(pieces)
}
