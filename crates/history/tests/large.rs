//! Lists of a large account are read by key: the database never sorts and never scans.

use std::path::PathBuf;

use bursar_history::Sqlite;

/// Query plans of the lists and look-ups whose cost must not grow with the account.
#[test]
fn no_list_sorts_or_scans_a_whole_table() {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system gives random bytes");
    let name = format!("bursar-plan-{:016x}.db", u64::from_le_bytes(bytes));
    let file: PathBuf = std::env::temp_dir().join(name);
    drop(Sqlite::open(&file).expect("a new file"));
    let connection = rusqlite::Connection::open(&file).expect("the file is there");
    // Only top lists sort, and only the accounts with at least the class of the k-th.
    for (query, found_by) in [
        (
            "SELECT first, numbers FROM lists WHERE list = 1 AND first < 2
             ORDER BY first DESC LIMIT 3",
            "USING PRIMARY KEY (list=? AND first<?)",
        ),
        (
            "SELECT a.path, g.name, h.name, j.name, s.path FROM accounts a
             LEFT JOIN grants g ON g.number = 2
             LEFT JOIN holds h ON h.hold = 3
             LEFT JOIN jobs j ON j.number = h.job
             LEFT JOIN accounts s ON s.number = 4 WHERE a.number = 1",
            "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)",
        ),
        (
            "SELECT first, block FROM entries WHERE first <= 1 ORDER BY first DESC LIMIT 2",
            "SEARCH entries USING INTEGER PRIMARY KEY (rowid<?)",
        ),
        (
            "SELECT first, block FROM decisions WHERE first > 1 ORDER BY first LIMIT 1",
            "SEARCH decisions USING INTEGER PRIMARY KEY (rowid>?)",
        ),
        (
            "SELECT position, item FROM record_jobs WHERE job = 1 AND (position, item) < (2, 3)
             ORDER BY position DESC, item DESC LIMIT 4",
            "USING PRIMARY KEY (job=? AND (position,item)<(?,?))",
        ),
        (
            "SELECT available_class FROM accounts WHERE kind = 1
             ORDER BY available_class DESC LIMIT 2",
            "USING COVERING INDEX accounts_by_available (kind=?)",
        ),
        (
            "SELECT path, available FROM accounts a
             JOIN account_states s ON s.number = a.number
             WHERE kind = 1 AND available_class >= 2
             ORDER BY available DESC, a.number LIMIT 3",
            "USING INDEX accounts_by_available (kind=? AND available_class>?)",
        ),
        (
            "SELECT account, usage, NULL FROM usage_hours
             WHERE kind = 1 AND hour >= 2 AND hour <= 3
             UNION ALL SELECT a.number, NULL, rest FROM accounts a
             JOIN account_states s ON s.number = a.number
             WHERE kind = 1 AND hour >= 2 AND hour <= 3",
            "USING COVERING INDEX accounts_by_hour (kind=? AND hour>? AND hour<?)",
        ),
        (
            "SELECT hour, usage, NULL FROM usage_hours
             WHERE account = 1 AND hour >= 2 AND hour <= 3
             UNION ALL SELECT hour, NULL, rest FROM accounts a
             JOIN account_states s ON s.number = a.number
             WHERE a.number = 1 AND hour >= 2 AND hour <= 3 ORDER BY hour",
            "USING INDEX usage_by_account (account=? AND hour>? AND hour<?)",
        ),
        (
            "SELECT account, expired, grants, length, at, levels FROM buckets
             LEFT JOIN bucket_levels ON bucket = number
             WHERE number = 1 ORDER BY at DESC LIMIT 1",
            "SEARCH bucket_levels USING PRIMARY KEY (bucket=?)",
        ),
        (
            "SELECT b.terms, l.at, l.levels FROM buckets b
             JOIN bucket_levels l ON l.bucket = b.number AND l.at =
               (SELECT max(at) FROM bucket_levels WHERE bucket = b.number AND at <= 2)
             WHERE b.account = 1 ORDER BY b.number",
            "SEARCH l USING PRIMARY KEY (bucket=? AND at=?)",
        ),
        (
            "SELECT hold, record, digest FROM holds WHERE tenant = 1 AND kind = 2 AND name = 'a'
             ORDER BY hold DESC LIMIT 1",
            "USING INDEX holds_by_name (tenant=? AND kind=? AND name=?)",
        ),
        ("SELECT hold, entries FROM holds WHERE job = 1", "USING INDEX holds_by_job (job=?)"),
    ] {
        let mut statement =
            connection.prepare(&format!("EXPLAIN QUERY PLAN {query}")).expect("a plan");
        let plan: Vec<String> = statement
            .query_map([], |row| row.get(3))
            .and_then(Iterator::collect)
            .expect("lines of a plan");
        let plan = plan.join("; ");
        assert!(plan.contains(found_by), "{plan}");
        let sorts = query.contains("available DESC");
        assert_eq!(plan.contains("TEMP B-TREE"), sorts, "{plan}");
        assert!(!plan.contains("SCAN"), "{plan}");
    }
    drop(connection);
    std::fs::remove_file(&file).expect("the file exists");
}
