//! Statements on leases: which server owns a machine's journal, and which one leads.

use std::time::Duration;

use super::leader::{Claim, LeadRow, StoredLead};
use super::schema::{leaseless, number, storeless};
use super::session::{Session, stored};
use crate::chain::Epoch;
use crate::error::{JournalError, LeaseError};

/// Takes the lease if it is free, expired or held by the same holder, or if this holder leads the store: the one that
/// led before trusts no lease any more. Fences earlier epochs in the same statement: the head's row contains the epoch
/// that may append.
pub(super) async fn acquire_lease(
    session: &Session,
    machine: &str,
    holder: &str,
    ttl: Duration,
) -> Result<Result<Epoch, LeaseError>, JournalError> {
    let doing = "taking the lease";
    let ttl = ttl.as_secs_f64();
    let taken = session
        .query(
            doing,
            "WITH taken AS (
               UPDATE bursar_lease SET epoch = epoch + 1, holder = $2,
                 until = clock_timestamp() + make_interval(secs => $3)
               WHERE machine = $1 AND (until < clock_timestamp() OR holder = $2 OR EXISTS (
                 SELECT FROM bursar_store
                 WHERE bursar_store.holder = $2 AND bursar_store.until >= clock_timestamp()))
               RETURNING epoch)
             UPDATE bursar_head SET epoch = taken.epoch FROM taken WHERE machine = $1
             RETURNING taken.epoch",
            &[&machine, &holder, &ttl],
        )
        .await?;
    if let Some(row) = taken.first() {
        return Ok(Ok(Epoch(number(row, 0))));
    }
    let held = session
        .query(
            doing,
            "SELECT holder,
               greatest(0, ceil(extract(epoch FROM until - clock_timestamp()) * 1000))::bigint
             FROM bursar_lease WHERE machine = $1",
            &[&machine],
        )
        .await?;
    let row = held.first().ok_or_else(leaseless)?;
    Ok(Err(LeaseError::Held { holder: row.get(0), remaining_ms: number(row, 1) }))
}

/// Sets the remaining time of the lease of `epoch`, and records the journal's progress in the
/// manifest. Returns false if another owner has the lease by now.
pub(super) async fn extend_lease(
    session: &Session,
    machine: &str,
    epoch: Epoch,
    ttl: Duration,
) -> Result<bool, JournalError> {
    let rows = session
        .query(
            "renewing the lease",
            "WITH kept AS (
               UPDATE bursar_lease SET until = clock_timestamp() + make_interval(secs => $3)
               WHERE machine = $1 AND epoch = $2 RETURNING machine),
             noted AS (
               UPDATE bursar_machine AS known
               SET sequence = head.sequence, position = head.position, hash = head.hash
               FROM bursar_head AS head, kept
               WHERE known.machine = kept.machine AND head.machine = kept.machine
                 AND head.sequence > known.sequence)
             SELECT machine FROM kept",
            &[&machine, &stored(epoch.0), &ttl.as_secs_f64()],
        )
        .await?;
    Ok(!rows.is_empty())
}

/// Takes the lead if it expired and is stored as it was seen, or if the same holder has it.
pub(super) async fn claim_leadership(
    session: &Session,
    (holder, url): (&str, &str),
    (ttl, newest_form): (Duration, u32),
    seen: &LeadRow,
) -> Result<Claim, JournalError> {
    let doing = "asking to lead";
    let taken = session
        .query(
            doing,
            "UPDATE bursar_store SET term = term + 1, holder = $1, url = $2,
               until = clock_timestamp() + make_interval(secs => $3),
               lease_ms = CASE WHEN holder = $1 THEN greatest(lease_ms, $6) ELSE $6 END
             WHERE loss IS NULL AND form <= $7::bigint AND (holder = $1 OR (until < clock_timestamp()
               AND term = $4 AND extract(epoch FROM until)::text = $5)) RETURNING term",
            &[
                &holder, &url, &ttl.as_secs_f64(), &stored(seen.term), &seen.until, &millis(ttl),
                &i64::from(newest_form),
            ],
        )
        .await?;
    if let Some(row) = taken.first() {
        return Ok(Claim::Won { term: number(row, 0) });
    }
    let held = session.query(doing, "SELECT holder, url FROM bursar_store", &[]).await?;
    let row = held.first().ok_or_else(storeless)?;
    Ok(Claim::Held { holder: row.get(0), url: row.get(1) })
}

pub(super) async fn look_at_leadership(session: &Session) -> Result<StoredLead, JournalError> {
    let rows = session
        .query(
            "reading the store's clock",
            "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,
               CASE WHEN until >= clock_timestamp() THEN nullif(url, '') END,
               term, extract(epoch FROM until)::text, until = '-infinity', holder, lease_ms
             FROM bursar_store",
            &[],
        )
        .await?;
    let row = rows.first().ok_or_else(storeless)?;
    let (term, holder) = (number(row, 2), row.get(5));
    let lease = Duration::from_millis(number(row, 6));
    let lead = LeadRow { term, holder, lease, until: row.get(3), is_free: row.get(4) };
    Ok(StoredLead { now_ms: row.get(0), owner: row.get(1), row: lead })
}

/// Sets the remaining time of the leader of `term`. Returns false if another server leads by now.
pub(super) async fn extend_leadership(
    session: &Session,
    term: u64,
    (ttl, newest_form): (Duration, u32),
) -> Result<bool, JournalError> {
    let rows = session
        .query(
            "renewing the lead",
            "UPDATE bursar_store SET until = CASE WHEN $2::double precision = 0 THEN '-infinity'
                 ELSE clock_timestamp() + make_interval(secs => $2) END,
               clean = clean AND $2::double precision = 0, lease_ms = greatest(lease_ms, $3)
             WHERE term = $1 AND (loss IS NULL AND form <= $4::bigint OR $2::double precision = 0)
             RETURNING term",
            &[&stored(term), &ttl.as_secs_f64(), &millis(ttl), &i64::from(newest_form)],
        )
        .await?;
    Ok(!rows.is_empty())
}

fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}
