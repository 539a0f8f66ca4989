//! `bursar demo`: a temporary installation on this machine. A server, three nodes with simulated
//! GPUs whose jobs are real processes, two organisations, and continuous load.

mod load;
mod nodes;
mod world;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use bursar_client::Client;
use bursar_client::api::words::counted;
use bursar_client::nodes::regions;
use bursar_server::config::Config;
use bursar_server::start;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failure};
use crate::render::print_line;
use crate::session::contexts::{Context, Contexts};

/// The refresh interval of the progress line.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
pub(crate) struct DemoArguments {
    /// The address of the server; port 0 picks one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The seed of the submissions.
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

/// Runs until it is interrupted, and removes everything.
pub(crate) fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let folder = tempfile::Builder::new().prefix("bursar-demo-").tempdir()?;
    let (server, url, key) = start_server(arguments.listen, folder.path())?;
    let client =
        Client::new(&url, &key).map_err(|error| crate::session::problem::failure(&error, None))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(play(arguments, &client, &url, &key, folder.path()));
    runtime.shutdown_timeout(Duration::from_secs(1));
    nodes::clear(folder.path())?;
    if outcome.is_err() {
        // Otherwise the server has received the same signal.
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM)?;
    }
    server.join().map_err(|_| Failure::because(Exit::Failed, "the server panicked"))??;
    outcome
}

type Server = JoinHandle<Result<(), start::StartError>>;

/// Starts the service in a thread, and returns its address and its root key.
fn start_server(listen: SocketAddr, folder: &Path) -> Result<(Server, String, String), Failure> {
    let config = Config {
        listen,
        data: Some(folder.join("data")),
        dev: true,
        regions: world::REGIONS.map(str::to_owned).into(),
        ..world::demo_config()
    };
    let (sender, receiver) = mpsc::channel();
    let server = std::thread::spawn(move || {
        start::run(
            config,
            |_| {},
            |ready| {
                let key = ready.root_key.clone().unwrap_or_default();
                // The receiver waits for it.
                let _ = sender.send((ready.url.clone(), key));
            },
        )
    });
    match receiver.recv() {
        Ok((url, key)) => Ok((server, url, key)),
        Err(_) => match server.join() {
            Ok(Err(error)) => Err(error.into()),
            Ok(Ok(())) | Err(_) => {
                Err(Failure::because(Exit::Failed, "the server ended before it was ready"))
            }
        },
    }
}

async fn play(
    arguments: &DemoArguments,
    client: &Client,
    url: &str,
    key: &str,
    folder: &Path,
) -> Result<(), Failure> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    world::seed(client).await?;
    let nodes = nodes::start(client, url, folder).await?;
    print_line(&greeting(url, key, folder)?)?;
    let ended = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let outcome = tokio::select! {
        () = ended => Ok(()),
        outcome = load::run(client.clone(), arguments.seed) => outcome,
        () = show_progress(client) => Ok(()),
    };
    nodes.stop().await;
    anstream::eprintln!("stopping the remaining attempts");
    outcome
}

/// The addresses, and commands to try first.
fn greeting(url: &str, key: &str, folder: &Path) -> Result<String, Failure> {
    let file = folder.join("contexts.toml");
    let context =
        Context { server: url.to_owned(), key: Some(key.to_owned()), ..Context::default() };
    let name = "demo".to_owned();
    let contexts = Contexts { current: Some(name.clone()), contexts: [(name, context)].into() };
    contexts.save(&file)?;
    Ok(format!(
        "bursar runs at {url}\n\
         three nodes with simulated GPUs, two organisations, jobs that come and go; Ctrl-C removes all of it\n\n\
         dashboard: {url}/\n  sign in with the key {key}\n\n\
         in another terminal:\n  export BURSAR_CONTEXTS={}\n  bursar ls --watch\n  \
         bursar run --account acme:nlp --gpus H100,A100:2 --time 5m -- bash -c 'env | grep GPU'\n  \
         bursar top --kind project --window 1h",
        file.display()
    ))
}

/// Shows a progress line on a terminal; nothing elsewhere.
async fn show_progress(client: &Client) {
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("it is well-formed"));
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        // A busy server answers the next time.
        let Ok(answer) = client.send(regions::list()).await else { continue };
        let all = answer.value.data;
        let running: u64 = all.iter().map(|region| region.running_jobs).sum();
        let waiting: u64 = all.iter().map(|region| region.waiting_jobs).sum();
        bar.set_message(format!("{} on GPUs, {waiting} waiting", counted(running, "job")));
        bar.tick();
    }
}
