//! How far the states that follow journals of another server are behind.

use std::sync::atomic::AtomicU64;

use bursar_engine::FollowerLag;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::labels::Machine;

/// The lags, by machine.
#[derive(Default)]
pub(super) struct FollowerMetrics {
    batches: Family<Machine, Gauge>,
    seconds: Family<Machine, Gauge<f64, AtomicU64>>,
    pub(super) continued: Family<Machine, Counter>,
}

impl FollowerMetrics {
    pub(super) fn register(&self, all: &mut Registry) {
        let help = "Batches of the journal that the state of a standby does not contain";
        all.register("follower_lag_batches", help, self.batches.clone());
        let help = "Takeovers that continued from a state that followed the journal";
        all.register("machine_continued_takeovers", help, self.continued.clone());
        let help = "How long ago the state of a standby contained the whole journal";
        all.register_with_unit("follower_lag", help, Unit::Seconds, self.seconds.clone());
    }

    pub(super) fn set(&self, machine: &str, lag: Option<FollowerLag>) {
        let labels = Machine { machine: machine.to_owned() };
        let Some(lag) = lag else {
            self.batches.remove(&labels);
            self.seconds.remove(&labels);
            return;
        };
        self.batches.get_or_create(&labels).set(i64::try_from(lag.batches).unwrap_or(i64::MAX));
        self.seconds.get_or_create(&labels).set(lag.behind.as_secs_f64());
    }
}
