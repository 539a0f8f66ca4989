//! Startup and shutdown of a server.

mod background;
mod followers;
mod leading;
mod machines;
mod regions;
mod sealing;
mod standby;
mod started;
mod stopping;
mod storage;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bursar_api::Code;
use bursar_engine::ReplayError;
use bursar_journal::{JournalError, is_full};
use thiserror::Error;
use tokio::sync::watch;

use crate::auth::root_key;
use crate::config::{ClockKind, Config, ConfigError};
use crate::followers::error::FollowerError;
use crate::http::dashboard;
use crate::http::dispatch::Dispatcher;
use crate::http::entry::RequestEntry;
use crate::http::forward::Forwarder;
use crate::ids::{base32, random_bits};
use crate::net::notify::ServiceManager;
use crate::net::serve;
use crate::request::Failure;
use crate::store::database::check_signer_at;
use crate::telemetry::Metrics;
use leading::{Identity, Listening, campaign, host_name, until_leading};
pub use sealing::SegmentOptions;
use standby::{StandbyMachines, StandbyThread};
use started::Started;
use stopping::{stop_at_the_end, stop_on_signal};
pub(crate) use storage::CellJournals;
use storage::postgres;

/// Why a server did not start. Each says what is wrong with what.
#[derive(Debug, Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A journal cannot be opened.
    #[error("{what}: {error}")]
    Journal {
        /// Which.
        what: String,
        /// Why.
        error: JournalError,
    },
    /// The data folder cannot be used.
    #[error(transparent)]
    Store(JournalError),
    /// A file or socket cannot be used.
    #[error("{what}: {error}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        error: std::io::Error,
    },
    /// A follower of a journal cannot start.
    #[error(transparent)]
    Follower(#[from] FollowerError),
    /// The state of a machine cannot be rebuilt.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// A machine did not take a step of the start.
    #[error("{}", .0.problem.detail)]
    Failed(Box<Failure>),
    /// No space is left on the disk.
    #[error(
        "{place}: the disk is full, so the server cannot start ({cause}). Nothing was lost. Free some \
         space and start again"
    )]
    Full {
        /// The folder of the store.
        place: String,
        /// What failed.
        cause: Box<StartError>,
    },
    /// Something else.
    #[error("{0}")]
    Other(String),
    /// The process was asked to stop before it was ready.
    #[error("stopped before it was ready")]
    Interrupted,
}

impl From<Failure> for StartError {
    fn from(failure: Failure) -> StartError {
        StartError::Failed(Box::new(failure))
    }
}

impl StartError {
    /// Whether it failed because no space is left on the disk.
    fn is_full(&self) -> bool {
        match self {
            StartError::Journal { error, .. } | StartError::Store(error) => error.is_full(),
            StartError::Io { error, .. } => is_full(error),
            StartError::Follower(error) => error.is_full(),
            StartError::Replay(error) => error.is_full(),
            StartError::Failed(failure) => failure.problem.code == Code::StorageFull,
            StartError::Full { .. } => true,
            StartError::Config(_) | StartError::Other(_) | StartError::Interrupted => false,
        }
    }

