//! Balances of the past. The buckets as of an instant are loaded into a small ledger, so that the
//! ledger's own rules compute what was spendable.

use bursar_core::credits::Credits;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::accounts::view::Balance;
use bursar_core::ledger::command::{AccountKind, AccountSettings, Context, GrantKind, Restriction};
use bursar_core::ledger::event::{Event, GrantIssued, GrantOrigin};
use bursar_core::ledger::id::{AccountNo, GrantNo};
use bursar_core::machine::Machine;
use bursar_core::name::{AccountPath, ClassName, GpuModel, Region};
use bursar_core::time::Timestamp;

use crate::blocks::{BlocksOf, Numbered, Reader};
use crate::database::{Columns, Database};
use crate::error::HistoryError;
use crate::levels::{AccountLevel, level_at};
use crate::lists::{decision, decision_parts};
use crate::project::History;

/// Free credits of one bucket at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PastBucket {
    /// The kind of their grants.
    kind: GrantKind,
    /// The priority; lower is spent first.
    priority: u8,
    /// The last instant at which they could be spent.
    expires_at: Option<Timestamp>,
    /// The restriction of their grants.
    restriction: Option<Restriction>,
    /// The free amount.
    free: i128,
}

/// The state of one account at an instant, after all its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PastAccount {
    /// The free credits, in the order in which the buckets were created.
    buckets: Vec<PastBucket>,
    /// The amount of its own grants that open holds held.
    held: i128,
    /// The uncollected usage.
    uncollected: i128,
}

impl<D: Database> History<D> {
    /// The balance of an account at an instant, after all events at that instant. An account that
    /// did not exist had nothing. Costs one look-up for each bucket on the path.
    pub fn balance_at(
        &self,
        path: &str,
        context: &Context,
        at: Timestamp,
    ) -> Result<Balance, HistoryError> {
        let mut accounts: Vec<(AccountPath, PastAccount)> = Vec::new();
        for above in ancestry(path) {
            let past = match self.account_number(&above)? {
                Some(number) => self.account_at(number, at)?,
                None => PastAccount::default(),
            };
            accounts.push((above, past));
        }
        Ok(compute_balance(&accounts, context, at))
    }

    fn account_at(&self, account: u32, at: Timestamp) -> Result<PastAccount, HistoryError> {
        let rows = self.database.query(
            "SELECT b.terms, l.at, l.levels FROM buckets b
             JOIN bucket_levels l ON l.bucket = b.number AND l.at =
               (SELECT max(at) FROM bucket_levels WHERE bucket = b.number AND at <= ?2)
             WHERE b.account = ?1 ORDER BY b.number",
            &[account.into(), at.millis().into()],
        )?;
        let mut past = PastAccount::default();
        for row in rows {
            let mut row = Columns::of(row);
            let terms = row.bytes()?;
            let free = level_at(row.integer()?, &row.bytes()?, at.millis())?;
            if free > 0 {
                past.buckets.push(bucket(&terms, free)?);
            }
        }
        past.held = self.balance_as_of(account, at)?.held;
        past.uncollected = self.account_level(account, AccountLevel::Uncollected, at)?;
        Ok(past)
    }

    /// An amount of an account at an instant, after all events at that instant.
    pub(super) fn account_level(
        &self,
        account: u32,
        which: AccountLevel,
        at: Timestamp,
    ) -> Result<i128, HistoryError> {
        let rows = self.database.query(
            "SELECT at, levels FROM account_levels WHERE level = ?1 AND at <= ?2
             ORDER BY at DESC LIMIT 1",
            &[which.key(account).into(), at.millis().into()],
        )?;
        let Some(row) = rows.into_iter().next() else { return Ok(0) };
        let mut row = Columns::of(row);
        level_at(row.integer()?, &row.bytes()?, at.millis())
    }

    /// The last record at or before an instant, 0 before the first. A binary search, because times
    /// never decrease.
    pub fn position_at(&self, at: Timestamp) -> Result<u64, HistoryError> {
        let (mut low, mut high) = (0, self.position()?);
        let mut decisions = Reader::new(&self.database, BlocksOf::Decisions);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match decisions.first_from(decision(middle, 0))?.map(place).transpose()? {
                Some((position, time)) if time <= at => low = position.max(middle),
                Some(_) => high = middle - 1,
                // Only barriers follow, which are no decisions.
                None => low = high,
            }
        }
        Ok(low)
    }
}

fn place((number, row): Numbered) -> Result<(u64, Timestamp), HistoryError> {
    let time = Timestamp::from_millis(Columns::of(row).integer()?);
    Ok((decision_parts(number).0.cast_unsigned(), time))
}

/// Reads encoded terms from the front.
struct Terms<'a>(&'a [u8]);

