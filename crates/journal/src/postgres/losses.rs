//! Losses: a store that lacks what members saw as durable. It happens when a standby that was not synchronous is
//! promoted, or an older copy of the database is put in its place. Such a store is not served before an operator
//! accepts the loss. The note about it is in the store, so members that saw nothing of what is lost keep to it as well.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use super::leader::PostgresLeader;
use super::schema::{digest, number, storeless};
use super::session::{Session, stored};
use super::{PostgresOptions, PostgresStore};
use crate::chain::Head;
use crate::error::JournalError;

/// The heads of machines' journals, by the names of the machines.
pub type MachineHeads = BTreeMap<String, Head>;

/// What a store says about losses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredLoss {
    /// What was lost, in words, until it is accepted.
    pub noted: Option<String>,
    /// Which loss an operator accepted last: a number that only rises, and differs between copies of the store.
    pub accepted: u64,
    /// Where the journals end.
    pub heads: MachineHeads,
}

impl PostgresLeader {
    /// Compares the journals with what was seen of them, and notes in the store what is lost. If another loss was
    /// accepted since `accepted`, what was seen no longer counts. A store from before `accepted` has lost that.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn compare(
        &self,
        seen: &MachineHeads,
        accepted: Option<u64>,
        within: Duration,
    ) -> Result<StoredLoss, JournalError> {
        self.ask(within, async |session, _| {
            let (mut stored_loss, lost) = compare(session, seen).await?;
            let known = accepted.unwrap_or(stored_loss.accepted);
            if stored_loss.noted.is_none()
                && let Some(lost) = counted(lost, known, stored_loss.accepted)
            {
                // Accepting it then gives a number that no server has seen.
                let note = "UPDATE bursar_store SET loss = coalesce(loss, $1),
                       losses_accepted = greatest(losses_accepted, $3) WHERE losses_accepted = $2";
                let found = stored(stored_loss.accepted);
                session.query("noting a loss", note, &[&lost, &found, &stored(known)]).await?;
                stored_loss.noted = Some(lost);
            }
            Ok(stored_loss)
        })
    }
}

impl PostgresStore {
    /// What was lost, in words, if a loss is noted and was not accepted.
    ///
    /// # Errors
    /// The store does not answer, or is no store.
    pub fn loss(options: &PostgresOptions) -> Result<Option<String>, JournalError> {
        PostgresStore::open(options.clone())?;
        super::store::ask(options, async |session| {
            let rows = session.query("reading the loss", "SELECT loss FROM bursar_store", &[]);
            rows.await?.first().map(|row| row.get(0)).ok_or_else(storeless)
        })
    }

    /// Accepts that something was lost: the store is served as it is.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn accept_loss(options: &PostgresOptions) -> Result<(), JournalError> {
        super::store::ask(options, async |session| {
            let sql = "UPDATE bursar_store SET loss = NULL, losses_accepted = greatest(
                   losses_accepted + 1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
                 WHERE loss IS NOT NULL";
            session.query("accepting a loss", sql, &[]).await.map(drop)
        })
    }
}

/// Reads the store's note and heads, and finds what was seen and is not there.
async fn compare(
    session: &Session,
    seen: &MachineHeads,
) -> Result<(StoredLoss, Option<String>), JournalError> {
    let machines: Vec<&str> = seen.keys().map(String::as_str).collect();
    let sequences: Vec<i64> = seen.values().map(|head| stored(head.sequence)).collect();
    let rows = session
        .query(
            "comparing the journals with what was seen",
            "SELECT store.loss, store.losses_accepted, head.machine, head.sequence, head.position, head.hash,
               (SELECT hash FROM bursar_batch AS batch
                WHERE batch.machine = seen.machine AND batch.sequence = seen.sequence)
             FROM bursar_store AS store LEFT JOIN bursar_head AS head ON true
               LEFT JOIN unnest($1::text[], $2::bigint[]) AS seen (machine, sequence)
               ON seen.machine = head.machine",
            &[&machines, &sequences],
        )
        .await?;
    let first = rows.first().ok_or_else(storeless)?;
    let mut known =
        StoredLoss { noted: first.get(0), accepted: number(first, 1), heads: MachineHeads::new() };
    let mut at_seen = BTreeMap::new();
    for row in &rows {
        let Some(machine) = row.get::<_, Option<String>>(2) else { continue };
        let sequence = number(row, 3);
        let head = Head { sequence, position: number(row, 4), hash: digest(row, 5, sequence)? };
        if let Some(hash) = row.get::<_, Option<Vec<u8>>>(6) {
            at_seen.insert(machine.clone(), hash);
        }
        known.heads.insert(machine, head);
    }
    let lost = seen.iter().find_map(|(machine, seen)| {
        let lost = lost(seen, known.heads.get(machine), at_seen.get(machine))?;
        Some(format!("{machine}: {lost}"))
    });
    Ok((known, lost))
}

/// What a store lacks: what was seen counts unless a loss was accepted since. A store from before an acceptance that
/// was seen is an older copy, even if its journals go further.
fn counted(lost: Option<String>, known: u64, found: u64) -> Option<String> {
    match found.cmp(&known) {
        Ordering::Greater => None,
        Ordering::Equal => lost,
        Ordering::Less => {
            let older = "it is a copy from before a loss was accepted";
            Some(lost.map_or(older.into(), |lost| format!("{older}; {lost}")))
        }
    }
}

/// What a journal lacks of what was seen. A batch that was sealed since is not compared.
fn lost(seen: &Head, found: Option<&Head>, at_seen: Option<&Vec<u8>>) -> Option<String> {
    let bound = seen.sequence;
    match found {
        _ if bound == 0 => None,
        None => Some(format!("its journal is gone, and batch {bound} was stored")),
        Some(head) if head.sequence < bound => {
            Some(format!("it ends with batch {}, and batch {bound} was stored", head.sequence))
        }
        Some(_) => at_seen
            .is_some_and(|hash| *hash != seen.hash.0)
            .then(|| format!("batch {bound} is not the one that was stored")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::digest::Digest;

    #[test]
    fn a_journal_that_ends_earlier_or_goes_on_from_another_batch_has_lost_something() {
        let head = |sequence, hash| Head { sequence, position: sequence, hash: Digest([hash; 32]) };
        let seen = head(5, 1);
        let (same, other) = (vec![1; 32], vec![2; 32]);
        assert_eq!(lost(&head(0, 0), None, None), None, "nothing was seen");
        assert_eq!(lost(&seen, Some(&head(5, 1)), Some(&same)), None);
        assert_eq!(lost(&seen, Some(&head(9, 3)), Some(&same)), None);
        assert_eq!(lost(&seen, Some(&head(9, 3)), None), None, "it was sealed");
        assert!(lost(&seen, Some(&head(4, 1)), None).is_some());
        assert!(lost(&seen, Some(&head(5, 2)), Some(&other)).is_some());
        assert!(lost(&seen, Some(&head(9, 3)), Some(&other)).is_some());
        assert!(lost(&seen, None, None).is_some());
    }

    #[test]
    fn what_was_seen_counts_until_a_later_acceptance_and_an_older_copy_has_lost_that() {
        let lost = || Some("ledger-0: a batch".to_owned());
        assert_eq!(counted(lost(), 5, 5), lost());
        assert_eq!(counted(None, 5, 5), None);
        assert_eq!(counted(lost(), 5, 6), None, "it was accepted");
        for found in [counted(lost(), 5, 0), counted(None, 5, 0)] {
            assert!(found.is_some_and(|said| said.contains("before a loss was accepted")));
        }
    }
}
