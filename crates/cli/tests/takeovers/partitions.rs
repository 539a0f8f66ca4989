//! A member is cut off from the database, or members from each other. Proxies stand in for the network: bytes wait in
//! them, as in a network that drops packets and sends them again.

use std::net::SocketAddr;
use std::time::Duration;

use bursar_testkit::faults::{FaultProxy, Passage};

use crate::cuts::{behind, proxies};
use crate::journal_support::postgres::TestPostgres;
use crate::members::ServerProcesses;
use crate::{ANSWERS, ClusterUnderLoad, rounds};

/// Answers that must come while a part is cut off. Requests to that part wait for seconds.
const FEW_ANSWERS: usize = ANSWERS / 5;

/// A proxy before each member; the other members reach it through that.
fn before_members(cluster: &mut ServerProcesses) -> Vec<FaultProxy> {
    let proxy = |url: &String| {
        let address: SocketAddr = url.trim_start_matches("http://").parse().expect("an address");
        FaultProxy::plain(address).expect("a port is free")
    };
    let proxies: Vec<FaultProxy> = cluster.urls.iter().map(proxy).collect();
    cluster.advertised =
        proxies.iter().map(|proxy| format!("http://{}", proxy.address())).collect();
    proxies
}

impl ClusterUnderLoad {
    /// Cuts the leader off from the database until another one leads, and joins it again.
    async fn part_from_the_database(
        &mut self,
        database: &TestPostgres,
        to_database: &[FaultProxy],
        how: Passage,
    ) {
        let leader = self.cluster.leader(database);
        self.note("cut off from the database");
        to_database[leader].set_passage(how);
        while self.cluster.leader(database) == leader {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.clients.revoke_guests().await;
        self.until_answers(FEW_ANSWERS).await;
        to_database[leader].set_passage(Passage::Open);
        self.until_answered().await;
        self.clients.make_guest("joined").await;
    }

    /// Cuts all members off from each other, not from clients and the database, and joins them again.
    async fn part_from_each_other(&mut self, database: &TestPostgres, to_members: &[FaultProxy]) {
        let term = database.sql("SELECT term FROM bursar_store");
        self.note("cut off from each other");
        to_members.iter().for_each(|proxy| proxy.set_passage(Passage::Held));
        self.until_answers(FEW_ANSWERS).await;
        self.clients.revoke_guests().await;
        to_members.iter().for_each(|proxy| proxy.set_passage(Passage::Open));
        self.until_answered().await;
        assert_eq!(database.sql("SELECT term FROM bursar_store"), term, "another member led");
        self.clients.make_guest("together").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_members_are_cut_off_from_the_database_or_each_other() {
    let database = TestPostgres::on_a_port(None);
    let to_database = proxies(&database);
    let mut cluster = behind(&database, &to_database);
    let to_members = before_members(&mut cluster);
    let mut loaded = ClusterUnderLoad::load(cluster).await;
    for _ in 0..rounds() {
        for how in [Passage::Held, Passage::Lost] {
            loaded.part_from_the_database(&database, &to_database, how).await;
        }
        loaded.part_from_each_other(&database, &to_members).await;
    }
    loaded.end(&database).await;
}
