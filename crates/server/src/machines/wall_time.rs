//! Reports and handles a wall clock that cannot be followed or trusted.

use std::sync::Arc;
use std::time::Duration;

use bursar_api::Code;
use bursar_core::ledger::command::{Command, Policy};
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::time::Timestamp;
use serde_json::{Value, json};

use crate::app::App;
use crate::request::Failure;

/// How often the clock is checked, for the log.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How an operator fixes a clock that jumped ahead, or expiry that waits for a clock.
const REMEDY: &str = "look at this machine's clock. If it is right as it is now: `bursar admin accept-clock`, \
     or restart with --accept-clock. If it is wrong: set it right and accept nothing while it is behind";
/// How an operator fixes records whose time is ahead of a clock that is right.
const REMEDY_CLOCK_BEHIND: &str = "look at this machine's clock. If it is wrong, set it right. If it is right, the records were \
     stamped by a clock that was ahead: wait until it has caught up (time goes on at 90 %), or go back to before \
     it was wrong, without what happened since: `bursar admin backup`, then `bursar admin restore BACKUP --until \
     INSTANT --data DIR` with an instant before the clock was wrong";

/// The faults of the clocks, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockFaults {
    /// The wall clock is not followed.
    pub clock: Option<String>,
    /// No grant expires.
    pub expiry: Option<String>,
    /// The clock of the database differs.
    pub database: Option<String>,
    /// Whether the wall clock is behind the records.
    pub is_behind: bool,
}

impl ClockFaults {
    /// The value for `/readyz`; null without a fault.
    pub fn shown(&self) -> Value {
        if *self == ClockFaults::default() {
            return Value::Null;
        }
        let next = (self.clock.is_some() || self.expiry.is_some()).then(|| self.remedy());
        json!({
            "wall_clock": self.clock, "expiry": self.expiry, "database_clock": self.database,
            "next": next,
        })
    }

    /// How an operator fixes it.
    fn remedy(&self) -> &'static str {
        if self.is_behind { REMEDY_CLOCK_BEHIND } else { REMEDY }
    }
}

impl App {
    /// Whether no grant of a ledger expires until the clock is accepted.
    fn expiry_waits(&self) -> bool {
        let waits = |ledger: &Ledger| ledger.policy().expiry_waits;
        self.ledgers.iter().any(|own| own.feed.look(waits).value)
    }

    /// The present faults of the clocks.
    pub fn time_trouble(&self) -> ClockFaults {
        let alarm = self.clock.alarm();
        let is_behind = alarm.as_ref().is_some_and(|alarm| alarm.ahead_ms <= 0);
        let clock = alarm.map(|alarm| match alarm.ahead_ms {
            ahead if ahead > 0 => "it jumped ahead and is not followed until it is accepted; time \
                goes on with the monotonic clock"
                .to_owned(),
            _ => "it is behind the last record and is followed again once it has caught up; time \
                goes on at 90 % of the monotonic clock"
                .to_owned(),
        });
        let waits = self.expiry_waits();
        let expiry = waits.then(|| {
            "the clock was further ahead of the last record than max_clock_gap_seconds at a start: \
             no grant expires until the clock is accepted; everything else goes on"
                .to_owned()
        });
        let database = self.leader.as_ref().and_then(|leader| leader.clock_gap());
        ClockFaults { clock, expiry, database, is_behind }
    }

    /// Updates the metrics of the wall clock.
    pub fn measure_time(&self) {
        let ahead_ms = self.clock.alarm().map_or(0, |alarm| alarm.ahead_ms);
        let waits = self.expiry_waits();
        self.metrics.time(ahead_ms, waits);
    }

    /// Accepts the wall clock, which an operator has checked. Expiry that waited for it takes
    /// place.
    ///
    /// # Errors
    /// If the wall clock is behind the time of the records: grants would expire by a time that the
    /// wall clock does not confirm.
    pub async fn accept_clock(&self, actor: &str) -> Result<Timestamp, NotAccepted> {
        self.clock.accept().map_err(NotAccepted::Behind)?;
        let mut at = Timestamp::MIN;
        for app in self.every_shard() {
            at = at.max(app.let_expire(actor).await?);
        }
        Ok(at)
    }

    /// Lets grants expire that waited for a trusted clock. Returns the instant of the change.
    async fn let_expire(&self, actor: &str) -> Result<Timestamp, Failure> {
        let policy = self.ledger.read(|ledger| *ledger.policy()).await?;
        if !policy.value.expiry_waits {
            return Ok(policy.at);
        }
        let envelope = Envelope { actor: actor.into(), ..Envelope::default() };
        let command = Command::SetPolicy(Policy { expiry_waits: false, ..policy.value });
        let seen = self.ledger.post(envelope, command).answer().await?;
        seen.value?;
        tracing::warn!(actor, "the clock was accepted; grants expire again");
        Ok(seen.at)
    }
}

/// Why the wall clock was not accepted.
pub enum NotAccepted {
    /// It is behind the time of the records, by this many milliseconds.
    Behind(i64),
    /// Something else went wrong.
    Failed(Failure),
}

impl From<Failure> for NotAccepted {
    fn from(failure: Failure) -> NotAccepted {
        NotAccepted::Failed(failure)
    }
}

/// The answer while the wall clock is behind the time of the records.
pub(crate) fn behind(millis: i64) -> Failure {
    let detail = format!(
        "the wall clock is {} s behind the time of the records, so it cannot be accepted: what waits \
         to expire would expire by a time that has not come. Nothing was changed. Next: {REMEDY_CLOCK_BEHIND}",
        millis / 1_000
    );
    Failure::new(Code::Conflict, detail)
}

/// Logs every change of the clock faults.
pub async fn watch(app: Arc<App>) {
    let mut said = ClockFaults::default();
    loop {
        // The clock compares its readings when it is read.
        let _ = app.clock.now();
        let now = app.time_trouble();
        if now != said {
            for trouble in now.clock.iter().chain(&now.expiry) {
                tracing::error!(next = now.remedy(), "the wall clock: {trouble}");
            }
            if let Some(trouble) = &now.database {
                tracing::error!("{trouble}");
            }
            if now == ClockFaults::default() {
                tracing::info!("the wall clock is followed again");
            }
            said = now;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
