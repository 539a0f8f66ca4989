//! What a server reports about a database that was changed, and restores into a database.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::journal_support::postgres::TestPostgres;
use crate::server::{Server, tool};
use crate::store::postgres_serve::{address, start};

/// Starts a server that must not start; returns its error.
#[track_caller]
pub(crate) fn refused(store: &str, root: &Path) -> String {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres", "--clock", "manual"])
        .args(["--store", store, "--root-key-file"])
        .arg(root)
        .env("BURSAR_LOG", "error")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let started = lines.any(|line| line.is_ok_and(|line| line.starts_with("listening on")));
    if started {
        child.kill().expect("it runs");
    }
    let ended = child.wait_with_output().expect("it ends");
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!started && !ended.status.success(), "it started: {words}");
    words
}

/// Every batch, head, lease and line of the manifest, as one number.
pub(crate) fn content(database: &TestPostgres) -> String {
    let rows = |table: &str| {
        database
            .sql(&format!("SELECT md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t"))
    };
    ["bursar_journal", "bursar_head", "bursar_lease", "bursar_batch", "bursar_machine"]
        .map(rows)
        .join(" ")
}

#[tokio::test]
async fn a_server_refuses_a_database_in_which_a_journal_was_cut_or_is_gone() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let root = folder.path().join("root.key");
    // Every journal has a batch before its last one.
    assert_eq!(start(&store, &root).terminate().code(), Some(0));
    for in_order in [true, false] {
        let mut server = start(&store, &root);
        let name = format!("org-{in_order}");
        server.open(&name, "org").await;
        server.grant(&format!("g-{in_order}"), &name, "10").await;
        if in_order {
            server.stop();
        } else {
            // What it wrote last is known once a lease was renewed.
            let caught_up = "SELECT count(*) FROM bursar_machine JOIN bursar_head
                USING (machine, sequence)";
            database.wait_for(caught_up, "3");
            server.crash();
        }
        database.sql("DROP TABLE IF EXISTS kept_batch, kept_head");
        database.sql(
            "CREATE TABLE kept_batch AS TABLE bursar_batch;
             CREATE TABLE kept_head AS TABLE bursar_head",
        );
        let back = "DELETE FROM bursar_batch; INSERT INTO bursar_batch TABLE kept_batch;
            UPDATE bursar_head AS head SET sequence = kept.sequence, position = kept.position,
              hash = kept.hash FROM kept_head AS kept WHERE kept.machine = head.machine";
        for machine in ["ledger-0", "directory", "cell-default"] {
            let last = "WHERE machine = head.machine ORDER BY sequence DESC LIMIT 1";
            let cut = format!(
                "DELETE FROM bursar_batch AS batch USING bursar_head AS head
                   WHERE batch.machine = '{machine}' AND head.machine = '{machine}'
                     AND batch.sequence = head.sequence;
                 UPDATE bursar_head AS head SET sequence = sequence - 1,
                   hash = (SELECT hash FROM bursar_batch {last}),
                   position = (SELECT first_position + records - 1 FROM bursar_batch {last})
                   WHERE machine = '{machine}'"
            );
            let emptied = format!("DELETE FROM bursar_batch WHERE machine = '{machine}'");
            for change in [cut, emptied] {
                database.sql(&change);
                let before = content(&database);
                let said = refused(&store, &root);
                assert!(said.contains(&format!("{machine}: ")), "{said}");
                assert!(said.contains("bursar admin restore BACKUP --store"), "{said}");
                assert_eq!(content(&database), before, "{machine}: something was written");
                database.sql(back);
            }
        }
        let server = start(&store, &root);
        let balance = server.get(&format!("/v1/accounts/{name}/balance")).await;
        assert_eq!(balance["available"], "10", "{balance}");
        assert_eq!(server.terminate().code(), Some(0));
    }
}

#[tokio::test]
async fn a_ledger_that_is_older_than_its_cell_is_noticed_without_the_manifests_help() {
    let database = TestPostgres::start();
    let (store, folder) = (address(&database), tempfile::tempdir().expect("a temporary folder"));
    let root = folder.path().join("root.key");
    let server = start(&store, &root);
    server.open("acme", "org").await;
    assert_eq!(server.terminate().code(), Some(0));
    assert_eq!(database.sql("SELECT clean FROM bursar_store"), "t", "it ended in order");
    database.sql(
        "CREATE TABLE old_batch AS TABLE bursar_batch; CREATE TABLE old_head AS TABLE bursar_head;
         CREATE TABLE old_machine AS TABLE bursar_machine",
    );
    let server = start(&store, &root);
    // The cell receives every account.
    server.open("umbra", "org").await;
    let quota = json!({ "running_jobs": 3 });
    server.call("PUT", "/v1/accounts/umbra/quota", quota).await.expect(200);
    server.advance(1).await;
    assert_eq!(server.terminate().code(), Some(0));
    database.sql(
        "CREATE TABLE new_batch AS TABLE bursar_batch; CREATE TABLE new_head AS TABLE bursar_head;
         CREATE TABLE new_machine AS TABLE bursar_machine",
    );
    // Everything but the cell is from an older copy: also the manifest.
    let set = |age: &str| {
        database.sql(&format!(
            "DELETE FROM bursar_batch WHERE machine <> 'cell-default';
             INSERT INTO bursar_batch SELECT * FROM {age}_batch WHERE machine <> 'cell-default';
             UPDATE bursar_head AS head SET sequence = old.sequence, position = old.position,
               hash = old.hash FROM {age}_head AS old
             WHERE old.machine = head.machine AND head.machine <> 'cell-default';
             DELETE FROM bursar_machine; INSERT INTO bursar_machine TABLE {age}_machine"
        ));
    };
    set("old");
    let said = refused(&store, &root);
    assert!(said.contains("ledger-0 is an older copy than cell-default"), "{said}");
    assert!(said.contains("bursar admin restore BACKUP --store"), "{said}");
    set("new");
    let server = start(&store, &root);
    assert_eq!(server.get("/v1/accounts/umbra").await["id"], "umbra");
}

