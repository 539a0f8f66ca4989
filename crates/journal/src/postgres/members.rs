//! The members: the servers that share a store, as the store's table names them. There is no other list and no
//! protocol between them.
//!
//! A member writes its row with every claim or renewal of the lead. Whether it is seen is decided by the store's
//! clock alone.

use std::time::Duration;

use tokio_postgres::Row;

use super::forms::{stored_form, too_old};
use super::leader::PostgresLeader;
use super::schema::{number, schema_version};
use super::session::Session;
use crate::error::JournalError;

/// A member that was not seen for this long is gone.
pub(super) const GONE_AFTER_SECONDS: f64 = 15.0;
/// A member that was not seen for this long is removed from the table.
const FORGOTTEN_AFTER_SECONDS: f64 = 24.0 * 3600.0;

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The name of the member.
    pub name: String,
    /// The random id of this start, under which it holds leases.
    pub start: String,
    /// The URL at which other members reach it.
    pub url: String,
    /// The version of its program.
    pub build: String,
}

/// What the store says of a member that announced itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStanding {
    /// Whether it shall own nothing.
    pub draining: bool,
    /// Whether another member could own what it owns: it was seen and is not draining.
    pub has_successor: bool,
    /// Whether another process that still runs uses the same name.
    pub has_namesake: bool,
    /// Why it must not own anything: the store may contain what it cannot read.
    pub too_old: Option<String>,
}

/// The state of a member.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It may own machines.
    Active,
    /// It owns nothing while another member can.
    Draining,
    /// It was not seen for 15 seconds.
    Gone,
}

/// A row of the table of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownMember {
    /// The name of the member.
    pub name: String,
    /// The random id of its start.
    pub start: String,
    /// The URL at which other members reach it.
    pub url: String,
    /// The version of its program.
    pub build: String,
    /// The newest form of a store that it reads.
    pub form: u32,
    /// Its state.
    pub state: MemberState,
    /// When it was last seen, in milliseconds since 1970 of the store's clock.
    pub seen_ms: i64,
}

/// A machine and the start that owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedMachine {
    /// The name of the machine.
    pub name: String,
    /// The start that has its lease; `None` if the lease is free or has expired.
    pub owner: Option<String>,
    /// The epoch of the lease.
    pub epoch: u64,
    /// The last record of its journal.
    pub position: u64,
}

/// The members and machines of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Membership {
    /// The version of the tables.
    pub version: u64,
    /// The form of what is stored.
    pub form: u32,
    /// The members, by name.
    pub members: Vec<KnownMember>,
    /// The machines, by name.
    pub machines: Vec<OwnedMachine>,
}

/// What became of a request to change a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It is done, or was the case before.
    Done,
    /// There is no such member.
    Unknown,
    /// The state of the members does not allow it.
    Refused(String),
}

const NO_SUCCESSOR: &str =
    "no other member could own its machines: start or resume another one first";
const NOT_GONE: &str =
    "it is running: drain it and stop it first; a member is gone 15 seconds after it was last seen";

impl PostgresLeader {
    /// Writes the member's row. Not replicated synchronously: a lost row is written again a moment later, and members
    /// must not wait for a missing standby.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn announce(
        &self,
        member: &Announcement,
        within: Duration,
    ) -> Result<MemberStanding, JournalError> {
        self.ask(within, async |session, options| {
            announce(session, member, options.newest_form).await
        })
    }

    /// Removes the row of a member that ends, unless it is draining: that lasts until it is resumed.
    ///
    /// # Errors
    /// The store does not answer. The row then stays until it is old.
    pub fn leave(&self, start: &str, within: Duration) -> Result<(), JournalError> {
        let work = async |session: &Session| {
            let sql = "DELETE FROM bursar_member WHERE start = $1 AND NOT draining";
            session.query("leaving the members", sql, &[&start]).await
        };
        self.ask(within, async |session, _| work(session).await).map(drop)
    }

    /// The members and machines.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn membership(&self, within: Duration) -> Result<Membership, JournalError> {
        self.ask(within, async |session, _| membership(session).await)
    }

    /// Sets whether a member is draining. The last member that could own machines is not drained.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn set_draining(
        &self,
        name: &str,
        draining: bool,
        within: Duration,
    ) -> Result<MemberChange, JournalError> {
        self.ask(within, async |session, _| set_draining(session, name, draining).await)
    }

    /// Removes a member that is gone.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn evict(&self, name: &str, within: Duration) -> Result<MemberChange, JournalError> {
        self.ask(within, async |session, _| evict(session, name).await)
    }
}

