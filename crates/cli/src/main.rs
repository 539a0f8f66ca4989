//! The `bursar` command. One file per subcommand: those under `command/` call a server, the
//! others work locally; `render/` formats output, `exit.rs` has the exit codes.

mod agent;
mod arguments;
mod bench;
mod command;
mod context;
mod credits;
mod demo;
mod directives;
mod doctor;
mod exit;
mod explain;
mod local;
mod login;
mod pool;
mod render;
mod serve;
mod session;
mod simulate;
mod tree;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use clap_complete::{CompleteEnv, Shell};

use crate::render::filter::OutputArguments;
use crate::render::times;
use crate::session::connection::ConnectionArguments;

/// What one thread makes is freed by another: requests are read, decided and answered by several. A batch takes a tenth
/// less processor time than with the allocator of glibc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Credits and a scheduler for shared GPUs.
#[derive(Parser)]
#[command(name = "bursar", version)]
#[command(after_help = "Exit codes: 0 success · 1 local failure · 2 wrong usage · \
    3 refused · 4 not found · 5 not enough credits or budget exceeded · 6 unavailable, retry")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: ConnectionArguments,
    #[command(flatten)]
    output: OutputArguments,
    /// Show and read times in UTC instead of the local time zone (TZ).
    #[arg(long, global = true)]
    utc: bool,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Remote(Box<command::Remote>),
    /// Sign in with the browser and save the connection.
    #[command(after_help = "Examples:\n  bursar login --server https://bursar.example\n  \
        bursar login --no-browser\n  bursar login --device")]
    Login(login::LoginArguments),
    /// End the session of the saved connection and remove it.
    #[command(after_help = "Examples:\n  bursar logout\n  bursar logout --everywhere")]
    Logout(login::LogoutArguments),
    /// Check the connection, the key and the server, and say how to fix what is wrong.
    #[command(after_help = "Examples:\n  bursar doctor\n  bursar doctor -o json")]
    Doctor,
    /// Show which server and key commands use, and where each comes from.
    #[command(after_help = "Example:\n  bursar whoami")]
    Whoami,
    /// Manage saved connections.
    #[command(subcommand)]
    Context(context::ContextCommand),
    /// Print a shell completion script.
    #[command(after_help = "Examples:\n  bursar completion bash > \
        ~/.local/share/bash-completion/completions/bursar\n  \
        bursar completion fish > ~/.config/fish/completions/bursar.fish\n\n\
        The script completes commands and options, and asks the server for the ids of jobs, accounts, \
        grants, holds, keys, nodes, regions and classes that your key can see.")]
    Completion {
        /// The shell.
        shell: Shell,
        /// Complete commands and options only, without asking the server.
        #[arg(long = "static")]
        is_static: bool,
    },
    /// Explain a resource or a field of the API, without a server.
    #[command(after_help = "Examples:\n  bursar explain\n  bursar explain job\n  \
        bursar explain grant.expires_at")]
    Explain {
        /// A resource, or a field of it; all resources if not given.
        path: Option<String>,
    },
    /// Write the manual pages into a folder.
    #[command(after_help = "Examples:\n  bursar man /usr/local/share/man/man1\n  \
        bursar man ./man && man ./man/bursar-run.1")]
    Man {
        /// The folder; created if it is missing.
        folder: std::path::PathBuf,
    },
    /// Copy, restore, check and export a store.
    #[command(subcommand)]
    Admin(local::admin::AdminCommand),
    /// Run the service.
    #[command(after_help = "Examples:\n  bursar serve --dev\n  \
        bursar serve --data /var/lib/bursar --root-key-file /etc/bursar/root.key")]
    Serve(Box<serve::ServeArguments>),
    /// Run a demo on this machine: a server, three nodes and live load.
    #[command(after_help = "Examples:\n  bursar demo\n  bursar demo --listen 127.0.0.1:7070")]
    Demo(demo::DemoArguments),
    /// Run the jobs of a server on this machine.
    #[command(after_help = "Examples:\n  bursar agent --server https://bursar.example --key-file \
        agent.key --region eu\n  bursar agent --key-file agent.key --region default --fake-gpus \
        H100:8:80 --node node-1")]
    Agent(Box<agent::AgentArguments>),
    /// Supervise one attempt of a job; started by the agent.
    #[command(hide = true, after_help = "Example:\n  bursar agent-supervise FOLDER")]
    AgentSupervise(agent::SuperviseArguments),
    /// Show and check the configuration of a server without using it.
    #[command(subcommand)]
    Config(serve::ConfigCommand),
    /// Simulate the scheduler on traces of real clusters.
    #[command(subcommand)]
    Simulate(simulate::Simulate),
    /// Measure performance on this machine.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Manage a pool of resources over standard input and output.
    #[command(
        after_help = "Examples:\n  bursar pool --resource gpu=8 --resource memory=64 < messages\n  \
        bursar pool                           with cpu=8, memory=16 and gpu=2"
    )]
    Pool(pool::PoolArguments),
    /// Keep credits that expire over standard input and output.
    Credits(credits::CreditsArguments),
}

