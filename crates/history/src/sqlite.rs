//! History in its own SQLite file.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use crate::database::{Database, Row, Value};
use crate::error::HistoryError;
use crate::schema::{SCHEMA_VERSION, TABLES};

/// `application_id` of the file: "BRHI".
const APPLICATION_ID: i64 = 0x4252_4849;
/// The number of cached prepared statements.
const STATEMENTS: usize = 64;
/// Page cache of the writer in KiB. The pages changed by one transaction should fit; otherwise they
/// are written in the middle of it and read again.
const CACHE_KIB: u32 = 32 << 10;
/// Pages in the write-ahead log before a checkpoint, so that pages which change often are moved
/// into the file once.
const LOG_PAGES: u32 = 16_384;

/// One connection to a history file.
pub struct Sqlite {
    connection: Connection,
}

fn failure(doing: &'static str) -> impl Fn(rusqlite::Error) -> HistoryError {
    move |error| {
        let (code, reason) = (error.sqlite_error_code(), error.to_string());
        match code {
            Some(ErrorCode::DiskFull) => HistoryError::Full { doing, reason },
            _ => HistoryError::Storage { doing, reason },
        }
    }
}

impl Sqlite {
    /// Opens or creates the file for writing.
    ///
    /// Syncs are left to checkpoints: after a power loss the file is consistent but may lag behind,
    /// and is fed again from its position.
    pub fn open(path: &Path) -> Result<Sqlite, HistoryError> {
        let connection = Connection::open(path).map_err(failure("opening history"))?;
        let history = Sqlite { connection };
        history.configure()?;
        history.create_or_check()?;
        Ok(history)
    }

    /// Opens the file for queries, beside the writer.
    pub fn open_read_only(path: &Path) -> Result<Sqlite, HistoryError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(failure("opening history"))?;
        let history = Sqlite { connection };
        history.set_up()?;
        history.check(history.version()?)?;
        Ok(history)
    }

    fn set_up(&self) -> Result<(), HistoryError> {
        let connection = &self.connection;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.busy_timeout(Duration::from_secs(5)).map_err(failure("opening history"))?;
        // One query plan for all values. Otherwise a statement with a range is compiled again for
        // each of them.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(failure("opening history"))?;
        Ok(())
    }

    fn configure(&self) -> Result<(), HistoryError> {
        self.set_up()?;
        self.connection
            .execute_batch(&format!(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; \
                 PRAGMA cache_size=-{CACHE_KIB}; PRAGMA wal_autocheckpoint={LOG_PAGES};"
            ))
            .map_err(failure("opening history"))
    }

    fn version(&self) -> Result<(i64, i64), HistoryError> {
        let number = |name: &str| {
            self.connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
                .map_err(failure("reading the version of history"))
        };
        Ok((number("application_id")?, number("user_version")?))
    }

    fn check(&self, found: (i64, i64)) -> Result<(), HistoryError> {
        if found != (APPLICATION_ID, SCHEMA_VERSION) {
            return Err(HistoryError::Refused(
                "the file is not a history of this version: delete it, it will be rebuilt".into(),
            ));
        }
        Ok(())
    }

    fn create_or_check(&self) -> Result<(), HistoryError> {
        let found = self.version()?;
        if found != (0, 0) {
            return self.check(found);
        }
        let sql = format!(
            "BEGIN EXCLUSIVE; {TABLES} PRAGMA application_id={APPLICATION_ID}; \
             PRAGMA user_version={SCHEMA_VERSION}; COMMIT;"
        );
        self.connection.execute_batch(&sql).map_err(failure("creating history"))
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Bytes(value) => ValueRef::Blob(value),
            Value::Hash(value) => ValueRef::Blob(value),
            Value::Sum(value) => ValueRef::Blob(value),
        }))
    }
}

fn value(found: ValueRef<'_>) -> rusqlite::Result<Value> {
    Ok(match found {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Text(value) => Value::Text(String::from_utf8_lossy(value).into()),
        ValueRef::Blob(value) => Value::Bytes(value.to_vec()),
        ValueRef::Real(_) => {
            let kind = rusqlite::types::Type::Real;
            return Err(rusqlite::Error::InvalidColumnType(0, "a column".into(), kind));
        }
    })
}

impl Database for Sqlite {
    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<(), HistoryError> {
        let run = || self.connection.prepare_cached(sql)?.execute(params_from_iter(values));
        run().map(|_| ()).map_err(failure("writing history"))
    }

    fn execute_each<const N: usize>(
        &self,
        sql: &'static str,
        rows: &[[Value; N]],
    ) -> Result<(), HistoryError> {
        let run = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            rows.iter().try_for_each(|row| statement.execute(params_from_iter(row)).map(drop))
        };
        run().map_err(failure("writing history"))
    }

    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, HistoryError> {
        let run = || {
            let mut statement = self.connection.prepare_cached(sql)?;
            let columns = statement.column_count();
            let rows = statement.query_map(params_from_iter(values), |row| {
                (0..columns).map(|column| value(row.get_ref(column)?)).collect::<Result<Row, _>>()
            })?;
            rows.collect::<rusqlite::Result<Vec<Row>>>()
        };
        run().map_err(failure("reading history"))
    }

    fn begin_read(&self) -> Result<(), HistoryError> {
        self.execute("BEGIN DEFERRED", &[])
    }

    fn begin(&self) -> Result<(), HistoryError> {
        self.execute("BEGIN IMMEDIATE", &[])
    }

    fn commit(&self) -> Result<(), HistoryError> {
        self.execute("COMMIT", &[])
    }

    fn rollback(&self) -> Result<(), HistoryError> {
        self.execute("ROLLBACK", &[])
    }
}
