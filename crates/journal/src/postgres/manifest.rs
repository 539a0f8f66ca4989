//! The manifest of a database: the identity of the store, its machines, and a batch that each
//! journal must contain. It is checked before anything is written, and never recreated.

use tokio_postgres::Row;

use super::schema::{has_segments, number, storeless};
use super::session::Session;
use crate::chain::JournalId;
use crate::error::JournalError;

/// The newest format of the manifest that this build reads.
const FORMAT: i32 = 1;
/// How an operator can fix an incomplete database.
const REMEDY: &str = "Nothing was changed. Put back the tables as they were, or restore the last \
     backup into an empty database: bursar admin restore BACKUP --store URL";

/// The error for something that is wrong, with how to fix it.
pub(super) fn refused(what: &str, reason: &str) -> JournalError {
    JournalError::Refused(format!("{what}: {reason}. {REMEDY}"))
}

/// The row of the store.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreState {
    /// The base of the agents' incarnation numbers.
    pub(super) incarnation_base: u32,
    /// Whether the last leader stopped cleanly and every journal ends where that leader left it.
    pub(super) clean: bool,
}

/// Every machine that is listed or has a journal, in one statement, because another server may
/// append meanwhile.
const MACHINES: &str = "
SELECT machine, listed.store, listed.journal, listed.sequence, listed.hash,
       made.journal, head.sequence, head.hash,
       EXISTS (SELECT FROM bursar_lease AS lease WHERE lease.machine = made.machine),
       (SELECT hash FROM bursar_batch AS batch
        WHERE batch.machine = made.machine AND batch.sequence = listed.sequence),
       EXISTS (SELECT FROM bursar_batch AS batch
               WHERE batch.machine = made.machine AND batch.sequence = head.sequence),
       coalesce((SELECT min(sequence) FROM bursar_batch AS batch
                 WHERE batch.machine = made.machine), 0),
       coalesce((SELECT max(sequence) FROM bursar_batch AS batch
                 WHERE batch.machine = made.machine), 0),
       store.store, store.format, store.incarnation_base, store.clean, SEALED
FROM bursar_store AS store LEFT JOIN (
  bursar_machine AS listed FULL JOIN bursar_journal AS made USING (machine)
  LEFT JOIN bursar_head AS head USING (machine))
ON $1::text IS NULL OR machine = $1
ORDER BY machine";

/// The last sealed batch of a machine, in place of `SEALED` above.
const SEALED: &str = "coalesce((SELECT max(last) FROM bursar_segment AS segment
                                WHERE segment.machine = made.machine), 0)";

/// One row of [`MACHINES`].
struct MachineRow {
    name: String,
    listed: Option<Listed>,
    journal: Option<Vec<u8>>,
    head: Option<(u64, Vec<u8>)>,
    has_lease: bool,
    at_bound: Option<Vec<u8>>,
    has_last: bool,
    first: u64,
    last: u64,
    sealed: u64,
}

/// The manifest's entry of a machine.
struct Listed {
    store: Vec<u8>,
    journal: Vec<u8>,
    sequence: u64,
    hash: Vec<u8>,
}

impl MachineRow {
    fn read(row: &Row) -> Option<MachineRow> {
        let count = |column: usize| row.get::<_, Option<i64>>(column).map(i64::cast_unsigned);
        let bytes = |column: usize| row.get::<_, Option<Vec<u8>>>(column);
        let listed = || {
            Some(Listed {
                store: bytes(1)?,
                journal: bytes(2)?,
                sequence: count(3)?,
                hash: bytes(4)?,
            })
        };
        Some(MachineRow {
            name: row.get::<_, Option<String>>(0)?,
            listed: listed(),
            journal: bytes(5),
            head: count(6).zip(bytes(7)),
            has_lease: row.get(8),
            at_bound: bytes(9),
            has_last: row.get(10),
            first: number(row, 11),
            last: number(row, 12),
            sealed: number(row, 17),
        })
    }