async fn announce(
    session: &Session,
    member: &Announcement,
    newest_form: u32,
) -> Result<MemberStanding, JournalError> {
    let Announcement { name, start, url, build } = member;
    let rows = session
        .query(
            "announcing this member",
            "WITH quiet AS MATERIALIZED (
               SELECT set_config('synchronous_commit', 'local', true) AS setting),
             others AS MATERIALIZED (
               SELECT coalesce(bool_or(member <> $1 AND NOT draining
                        AND form >= (SELECT form FROM bursar_store)
                        AND seen >= clock_timestamp() - make_interval(secs => $5)), false) AS able,
                      coalesce(bool_or(member = $1 AND start <> $2
                        AND seen >= clock_timestamp() - make_interval(secs => $5 / 3)), false) AS same
               FROM bursar_member),
             old AS (
               DELETE FROM bursar_member WHERE member <> $1
                 AND seen < clock_timestamp() - make_interval(secs => $6)),
             written AS (
               INSERT INTO bursar_member AS known (member, start, url, build, form, draining, seen)
               SELECT $1, $2, $3, $4, $7::bigint, false, clock_timestamp() FROM quiet
               ON CONFLICT (member) DO UPDATE
               SET start = excluded.start, url = excluded.url, build = excluded.build,
                   form = excluded.form, seen = excluded.seen
               RETURNING draining)
             SELECT draining, able, same, bursar_store.form FROM written, others, bursar_store",
            &[
                name, start, url, build, &GONE_AFTER_SECONDS, &FORGOTTEN_AFTER_SECONDS,
                &i64::from(newest_form),
            ],
        )
        .await?;
    let row = rows.first().ok_or_else(memberless)?;
    Ok(MemberStanding {
        draining: row.get(0),
        has_successor: row.get(1),
        has_namesake: row.get(2),
        too_old: too_old(form_in(row, 3), newest_form),
    })
}

fn form_in(row: &Row, column: usize) -> u32 {
    u32::try_from(row.get::<_, i32>(column)).unwrap_or(u32::MAX)
}

fn memberless() -> JournalError {
    JournalError::Damaged { part: "members", reason: "no row was written".into() }
}

async fn membership(session: &Session) -> Result<Membership, JournalError> {
    let doing = "reading the members";
    let members = session
        .query(
            doing,
            "SELECT member, start, url, build,
               seen < clock_timestamp() - make_interval(secs => $1), draining,
               floor(extract(epoch FROM seen) * 1000)::bigint, form
             FROM bursar_member ORDER BY member",
            &[&GONE_AFTER_SECONDS],
        )
        .await?;
    let members = members.iter().map(|row| KnownMember {
        name: row.get(0),
        start: row.get(1),
        url: row.get(2),
        build: row.get(3),
        form: form_in(row, 7),
        state: match (row.get(4), row.get(5)) {
            (true, _) => MemberState::Gone,
            (false, true) => MemberState::Draining,
            (false, false) => MemberState::Active,
        },
        seen_ms: row.get(6),
    });
    let members = members.collect();
    let machines = session
        .query(
            doing,
            "SELECT machine, CASE WHEN until >= clock_timestamp() THEN nullif(holder, '') END,
               lease.epoch, position
             FROM bursar_lease AS lease JOIN bursar_head USING (machine) ORDER BY machine",
            &[],
        )
        .await?;
    let machines = machines.iter().map(|row| OwnedMachine {
        name: row.get(0),
        owner: row.get(1),
        epoch: number(row, 2),
        position: number(row, 3),
    });
    let machines = machines.collect();
    let version = schema_version(session).await?;
    let form = stored_form(session).await?;
    Ok(Membership { version, form, members, machines })
}

async fn set_draining(
    session: &Session,
    name: &str,
    draining: bool,
) -> Result<MemberChange, JournalError> {
    // All rows are locked in one order, so that of two drains at once the second sees the first.
    let changed = session
        .query(
            "changing a member",
            "WITH locked AS MATERIALIZED (
               SELECT member, draining, seen, form FROM bursar_member ORDER BY member FOR UPDATE),
             able AS MATERIALIZED (
               SELECT coalesce(bool_or(member <> $1 AND NOT draining
                        AND form >= (SELECT form FROM bursar_store)
                        AND seen >= clock_timestamp() - make_interval(secs => $3)), false) AS other,
                      coalesce(bool_or(member = $1), false) AS there,
                      coalesce(bool_or(member = $1 AND draining), false) AS before
               FROM locked),
             changed AS (
               UPDATE bursar_member SET draining = $2 FROM able
               WHERE member = $1 AND (NOT $2 OR able.before OR able.other) RETURNING member)
             SELECT there, EXISTS (SELECT FROM changed) FROM able",
            &[&name, &draining, &GONE_AFTER_SECONDS],
        )
        .await?;
    Ok(match changed.first().map(|row| (row.get(0), row.get(1))) {
        Some((true, true)) => MemberChange::Done,
        Some((true, false)) => MemberChange::Refused(NO_SUCCESSOR.into()),
        Some((false, _)) | None => MemberChange::Unknown,
    })
}

async fn evict(session: &Session, name: &str) -> Result<MemberChange, JournalError> {
    let rows = session
        .query(
            "removing a member",
            "WITH found AS MATERIALIZED (
               SELECT member, seen < clock_timestamp() - make_interval(secs => $2) AS gone
               FROM bursar_member WHERE member = $1 FOR UPDATE),
             removed AS (
               DELETE FROM bursar_member USING found
               WHERE bursar_member.member = found.member AND gone RETURNING found.member)
             SELECT EXISTS (SELECT FROM found), EXISTS (SELECT FROM removed)",
            &[&name, &GONE_AFTER_SECONDS],
        )
        .await?;
    Ok(match rows.first().map(|row| (row.get(0), row.get(1))) {
        Some((true, true)) => MemberChange::Done,
        Some((true, false)) => MemberChange::Refused(NOT_GONE.into()),
        Some((false, _)) | None => MemberChange::Unknown,
    })
}