fn restore(backup: &Path, store: &str, flags: &[&str]) -> (bool, String) {
    let made = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "restore"])
        .arg(backup)
        .args(["--store", store])
        .args(flags)
        .output()
        .expect("the binary is there");
    let said = String::from_utf8_lossy(&[made.stdout, made.stderr].concat()).into_owned();
    (made.status.success(), said)
}

#[tokio::test]
async fn a_backup_of_a_folder_becomes_a_store_in_postgresql_and_the_other_way_round() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name);
    let server = Server::start();
    server.tree().await;
    server.grant("g", "acme", "10").await;
    let signer =
        async |server: &Server| server.get("/v1/audit/checkpoint").await["public_key"].clone();
    let signed_by = signer(&server).await;
    let backup = place("backup");
    tool(&["admin", "backup", backup.to_str().expect("a plain path")], server.data());

    let url = database.database("restored");
    let (key, root) = (place("checkpoint.key"), place("root.key"));
    let key = key.to_str().expect("a plain path");
    let (done, said) = restore(&backup, &url, &["--checkpoint-key", key]);
    assert!(!done && said.contains("--unsafe-single-postgres"), "{said}");
    assert!(!place("checkpoint.key").exists(), "nothing was restored");
    let flags = ["--unsafe-single-postgres", "--checkpoint-key", key];
    let (done, said) = restore(&backup, &url, &flags);
    assert!(done, "{said}");
    let (again, said) = restore(&backup, &url, &flags);
    assert!(!again && said.contains("is not empty"), "{said}");

    let restored = start(&url, &root);
    assert_eq!(restored.get("/v1/accounts/acme/balance").await["available"], "10");
    assert_eq!(signer(&restored).await, signed_by);
    restored.grant("later", "acme", "5").await;
    let second = place("second");
    let copied = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["admin", "backup", "--store", &url, "--checkpoint-key", key])
        .arg(&second)
        .output()
        .expect("the binary is there");
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let data = place("data");
    tool(&["admin", "restore", second.to_str().expect("a plain path")], &data);
    let back = Server::at(&data, &["--clock", "manual"]);
    assert_eq!(back.get("/v1/accounts/acme/balance").await["available"], "15");
    assert_eq!(signer(&back).await, signed_by);
}

/// A backup of a new store, with the output of jobs.
fn backup_in(folder: &tempfile::TempDir) -> PathBuf {
    let server = Server::start();
    let backup = folder.path().join("backup");
    tool(&["admin", "backup", "--logs", backup.to_str().expect("a plain path")], server.data());
    backup
}

#[tokio::test]
async fn nothing_that_is_there_is_overwritten_by_a_restore() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = backup_in(&folder);
    let url = database.database("restored");
    let (key, state) = (folder.path().join("checkpoint.key"), folder.path().join("state"));
    std::fs::write(&key, "another").expect("the folder is ours");
    std::fs::create_dir_all(state.join("logs")).expect("the folder is ours");
    let (key_flag, state_flag) = (key.display().to_string(), state.display().to_string());
    let flags = ["--unsafe-single-postgres", "--checkpoint-key", &key_flag];
    let (done, said) = restore(&backup, &url, &flags);
    assert!(!done && said.contains("there is another key in this file"), "{said}");
    let flags = ["--unsafe-single-postgres", "--state", &state_flag];
    let (done, said) = restore(&backup, &url, &flags);
    assert!(!done && said.contains("it is there already"), "{said}");
    // Places that cannot be written are named while the database is still empty, and nothing is left.
    std::fs::remove_dir(state.join("logs")).expect("it is ours");
    for place in [folder.path().to_owned(), folder.path().join("nowhere/checkpoint.key")] {
        let place = place.display().to_string();
        let flags =
            ["--unsafe-single-postgres", "--checkpoint-key", &place, "--state", &state_flag];
        let (done, said) = restore(&backup, &url, &flags);
        assert!(!done && said.contains(&place), "{said}");
        assert_eq!(std::fs::read_dir(&state).expect("it is there").count(), 0);
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'bursar_%'";
    assert_eq!(database.sql_in("restored", tables), "0");
    assert_eq!(std::fs::read_to_string(&key).expect("it is there"), "another");

    // A database that is not empty takes nothing, and what was placed beside it goes away.
    std::fs::remove_file(&key).expect("it is ours");
    let crowded = database.database("crowded");
    database.sql_in("crowded", "CREATE TABLE other (id int)");
    let flags = ["--unsafe-single-postgres", "--checkpoint-key", &key_flag, "--state", &state_flag];
    let (done, said) = restore(&backup, &crowded, &flags);
    assert!(!done && said.contains("is not empty"), "{said}");
    assert!(!key.exists());
    assert_eq!(std::fs::read_dir(&state).expect("it is there").count(), 0);
    let (done, said) = restore(&backup, &url, &flags);
    assert!(done, "{said}");
    assert!(key.is_file() && state.join("logs").is_dir());
    assert_eq!(std::fs::read_dir(&state).expect("it is there").count(), 1);
}