    /// What is wrong with the machine, if anything.
    fn fault(&self, store: &[u8]) -> Option<String> {
        let Some(listed) = &self.listed else {
            return Some(
                "it is not of this store: the table bursar_machine does not name it".into(),
            );
        };
        if listed.store != store {
            let (found, wanted) = (hex(&listed.store), hex(store));
            return Some(format!("it is of store {found}, and this is store {wanted}"));
        }
        let Some(journal) = &self.journal else {
            return Some("its journal is missing from the table bursar_journal".into());
        };
        if *journal != listed.journal {
            let (found, wanted) = (hex(journal), hex(&listed.journal));
            return Some(format!("it is journal {found}, and {wanted} belongs here"));
        }
        let Some((head, _)) = &self.head else {
            return Some("its head is missing from the table bursar_head".into());
        };
        if !self.has_lease {
            return Some("its lease is missing from the table bursar_lease".into());
        }
        self.batches_fault(*head, listed)
    }

    fn batches_fault(&self, head: u64, listed: &Listed) -> Option<String> {
        let bound = listed.sequence;
        if head < bound {
            return Some(format!(
                "it ends with batch {head}, and batch {bound} was stored: it is an older copy"
            ));
        }
        if self.last > head {
            return Some(format!(
                "its head is at batch {head}, and batch {} is stored: the head is an older copy",
                self.last
            ));
        }
        if head > 0 && !self.has_last {
            return Some(format!("batch {head} is missing from the table bursar_batch"));
        }
        let next = self.sealed + 1;
        if head > 0 && self.first > next {
            return Some(format!("batch {next} is missing from the table bursar_batch"));
        }
        match &self.at_bound {
            None if bound > 0 => {
                Some(format!("batch {bound} is missing from the table bursar_batch"))
            }
            Some(hash) if *hash != listed.hash => {
                Some(format!("batch {bound} is not the one that was stored here"))
            }
            _ => None,
        }
    }

    /// Whether the journal ends where the manifest says.
    fn is_where_it_was_left(&self) -> bool {
        let head = self.head.as_ref().map(|(head, hash)| (*head, hash));
        head == self.listed.as_ref().map(|listed| (listed.sequence, &listed.hash))
    }
}

fn hex(bytes: &[u8]) -> String {
    match <[u8; 16]>::try_from(bytes) {
        Ok(id) => JournalId(id).to_string(),
        Err(_) => "that cannot be read".to_owned(),
    }
}

/// Rejects a database in which rows of a machine are missing, emptied, truncated, foreign or older
/// than they were: of the machine `only`, or of all. Writes nothing.
pub(super) async fn check(
    session: &Session,
    only: Option<&str>,
) -> Result<StoreState, JournalError> {
    let sealed = if has_segments(session).await? { SEALED } else { "0::bigint" };
    let machines = MACHINES.replace("SEALED", sealed);
    let rows = session.query("reading the manifest", &machines, &[&only]).await?;
    let first = rows.first().ok_or_else(storeless)?;
    let (store, format): (Vec<u8>, i32) = (first.get(13), first.get(14));
    if format > FORMAT {
        return Err(JournalError::Refused(format!(
            "the manifest of this database has format {format}; this build knows format {FORMAT}. \
             Use a newer build"
        )));
    }
    let mut clean: bool = first.get(16);
    for machine in rows.iter().filter_map(MachineRow::read) {
        if let Some(reason) = machine.fault(&store) {
            return Err(refused(&machine.name, &reason));
        }
        clean &= machine.is_where_it_was_left();
    }
    check_count(session).await?;
    let incarnation_base = u32::try_from(first.get::<_, i64>(15)).unwrap_or(u32::MAX);
    Ok(StoreState { incarnation_base, clean })
}

/// The public key that signs the checkpoints of the store, in hex, once it is known.
pub(super) async fn signer(session: &Session) -> Result<Option<String>, JournalError> {
    let rows =
        session.query("reading the manifest", "SELECT signer FROM bursar_store", &[]).await?;
    rows.first().map(|row| row.get(0)).ok_or_else(storeless)
}

/// Rejects a database that has fewer journals than were created.
pub(super) async fn check_count(session: &Session) -> Result<(), JournalError> {
    let rows = session
        .query(
            "counting the journals",
            "SELECT journals, (SELECT count(*) FROM bursar_journal) FROM bursar_store",
            &[],
        )
        .await?;
    let row = rows.first().ok_or_else(storeless)?;
    let (created, left) = (number(row, 0), number(row, 1));
    if left >= created {
        return Ok(());
    }
    let reason = format!(
        "{created} journals were created in this database and {left} are left: tables were emptied"
    );
    Err(refused("bursar_journal", &reason))
}
