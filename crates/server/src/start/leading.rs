//! Where a server listens, and how it comes to lead its store.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bursar_engine::{EngineOptions, NotPermitted, Observer, Permit};
use bursar_journal::postgres::{Announcement, PostgresLeader};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::storage::postgres;
use super::{Standby, StartError, io};
use crate::config::{ClockKind, Config};
use crate::machines::leader::{Candidate, Leader, Role};
use crate::telemetry::Metrics;

/// The pause before a server of several tries again to take a machine over.
const TAKEOVER_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The identity of this server among those that share the store.
#[derive(Clone)]
pub(super) struct Identity {
    /// The host name and the random id of this start.
    pub(super) holder: String,
    pub(super) leader: Option<Arc<Leader>>,
    pub(super) metrics: Arc<Metrics>,
    /// The largest accepted distance of the clock ahead of the last record.
    pub(super) max_gap: Duration,
    /// Whether machines that another server owns are followed.
    pub(super) follow: bool,
}

impl Identity {
    /// The engine options of one machine.
    pub(super) fn options(&self, machine: &str) -> EngineOptions {
        let permit = self.leader.as_ref().map(|leader| leader.permit()).unwrap_or_default();
        let (holder, observer) = (self.holder.clone(), self.observer(machine));
        let (max_gap, default) = (self.max_gap, EngineOptions::default());
        // The leader takes over at once what it lost before.
        let retry = if self.leader.is_some() { TAKEOVER_RETRY_INTERVAL } else { default.retry };
        let follow = self.follow;
        EngineOptions { holder, observer, permit, max_gap, retry, follow, ..default }
    }

    /// The same for a machine that is not taken over before `may_own` is set, although this server leads.
    pub(super) fn options_behind(&self, machine: &str, may_own: &Arc<AtomicBool>) -> EngineOptions {
        let options = self.options(machine);
        let (may_own, permit) = (Arc::clone(may_own), options.permit.clone());
        let permit = Permit::new(move || match may_own.load(Ordering::SeqCst) {
            true => permit.ask(),
            false => Err(NotPermitted("this server does not own the machine yet")),
        });
        EngineOptions { permit, ..options }
    }

    pub(super) fn observer(&self, machine: &str) -> Observer {
        let (metrics, name) = (Arc::clone(&self.metrics), machine.to_owned());
        let (counters, named) = (Arc::clone(&self.metrics), machine.to_owned());
        let (lags, followed) = (Arc::clone(&self.metrics), machine.to_owned());
        Observer::new(move |written| metrics.append(&name, written))
            .with_trouble(move |trouble| counters.trouble(&named, &trouble))
            .with_lag(move |lag| lags.follower_lag(&followed, lag))
    }
}

/// The name of this machine.
pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "bursar".to_owned() } else { name.to_owned() }
}

/// Explains a port that is in use and how to fix it.
pub(super) fn at_port_in_use(listen: SocketAddr, error: std::io::Error) -> StartError {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return StartError::Io { what: listen.to_string(), error };
    }
    StartError::Other(format!(
        "{listen}: another process listens there. Stop it, or choose another port: --listen {}:PORT (0 \
         takes a free one)",
        listen.ip()
    ))
}

/// A bound listener and the URL of the server behind it.
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) address: SocketAddr,
    pub(super) url: String,
    pub(super) base_url: Arc<str>,
}

impl Listening {
    pub(super) async fn bind(config: &Config, encrypted: bool) -> Result<Listening, StartError> {
        let listener = TcpListener::bind(config.listen).await;
        let listener = listener.map_err(|error| at_port_in_use(config.listen, error))?;
        let address = listener.local_addr().map_err(io("the listener"))?;
        let scheme = if encrypted { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let base_url = config.public_url.clone().unwrap_or_else(|| url.clone());
        let base_url: Arc<str> = base_url.trim_end_matches('/').into();
        Ok(Listening { listener, address, url, base_url })
    }

    /// The name of a member that has none: two processes on one machine do not listen on one port.
    fn member_name(&self) -> String {
        let host: String =
            host_name().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        let host = host.get(..host.len().min(48)).unwrap_or_default();
        format!("{host}-{}", self.address.port())
    }

    /// The URL at which other members reach this one; empty if it is not known.
    fn advertised(&self, config: &Config) -> String {
        let url = match &config.advertise {
            Some(url) => url.as_str(),
            // Nothing is reached at the address that stands for all addresses. Behind the public URL may be a load
            // balancer.
            None if self.address.ip().is_unspecified() => "",
            None => &self.url,
        };
        if url.is_empty() {
            tracing::warn!(
                "other servers of the store cannot forward requests to this one while it leads: it \
                 listens on all addresses, so say which one it has with --advertise URL"
            );
        }
        url.trim_end_matches('/').to_owned()
    }
}

/// Starts to claim leadership of a store that several servers share.
pub(super) fn campaign(
    config: &Config,
    holder: &str,
    listening: &Listening,
    metrics: &Arc<Metrics>,
) -> Result<Option<Arc<Leader>>, StartError> {
    let Some(url) = &config.store else { return Ok(None) };
    let unusable = |error| StartError::Journal { what: "the store".into(), error };
    let store = PostgresLeader::open(postgres(url, "leader", config)).map_err(unusable)?;
    let of_asks = store.another().map_err(unusable)?;
    let member = Announcement {
        name: config.member.clone().unwrap_or_else(|| listening.member_name()),
        start: holder.to_owned(),
        url: listening.advertised(config),
        build: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let candidate = Candidate {
        member,
        by_wall_clock: config.clock == ClockKind::Wall,
        metrics: Arc::clone(metrics),
    };
    Leader::start((store, of_asks), candidate)
        .map(|leader| Some(Arc::new(leader)))
        .map_err(io("the leader"))
}

/// Waits until this server leads. Calls `standby` once if another server leads first.
pub(super) async fn until_leading(
    leader: &Leader,
    url: &str,
    stopped: &watch::Receiver<bool>,
    standby: impl FnOnce(&Standby),
) -> Result<(), StartError> {
    let (mut role, mut stopped) = (leader.role(), stopped.clone());
    // The sender lives as long as the leader does.
    let known = role.wait_for(|role| *role != Role::Unknown).await.map(|role| role.clone());
    if let Ok(Role::Standby { owner, reason }) = known {
        standby(&Standby { url: url.to_owned(), owner, reason });
    }
    tokio::select! {
        led = role.wait_for(|role| *role == Role::Leader) => {
            led.map(drop).map_err(|_| StartError::Other("the leader thread ended".into()))
        }
        _ = stopped.wait_for(|stopped| *stopped) => Err(StartError::Interrupted),
    }
}

/// Ends streams and long polls when another server leads, because its events are not seen here.
pub(super) async fn end_streams(
    mut role: watch::Receiver<Role>,
    streams: Arc<watch::Sender<bool>>,
) {
    while role.changed().await.is_ok() {
        let leads = *role.borrow_and_update() == Role::Leader;
        streams.send_replace(!leads);
    }
}
