//! Finds names by how they begin. Everything is limited to the accounts of a scope, and visits a
//! bounded number of rows.

use bursar_core::ledger::holds::hold::HoldKind;
use bursar_journal::record::ledger::decode_archived;

use crate::database::{Columns, Database, Row};
use crate::error::HistoryError;
use crate::project::History;

/// The most rows that one query visits.
const MAX_VISITED: i64 = 20_000;
/// The most holds of a tenant that are read to find their accounts.
const MAX_HOLDS: i64 = 2_000;

/// A name that was found, and the path of its account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundName {
    /// The name.
    pub name: String,
    /// The account.
    pub account: String,
}

/// The texts that begin with a text: from the first, before the second.
fn beginning(start: &str) -> (String, String) {
    (start.to_owned(), format!("{start}\u{10ffff}"))
}

/// Whether a path is a scope or lies below it. Without a scope every path is.
fn is_within(path: &str, scope: Option<&str>) -> bool {
    scope.is_none_or(|scope| {
        path.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    })
}

fn found(row: Row) -> Result<FoundName, HistoryError> {
    let mut row = Columns::of(row);
    Ok(FoundName { name: row.text()?, account: row.text()? })
}

impl<D: Database> History<D> {
    /// The paths of the first accounts of a scope, in order.
    pub fn accounts_within(
        &self,
        scope: Option<&str>,
        limit: u32,
    ) -> Result<Vec<String>, HistoryError> {
        let (first, end) = beginning(scope.unwrap_or(""));
        let rows = self.database.query(
            "SELECT path FROM accounts WHERE path >= ?1 AND path < ?2 ORDER BY path LIMIT ?3",
            &[first.as_str().into(), end.as_str().into(), limit.into()],
        )?;
        let paths = rows.into_iter().map(|row| Columns::of(row).text());
        let paths = paths.collect::<Result<Vec<String>, _>>()?;
        Ok(paths.into_iter().filter(|path| is_within(path, scope)).collect())
    }

    /// Grants of accounts of a scope whose names begin with a text.
    pub fn grants_starting(
        &self,
        scope: Option<&str>,
        start: &str,
        limit: u32,
    ) -> Result<Vec<FoundName>, HistoryError> {
        let ((first, end), (from, to)) = (beginning(scope.unwrap_or("")), beginning(start));
        let rows = self.database.query(
            "SELECT name, path FROM
               (SELECT g.name, a.path FROM accounts a JOIN grants g ON g.account = a.number
                WHERE a.path >= ?1 AND a.path < ?2 LIMIT ?3)
             WHERE name >= ?4 AND name < ?5 LIMIT ?6",
            &[
                first.as_str().into(),
                end.as_str().into(),
                MAX_VISITED.into(),
                from.as_str().into(),
                to.as_str().into(),
                limit.into(),
            ],
        )?;
        let names = rows.into_iter().map(found).collect::<Result<Vec<_>, _>>()?;
        Ok(names.into_iter().filter(|name| is_within(&name.account, scope)).collect())
    }

    /// Jobs of a tenant and a scope in it whose names begin with a text, in order of their names.
    pub fn jobs_starting(
        &self,
        tenant: u32,
        scope: Option<&str>,
        start: &str,
        limit: u32,
    ) -> Result<Vec<FoundName>, HistoryError> {
        let (from, to) = beginning(start);
        let rows = self.database.query(
            "SELECT name, path FROM
               (SELECT j.name, a.path FROM jobs j JOIN accounts a ON a.number = j.account
                WHERE j.tenant = ?1 AND j.name >= ?2 AND j.name < ?3
                ORDER BY j.name, j.number LIMIT ?4)
             WHERE ?5 = '' OR path = ?5 OR (path >= ?5 || ':' AND path < ?5 || ';') LIMIT ?6",
            &[
                tenant.into(),
                from.as_str().into(),
                to.as_str().into(),
                MAX_VISITED.into(),
                scope.unwrap_or("").into(),
                limit.into(),
            ],
        )?;
        rows.into_iter().map(found).collect()
    }

    /// Holds or charges of a tenant and a scope in it whose names begin with a text.
    pub fn holds_starting(
        &self,
        (tenant, kind): (u32, HoldKind),
        scope: Option<&str>,
        start: &str,
        limit: u32,
    ) -> Result<Vec<FoundName>, HistoryError> {
        let (from, to) = beginning(start);
        let rows = self.database.query(
            "SELECT record FROM holds
             WHERE tenant = ?1 AND kind = ?2 AND name >= ?3 AND name < ?4
             ORDER BY name, hold DESC LIMIT ?5",
            &[
                tenant.into(),
                (kind as u32).into(),
                from.as_str().into(),
                to.as_str().into(),
                MAX_HOLDS.into(),
            ],
        )?;
        let mut all = Vec::new();
        for row in rows {
            let stored = Columns::of(row).bytes()?;
            let hold = decode_archived(&stored).map_err(HistoryError::inconsistent)?.hold;
            let account = self.path_of(hold.account.0)?;
            if account.as_deref().is_some_and(|path| is_within(path, scope)) {
                let account = account.unwrap_or_default();
                all.push(FoundName { name: hold.id.to_string(), account });
            }
            if all.len() >= limit as usize {
                break;
            }
        }
        Ok(all)
    }

    fn path_of(&self, account: u32) -> Result<Option<String>, HistoryError> {
        let sql = "SELECT path FROM accounts WHERE number = ?1";
        let rows = self.database.query(sql, &[account.into()])?;
        rows.into_iter().next().map(|row| Columns::of(row).text()).transpose()
    }
}
