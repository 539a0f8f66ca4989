//! Three servers on one PostgreSQL, as real processes, under load from clients that repeat what is not answered, while
//! servers are killed, paused, started together and restarted one after the other, and while the database fails over.
//!
//! What the clients noted is compared with the journal by the checker of histories. `BURSAR_NIGHTLY=1` repeats every
//! fault twenty times.

mod clients;
mod clock;
mod cuts;
mod full;
#[path = "../../../journal/tests/support/mod.rs"]
mod journal_support;
mod loss;
mod members;
mod partitions;
mod patroni;
mod prices;
mod records;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod work;

use std::sync::Arc;
use std::time::Duration;

use bursar_testkit::histories::{CallOutcome, ClientHistory, MoneyRequest, check};
use serde_json::json;

use clients::{ClientNotes, LANES, TestClients};
use journal_support::postgres::TestPostgres;
use members::{MEMBERS, QueriedDatabase, ROOT_KEY, ServerProcesses};

/// The clients' tenants.
const TENANTS: [&str; 2] = ["acme", "umbra"];
/// Answers that must come before the next fault.
const ANSWERS: usize = 50;

/// How often each fault happens.
fn rounds() -> usize {
    if std::env::var_os("BURSAR_NIGHTLY").is_some() { 20 } else { 1 }
}

/// A cluster under load, and when which fault began.
struct ClusterUnderLoad {
    cluster: ServerProcesses,
    clients: Arc<TestClients>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    faults: Vec<(&'static str, u64)>,
}

impl ClusterUnderLoad {
    async fn begin(store: &str) -> ClusterUnderLoad {
        ClusterUnderLoad::load(ServerProcesses::prepare(store)).await
    }

    /// Starts members, and clients that use them.
    async fn load(mut cluster: ServerProcesses) -> ClusterUnderLoad {
        cluster.launch_all();
        let clients = TestClients::new(&cluster.urls, ROOT_KEY);
        for (id, kind) in [("acme", "org"), ("acme:nlp", "team"), ("umbra", "org")] {
            let opened =
                clients.ask("POST", "/v1/accounts", json!({ "id": id, "kind": kind })).await;
            assert!(matches!(opened.0, 200 | 201), "{}", opened.1);
        }
        for (account, credits) in [("acme", 1_000_000), ("umbra", 20)] {
            let id = Some(format!("first-{account}"));
            let amount = credits * 1_000_000;
            let grant = MoneyRequest::Grant { id, account: account.into(), amount };
            clients.once(100 + LANES, grant).await;
        }
        work::start(&mut cluster, &clients).await;
        clients.make_guest("first").await;
        let tasks = clients.start();
        let loaded = ClusterUnderLoad { cluster, clients, tasks, faults: Vec::new() };
        loaded.until_answered().await;
        loaded
    }

    /// Waits until clients have got more answers to changes.
    async fn until_answered(&self) {
        self.until_answers(ANSWERS).await;
    }

