//! A restore to a point in time, from a copy of the database's files and its log.

use std::process::Command;

use crate::journal_support::postgres::TestPostgres;
use crate::server::Server;
use crate::store::postgres_serve::{address, start};

fn admin(words: &[&str]) {
    let done = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .arg("admin")
        .args(words)
        .output()
        .expect("the binary is there");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn a_copy_of_the_database_and_its_log_restore_a_point_in_time() {
    let postgres = TestPostgres::archiving();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let server = start(&address(&postgres), &folder.path().join("root.key"));
    server.open("acme", "org").await;
    server.grant("first", "acme", "10").await;
    let at_point = postgres.base_backup();
    server.grant("second", "acme", "5").await;
    let key = server.key("viewer", "acme").await;
    postgres.restore_point("before");
    server.grant("mistake", "acme", "700").await;
    postgres.sql("SELECT pg_switch_wal()");
    assert_eq!(server.terminate().code(), Some(0));

    // No server may use this one: agents of the future that is dropped are heard by a restored store alone.
    let scratch = at_point("before");
    let (backup, checkpoint) = (place("backup"), place("checkpoint.key"));
    let (from, key_file) = (address(&scratch), ["--checkpoint-key", &checkpoint]);
    admin(&[&["backup", "--store", &from], &key_file[..], &[&backup]].concat());
    let empty = TestPostgres::start();
    let to = address(&empty);
    let restored = place("restored.key");
    let flags = ["--unsafe-single-postgres", "--checkpoint-key", &restored];
    admin(&[&["restore", &backup, "--store", &to], &flags[..]].concat());

    std::fs::create_dir(folder.path().join("again")).expect("it is ours");
    std::fs::copy(&restored, folder.path().join("again/checkpoint.key")).expect("it was restored");
    std::fs::copy(place("root.key"), place("again/root.key")).expect("it is there");
    let again: Server = start(&to, &folder.path().join("again/root.key"));
    let seen = again.send("GET", "/v1/accounts/acme/balance", ().into(), &key, &[]).await;
    assert_eq!(seen.expect(200)["available"], "15", "what came before the point, with its keys");
    again.call("GET", "/v1/grants/mistake", ().into()).await.problem("not_found");
}