impl<'a> Terms<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], HistoryError> {
        let cut = || HistoryError::inconsistent("the terms of a bucket are cut off");
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<i64, HistoryError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(i64::from_be_bytes(bytes))
    }

    fn length(&mut self) -> Result<usize, HistoryError> {
        let wrong = |_| HistoryError::inconsistent("the terms of a bucket have a wrong length");
        usize::try_from(self.number()?).map_err(wrong)
    }

    fn names<T>(&mut self, name: impl Fn(&'a str) -> T) -> Result<Option<Vec<T>>, HistoryError> {
        if self.0.first() == Some(&255) {
            self.take(1)?;
            return Ok(None);
        }
        let mut names = Vec::new();
        for _ in 0..self.length()? {
            let length = self.length()?;
            let text = std::str::from_utf8(self.take(length)?);
            names.push(name(text.map_err(HistoryError::inconsistent)?));
        }
        Ok(Some(names))
    }
}

/// Decodes the key by which grants share a bucket.
fn bucket(terms: &[u8], free: i128) -> Result<PastBucket, HistoryError> {
    let mut terms = Terms(terms);
    terms.take(4)?;
    let priority = terms.take(1)?[0];
    let number = usize::from(terms.take(1)?[0]);
    let unknown = || HistoryError::inconsistent("an unknown kind of grant");
    let kind = *GrantKind::ALL.get(number).ok_or_else(unknown)?;
    let expiry = terms.number()?;
    let expires_at = (expiry != i64::MAX).then(|| Timestamp::from_millis(expiry));
    let restriction = if terms.0.is_empty() {
        None
    } else {
        let gpu_types = terms.names(GpuModel::unchecked)?;
        let regions = terms.names(Region::unchecked)?;
        let classes = terms.names(ClassName::from)?;
        let max_share_micro = u32::try_from(terms.number()?).ok();
        Some(Restriction { gpu_types, regions, classes, max_share_micro })
    };
    Ok(PastBucket { kind, priority, expires_at, restriction, free })
}

/// The accounts from the tenant down to this one.
fn ancestry(path: &str) -> Vec<AccountPath> {
    let ends = path.match_indices(':').map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| AccountPath::from(&path[..end])).collect()
}

fn compute_balance(
    accounts: &[(AccountPath, PastAccount)],
    context: &Context,
    at: Timestamp,
) -> Balance {
    let mut ledger = Ledger::new();
    let mut grants = 0;
    for (number, (path, past)) in (0..).map(AccountNo).zip(accounts) {
        let kind = if number.0 == 0 { AccountKind::Org } else { AccountKind::Team };
        let (path, settings) = (path.clone(), AccountSettings::default());
        let opened = Event::AccountOpened { account: number, path, kind, settings, fingerprint: 0 };
        ledger.apply(at, &opened);
        for bucket in past.buckets.iter().filter(|bucket| is_unexpired(bucket, at)) {
            let mut left = bucket.free;
            while let Some(amount) = part(left) {
                ledger.apply(at, &issued(bucket, number, GrantNo(grants), amount, at));
                grants += 1;
                left -= i128::from(amount.micros());
            }
        }
    }
    let own = AccountNo(u32::try_from(accounts.len()).unwrap_or(1) - 1);
    let mut balance = ledger.balance(own, context);
    if let Some((_, past)) = accounts.last() {
        balance.held = past.held;
        balance.uncollected = past.uncollected;
    }
    balance
}

/// Credits expire at their instant, even if no record of the expiry exists yet.
fn is_unexpired(bucket: &PastBucket, at: Timestamp) -> bool {
    bucket.expires_at.is_none_or(|expires_at| at <= expires_at)
}

/// The largest part of an amount that fits in one grant, if there is any.
fn part(left: i128) -> Option<Credits> {
    let micros = i64::try_from(left.min(i64::MAX.into())).ok()?;
    Credits::from_micros(micros).filter(|amount| *amount > Credits::ZERO)
}

fn issued(
    bucket: &PastBucket,
    account: AccountNo,
    grant: GrantNo,
    amount: Credits,
    at: Timestamp,
) -> Event {
    Event::GrantIssued(Box::new(GrantIssued {
        grant,
        id: format!("g{grant}").into(),
        account,
        kind: bucket.kind,
        amount,
        effective_at: at,
        expires_at: bucket.expires_at,
        priority: bucket.priority,
        restriction: bucket.restriction.clone(),
        origin: GrantOrigin::Issued,
        reference: None,
        metadata: None,
        fingerprint: 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ancestry_begins_at_the_tenant_and_ends_at_the_account() {
        let path = "acme:nlp:x";
        assert_eq!(ancestry(path), ["acme", "acme:nlp", "acme:nlp:x"].map(AccountPath::from));
        assert_eq!(ancestry("acme"), ["acme"].map(AccountPath::from));
    }
}
