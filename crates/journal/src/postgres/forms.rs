//! The form of what is stored: which kinds of records, tables and snapshots a store may contain. A server reads forms
//! up to the newest that it knows, and says so among the members. Opening a store never raises its form: `raise` does,
//! once every member that runs can read the next one.

use std::time::Duration;

use super::PostgresOptions;
use super::leader::PostgresLeader;
use super::members::{GONE_AFTER_SECONDS, MemberChange};
use super::schema::{apply_missing, begin_alone, end, storeless, version};
use super::session::Session;
use crate::error::JournalError;

/// The newest form that this build reads. Form 0 is that of builds which do not say what they read.
///
/// A build that stores something which earlier ones cannot read has one more, and stores it only in a store of that
/// form. Its tables are changed when the form is raised.
pub const NEWEST_FORM: u32 = 1;
/// The version of the tables since which members say which form they read, and the oldest that this build uses.
pub(super) const FORMS_SINCE: usize = 12;

/// The form of the store. Tables of earlier builds have form 0.
pub(super) async fn stored_form(session: &Session) -> Result<u32, JournalError> {
    let sql = "SELECT form FROM bursar_store";
    let rows = session.query("reading the form of the store", sql, &[]).await?;
    let form: i32 = rows.first().map(|row| row.get(0)).ok_or_else(storeless)?;
    Ok(u32::try_from(form).unwrap_or(u32::MAX))
}

/// Refuses a store that may contain what this build cannot read.
pub(super) async fn check(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let stored = stored_form(session).await?;
    too_old(stored, options.newest_form).map_or(Ok(()), |reason| Err(JournalError::Refused(reason)))
}

/// Why a server that reads forms up to `newest` does not use a store of form `stored`, if it does not.
pub(super) fn too_old(stored: u32, newest: u32) -> Option<String> {
    (stored > newest).then(|| {
        format!(
            "the store has form {stored}, and this server reads forms up to {newest}: the form was raised by `bursar \
             cluster upgrade`. Start a newer build"
        )
    })
}

/// Rejects tables that must be changed while a server runs that may not know them.
pub(super) async fn check_members_gone(session: &Session) -> Result<(), JournalError> {
    let rows = session
        .query(
            "looking for members",
            "SELECT string_agg(member || ' (build ' || build || ')', ', ' ORDER BY member)
             FROM bursar_member WHERE seen >= clock_timestamp() - make_interval(secs => $1)",
            &[&GONE_AFTER_SECONDS],
        )
        .await?;
    let Some(members) = rows.first().and_then(|row| row.get::<_, Option<String>>(0)) else {
        return Ok(());
    };
    Err(JournalError::Refused(format!(
        "the tables must be changed, and servers of an earlier build use them: {members}. Nothing was changed. Stop \
         those servers, and start this one again; one that was killed counts for 15 seconds"
    )))
}

impl PostgresLeader {
    /// Raises the form of the store to the newest that any member which runs can read, if all of them can and this
    /// build can.
    ///
    /// # Errors
    /// The store does not answer within that time.
    pub fn raise(&self, within: Duration) -> Result<MemberChange, JournalError> {
        self.ask(within, async |session, options| {
            begin_alone(session).await?;
            let raised = raise(session, options.newest_form).await;
            end(session, raised).await
        })
    }
}

async fn raise(session: &Session, newest: u32) -> Result<MemberChange, JournalError> {
    // A claim of the lead by a member that was not seen here checks the form after this.
    let rows = session
        .query(
            "comparing the members",
            "WITH running AS MATERIALIZED (
               SELECT member, build, form FROM bursar_member
               WHERE seen >= clock_timestamp() - make_interval(secs => $1)),
             newest AS (SELECT max(form) AS form FROM running)
             SELECT coalesce((SELECT form FROM newest), 0),
               (SELECT string_agg(member || ' (build ' || build || ', up to form ' || running.form || ')', ', '
                  ORDER BY member)
                FROM running, newest WHERE running.form < newest.form)",
            &[&GONE_AFTER_SECONDS],
        )
        .await?;
    let row = rows.first().ok_or_else(storeless)?;
    let (next, held_back): (i32, Option<String>) = (row.get(0), row.get(1));
    if let Some(members) = held_back {
        return Ok(MemberChange::Refused(format!(
            "form {next} of the store cannot be read by {members}: start a newer build of each, or stop it; a member \
             that was killed counts for 15 seconds"
        )));
    }
    let has_form = version(session).await?.is_some_and(|known| known >= FORMS_SINCE);
    if has_form && i64::from(stored_form(session).await?) >= i64::from(next) {
        return Ok(MemberChange::Done);
    }
    if i64::from(next) != i64::from(newest) {
        return Ok(MemberChange::Refused(format!(
            "this server reads forms of the store up to {newest}, and the members up to {next}: ask one of them"
        )));
    }
    apply_missing(session, 0).await?;
    let sql = "UPDATE bursar_store SET form = $1 WHERE form < $1";
    session.query("raising the form of the store", sql, &[&next]).await?;
    Ok(MemberChange::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_a_newer_form_is_refused_with_the_way_out() {
        assert_eq!(too_old(1, 1), None);
        assert_eq!(too_old(0, 1), None);
        let said = too_old(2, 1).expect("it is newer");
        assert!(said.contains("form 2") && said.contains("Start a newer build"), "{said}");
    }
}
