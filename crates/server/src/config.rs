//! The configuration of a server: a file, overridden by flags, checked before anything starts.

use bursar_core::name::{Region, is_valid_name};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::auth::oidc::OidcOptions;
use crate::auth::sessions::SessionOptions;
use crate::followers::archive::LedgerOptions;
use crate::logs::LogLimits;
use crate::net::limits::LimitOptions;
use crate::start::SegmentOptions;

/// The source of time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// The system clock.
    #[default]
    Wall,
    /// Set by requests to `/v1/clock`, for tests.
    Manual,
}

/// The most ledger shards of a store.
const MAX_SHARDS: u16 = 256;

/// How long a client may take before its connection is closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// The TLS handshake, in milliseconds.
    pub handshake_ms: NonZeroU64,
    /// Sending the headers of a request, including the idle time before them.
    pub header_ms: NonZeroU64,
    /// Sending a request body.
    pub body_ms: NonZeroU64,
    /// Accepting any part of a response.
    pub write_ms: NonZeroU64,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let seconds = |number: u64| NonZeroU64::new(number * 1000).expect("not zero");
        Timeouts {
            handshake_ms: seconds(10),
            header_ms: seconds(30),
            body_ms: seconds(30),
            write_ms: seconds(30),
        }
    }
}

/// How a server takes part among those that share a store.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterOptions {
    /// Keep the state of every machine in memory while another server leads, so that a takeover need not read it.
    pub follow: bool,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions { follow: true }
    }
}

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The folder for journals and history.
    pub data: Option<PathBuf>,
    /// The URL of a PostgreSQL database that keeps the journals instead.
    pub store: Option<String>,
    /// With `store`: the folder for what the database does not keep, the output of jobs and history.
    /// `state` beside the root key if absent.
    pub state: Option<PathBuf>,
    /// With `store`: the name of this server among those of the store. The host name and the port if absent.
    pub member: Option<String>,
    /// With `store`: the URL at which other servers of the store reach this one; the address it listens on if
    /// absent.
    pub advertise: Option<String>,
    /// With `store`: a file with the secret that the servers of the store share. Derived from the root key if absent.
    pub cluster_secret_file: Option<PathBuf>,
    /// Accept a PostgreSQL without a synchronous standby.
    pub unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption.
    pub unsafe_plaintext_postgres: bool,
    /// A lower newest form of a store than this build reads, to test upgrades.
    #[serde(skip)]
    pub unsafe_store_form: Option<u32>,
    /// The regions; one called `default` if none are given.
    pub regions: Vec<String>,
    /// How servers that share a store take part.
    pub cluster: ClusterOptions,
    /// The number of ledger shards of a new store; one if absent. A store that has been started keeps what it has.
    pub shards: Option<u16>,
    /// The source of time.
    pub clock: ClockKind,
    /// Development mode: temporary data unless `data` is given, and the root key on standard
    /// output.
    pub dev: bool,
    /// The file with the root key; written on the first start.
    pub root_key_file: Option<PathBuf>,
    /// Make a new key that signs checkpoints if the file of the known one is gone.
    pub new_checkpoint_key: bool,
    /// The certificate chain, in PEM.
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    pub tls_key: Option<PathBuf>,
    /// Listen on addresses beyond this machine without TLS.
    pub unsafe_plaintext: bool,
    /// The URL that clients use, for links in answers.
    pub public_url: Option<String>,
    /// The OTLP collector that receives traces, over HTTP.
    pub otlp_endpoint: Option<String>,
    /// Rate limits and concurrency limits.
    pub limits: LimitOptions,
    /// Timeouts for slow clients.
    pub timeouts: Timeouts,
    /// How long people stay signed in.
    pub sessions: SessionOptions,
    /// The identity provider of people.
    pub oidc: Option<OidcOptions>,
    /// Limits on the stored output of jobs.
    pub logs: LogLimits,
    /// When old records are sealed, and how.
    pub journal: SegmentOptions,
    /// What the ledger keeps in memory.
    pub ledger: LedgerOptions,
    /// The minimum number of records between two snapshots; there are more of them when the state
    /// is large.
    pub snapshot_every: u64,
    /// The largest accepted distance of the wall clock ahead of the last record at a start. Beyond
    /// it no grant expires until an operator accepts the clock.
    pub max_clock_gap_seconds: u64,
    /// Accept the wall clock, however far it is ahead of the last record.
    pub accept_clock: bool,
    /// How often agents report; the cell's own setting if absent.
    pub heartbeat_seconds: Option<u32>,
    /// How long a node may be silent before its attempts are lost; the cell's own setting if
    /// absent.
    pub node_lease_seconds: Option<u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 7070)),
            data: None,
            store: None,
            state: None,
            member: None,
            advertise: None,
            cluster_secret_file: None,
            unsafe_single_postgres: false,
            unsafe_plaintext_postgres: false,
            unsafe_store_form: None,
            regions: Vec::new(),
            cluster: ClusterOptions::default(),
            shards: None,
            clock: ClockKind::Wall,
            dev: false,
            root_key_file: None,
            new_checkpoint_key: false,
            tls_cert: None,
            tls_key: None,
            unsafe_plaintext: false,
            public_url: None,
            otlp_endpoint: None,
            limits: LimitOptions::default(),
            timeouts: Timeouts::default(),
            sessions: SessionOptions::default(),
            oidc: None,
            logs: LogLimits::default(),
            journal: SegmentOptions::default(),
            ledger: LedgerOptions::default(),
            snapshot_every: 200_000,
            max_clock_gap_seconds: 7 * 24 * 3600,
            accept_clock: false,
            heartbeat_seconds: None,
            node_lease_seconds: None,
        }
    }
}