    /// Says what to do if the disk is full, and names the folder of the store.
    fn explained(self, folder: Option<&Path>) -> StartError {
        if !self.is_full() {
            return self;
        }
        let temporary = std::env::temp_dir();
        let place = folder.unwrap_or(&temporary).display().to_string();
        StartError::Full { place, cause: Box::new(self) }
    }
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> StartError {
    let what = what.into();
    move |error| StartError::Io { what, error }
}

/// What is known once the server is ready.
pub struct ServerReady {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The same as a URL for clients.
    pub url: String,
    /// The root key, if it is to be printed.
    pub root_key: Option<String>,
}

/// A server that waits for leadership.
pub struct Standby {
    /// The URL that it listens on.
    pub url: String,
    /// The URL of the leader, if known.
    pub owner: Option<String>,
    /// Why it does not lead.
    pub reason: String,
}

/// Starts a server, calls `ready` when it serves, and returns after a request to stop, once the
/// requests in flight are finished. Calls `standby` first if another server leads the store.
pub fn run(
    mut config: Config,
    standby: impl FnOnce(&Standby),
    ready: impl FnOnce(&ServerReady),
) -> Result<(), StartError> {
    config.check()?;
    root_key::check(&config).map_err(io("the root key"))?;
    if let Some(url) = &config.store {
        check_signer_at(&config, &postgres(url, "store", &config))?;
    }
    let tls = serve::tls(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(io("the runtime"))?;
    let listening = runtime.block_on(Listening::bind(&config, tls.is_some()))?;
    let holder = holder();
    let metrics = Arc::new(Metrics::new());
    let leader = campaign(&config, &holder, &listening, &metrics)?;
    let gap = Duration::from_secs(config.max_clock_gap_seconds);
    let max_gap = if config.accept_clock { Duration::MAX } else { gap };
    // The manual clock goes on from the records, which must be read first.
    let follow = config.cluster.follow && config.clock == ClockKind::Wall;
    let identity =
        Identity { holder, leader: leader.clone(), metrics: Arc::clone(&metrics), max_gap, follow };
    let Listening { listener, address, url, base_url } = listening;
    let forwarder =
        leader.clone().map(|leader| Forwarder::new(&config, leader, Arc::clone(&metrics)));
    let forwarder = forwarder.transpose().map_err(io("requests between members"))?;
    let entry =
        Arc::new(RequestEntry::new(leader.clone().zip(forwarder), metrics, Arc::clone(&base_url)));
    let manager = Arc::new(ServiceManager::from_environment());
    let alive = Arc::clone(&manager);
    runtime.spawn(async move { alive.keep_alive().await });
    let (stopping, stopped) = watch::channel(false);
    let stopping = Arc::new(stopping);
    let on_signal = {
        let _inside = runtime.enter();
        stop_on_signal(Arc::clone(&stopping))
    };
    runtime.spawn(on_signal);
    let mut asked = stopped.clone();
    let stop = async move {
        // A dropped sender counts as a request to stop.
        let _ = asked.wait_for(|stopped| *stopped).await;
    };
    let serving =
        runtime.spawn(serve::serve(listener, tls, Arc::clone(&entry), config.timeouts, stop));
    let ended: Arc<OnceLock<String>> = Arc::new(OnceLock::new());
    let started = (|| {
        let mut followed = None;
        if let Some(leader) = &leader {
            let standing_by = |found: &Standby| {
                manager.ready("standby");
                if follow {
                    followed = Some(StandbyThread::start(&config, &identity));
                }
                standby(found);
            };
            runtime.block_on(until_leading(leader, &url, &stopped, standing_by))?;
        }
        let machines = match followed.transpose().map_err(io("the followers"))? {
            Some(followed) => followed.end(),
            None => StandbyMachines::none(),
        };
        let parts = (base_url, stopped.clone());
        let started = Started::start(&mut config, &identity, &runtime, parts, machines)?;
        runtime.spawn_blocking(dashboard::prepare);
        entry.open(Dispatcher::new(Arc::clone(&started.app)));
        let root_key = started.root_key.clone();
        let (app, why) = (Arc::clone(&started.app), Arc::clone(&ended));
        runtime.spawn(stop_at_the_end(app, why, stopping));
        manager.ready(&format!("listening on {url}"));
        ready(&ServerReady { address, url, root_key });
        // The panic hook has reported a panic of this task.
        let _ = runtime.block_on(serving);
        Ok(started)
    })();
    runtime.shutdown_timeout(Duration::from_secs(5));
    drop(entry);
    let outcome = match started {
        Ok(started) => started.end(ended.get()),
        Err(StartError::Interrupted) => Ok(()),
        Err(error) => Err(error.explained(config.data.as_deref())),
    };
    // Last, so that the next leader finds every machine free.
    if let Some(leader) = leader {
        leader.stop();
    }
    outcome
}

/// The host name and a random id of this start.
fn holder() -> String {
    format!("{}-{}", host_name(), base32(random_bits().into(), 13))
}

#[cfg(test)]
mod tests {
    use bursar_engine::EngineError;

    use super::leading::at_port_in_use;
    use super::*;

    #[test]
    fn a_start_on_a_full_disk_says_what_to_do_wherever_it_failed() {
        let folder = Path::new("/srv/bursar");
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let of_file = JournalError::io("writing the manifest", full());
        for error in [
            StartError::from(Failure::from(EngineError::StorageFull)),
            StartError::Io { what: "the log".into(), error: full() },
            StartError::Journal { what: "ledger-0.db".into(), error: of_file.clone() },
            StartError::Store(of_file.clone()),
            StartError::Follower(FollowerError::Journal(of_file.clone())),
            StartError::Replay(ReplayError::Journal(of_file)),
        ] {
            let said = error.explained(Some(folder)).to_string();
            assert!(said.starts_with("/srv/bursar: the disk is full"), "{said}");
            assert!(said.contains("Free some space"), "{said}");
        }
    }

    #[test]
    fn another_error_of_a_start_is_shown_as_it_is() {
        let folder = Path::new("/srv/bursar");
        let text = "the cell refused its configuration: the disk is full";
        let other = StartError::Other(text.into());
        assert_eq!(other.explained(Some(folder)).to_string(), text);
    }

    #[test]
    fn a_start_on_a_port_in_use_says_what_to_do() {
        let used = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        let said = at_port_in_use(SocketAddr::from(([127, 0, 0, 1], 7070)), used).to_string();
        assert!(
            said.contains("127.0.0.1:7070") && said.contains("--listen 127.0.0.1:PORT"),
            "{said}"
        );
    }
}
