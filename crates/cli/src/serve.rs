//! `bursar serve`: runs the service. `bursar config check`: checks a configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bursar_server::config::{ClockKind, Config};
use bursar_server::start;
use bursar_server::telemetry::trace;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::exit::Failure;
use crate::render::format::{Format, colours, print, print_styled, yaml};
use crate::render::sheet::{Cell, Column, Row, Sheet, words};

/// The source of time.
#[derive(Copy, Clone, Debug, ValueEnum)]
pub(crate) enum ClockChoice {
    /// The system's clock.
    Wall,
    /// Requests to `/v1/clock`, for tests.
    Manual,
}

/// How to run the service. Flags override the file.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// A configuration file in TOML. Flags override it. Its keys are in docs/operate/operations.md;
    /// `bursar config view FILE` shows them with their values.
    #[arg(long, value_name = "FILE", env = "BURSAR_CONFIG")]
    config: Option<PathBuf>,
    /// The address to listen on, 127.0.0.1:7070 if not given; port 0 picks one.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The folder for journals and history.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A PostgreSQL for the journals instead; a connection to another machine is encrypted and its
    /// certificate checked (sslmode, sslrootcert).
    #[arg(long, value_name = "URL", env = "BURSAR_STORE", conflicts_with = "data")]
    store: Option<String>,
    /// With --store: the folder for the output of jobs and for history, which are not in the database.
    /// `state` beside the root key if not given. Servers that share a store share the folder.
    #[arg(long, value_name = "DIR", requires = "store")]
    state: Option<PathBuf>,
    /// With --store: the name of this server among those of the store. The host name and the port if not given.
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    /// With --store: the URL at which other servers of the store reach this one; the address it listens on if not
    /// given.
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// With --store: a file with the secret that the servers of the store share. Derived from the root key if not
    /// given.
    #[arg(long, value_name = "FILE")]
    cluster_secret_file: Option<PathBuf>,
    /// Accept a PostgreSQL without a synchronous standby: its loss loses acknowledged changes.
    #[arg(long)]
    unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long)]
    unsafe_plaintext_postgres: bool,
    /// Read and announce only forms of a store up to this one, to test upgrades.
    #[arg(long, value_name = "N", hide = true)]
    unsafe_store_form: Option<u32>,
    /// A region; repeat for several. One called `default` if none is given.
    #[arg(long = "region", value_name = "NAME")]
    regions: Vec<String>,
    /// The number of ledger shards of a new store: orgs are spread over them. One if absent. A store that was started
    /// before keeps what it has: see `bursar shard add`.
    #[arg(long, value_name = "N")]
    shards: Option<u16>,
    /// The source of time.
    #[arg(long, value_name = "KIND")]
    clock: Option<ClockChoice>,
    /// Accept the system's clock, however far it is ahead of the last record: grants expire by it.
    #[arg(long)]
    accept_clock: bool,
    /// Temporary data unless --data is given, and the root key on standard output.
    #[arg(long)]
    dev: bool,
    /// The file with the root key; written on the first start.
    #[arg(long, value_name = "FILE")]
    root_key_file: Option<PathBuf>,
    /// Create a new key that signs checkpoints if the file of the known one is missing. Distribute its
    /// public key to third parties and, with --store, the file to other servers of the store.
    #[arg(long)]
    new_checkpoint_key: bool,
    /// The certificate chain, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without TLS, behind a proxy that terminates TLS.
    #[arg(long)]
    unsafe_plaintext: bool,
    /// The address that clients use, for links in answers.
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Send traces to this OTLP collector over HTTP.
    #[arg(long, value_name = "URL", env = "BURSAR_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
}

impl ServeArguments {
    fn into_config(self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::from_file(path)?,
            None => Config::default(),
        };
        config.listen = self.listen.unwrap_or(config.listen);
        config.data = self.data.or(config.data);
        config.store = self.store.or(config.store);
        config.state = self.state.or(config.state);
        config.member = self.member.or(config.member);
        config.advertise = self.advertise.or(config.advertise);
        config.cluster_secret_file = self.cluster_secret_file.or(config.cluster_secret_file);
        config.unsafe_single_postgres |= self.unsafe_single_postgres;
        config.unsafe_plaintext_postgres |= self.unsafe_plaintext_postgres;
        config.unsafe_store_form = self.unsafe_store_form;
        if !self.regions.is_empty() {
            config.regions = self.regions;
        }
        config.shards = self.shards.or(config.shards);
        config.clock = match self.clock {
            Some(ClockChoice::Wall) => ClockKind::Wall,
            Some(ClockChoice::Manual) => ClockKind::Manual,
            None => config.clock,
        };
        config.accept_clock |= self.accept_clock;
        config.dev |= self.dev;
        config.root_key_file = self.root_key_file.or(config.root_key_file);
        config.new_checkpoint_key |= self.new_checkpoint_key;
        config.tls_cert = self.tls_cert.or(config.tls_cert);
        config.tls_key = self.tls_key.or(config.tls_key);
        config.unsafe_plaintext |= self.unsafe_plaintext;
        config.public_url = self.public_url.or(config.public_url);
        config.otlp_endpoint = self.otlp_endpoint.or(config.otlp_endpoint);
        Ok(config)
    }
}

