//! Whether a server may hold a journal: it loses nothing that it acknowledged, and the role has the rights of an
//! owner.

use super::PostgresOptions;
use super::manifest;
use super::session::Session;
use crate::error::JournalError;

/// Rejects a server that may lose acknowledged data.
pub(super) async fn check_server(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let rows = session
        .query(
            "reading the server's settings",
            "SELECT pg_is_in_recovery(), current_setting('fsync') = 'on',
                    current_setting('full_page_writes') = 'on',
                    current_setting('synchronous_standby_names') <> '',
                    current_setting('synchronous_commit') IN ('on', 'remote_apply')",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else {
        return Err(JournalError::storage("reading the server's settings", "no answer"));
    };
    let refuse = |reason: &str| Err(JournalError::Refused(reason.to_owned()));
    if row.get(0) {
        return refuse("the server is a standby: connect to the primary");
    }
    if !row.get::<_, bool>(1) || !row.get::<_, bool>(2) {
        return refuse("the server runs with fsync or full_page_writes off: switch both on");
    }
    if !row.get::<_, bool>(3) && !options.unsafe_single {
        return refuse(
            "the server has no synchronous standby, so its loss would lose acknowledged credits: \
             set synchronous_standby_names, or accept the risk with --unsafe-single-postgres",
        );
    }
    if !row.get::<_, bool>(4) {
        return refuse(
            "synchronous_commit is weaker than `on`: a pooler must keep session settings",
        );
    }
    Ok(())
}

/// Rejects a role without the rights of an owner, and missing tables.
pub(super) async fn check_rights(session: &Session) -> Result<(), JournalError> {
    let rows = session
        .query(
            "reading the role's rights",
            "SELECT to_regclass(name) IS NULL, name, need, current_user::text
             FROM (VALUES
               ('bursar_journal', 'SELECT'), ('bursar_journal', 'INSERT'),
               ('bursar_head', 'SELECT'), ('bursar_head', 'INSERT'), ('bursar_head', 'UPDATE'),
               ('bursar_lease', 'SELECT'), ('bursar_lease', 'INSERT'), ('bursar_lease', 'UPDATE'),
               ('bursar_store', 'SELECT'), ('bursar_store', 'UPDATE'),
               ('bursar_member', 'SELECT'), ('bursar_member', 'INSERT'),
               ('bursar_member', 'UPDATE'), ('bursar_member', 'DELETE'),
               ('bursar_machine', 'SELECT'), ('bursar_machine', 'INSERT'),
               ('bursar_machine', 'UPDATE'),
               ('bursar_batch', 'SELECT'), ('bursar_batch', 'INSERT'), ('bursar_batch', 'DELETE'),
               ('bursar_sealing', 'SELECT'), ('bursar_sealing', 'INSERT'),
               ('bursar_sealing', 'UPDATE'),
               ('bursar_segment', 'SELECT'), ('bursar_segment', 'INSERT'),
               ('bursar_segment_part', 'SELECT'), ('bursar_segment_part', 'INSERT'),
               ('bursar_segment_part', 'UPDATE'), ('bursar_segment_part', 'DELETE'),
               ('bursar_snapshot', 'SELECT'), ('bursar_snapshot', 'INSERT'),
               ('bursar_snapshot', 'UPDATE'), ('bursar_snapshot', 'DELETE'),
               ('bursar_archive', 'SELECT'), ('bursar_archive', 'INSERT'),
               ('bursar_archive', 'UPDATE'),
               ('bursar_archive_block', 'SELECT'), ('bursar_archive_block', 'INSERT'),
               ('bursar_archive_block', 'DELETE'),
               ('bursar_archive_run', 'SELECT'), ('bursar_archive_run', 'INSERT'),
               ('bursar_archive_run', 'UPDATE'), ('bursar_archive_run', 'DELETE'),
               ('bursar_archive_page', 'SELECT'), ('bursar_archive_page', 'INSERT'),
               ('bursar_archive_page', 'DELETE'),
               ('bursar_archive_filter', 'SELECT'), ('bursar_archive_filter', 'INSERT'),
               ('bursar_archive_filter', 'UPDATE'), ('bursar_archive_filter', 'DELETE'))
               AS wanted (name, need)
             WHERE NOT coalesce(has_table_privilege(to_regclass(name), need), false) LIMIT 1",
            &[],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(()) };
    let (gone, table, right, role): (bool, String, String, String) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    Err(if gone {
        manifest::refused(&table, "the table is missing")
    } else {
        JournalError::Refused(format!(
            "the role {role} lacks {right} on {table}: grant it, or make it the owner"
        ))
    })
}

/// The checks of [`prepare`], repeated while the journal is in use: settings and rights can change
/// under a running server.
pub(super) async fn check_running(
    session: &Session,
    options: &PostgresOptions,
) -> Result<(), JournalError> {
    let checked = async {
        check_server(session, options).await?;
        check_rights(session).await
    };
    checked.await.map_err(|error| match error {
        JournalError::Refused(reason) => JournalError::Unfit(reason),
        other => other,
    })
}
