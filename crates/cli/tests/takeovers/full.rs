//! A disk is full: that of the database, or that of the members.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::client;
use crate::journal_support::postgres::TestPostgres;
use crate::members::{MEMBERS, ROOT_KEY, ServerProcesses};
use crate::{ClusterUnderLoad, rounds};

/// A file system in memory, and a file that fills it.
struct SmallDisk {
    place: PathBuf,
}

impl SmallDisk {
    /// `None`, with a message, where file systems cannot be mounted.
    fn mount(place: &Path, mebibytes: usize) -> Option<SmallDisk> {
        std::fs::create_dir(place).expect("it is new");
        let size = format!("size={mebibytes}m,uid=postgres");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(place).output();
        let output = mounted.expect("mount is there");
        if !output.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        Some(SmallDisk { place: place.to_owned() })
    }

    fn fill(&self) {
        fill(&self.place);
    }

    fn free(&self) {
        std::fs::remove_file(self.place.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The database may still have files open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.place).status();
    }
}

/// Leaves no room in a folder.
fn fill(folder: &Path) {
    let file = std::fs::File::options().create(true).append(true).open(folder.join("filler"));
    let mut file = file.expect("the folder is ours");
    for size in [1 << 20, 4096, 1] {
        let piece = vec![0; size];
        while file.write_all(&piece).is_ok() {}
    }
}

impl ClusterUnderLoad {
    /// Waits until every member refuses a change because there is no room.
    async fn until_full(&self) {
        let http = client();
        for url in &self.cluster.urls {
            loop {
                // Of a tenant whose changes are not compared.
                let change = json!({ "account": "labs", "amount": "0.000001" });
                let request = http.post(format!("{url}/v1/charges")).bearer_auth(ROOT_KEY);
                let answer = request.json(&change).send().await;
                if let Ok(answer) = answer
                    && answer.status() == 503
                    && let Ok(problem) = answer.json::<Value>().await
                    && problem["code"] == "storage_full"
                {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_database_refuses_changes_with_the_reason_and_loses_nothing() {
    let folder = tempfile::tempdir_in("/tmp").expect("a temporary folder");
    let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), all).expect("the folder is ours");
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), 64) else { return };
    let database = TestPostgres::start();
    let place = disk.place.display();
    database.sql(&format!("CREATE TABLESPACE small LOCATION '{place}'"));
    let mut loaded = ClusterUnderLoad::begin(&database.url()).await;
    database.sql("ALTER TABLE bursar_batch SET TABLESPACE small");
    for _ in 0..rounds() {
        loaded.until_answered().await;
        let leader = loaded.cluster.leader(&database);
        loaded.note("full database");
        disk.fill();
        loaded.until_full().await;
        // A strong read is still answered.
        let path = "/v1/accounts/acme/balance";
        assert_eq!(loaded.clients.ask("GET", path, Value::Null).await.0, 200);
        disk.free();
        loaded.until_answered().await;
        loaded.clients.revoke_guests().await;
        assert_eq!(loaded.cluster.leader(&database), leader, "there was no reason for another");
        loaded.note("full database, leader killed");
        disk.fill();
        loaded.until_full().await;
        loaded.cluster.kill(leader);
        while loaded.cluster.leader(&database) == leader {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        disk.free();
        loaded.until_answered().await;
        loaded.cluster.launch(leader);
        loaded.clients.make_guest("room").await;
    }
    loaded.end(&database).await;
}

/// Runs what follows with a disk of its own at a folder.
fn small_disk(place: &Path) -> Vec<String> {
    let mount = "mount -t tmpfs -o size=16m tmpfs \"$0\" && exec \"$@\"";
    let words = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount];
    let place = place.display().to_string();
    words.into_iter().map(str::to_owned).chain([place]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_disks_of_members_are_full() {
    let database = TestPostgres::start();
    let mut cluster = ServerProcesses::prepare(&database.url());
    let state = cluster.folder.path().join("state");
    std::fs::create_dir(&state).expect("it is new");
    cluster.wrappers = vec![small_disk(&state); MEMBERS];
    let mut loaded = ClusterUnderLoad::load(cluster).await;
    for _ in 0..rounds() {
        let leader = loaded.cluster.leader(&database);
        let standby = (leader + 1) % MEMBERS;
        let others = [leader, standby].map(|member| loaded.cluster.inside(member, &state));
        loaded.note("full disks of members");
        others.iter().for_each(|folder| fill(folder));
        loaded.until_answered().await;
        // The one that takes over may be the one with the full disk.
        loaded.cluster.kill(leader);
        loaded.clients.revoke_guests().await;
        loaded.until_answered().await;
        loaded.cluster.launch(leader);
        if std::fs::remove_file(others[1].join("filler")).is_err() {
            // It was to lead, had no room for its history, and ended.
            assert!(!loaded.cluster.ended(standby).success(), "it had no room");
            loaded.cluster.launch(standby);
        }
        loaded.clients.make_guest("room").await;
        loaded.until_answered().await;
    }
    loaded.end(&database).await;
}