/// Runs the service until it receives a signal.
pub(crate) fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let config = arguments.into_config()?;
    let tracing = trace::start(config.otlp_endpoint.as_deref())
        .map_err(|reason| Failure::new("starting the logs", reason))?;
    let standby = |standby: &start::Standby| match &standby.owner {
        Some(owner) => println!("standby on {}, leader {owner}", standby.url),
        None => println!("standby on {}: {}", standby.url, standby.reason),
    };
    start::run(config, standby, |ready| {
        if let Some(key) = &ready.root_key {
            println!("root key: {key}");
        }
        println!("listening on {}", ready.url);
    })?;
    drop(tracing);
    Ok(())
}

/// Commands on a configuration.
#[derive(Subcommand, Debug)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file.
    #[command(after_help = "Example:\n  bursar config check /etc/bursar/server.toml")]
    Check {
        /// The file.
        file: PathBuf,
    },
    /// Show every setting, its value and whether it is from the file or a default.
    #[command(after_help = "Examples:\n  bursar config view\n  \
        bursar config view /etc/bursar/server.toml")]
    View {
        /// The file; the defaults if not given.
        file: Option<PathBuf>,
    },
}

/// A setting.
#[derive(Serialize)]
struct Setting {
    key: String,
    value: serde_json::Value,
    /// `file` or `default`.
    source: &'static str,
}

impl Row for Setting {
    const COLUMNS: &'static [Column] = &[words("key"), words("value"), words("source")];

    fn cells(&self) -> Vec<Cell> {
        let value = if self.value.is_null() { "none".into() } else { self.value.to_string() };
        vec![Cell::new(&self.key), Cell::new(value), Cell::new(self.source)]
    }
}

/// Collects the settings below a prefix. `written` is what the file has there.
fn settings(
    prefix: &str,
    value: &serde_json::Value,
    written: &serde_json::Value,
    all: &mut Vec<Setting>,
) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let (key, written) = (format!("{prefix}{name}"), &written[name.as_str()]);
        if value.is_object() {
            settings(&format!("{key}."), value, written, all);
        } else {
            let source = if written.is_null() { "default" } else { "file" };
            // The address of a database may have a password in it.
            let value = match (name.as_str(), value) {
                ("store", serde_json::Value::String(_)) => "(not shown)".into(),
                (_, value) => value.clone(),
            };
            all.push(Setting { key, value, source });
        }
    }
}

fn view(file: Option<&Path>, format: Format) -> Result<(), Failure> {
    let (config, written) = match file {
        None => (Config::default(), serde_json::Value::Null),
        Some(file) => {
            let config = Config::from_file(file)?;
            let text = std::fs::read_to_string(file).map_err(|cause| {
                Failure::new(format_args!("cannot read {}", file.display()), cause)
            })?;
            (config, toml::from_str(&text)?)
        }
    };
    let mut all = Vec::new();
    settings("", &serde_json::to_value(&config)?, &written, &mut all);
    match format {
        Format::Table => print_styled(&Sheet::list(&all).text(colours())),
        Format::Csv => print(&Sheet::list(&all).csv()?),
        Format::Json => print(&serde_json::to_string(&all)?),
        Format::Yaml => print(&yaml(&serde_json::to_string(&all)?)?),
    }
}

/// Shows or checks a configuration.
pub(crate) fn config(command: &ConfigCommand, format: Format) -> Result<(), Failure> {
    let file = match command {
        ConfigCommand::View { file } => return view(file.as_deref(), format),
        ConfigCommand::Check { file } => file,
    };
    let config = Config::from_file(file)?;
    config.check()?;
    bursar_server::net::serve::tls(&config)?;
    println!("{} can be used", file.display());
    Ok(())
}
