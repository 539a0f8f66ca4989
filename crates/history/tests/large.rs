//! Lists of a large account are read by key: the database never sorts and never scans.

use std::path::PathBuf;

use bursar_history::Sqlite;

/// The plans of the lists and look-ups that must stay quick however long the account is.
#[test]
fn no_list_sorts_or_scans_a_whole_table() {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    let name = format!("bursar-plan-{:016x}.db", u64::from_le_bytes(bytes));
    let file: PathBuf = std::env::temp_dir().join(name);
    drop(Sqlite::open(&file).expect("a new file"));
    let connection = rusqlite::Connection::open(&file).expect("the file is there");
    // The last one sorts, but only accounts that are as large as the k-th.
    for (query, found_by, sorts) in [
        (
            "SELECT first, numbers FROM lists WHERE list = 1 AND first < 2
             ORDER BY first DESC LIMIT 3",
            "USING PRIMARY KEY (list=? AND first<?)",
            false,
        ),
        (
            "SELECT a.path, g.name, h.name, j.name, s.path FROM accounts a
             LEFT JOIN grants g ON g.number = 2
             LEFT JOIN holds h ON h.hold = 3
             LEFT JOIN jobs j ON j.number = h.job
             LEFT JOIN accounts s ON s.number = 4 WHERE a.number = 1",
            "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)",
            false,
        ),
        (
            "SELECT first, block FROM entries WHERE first <= 1 ORDER BY first DESC LIMIT 2",
            "SEARCH entries USING INTEGER PRIMARY KEY (rowid<?)",
            false,
        ),
        (
            "SELECT first, block FROM decisions WHERE first > 1 ORDER BY first LIMIT 1",
            "SEARCH decisions USING INTEGER PRIMARY KEY (rowid>?)",
            false,
        ),
        (
            "SELECT position, item FROM record_jobs WHERE job = 1 AND (position, item) < (2, 3)
             ORDER BY position DESC, item DESC LIMIT 4",
            "USING PRIMARY KEY (job=? AND (position,item)<(?,?))",
            false,
        ),
        (
            "SELECT available_class FROM accounts WHERE kind = 1
             ORDER BY available_class DESC LIMIT 2",
            "USING COVERING INDEX accounts_by_available (kind=?)",
            false,
        ),
        (
            "SELECT path, available FROM accounts WHERE kind = 1 AND available_class >= 2
             ORDER BY available DESC, number LIMIT 3",
            "USING INDEX accounts_by_available (kind=? AND available_class>?)",
            true,
        ),
    ] {
        let mut statement =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).expect("a plan");
        let plan: Vec<String> = statement
            .query_map([], |row| row.get(3))
            .and_then(Iterator::collect)
            .expect("lines of a plan");
        let plan = plan.join("; ");
        assert!(plan.contains(found_by), "{plan}");
        assert_eq!(plan.contains("TEMP B-TREE"), sorts, "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
    drop(connection);
    std::fs::remove_file(&file).expect("it is ours");
}
