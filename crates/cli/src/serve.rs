//! `bursar serve`: runs the service. `bursar config check`: checks a configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use bursar_server::config::{ClockKind, Config};
use bursar_server::start;
use bursar_server::telemetry::trace;
use clap::{Args, Subcommand, ValueEnum};

use crate::exit::Failure;

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
    /// A configuration in TOML; every flag has a key of the same name.
    #[arg(long, value_name = "FILE", env = "BURSAR_CONFIG")]
    config: Option<PathBuf>,
    /// The address to listen on; port 0 picks one.
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
    /// Accept a PostgreSQL without a synchronous standby: its loss loses acknowledged changes.
    #[arg(long)]
    unsafe_single_postgres: bool,
    /// Accept a PostgreSQL on another machine without encryption (sslmode=disable).
    #[arg(long)]
    unsafe_plaintext_postgres: bool,
    /// A region; repeat for several. One called `default` if none is given.
    #[arg(long = "region", value_name = "NAME")]
    regions: Vec<String>,
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
    /// With --store: create a new key that signs checkpoints if the file of the known one is missing.
    /// Distribute its public key to third parties, and the file to other servers of the store.
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
        config.unsafe_single_postgres |= self.unsafe_single_postgres;
        config.unsafe_plaintext_postgres |= self.unsafe_plaintext_postgres;
        if !self.regions.is_empty() {
            config.regions = self.regions;
        }
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
    Check {
        /// The file.
        file: PathBuf,
    },
}

/// Checks a configuration.
pub(crate) fn config(command: &ConfigCommand) -> Result<(), Failure> {
    let ConfigCommand::Check { file } = command;
    let config = Config::from_file(file)?;
    config.check()?;
    bursar_server::net::serve::tls(&config)?;
    println!("{} can be used", file.display());
    Ok(())
}