/// Why a configuration cannot be used. Each message says what to change.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is not a valid configuration.
    #[error("{path}: {error}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: Box<toml::de::Error>,
    },
    /// Two settings contradict each other, or one is missing.
    #[error("{0}")]
    Contradiction(String),
}

impl Config {
    /// Whether requests may come through a proxy that ends TLS.
    pub(crate) fn may_be_proxied(&self) -> bool {
        self.tls_cert.is_none() && (self.unsafe_plaintext || self.public_url.is_some())
    }

    /// Reads a configuration file.
    pub fn from_file(path: &Path) -> Result<Config, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        toml::from_str(&text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), error: Box::new(error) })
    }

    /// The names of the regions; at least one.
    pub fn region_names(&self) -> Result<Vec<Region>, ConfigError> {
        if self.regions.is_empty() {
            return Ok(vec!["default".into()]);
        }
        let parse = |region: &String| {
            Region::parse(region.as_str()).map_err(|invalid| {
                let reason = format!("the name of a region, `{region}`, {invalid}");
                ConfigError::Contradiction(reason)
            })
        };
        self.regions.iter().map(parse).collect()
    }

    /// The folder for files that the database does not keep; `None` without a database.
    pub fn state_folder(&self) -> Option<PathBuf> {
        self.store.as_ref()?;
        let beside = || self.root_key_file.as_ref().map(|file| file.with_file_name("state"));
        self.state.clone().or_else(beside)
    }

    /// Rejects contradictory settings, and unsafe ones that were not explicitly allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |reason: &str| Err(ConfigError::Contradiction(reason.to_owned()));
        if self.shards.is_some_and(|shards| !(1..=MAX_SHARDS).contains(&shards)) {
            return wrong("--shards must be 1 to 256");
        }
        if self.data.is_some() && self.store.is_some() {
            return wrong("give --data or --store, not both");
        }
        if self.data.is_none() && self.store.is_none() && !self.dev {
            return wrong("say where to keep the data: --data DIR, --store postgres://…, or --dev");
        }
        if self.store.is_some() && self.root_key_file.is_none() {
            return wrong("with --store the root key needs a file: --root-key-file FILE");
        }
        if self.state.is_some() && self.store.is_none() {
            return wrong("--state goes with --store; without it files lie in the data folder");
        }
        let of_cluster =
            self.member.is_some() || self.advertise.is_some() || self.cluster_secret_file.is_some();
        if of_cluster && self.store.is_none() {
            return wrong(
                "--member, --advertise and --cluster-secret-file go with --store: a data folder has one \
                 server",
            );
        }
        if self.member.as_deref().is_some_and(|name| !is_valid_name(name)) {
            return wrong("--member must have 1 to 64 characters of A-Z a-z 0-9 . _ : -");
        }
        if let Some(url) = &self.advertise
            && !(url.starts_with("http://") || url.starts_with("https://"))
        {
            return wrong("--advertise must be a URL: http://ADDRESS:PORT or https://ADDRESS:PORT");
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return wrong("TLS needs both: --tls-cert FILE and --tls-key FILE");
        }
        let exposed = !self.listen.ip().is_loopback() && self.tls_cert.is_none();
        if exposed && !self.unsafe_plaintext {
            return wrong(
                "refusing to listen beyond this machine without TLS: keys would travel in the \
                 clear. Give --tls-cert and --tls-key, or --unsafe-plaintext behind a proxy that \
                 ends TLS",
            );
        }
        if let (Some(beat), Some(lease)) = (self.heartbeat_seconds, self.node_lease_seconds)
            && (beat == 0 || lease / 3 < beat)
        {
            return wrong(
                "node_lease_seconds must be at least three times heartbeat_seconds, or one lost \
                 report would end jobs",
            );
        }
        let logs = &self.logs;
        if logs.attempt_bytes == 0 || logs.node_rate == 0 || logs.node_burst < (1 << 20) {
            return wrong(
                "[logs] attempt_bytes and node_rate must not be 0, and node_burst at least 1048576, or \
                 no output could be sent",
            );
        }
        if logs.node_bytes < logs.attempt_bytes || logs.total_bytes < logs.attempt_bytes {
            return wrong(
                "[logs] node_bytes and total_bytes must be at least attempt_bytes, or no output of a \
                 job would stay whole",
            );
        }
        if logs.files < 8 {
            return wrong("[logs] files must be at least 8");
        }
        if let Some(fault) = self.oidc.as_ref().and_then(OidcOptions::fault) {
            return Err(ConfigError::Contradiction(fault));
        }
        self.journal.check()?;
        self.region_names().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(change: impl FnOnce(&mut Config)) -> Result<(), String> {
        let mut config = Config { data: Some("data".into()), ..Config::default() };
        change(&mut config);
        config.check().map_err(|error| error.to_string())
    }

    #[test]
    fn unsafe_settings_must_be_explicit() {
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 7070));
        assert_eq!(with(|_| {}), Ok(()));
        assert!(with(|config| config.listen = everywhere).is_err());
        assert_eq!(
            with(|config| {
                config.listen = everywhere;
                config.unsafe_plaintext = true;
            }),
            Ok(())
        );
        assert!(with(|config| config.tls_cert = Some("c".into())).is_err());
        assert!(with(|config| config.data = None).is_err());
        assert!(with(|config| config.store = Some("postgres://x".into())).is_err());
        assert!(with(|config| config.state = Some("state".into())).is_err());
        let on_store = |state: Option<&str>| {
            let mut config = Config { store: Some("postgres://x".into()), ..Config::default() };
            config.root_key_file = Some("keys/root.key".into());
            config.state = state.map(Into::into);
            config.check().map(|()| config.state_folder()).map_err(|error| error.to_string())
        };
        assert_eq!(on_store(None), Ok(Some("keys/state".into())));
        assert_eq!(on_store(Some("/srv/state")), Ok(Some("/srv/state".into())));
        assert!(with(|config| config.regions = vec!["a b".into()]).is_err());
        let rhythm = |beat, lease| {
            with(|config| {
                config.heartbeat_seconds = Some(beat);
                config.node_lease_seconds = Some(lease);
            })
        };
        assert_eq!(rhythm(30, 90), Ok(()));
        assert!(rhythm(30, 89).is_err());
        assert!(rhythm(0, 90).is_err());
        let logs = |change: fn(&mut LogLimits)| with(|config| change(&mut config.logs));
        assert_eq!(logs(|logs| logs.total_bytes = logs.attempt_bytes), Ok(()));
        assert!(logs(|logs| logs.total_bytes = logs.attempt_bytes - 1).is_err());
        assert!(logs(|logs| logs.node_bytes = logs.attempt_bytes - 1).is_err());
        assert!(logs(|logs| logs.files = 7).is_err());
        assert!(logs(|logs| logs.node_burst = 1000).is_err());
        assert!(logs(|logs| logs.attempt_bytes = 0).is_err());
        let journal = |change: fn(&mut SegmentOptions)| with(|config| change(&mut config.journal));
        assert_eq!(journal(|journal| journal.segment_bytes = 1 << 20), Ok(()));
        assert!(journal(|journal| journal.segment_bytes = 0).is_err());
        assert!(journal(|journal| journal.compression = 20).is_err());
    }

    /// Every key with its default, as the page writes it.
    fn keys(prefix: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
        for (name, value) in value.as_object().into_iter().flatten() {
            let key = format!("{prefix}{name}");
            match value {
                serde_json::Value::Object(_) => keys(&format!("{key}."), value, rows),
                serde_json::Value::Null => rows.push((key, "none".into())),
                other => rows.push((key, format!("`{other}`"))),
            }
        }
    }

    #[test]
    fn the_reference_has_every_key_with_its_default() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/operations.md");
        let page = std::fs::read_to_string(path).expect("the page is there");
        let table = page.lines().skip_while(|line| *line != "| Key | Default | Meaning |").skip(2);
        let table = table.take_while(|line| line.starts_with("| "));
        let mut written: Vec<(String, String)> = table
            .map(|line| {
                let cells: Vec<&str> = line.split(" | ").collect();
                assert_eq!(cells.len(), 3, "{line}");
                (
                    cells[0].trim_start_matches("| ").trim_matches('`').to_owned(),
                    cells[1].to_owned(),
                )
            })
            .collect();
        let mut known = Vec::new();
        let config = serde_json::to_value(Config::default()).expect("plain fields");
        keys("", &config, &mut known);
        written.sort();
        known.sort();
        assert_eq!(written, known, "docs/operate/operations.md, Configuration");
    }

    #[test]
    fn an_unknown_setting_is_named() {
        let error = toml::from_str::<Config>("listem = \"127.0.0.1:1\"").expect_err("a typo");
        assert!(error.to_string().contains("listem"), "{error}");
    }
}
