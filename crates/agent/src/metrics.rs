//! Metrics of the agent, for Prometheus, on a loopback address.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::gpu::Gpu;
use crate::gpu::sampler::GpuSample;
use crate::reconcile::Local;
use crate::runner::Observed;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Device {
    gpu: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeartbeatLabels {
    outcome: HeartbeatOutcome,
}

/// The outcome of a heartbeat.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum HeartbeatOutcome {
    /// The server answered.
    Answered,
    /// The server rejected it.
    Refused,
    /// There was no answer.
    Unanswered,
}

/// The metrics of the agent.
#[derive(Debug, Default)]
pub struct AgentMetrics {
    heartbeats: Family<HeartbeatLabels, Counter>,
    registrations: Counter,
    attempts: Family<State, Gauge>,
    allocated: Family<Device, Gauge>,
    utilization: Family<Device, Gauge<f64, AtomicU64>>,
    memory: Family<Device, Gauge>,
    /// Seconds until attempts are stopped because the lease runs out.
    lease: Gauge<f64, AtomicU64>,
}

impl AgentMetrics {
    /// Counts a heartbeat.
    pub fn heartbeat(&self, outcome: HeartbeatOutcome) {
        self.heartbeats.get_or_create(&HeartbeatLabels { outcome }).inc();
    }

    /// Counts a registration.
    pub fn registered(&self) {
        self.registrations.inc();
    }

    /// Records the remaining lease.
    pub fn lease(&self, left: std::time::Duration) {
        self.lease.set(left.as_secs_f64());
    }

    /// Records attempts and the utilisation of GPUs at the last sample.
    pub fn observe(&self, observed: &[Observed], gpus: &[Gpu], sample: Option<&GpuSample>) {
        for local in Local::ALL {
            let state = name(local);
            let count = observed.iter().filter(|one| one.local == local).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.attempts.get_or_create(&State { state }).set(count);
        }
        for gpu in gpus {
            let uses = |one: &Observed| {
                let launch = one.launch.as_ref().filter(|_| one.local != Local::Ended);
                launch.is_some_and(|launch| launch.gpus.contains(&gpu.uuid))
            };
            let device = Device { gpu: gpu.uuid.clone() };
            self.allocated.get_or_create(&device).set(i64::from(observed.iter().any(uses)));
            let Some(sample) = sample else { continue };
            if let Some(used) = sample.uses.get(&gpu.uuid) {
                let memory = i64::try_from(used.memory_used_bytes).unwrap_or(i64::MAX);
                self.memory.get_or_create(&device).set(memory);
                let ratio = f64::from(used.utilization_percent) / 100.0;
                self.utilization.get_or_create(&device).set(ratio);
            } else {
                self.memory.remove(&device);
                self.utilization.remove(&device);
            }
        }
    }

    fn registry(&self) -> Registry {
        let mut all = Registry::with_prefix("bursar_agent");
        all.register("heartbeats", "Reports to the server", self.heartbeats.clone());
        all.register("registrations", "Registrations of the node", self.registrations.clone());
        all.register("attempts", "Attempts on this node by state", self.attempts.clone());
        let help = "Time left until attempts are stopped, at the last renewal";
        all.register_with_unit("lease", help, Unit::Seconds, self.lease.clone());
        all.register("gpu_allocated", "Whether an attempt has the GPU", self.allocated.clone());
        let utilization = self.utilization.clone();
        let help = "How busy the GPU is, from 0 to 1";
        all.register("gpu_utilization_ratio", help, utilization);
        let help = "Memory in use on the GPU";
        all.register_with_unit("gpu_memory_used", help, Unit::Bytes, self.memory.clone());
        all
    }

    fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry()).expect("writing to a string cannot fail");
        text
    }
}

fn name(local: Local) -> &'static str {
    match local {
        Local::Absent => "absent",
        Local::Launching => "launching",
        Local::Running => "running",
        Local::Stopping => "stopping",
        Local::Killing => "killing",
        Local::Ended => "ended",
        Local::Forgotten => "forgotten",
    }
}

/// Serves the metrics on a loopback address until the process ends.
pub async fn serve(metrics: Arc<AgentMetrics>, address: SocketAddr) -> std::io::Result<SocketAddr> {
    if !address.ip().is_loopback() {
        let why = format!(
            "--metrics {address} is reachable from other machines: use 127.0.0.1:{}, and let a collector on \
             this machine pass it on",
            address.port()
        );
        return Err(std::io::Error::other(why));
    }
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let page = move || async move { ([(CONTENT_TYPE, TEXT)], metrics.text()) };
    let router = Router::new().route("/metrics", get(page));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootTime;
    use crate::gpu::{Gpus, GpuUse};
    use std::collections::BTreeMap;

    #[test]
    fn metrics_are_served() {
        let metrics = AgentMetrics::default();
        metrics.heartbeat(HeartbeatOutcome::Answered);
        metrics.heartbeat(HeartbeatOutcome::Answered);
        metrics.lease(std::time::Duration::from_millis(1_500));
        let gpus = Gpus::fake("H100:1:80", "n1").expect("well formed").list;
        let busy = GpuUse { utilization_percent: 37, memory_used_bytes: 3 };
        let uses = BTreeMap::from([(gpus[0].uuid.clone(), busy)]);
        let mut sample = GpuSample { at: BootTime::from_millis(1), uses };
        metrics.observe(&[], &gpus, Some(&sample));
        metrics.observe(&[], &gpus, None);
        let text = metrics.text();
        let wanted = [
            "bursar_agent_heartbeats_total{outcome=\"Answered\"} 2",
            "bursar_agent_lease_seconds 1.5",
            "bursar_agent_attempts{state=\"running\"} 0",
            "bursar_agent_gpu_allocated{gpu=\"GPU-fake-n1-0\"} 0",
            "bursar_agent_gpu_utilization_ratio{gpu=\"GPU-fake-n1-0\"} 0.37",
        ];
        for line in wanted {
            assert!(text.contains(line), "{line}\n{text}");
        }
        sample.uses.clear();
        metrics.observe(&[], &gpus, Some(&sample));
        let text = metrics.text();
        assert!(
            !text.contains("gpu_utilization_ratio{"),
            "an old value is not the present: {text}"
        );
    }

    #[tokio::test]
    async fn only_loopback_addresses_are_accepted() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let refused = serve(Arc::default(), everywhere).await.expect_err("not loopback");
        assert!(refused.to_string().contains("127.0.0.1"), "{refused}");
    }
}
