//! The connections of the leader to the database are cut at every point of an append.

use std::time::Duration;

use bursar_testkit::faults::{CutAppend, CutPoint, FaultProxy};
use bursar_testkit::generate::Random;

use crate::journal_support::postgres::TestPostgres;
use crate::members::{MEMBERS, ServerProcesses};
use crate::{ClusterUnderLoad, rounds};

/// A proxy before the database for each member.
pub(crate) fn proxies(database: &TestPostgres) -> Vec<FaultProxy> {
    let proxy = |_| FaultProxy::postgres(database.address()).expect("a port is free");
    (0..MEMBERS).map(proxy).collect()
}

/// Members that reach the database through these proxies.
pub(crate) fn behind(database: &TestPostgres, proxies: &[FaultProxy]) -> ServerProcesses {
    let mut cluster = ServerProcesses::prepare(&database.url());
    cluster.stores = proxies.iter().map(|proxy| database.url_through(proxy.address())).collect();
    cluster
}

/// The points of one round: both ends of the request and of the answer, some between, and requests that arrive late.
fn points(random: &mut Random) -> Vec<CutPoint> {
    let mut between = || u32::try_from(random.between(1, 999)).expect("positive");
    let requests = [0, between(), between(), 1000].map(CutPoint::Request);
    let answers = [0, between(), between(), 1000].map(CutPoint::Answer);
    [&requests[..], &answers[..], &[CutPoint::Late]].concat()
}

impl ClusterUnderLoad {
    /// Cuts an append of the member that leads; returns which one it is.
    async fn cut(
        &mut self,
        database: &TestPostgres,
        proxies: &[FaultProxy],
        at: CutPoint,
    ) -> usize {
        let cuts = || proxies.iter().map(|proxy| proxy.cuts().len()).sum::<usize>();
        let before = cuts();
        let mut leader = self.cluster.leader(database);
        self.note("cut");
        while cuts() == before {
            leader = self.cluster.leader(database);
            proxies[leader].cut_next_append(at);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        leader
    }
}

/// Prints how many appends were cut, and where.
fn report(proxies: &[FaultProxy]) {
    let cuts: Vec<CutAppend> = proxies.iter().flat_map(FaultProxy::cuts).collect();
    let count = |is: fn(&CutPoint) -> bool| cuts.iter().filter(|cut| is(&cut.at)).count();
    println!(
        "{} appends were cut: {} in the request, {} in the answer, {} arrived late",
        cuts.len(),
        count(|at| matches!(at, CutPoint::Request(_))),
        count(|at| matches!(at, CutPoint::Answer(_))),
        count(|at| *at == CutPoint::Late),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_when_connections_are_cut_at_any_point_of_an_append() {
    let database = TestPostgres::on_a_port(None);
    let proxies = proxies(&database);
    let mut loaded = ClusterUnderLoad::load(behind(&database, &proxies)).await;
    let mut random = Random::new(21);
    for round in 0..rounds() {
        for at in points(&mut random) {
            loaded.cut(&database, &proxies, at).await;
            // A late one arrives before the member has connected again, or when it has gone on.
            if round % 2 == 0 {
                loaded.until_answered().await;
            }
            for proxy in &proxies {
                proxy.deliver_late();
            }
            loaded.until_answered().await;
        }
        // The late one arrives when another member leads.
        let leader = loaded.cut(&database, &proxies, CutPoint::Late).await;
        loaded.cluster.kill(leader);
        loaded.clients.revoke_guests().await;
        loaded.until_answered().await;
        assert!(proxies[leader].deliver_late() > 0, "nothing was held back");
        loaded.until_answered().await;
        loaded.cluster.launch(leader);
        loaded.clients.make_guest("cut").await;
    }
    report(&proxies);
    loaded.end(&database).await;
}
