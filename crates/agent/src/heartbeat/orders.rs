//! How the agent carries out the orders of a heartbeat's answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bursar_api::nodes::node::{Order, OrderType, Orders};

use super::Agent;
use super::prepare::MAX_PIDS;
use crate::attempt::environment;
use crate::attempt::record::Launch;
use crate::folder::is_attempt_id;
use crate::isolation::cgroup::{self, CgroupLimits};
use crate::reconcile::{self, DesiredState, Local, ReconcileStep};
use crate::runner::Observed;

/// The most characters of an invalid id that are shown.
const MAX_SHOWN_ID: usize = 40;

/// The pause after an answer with orders in progress, unless an attempt changes.
const IN_PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// The pause after any other answer, against servers that do not wait.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

impl Agent {
    /// Carries out orders, and returns the pause before the next heartbeat. A failed order
    /// is repeated by the server.
    pub(super) async fn carry_out_orders(
        &mut self,
        answer: &Orders,
        observed: &[Observed],
    ) -> Duration {
        for order in answer.orders.iter().filter(|order| !is_attempt_id(&order.attempt)) {
            let id: String = order.attempt.chars().take(MAX_SHOWN_ID).collect();
            tracing::error!(id, "ignored an order with an invalid attempt id");
        }
        let orders = answer.orders.iter().filter(|order| is_attempt_id(&order.attempt));
        let desired = orders.map(|order| (order.attempt.as_str(), desired_state(order)));
        let steps = reconcile::steps(desired, |attempt| self.runner.local(attempt, observed));
        for (attempt, step) in steps {
            let order = answer.orders.iter().rfind(|order| order.attempt == attempt);
            let order = order.expect("a step follows from an order");
            tracing::info!(attempt, step = step.as_str(), reason = order.reason, "ordered");
            if let Err(error) = self.take(step, order).await {
                tracing::error!(attempt, step = step.as_str(), %error, "this order could not be carried out");
            }
        }
        let ended = |order: &Order| {
            self.runner.local(&order.attempt, observed) == Local::Ended
                || order.kind == OrderType::Forget
        };
        let at_once = answer.orders.is_empty() || answer.orders.iter().all(ended);
        if at_once { MIN_INTERVAL } else { IN_PROGRESS_INTERVAL }
    }

    async fn take(&mut self, step: ReconcileStep, order: &Order) -> io::Result<()> {
        let attempt = order.attempt.as_str();
        match step {
            ReconcileStep::Launch => {
                let launched = self.launch_of(order).and_then(|launch| self.runner.launch(&launch));
                // The attempt fails, not the agent.
                launched.or_else(|error| self.runner.fail(attempt, &error.to_string()))
            }
            ReconcileStep::Decline => self.runner.decline(attempt),
            ReconcileStep::Stop => {
                let grace = Duration::from_secs(u64::from(order.grace_seconds.unwrap_or(0)));
                self.runner.stop(attempt, grace)
            }
            ReconcileStep::Kill => self.runner.kill(attempt),
            ReconcileStep::Erase => {
                self.shipped.remove(attempt);
                self.logs.lock().await.forget(attempt);
                self.runner.erase(attempt)
            }
        }
    }

    fn launch_of(&self, order: &Order) -> io::Result<Launch> {
        let spec = order.spec.clone().unwrap_or_default();
        // The default is the memory of the node.
        let memory_gib = spec.memory_gib.unwrap_or(self.options.offer.memory_gib);
        let cpus = spec.cpus.unwrap_or(self.options.offer.cpus);
        let limits = CgroupLimits {
            memory_bytes: (memory_gib > 0).then_some(u64::from(memory_gib) << 30),
            cpu_milli: (cpus > 0).then_some(cpus.saturating_mul(1000)),
            pids: Some(MAX_PIDS),
        };
        let base = self.options.cgroup.as_deref();
        // Agents of several stores may share the base, and ids of attempts repeat between stores.
        let owner = self.owner.as_ref();
        let name = owner.map_or_else(
            || order.attempt.clone(),
            |owner| format!("{}.{}.{}", order.attempt, owner.store, owner.node),
        );
        let cgroup = base.map(|base| cgroup::create(base, &name, limits)).transpose()?;
        environment::check(&spec.env)?;
        let mut env = spec.env.clone();
        env.extend(environment::of_order(order, &spec, self.options.checkpoints.as_deref()));
        Ok(Launch {
            attempt: order.attempt.clone(),
            job: order.job.clone().unwrap_or_default(),
            node: self.options.offer.id.clone(),
            rank: spec.rank,
            nodes: spec.node_names,
            command: spec.command,
            env,
            workdir: spec.workdir.map(PathBuf::from).or_else(|| self.options.workdir.clone()),
            gpus: order.gpus.clone(),
            run_as: self.options.run_as.clone(),
            cgroup,
            output_limit: self.options.output_limit,
            machine_env: environment::of_machine(|name| std::env::var(name).ok()),
            tmp_bytes: self.options.tmp_bytes,
        })
    }
}

fn desired_state(order: &Order) -> DesiredState {
    match order.kind {
        OrderType::Start => DesiredState::Start,
        OrderType::Stop => DesiredState::Stop,
        OrderType::Kill => DesiredState::Kill,
        OrderType::Forget => DesiredState::Forget,
    }
}
