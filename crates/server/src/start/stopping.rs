//! The end of a server: signals, ended machines, and streams that end with it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bursar_engine::Vital;
use tokio::sync::watch;

use crate::app::App;

/// Stops the server on a signal of the system. From the call on, and not only once the work is begun, no signal ends the
/// process. Called inside the asynchronous runtime.
pub(super) fn stop_on_signal(
    stopping: Arc<watch::Sender<bool>>,
) -> impl Future<Output = ()> + Send {
    let signal = signal();
    async move {
        signal.await;
        stopping.send_replace(true);
    }
}

/// Stops the server when the process must restart.
pub(super) async fn stop_at_the_end(
    app: Arc<App>,
    why: Arc<OnceLock<String>>,
    stopping: Arc<watch::Sender<bool>>,
) {
    // Set only here.
    let _ = why.set(until_ended(&app).await);
    stopping.send_replace(true);
}

/// Ends streams when the server stops.
pub(super) async fn follow_stop(
    mut stopped: watch::Receiver<bool>,
    streams: Arc<watch::Sender<bool>>,
) {
    if stopped.wait_for(|stopped| *stopped).await.is_ok() {
        streams.send_replace(true);
    }
}

/// How often to check whether a machine has ended.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until the process must restart, and returns the reason.
pub(super) async fn until_ended(app: &App) -> String {
    let mut known = 0;
    loop {
        let aside: u64 = app.machines().iter().map(|(_, _, stats)| stats.set_aside).sum();
        if aside > known {
            known = aside;
            tracing::error!(set_aside = aside, "a timer or message was set aside; see /readyz");
        }
        if let Some(reason) = app.ended() {
            tracing::error!(%reason, "this process cannot continue and ends");
            return reason;
        }
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Starts a task that must not end silently: a panic ends the process.
pub(super) fn spawn_vital(name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(async move {
        let _vital = Vital::new(name);
        work.await;
    });
}

fn signal() -> impl Future<Output = ()> + Send {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = both else {
            // Without signal handlers only the end of the process ends the server.
            return std::future::pending().await;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
