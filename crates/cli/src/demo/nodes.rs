//! The nodes of the demo: real agents in this process, with simulated GPUs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bursar_agent::clock::BootTime;
use bursar_agent::folder::StateFolder;
use bursar_agent::gpu::Gpus;
use bursar_agent::heartbeat::{Agent, AgentOptions};
use bursar_agent::reconcile::Local;
use bursar_agent::runner::Runner;
use bursar_agent::servers::Servers;
use bursar_client::api::nodes::node::RegisterNode;
use bursar_client::api::system::key::{CreateKey, Role};
use bursar_client::system::keys;
use bursar_client::{Client, RetryPolicy};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::world::NODES;
use crate::exit::Failure;
use crate::render::note;
use crate::session::problem;

/// This program, even if its file was replaced.
const PROGRAM: &str = "/proc/self/exe";
/// How long attempts may take to stop at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The running agents.
pub(super) struct Nodes {
    stop: watch::Sender<bool>,
    agents: JoinSet<()>,
}

/// Starts an agent for each node.
pub(super) async fn start(client: &Client, url: &str, folder: &Path) -> Result<Nodes, Failure> {
    let (stop, stopped) = watch::channel(false);
    let mut agents = JoinSet::new();
    for (node, region, gpus) in NODES {
        let key = CreateKey {
            id: None,
            role: Role::Agent,
            scope: "*".into(),
            name: node.into(),
            expires_at: None,
            region: Some(region.into()),
            node: Some(node.into()),
            capabilities: Vec::new(),
        };
        let made = client.send(keys::create(&key)).await;
        let made = made.map_err(|error| problem::failure(&error, None))?;
        let secret = made.value.key.unwrap_or_default();
        let connection = Client::builder(url).key(&secret).retry(RetryPolicy::never()).build();
        let connection = connection.map_err(|error| problem::failure(&error, None))?;
        let agent = Agent::new(options(connection, node, region, gpus, folder)?)?;
        let mut stopped = stopped.clone();
        agents.spawn(async move {
            let end = async {
                // A dropped sender stops it as well.
                let _ = stopped.wait_for(|stopped| *stopped).await;
            };
            if let Err(error) = agent.run(end).await {
                note(&format!("{node}: {error}"));
            }
        });
    }
    Ok(Nodes { stop, agents })
}

fn options(
    client: Client,
    node: &str,
    region: &str,
    gpus: &str,
    folder: &Path,
) -> Result<AgentOptions, Failure> {
    let gpus = Gpus::fake(gpus, node)?;
    let offer = RegisterNode {
        id: node.to_owned(),
        region: region.to_owned(),
        rack: None,
        gpus: gpus.offered(),
        cpus: 128,
        memory_gib: 1024,
        labels: None,
    };
    Ok(AgentOptions {
        servers: Servers::new(client, []),
        offer,
        gpus: Arc::new(gpus),
        state: folder.join(node),
        program: PROGRAM.into(),
        run_as: None,
        workdir: Some(folder.to_owned()),
        checkpoints: Some(folder.join("checkpoints")),
        cgroup: None,
        output_limit: 1 << 20,
        tmp_bytes: None,
        idle: None,
        metrics: None,
    })
}

impl Nodes {
    /// Stops the agents. Their attempts run until [`clear`] stops them.
    pub(super) async fn stop(mut self) {
        let _ = self.stop.send(true);
        while self.agents.join_next().await.is_some() {}
    }
}

/// Stops all attempts of the agents.
pub(super) fn clear(folder: &Path) -> Result<(), Failure> {
    let since = BootTime::now();
    for (node, _, _) in NODES {
        let state = StateFolder::open(&folder.join(node))?;
        let runner = Runner::new(state, PROGRAM.into())?;
        loop {
            let observed = runner.observe(BootTime::now())?;
            let running: Vec<&str> = observed
                .iter()
                .filter(|one| one.local != Local::Ended)
                .map(|one| one.attempt.as_str())
                .collect();
            if running.is_empty() || BootTime::now().since(since) > STOP_TIMEOUT {
                break;
            }
            for attempt in running {
                runner.kill(attempt)?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}