fn main() -> ExitCode {
    // Known before the arguments are read, because dates among them are in this time zone.
    let is_utc = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--utc");
    times::use_zone(is_utc);
    CompleteEnv::with_factory(tree::tree).var(tree::complete::VARIABLE).complete();
    let is_json = wants_json(std::env::args_os());
    let matches = match directives::expanded(std::env::args_os().collect()) {
        Ok(arguments) => tree::tree().try_get_matches_from(arguments),
        Err(failure) => return exit::report(Err(failure), is_json),
    };
    let read = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { command, connection, output, utc: _ } = match read {
        Ok(cli) => cli,
        // Help and versions come this way too, and are no errors.
        Err(error) if error.use_stderr() => {
            let plain = error.render().to_string();
            let tip = arguments::errors::tip(&plain, &tree::tree());
            if is_json {
                let text = arguments::errors::with_tip(&plain, tip.as_deref());
                return exit::report(Err(exit::Failure::of_usage(&text)), true);
            }
            let text = error.render().ansi().to_string();
            anstream::eprint!("{}", arguments::errors::with_tip(&text, tip.as_deref()));
            return ExitCode::from(exit::Exit::Usage as u8);
        }
        Err(error) => error.exit(),
    };
    let has_json_failures = output.has_json_failures();
    if let Err(failure) = output.check() {
        return exit::report(Err(failure), has_json_failures);
    }
    let output = output.format();
    let outcome = match command {
        Command::Remote(command) => command::run(*command, &connection, output),
        Command::Login(arguments) => login::login(&arguments, &connection),
        Command::Logout(arguments) => login::logout(&arguments, &connection),
        Command::Doctor => doctor::run(&connection, output),
        Command::Whoami => doctor::whoami(&connection, output),
        Command::Context(command) => context::run(command, &connection, output),
        Command::Completion { shell, is_static } => tree::print_completion(shell, is_static),
        Command::Explain { path } => explain::run(path.as_deref(), output),
        Command::Man { folder } => tree::write_man_pages(&folder),
        Command::Admin(command) => local::admin::run(command, &connection, output),
        Command::Serve(arguments) => serve::run(*arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Agent(arguments) => agent::run(*arguments, &connection),
        Command::AgentSupervise(arguments) => return agent::supervise(&arguments),
        Command::Config(command) => serve::config(&command, output),
        Command::Simulate(study) => simulate::run(study),
        Command::Bench(bench) => bench::run(bench),
        Command::Pool(arguments) => pool::run(arguments),
        Command::Credits(arguments) => credits::run(&arguments),
    };
    exit::report(outcome, has_json_failures)
}

/// Whether `-o json` is among the arguments, also if they are wrong.
fn wants_json(arguments: impl Iterator<Item = OsString>) -> bool {
    let mut arguments = arguments.take_while(|word| word != "--");
    let mut is_json = false;
    while let Some(word) = arguments.next() {
        match word.to_str() {
            Some("-o" | "--output") => is_json = arguments.next().is_some_and(|of| of == "json"),
            Some("-ojson" | "-o=json" | "--output=json") => is_json = true,
            Some(_) | None => {}
        }
    }
    is_json
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn json_is_asked_for_before_the_arguments_are_known_to_be_right() {
        let wants = |words: &[&str]| wants_json(words.iter().map(OsString::from));
        for words in [&["-o", "json"][..], &["-ojson"], &["--output=json"], &["--output", "json"]] {
            assert!(wants(&[&["bursar", "ls"], words].concat()), "{words:?}");
        }
        assert!(!wants(&["bursar", "run", "--", "-o", "json"]));
        assert!(!wants(&["bursar", "ls", "-o", "csv"]));
    }

    #[test]
    fn the_tree_of_commands_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_that_does_something_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("bursar "), "{path}");
            let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help");
            inner.for_each(|inner| check(inner, &path));
        }
        let tree = tree::tree();
        let inner = tree.get_subcommands().filter(|inner| inner.get_name() != "help");
        inner.for_each(|inner| check(inner, "bursar"));
    }
}
