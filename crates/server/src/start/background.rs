//! The tasks that a server runs beside its requests.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::stopping::spawn_vital;
use super::storage::{Storage, write_manifest_periodically};
use crate::app::App;
use crate::followers::{expiry, selfcheck};
use crate::machines::wall_time;

/// Starts the tasks. None of them may end before the server does.
pub(super) fn start_tasks(app: &Arc<App>, storage: &Storage) {
    if let Some(store) = &storage.store {
        let noting = write_manifest_periodically(Arc::clone(store), storage.machines());
        spawn_vital("the manifest writer", noting);
    }
    spawn_vital("the clock watcher", wall_time::watch(Arc::clone(app)));
    for own in app.every_shard().map(Arc::new) {
        spawn_vital("the self-check", selfcheck::run(Arc::clone(&own)));
        spawn_vital("the warnings of expiry", expiry::run(own));
    }
    spawn_vital("the cleanup of rate limits", remove_idle_limits(Arc::clone(app)));
    spawn_vital("the directory follower", follow_directory(Arc::clone(app)));
    if app.manual.is_none() {
        let app = Arc::clone(app);
        spawn_vital("the price follower", async move { app.follow_prices().await });
    }
}

/// Reads the directory again after a takeover, and sends the cells the prices and classes that
/// another server may not have sent.
async fn follow_directory(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if app.directory.is_present() || app.directory.follow().await.is_err() {
            continue;
        }
        let noted = async {
            app.send_prices().await?;
            app.send_classes().await
        };
        if let Err(failure) = noted.await {
            tracing::warn!(detail = %failure.problem.detail, "prices and classes were not sent to the cells");
        }
    }
}

/// Drops the state of rate limits whose buckets are full again, sessions that have ended and the
/// last uses of keys that were revoked.
async fn remove_idle_limits(app: Arc<App>) {
    loop {
        tokio::time::sleep(Duration::from_secs(60)).await;
        app.limits.remove_idle();
        app.sessions.remove_ended(app.clock.now());
        let current = app.directory.current();
        let kept: HashSet<[u8; 32]> = current.keys().map(|(_, key)| key.secret_hash).collect();
        app.last_uses.retain(|secret_hash| kept.contains(secret_hash));
    }
}
