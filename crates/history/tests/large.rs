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
    for (query, index) in [
        (
            "SELECT entry FROM entries e WHERE e.account = 1 AND e.at >= 2
             AND (e.at, e.entry) < (3, 4) ORDER BY e.at DESC, e.entry DESC LIMIT 5",
            "entries_by_account",
        ),
        (
            "SELECT entry FROM entries e WHERE e.spender = 1 AND e.at >= 2
             AND (e.at, e.entry) < (3, 4) ORDER BY e.at DESC, e.entry DESC LIMIT 5",
            "entries_by_spender",
        ),
        (
            "SELECT entry FROM entries e WHERE e.hold = 1 AND e.entry < 4
             ORDER BY e.entry DESC LIMIT 5",
            "entries_by_hold",
        ),
        (
            "SELECT entry FROM entries e WHERE e.at >= 2 AND (e.at, e.entry) < (3, 4)
             ORDER BY e.at DESC, e.entry DESC LIMIT 5",
            "entries_by_time",
        ),
        (
            "SELECT available_after FROM entries WHERE account = 1 AND at <= 2
             ORDER BY at DESC, entry DESC LIMIT 1",
            "entries_by_account",
        ),
        (
            "SELECT path FROM accounts WHERE kind = 1 ORDER BY available DESC LIMIT 2",
            "accounts_by_available",
        ),
    ] {
        let mut statement =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).expect("a plan");
        let plan: Vec<String> = statement
            .query_map([], |row| row.get(3))
            .and_then(Iterator::collect)
            .expect("lines of a plan");
        let plan = plan.join("; ");
        assert!(plan.contains(index), "{plan}");
        assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{plan}");
    }
    drop(connection);
    std::fs::remove_file(&file).expect("it is ours");
}