/// Has the database change every batch as it is stored, without a table before there is a store.
const SPOIL: &str = "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      NEW.payload := set_byte(NEW.payload, 0, get_byte(NEW.payload, 0) # 1); RETURN NEW; END $$;
    CREATE FUNCTION arm() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
      IF EXISTS (SELECT FROM pg_class WHERE relname = 'bursar_batch')
         AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'spoil') THEN
        CREATE TRIGGER spoil BEFORE INSERT ON bursar_batch FOR EACH ROW EXECUTE FUNCTION spoil();
      END IF; END $$;
    CREATE EVENT TRIGGER arm ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
      EXECUTE FUNCTION arm();";

#[tokio::test]
async fn what_lies_beside_a_restored_database_stays_although_it_cannot_be_read_again() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = backup_in(&folder);
    let url = database.database("restored");
    database.sql_in("restored", SPOIL);
    let (key, state) = (folder.path().join("checkpoint.key"), folder.path().join("state"));
    let (key_flag, state_flag) = (key.display().to_string(), state.display().to_string());
    let flags = ["--unsafe-single-postgres", "--checkpoint-key", &key_flag, "--state", &state_flag];
    let (done, said) = restore(&backup, &url, &flags);
    assert!(!done && said.contains("does not hold what was restored"), "{said}");
    assert_eq!(database.sql_in("restored", "SELECT clean FROM bursar_store"), "t", "it is there");
    assert!(key.is_file(), "the key is gone: {said}");
    assert!(state.join("logs").is_dir(), "the output is gone: {said}");
    assert_eq!(std::fs::read_dir(&state).expect("it is there").count(), 1);
    assert!(said.contains(&state.join("logs").display().to_string()), "{said}");
}

#[tokio::test]
async fn what_a_restore_left_that_was_cut_off_is_named_and_kept() {
    let database = TestPostgres::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = backup_in(&folder);
    let (url, state) = (database.database("restored"), folder.path().join("state"));
    let left = state.join("logs.restoring");
    std::fs::create_dir_all(&left).expect("the folder is ours");
    std::fs::write(left.join("printed"), "here").expect("the folder is ours");
    let (state_flag, left_at) = (state.display().to_string(), left.display().to_string());
    let flags = ["--unsafe-single-postgres", "--state", &state_flag];
    let (done, said) = restore(&backup, &url, &flags);
    assert!(!done && said.contains(&left_at) && said.contains("rename"), "{said}");
    assert_eq!(std::fs::read_to_string(left.join("printed")).expect("it stays"), "here");
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'bursar_%'";
    assert_eq!(database.sql_in("restored", tables), "0");
    // A server that uses the folder names it as well.
    let log = folder.path().join("log");
    let root = folder.path().join("root.key");
    let said = start_logged(&database.url(), &root, &["--state", &state_flag], &log);
    assert!(said.contains(&left_at), "{said}");
    std::fs::remove_dir_all(&left).expect("it is ours");
    std::fs::remove_dir_all(&state).expect("it is ours");
    let (done, said) = restore(&backup, &url, &flags);
    assert!(done, "{said}");
}

/// Starts a server and ends it once it is ready; says what it logged by then.
pub(crate) fn start_logged(store: &str, root: &Path, flags: &[&str], log: &Path) -> String {
    let file = std::fs::File::create(log).expect("the folder is ours");
    let mut child = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--listen", "127.0.0.1:0", "--unsafe-single-postgres", "--clock", "manual"])
        .args(["--store", store, "--root-key-file"])
        .arg(root)
        .args(flags)
        .env("BURSAR_LOG", "info")
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .expect("the binary is there");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let started = lines.any(|line| line.is_ok_and(|line| line.starts_with("listening on")));
    let id = child.id().to_string();
    // It may have ended already.
    let _ = Command::new("kill").args(["-TERM", &id]).status();
    let ended = child.wait().expect("it ends");
    let said = std::fs::read_to_string(log).expect("it was written");
    assert!(started && ended.success(), "{said}");
    said
}