    async fn until_answers(&self, enough: usize) {
        let since = self.clients.now();
        let is_new = |invoked: u64, outcome: &CallOutcome| {
            invoked >= since && matches!(outcome, CallOutcome::Done { .. })
        };
        loop {
            let answered = {
                let notes = self.clients.notes();
                // Newer calls are at the end.
                let recent = notes.calls.iter().rev().take_while(|call| call.returned >= since);
                recent.filter(|call| is_new(call.invoked, &call.outcome)).count()
            };
            if answered >= enough {
                return;
            }
            for task in &self.tasks {
                assert!(!task.is_finished(), "a client gave up");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn note(&mut self, fault: &'static str) {
        let now = self.clients.now();
        self.faults.push((fault, now));
    }

    /// Kills the member that leads. Keys are revoked at the same time.
    async fn kill_the_leader(&mut self, database: &TestPostgres) {
        let leader = self.cluster.leader(database);
        self.note("kill");
        self.cluster.kill(leader);
        self.clients.revoke_guests().await;
        self.until_answered().await;
        self.cluster.launch(leader);
        self.clients.make_guest("later").await;
    }

    /// Pauses the member that leads until another one leads, and wakes it.
    async fn pause_the_leader(&mut self, database: &TestPostgres) {
        let leader = self.cluster.leader(database);
        self.note("pause");
        self.cluster.signal(leader, "-STOP");
        while self.cluster.leader(database) == leader {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.until_answered().await;
        self.cluster.signal(leader, "-CONT");
        self.clients.revoke_guests().await;
        self.until_answered().await;
        self.clients.make_guest("woken").await;
    }

    /// Ends all members at once, and starts them together.
    async fn start_together(&mut self) {
        self.note("start together");
        for member in 0..MEMBERS {
            self.cluster.kill(member);
        }
        self.cluster.launch_all();
        self.until_answered().await;
    }

    /// Drains, ends and starts one member after the other.
    async fn roll(&mut self) {
        for member in 0..MEMBERS {
            let name = members::name(member);
            let act = |verb: &str| format!("/v1/cluster/members/{name}/{verb}");
            self.note("hand-over");
            // Others may not have been seen again yet.
            while self.clients.ask("POST", &act("drain"), json!({})).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.until_answered().await;
            self.cluster.stop(member);
            self.cluster.launch(member);
            while self.clients.ask("POST", &act("resume"), json!({})).await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            self.until_answered().await;
        }
    }

    /// Every fault of members that needs no other process, then the verdict.
    async fn faults_of_members(mut self, database: &TestPostgres) {
        for _ in 0..rounds() {
            self.kill_the_leader(database).await;
            self.roll().await;
            self.pause_the_leader(database).await;
            self.start_together().await;
        }
        self.end(database).await;
    }

    /// Ends the load and verifies everything. The database that is the primary at the end is `database`.
    async fn end(mut self, database: &impl QueriedDatabase) {
        self.until_answered().await;
        work::check(&self.clients).await;
        self.clients.stop();
        for task in self.tasks.drain(..) {
            task.await.expect("no client gave up");
        }
        for member in 0..MEMBERS {
            self.cluster.stop(member);
        }
        check_owners(database);
        let read = |(shard, export): (usize, String)| {
            records::read(format!("ledger-{shard}"), &export, &TENANTS)
        };
        let journals = self.cluster.records().into_iter().enumerate().map(read).collect();
        let ClientNotes { calls, keys, price_changes, price_reads } =
            std::mem::take(&mut *self.clients.notes());
        let unpriced = prices::stale_prices(&price_changes, &price_reads);
        assert_eq!(unpriced, Vec::<String>::new(), "a read showed an old price");
        let history = ClientHistory { journals, calls, keys };
        let compared = check(&history).unwrap_or_else(|broken| panic!("{broken}"));
        println!(
            "{compared:?}; {} price changes, {} reads",
            price_changes.len(),
            price_reads.len()
        );
        assert!(compared.changes > 200 && compared.reads > 50, "too little was compared");
        self.report(&history);
        self.cluster.rehearse();
    }

    /// Prints how long each fault kept clients without an answer.
    fn report(&self, history: &ClientHistory) {
        let kinds: std::collections::BTreeSet<&str> =
            self.faults.iter().map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let mut gaps = Vec::new();
            for (number, (fault, begun)) in self.faults.iter().enumerate() {
                let next = self.faults.get(number + 1).map_or(u64::MAX, |(_, next)| *next);
                if *fault == kind {
                    gaps.push(longest_gap(history, *begun, next));
                }
            }
            gaps.sort_unstable();
            if let Some(last) = gaps.last() {
                let at = |percent: usize| gaps[(gaps.len() * percent / 100).min(gaps.len() - 1)];
                println!(
                    "{kind}: {} times; longest time without an answer to a change: median {} ms, p99 {} ms, \
                     longest {last} ms",
                    gaps.len(),
                    at(50),
                    at(99)
                );
            }
        }
    }
}

/// The longest time without an answer to a change between two instants, in milliseconds.
fn longest_gap(history: &ClientHistory, begun: u64, end: u64) -> u64 {
    let answers = history.calls.iter().filter(|call| {
        (begun..end).contains(&call.returned) && matches!(call.outcome, CallOutcome::Done { .. })
    });
    let mut times: Vec<u64> = answers.map(|call| call.returned).chain([begun]).collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.max().unwrap_or_default() / 1_000_000
}

/// Every journal was written by one owner after the other.
fn check_owners(database: &impl QueriedDatabase) {
    let back = "SELECT count(*) FROM (SELECT epoch, lag(epoch) OVER (PARTITION BY machine ORDER BY sequence) AS
        before FROM bursar_batch) AS batches WHERE epoch < before";
    assert_eq!(database.sql(back), "0", "an older owner wrote after a newer one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_stale_while_members_are_killed_paused_and_restarted() {
    let database = TestPostgres::start();
    let loaded = ClusterUnderLoad::begin(&database.url()).await;
    loaded.faults_of_members(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_holds_with_two_ledger_shards() {
    let database = TestPostgres::start();
    let mut cluster = ServerProcesses::prepare(&database.url());
    cluster.flags = vec!["--shards", "2"];
    let loaded = ClusterUnderLoad::load(cluster).await;
    loaded.faults_of_members(&database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_the_standby_stops_and_when_it_is_promoted() {
    let mut primary = TestPostgres::start();
    let mut standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.sql("SELECT pg_reload_conf()");
    primary.wait_for("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
    let mut loaded = ClusterUnderLoad::begin(&primary.url_with(&standby)).await;
    loaded.note("standby");
    standby.stop();
    // Commits wait: nothing is acknowledged that only one of the two has.
    primary.wait_for("SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "t");
    primary.wait_for("SELECT until < clock_timestamp() FROM bursar_store", "t");
    standby.start_again();
    loaded.until_answered().await;
    loaded.note("promotion");
    primary.crash();
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
    loaded.until_answered().await;
    loaded.end(&standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_still_runs_is_left_for_the_promoted_one() {
    let primary = TestPostgres::start();
    let standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.sql("SELECT pg_reload_conf()");
    primary.wait_for("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", "1");
    // The old one comes first in the address, and takes writes.
    let mut cluster = ServerProcesses::prepare(&primary.url_with(&standby));
    cluster.store = standby.url();
    let mut loaded = ClusterUnderLoad::load(cluster).await;
    loaded.note("old primary runs on");
    assert_eq!(standby.sql("SELECT pg_promote()"), "t");
    loaded.clients.revoke_guests().await;
    loaded.until_answered().await;
    let leaders = "SELECT term FROM bursar_store";
    let [old, new] = [&primary, &standby].map(|database| database.sql(leaders));
    assert!(old.parse::<u64>().expect("a number") < new.parse().expect("a number"));
    loaded.clients.make_guest("promoted").await;
    loaded.end(&standby).await;
}
