//! The names in a page of entries. Entries of one page share most of them, so each is read once.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;

use bursar_core::ledger::refusal::Resource;
use bursar_journal::record::ledger::decode_archived;

use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::project::History;

const HOLD: &str = "SELECT h.name, j.name, h.record FROM holds h
     LEFT JOIN jobs j ON j.number = h.job WHERE h.hold = ?1";
const GRANT: &str = "SELECT name, reference FROM grants WHERE number = ?1";
const MOVEMENT: &str = "SELECT m.reason, m.reference FROM accounts a
     JOIN movements m ON m.tenant = a.tenant AND m.what = ?2 AND m.name = ?3 WHERE a.number = ?1";

/// A hold as an entry shows it.
#[derive(Clone, Default)]
pub(super) struct HoldNames {
    pub(super) name: Option<String>,
    pub(super) job: Option<String>,
    pub(super) reference: Option<String>,
}

/// A grant as an entry shows it.
#[derive(Clone, Default)]
pub(super) struct GrantNames {
    pub(super) name: Option<String>,
    pub(super) reference: Option<String>,
}

/// The names that were read for a page.
pub(super) struct PageNames<'a, D: Database> {
    history: &'a History<D>,
    accounts: BTreeMap<u32, String>,
    grants: BTreeMap<u32, GrantNames>,
    holds: BTreeMap<i64, HoldNames>,
}

impl<'a, D: Database> PageNames<'a, D> {
    pub(super) fn of(history: &'a History<D>) -> PageNames<'a, D> {
        let (accounts, grants, holds) = Default::default();
        PageNames { history, accounts, grants, holds }
    }

    pub(super) fn account(&mut self, number: u32) -> Result<String, HistoryError> {
        Ok(match self.accounts.entry(number) {
            Place::Occupied(known) => known.get().clone(),
            Place::Vacant(new) => new.insert(self.history.account_path(number)?).clone(),
        })
    }

    pub(super) fn grant(&mut self, number: u32) -> Result<GrantNames, HistoryError> {
        let new = match self.grants.entry(number) {
            Place::Occupied(known) => return Ok(known.get().clone()),
            Place::Vacant(new) => new,
        };
        let found = self.history.database.query(GRANT, &[number.into()])?.pop();
        let read = found.map(Columns::of).map(|mut names| -> Result<GrantNames, HistoryError> {
            Ok(GrantNames { name: names.maybe_text()?, reference: names.maybe_text()? })
        });
        Ok(new.insert(read.transpose()?.unwrap_or_default()).clone())
    }

    pub(super) fn hold(&mut self, number: i64) -> Result<HoldNames, HistoryError> {
        let new = match self.holds.entry(number) {
            Place::Occupied(known) => return Ok(known.get().clone()),
            Place::Vacant(new) => new,
        };
        let found = self.history.database.query(HOLD, &[number.into()])?.pop();
        let read = found.map(Columns::of).map(|mut names| -> Result<HoldNames, HistoryError> {
            let (name, job) = (names.maybe_text()?, names.maybe_text()?);
            Ok(HoldNames { name, job, reference: reference_of(&names.bytes()?)? })
        });
        Ok(new.insert(read.transpose()?.unwrap_or_default()).clone())
    }

    /// The reason and the reference of a movement in the tenant of an account.
    pub(super) fn movement(
        &self,
        account: u32,
        (what, name): (Resource, &str),
    ) -> Result<(Option<String>, Option<String>), HistoryError> {
        let about = [account.into(), (what as u32).into(), name.into()];
        let Some(found) = self.history.database.query(MOVEMENT, &about)?.pop() else {
            return Ok((None, None));
        };
        let mut note = Columns::of(found);
        Ok((note.maybe_text()?, note.maybe_text()?))
    }
}

/// The caller's reference in the record of a hold.
fn reference_of(record: &[u8]) -> Result<Option<String>, HistoryError> {
    let hold = decode_archived(record).map_err(HistoryError::inconsistent)?.hold;
    Ok(hold.details.and_then(|details| details.reference.map(String::from)))
}
