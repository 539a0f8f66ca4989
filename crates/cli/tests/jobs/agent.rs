//! A simulated agent of a node: it reports what the test sets, on the test's clock.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::world::{small, submit};

/// How often agents report.
const HEARTBEAT: u64 = 30;

/// An attempt as the agent has it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) job: String,
    pub(crate) state: &'static str,
    pub(crate) devices: u64,
    pub(crate) gpu_ms: u64,
    pub(crate) exit_code: Option<i64>,
}

/// One node.
pub(crate) struct Agent {
    pub(crate) node: String,
    /// Its key.
    pub(crate) key: String,
    pub(crate) incarnation: u64,
    pub(crate) seq: u64,
    pub(crate) runs: BTreeMap<String, Run>,
}

/// The body of a registration.
pub(crate) fn offer(node: &str, region: &str, gpus: &str, count: usize) -> Value {
    let devices: Vec<Value> = (0..count)
        .map(|place| {
            json!({ "uuid": format!("GPU-{node}-{place}"), "type": gpus, "memory_gib": 80 })
        })
        .collect();
    json!({
        "id": node, "region": region, "rack": "r1", "gpus": devices, "cpus": 64,
        "memory_gib": 512, "labels": { "zone": "a" }
    })
}

impl Agent {
    /// A node in the region `default`.
    pub(crate) async fn register(server: &Server, node: &str, gpus: &str, count: usize) -> Agent {
        Agent::register_in(server, "default", node, gpus, count).await
    }

    pub(crate) async fn register_in(
        server: &Server,
        region: &str,
        node: &str,
        gpus: &str,
        count: usize,
    ) -> Agent {
        Agent::register_under(server, &server.root, region, node, gpus, count).await
    }

    /// A node whose agent has its own key.
    pub(crate) async fn register_under(
        server: &Server,
        key: &str,
        region: &str,
        node: &str,
        gpus: &str,
        count: usize,
    ) -> Agent {
        let mut agent = Agent {
            node: node.to_owned(),
            key: key.to_owned(),
            incarnation: 0,
            seq: 0,
            runs: BTreeMap::new(),
        };
        agent.register_again(server, region, gpus, count).await;
        agent
    }

    /// A node with a registration from the test.
    pub(crate) async fn register_as(server: &Server, node: &str, offer: Value) -> Agent {
        let registered = server.call("POST", "/v1/nodes", offer).await.expect(201);
        Agent {
            node: node.to_owned(),
            key: server.root.clone(),
            incarnation: registered["incarnation"].as_u64().expect("a number"),
            seq: 0,
            runs: BTreeMap::new(),
        }
    }

    /// The node n1 with one H100, on which a job of one GPU has run for some seconds.
    pub(crate) async fn running(server: &Server, job: &str, seconds: u64) -> Agent {
        let mut agent = Agent::register(server, "n1", "H100", 1).await;
        submit(server, small(job)).await;
        agent.beat(server).await;
        agent.run(server, seconds).await;
        agent
    }

    /// Restarts the agent without its attempts.
    pub(crate) async fn register_again(
        &mut self,
        server: &Server,
        region: &str,
        gpus: &str,
        count: usize,
    ) {
        let body = offer(&self.node, region, gpus, count);
        let registered = server.send("POST", "/v1/nodes", body, &self.key, &[]).await.expect(201);
        assert_eq!(registered["node"], self.node);
        assert_eq!(
            (&registered["heartbeat_seconds"], &registered["lease_seconds"]),
            (&json!(30), &json!(90))
        );
        self.incarnation = registered["incarnation"].as_u64().expect("a number");
        self.seq = 0;
        self.runs.clear();
    }

    /// The body of the next report.
    pub(crate) fn report(&mut self) -> Value {
        self.seq += 1;
        self.report_again()
    }

    /// The same report under the number used last.
    pub(crate) fn report_again(&self) -> Value {
        let attempts: Vec<Value> = self
            .runs
            .iter()
            .map(|(id, run)| {
                let mut said = json!({ "id": id, "state": run.state, "gpu_ms_total": run.gpu_ms });
                if let Some(code) = run.exit_code {
                    said["exit_code"] = code.into();
                }
                said
            })
            .collect();
        json!({ "incarnation": self.incarnation, "seq": self.seq, "attempts": attempts })
    }

    pub(crate) async fn send(&self, server: &Server, report: Value) -> Answer {
        let path = format!("/v1/nodes/{}/heartbeat", self.node);
        server.send("POST", &path, report, &self.key, &[]).await
    }

    /// Sends one heartbeat and returns the orders, without carrying them out.
    pub(crate) async fn ask(&mut self, server: &Server) -> Vec<Value> {
        let report = self.report();
        let answer = self.send(server, report).await.expect(200);
        answer["orders"].as_array().expect("orders").clone()
    }

    /// Sends heartbeats and carries out orders until there are none; attempts stop
    /// immediately.
    pub(crate) async fn beat(&mut self, server: &Server) {
        for _ in 0..8 {
            let orders = self.ask(server).await;
            if orders.is_empty() {
                return;
            }
            self.obey(&orders);
        }
        panic!("the orders of {} do not end", self.node);
    }

    pub(crate) fn obey(&mut self, orders: &[Value]) {
        for order in orders {
            let attempt = order["attempt"].as_str().expect("an attempt").to_owned();
            match order["type"].as_str().expect("a type") {
                "start" => {
                    let devices = order["gpus"].as_array().expect("devices").len() as u64;
                    let job = order["job"].as_str().expect("a job").to_owned();
                    let run = Run { job, state: "running", devices, gpu_ms: 0, exit_code: None };
                    self.runs.insert(attempt, run);
                }
                "stop" | "kill" => {
                    // An attempt that never started here is reported as stopped too.
                    let unknown = Run {
                        job: String::new(),
                        state: "stopped",
                        devices: 0,
                        gpu_ms: 0,
                        exit_code: None,
                    };
                    self.runs.entry(attempt).or_insert(unknown).state = "stopped";
                }
                "forget" => drop(self.runs.remove(&attempt)),
                other => panic!("an unknown order: {other}"),
            }
        }
    }

    /// Advances the time and the usage of running attempts.
    pub(crate) fn work(&mut self, seconds: u64) {
        for run in self.runs.values_mut().filter(|run| run.state == "running") {
            run.gpu_ms += seconds * 1000 * run.devices;
        }
    }

    /// Lets time pass with a report every thirty seconds.
    pub(crate) async fn run(&mut self, server: &Server, seconds: u64) {
        let mut left = seconds;
        while left > 0 {
            let step = left.min(HEARTBEAT);
            server.advance(step).await;
            self.work(step);
            self.beat(server).await;
            left -= step;
        }
    }

    /// The attempt that a job runs as.
    pub(crate) fn attempt_of(&self, job: &str) -> String {
        let found = self.runs.iter().find(|(_, run)| run.job == job && run.state == "running");
        found.map(|(id, _)| id.clone()).unwrap_or_else(|| panic!("{job} does not run here"))
    }

    pub(crate) fn runs_job(&self, job: &str) -> bool {
        self.runs.values().any(|run| run.job == job && run.state == "running")
    }

    /// Ends the process of a job.
    pub(crate) async fn finish(&mut self, server: &Server, job: &str, code: i64) {
        let attempt = self.attempt_of(job);
        let run = self.runs.get_mut(&attempt).expect("just found");
        run.state = if code == 0 { "succeeded" } else { "failed" };
        run.exit_code = Some(code);
        self.beat(server).await;
    }
}
