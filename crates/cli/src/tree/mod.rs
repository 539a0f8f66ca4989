//! The tree of commands: what clap derives, with help by task, examples first, and live completions.

pub(crate) mod complete;
mod man;

use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::Cli;
use crate::command::TASKS;
use crate::exit::Failure;
use crate::render::format::print;

pub(crate) use man::write as write_man_pages;

/// Commands that use no connection: its options are not in their help.
const LOCAL: &[&str] = &[
    "serve",
    "config",
    "demo",
    "credits",
    "pool",
    "simulate",
    "bench",
    "completion",
    "explain",
    "man",
    "help",
];
/// The options of a connection, and those of answers.
const OF_CONNECTION: &[&str] = &["server", "key", "key_file", "use_context", "tenant", "ca_file"];
const OF_ANSWERS: &[&str] = &["output", "template", "jq", "utc"];

/// The help of one command: what it does, examples, then every option.
const OF_COMMAND: &str =
    "{before-help}{about-with-newline}{after-help}\n\n{usage-heading} {usage}\n\n{all-args}";

/// All commands.
pub(crate) fn tree() -> Command {
    let mut command = Cli::command();
    let help = by_task(&command);
    // Gives every command the global options, so that some can hide them.
    command.build();
    let command = command.mut_subcommands(|inner| decorated(inner, ""));
    let template = format!(
        "{{about-with-newline}}\n\
         First steps:  bursar demo     a server, nodes and load on this machine\n              \
         bursar run -a acme -g H100:4 -t 2h -- python train.py\n              \
         bursar COMMAND --help\n\n\
         {{usage-heading}} {{usage}}\n\n{help}\nOptions:\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

/// The commands by task, one line each.
fn by_task(command: &Command) -> String {
    let visible: Vec<&Command> =
        command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
    let line = |inner: &Command| {
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:<11} {}\n", inner.get_name(), about)
    };
    let mut text = String::new();
    for (task, names) in TASKS {
        text.push_str(&format!("{task}:\n"));
        let known = names.iter().filter_map(|name| visible.iter().find(|c| c.get_name() == *name));
        known.for_each(|inner| text.push_str(&line(inner)));
        text.push('\n');
    }
    let is_listed = |inner: &Command| TASKS.iter().any(|(_, all)| all.contains(&inner.get_name()));
    let others: Vec<String> =
        visible.iter().filter(|inner| !is_listed(inner)).map(|inner| line(inner)).collect();
    if !others.is_empty() {
        text.push_str(&format!("More:\n{}\n", others.concat()));
    }
    text
}

/// A command below another one, with its help and completions.
fn decorated(command: Command, parent: &str) -> Command {
    let name = command.get_name().to_owned();
    let top = if parent.is_empty() { name.clone() } else { parent.to_owned() };
    let command = command.mut_args(|arg| {
        let arg = complete::attach(arg, &top, &name);
        hidden_where_unused(arg, &top)
    });
    let command = command.mut_subcommands(|inner| decorated(inner, &top));
    with_examples(command).help_template(OF_COMMAND)
}

/// The most examples in the help of a group of commands.
const MAX_EXAMPLES: usize = 4;

/// A group of commands gets the first example of each, unless it has its own.
fn with_examples(command: Command) -> Command {
    if command.get_after_help().is_some() {
        return command;
    }
    let first = |inner: &Command| {
        let help = inner.get_after_help()?.to_string();
        help.lines().find(|line| line.starts_with("  bursar ")).map(str::to_owned)
    };
    let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let examples: Vec<String> = visible.filter_map(first).take(MAX_EXAMPLES).collect();
    match examples.is_empty() {
        true => command,
        false => command.after_help(format!("Examples:\n{}", examples.join("\n"))),
    }
}

fn hidden_where_unused(arg: Arg, top: &str) -> Arg {
    let id = arg.get_id().as_str();
    let is_unused = LOCAL.contains(&top)
        && (OF_CONNECTION.contains(&id)
            || (OF_ANSWERS.contains(&id) && !["config", "explain"].contains(&top)));
    if is_unused { arg.hide(true) } else { arg }
}

/// The commands that help lists. Static scripts would offer hidden ones too.
fn without_hidden() -> Command {
    let whole = Cli::command();
    let visible = whole.get_subcommands().filter(|inner| !inner.is_hide_set()).cloned();
    let bare = Command::new("bursar").version(env!("CARGO_PKG_VERSION"));
    bare.args(whole.get_arguments().cloned()).subcommands(visible)
}

/// Prints the completion script of a shell: one that asks the server for ids, or a static one.
pub(crate) fn print_completion(shell: Shell, is_static: bool) -> Result<(), Failure> {
    let mut script = Vec::new();
    let name = shell.to_string();
    match Shells::builtins().completer(&name).filter(|_| !is_static) {
        Some(live) => {
            live.write_registration(complete::VARIABLE, "bursar", "bursar", "bursar", &mut script)?;
            if shell == Shell::Bash {
                script.extend_from_slice(complete::BASH_COLONS.as_bytes());
            }
        }
        None => clap_complete::generate(shell, &mut without_hidden(), "bursar", &mut script),
    }
    print(&String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_its_task() {
        let command = Cli::command();
        let visible = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let mut names: Vec<&str> = visible.map(Command::get_name).collect();
        let mut listed: Vec<&str> = TASKS.iter().flat_map(|(_, all)| all.iter().copied()).collect();
        names.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, names);
    }

    #[test]
    fn help_begins_with_examples_and_local_commands_hide_the_connection() {
        let help = |path: &[&str]| {
            let mut command = tree();
            let mut inner = &mut command;
            for name in path {
                inner = inner.find_subcommand_mut(name).expect("it is there");
            }
            inner.render_help().to_string()
        };
        let quota = help(&["quota", "set"]);
        assert!(quota.find("Example:") < quota.find("Usage:"), "{quota}");
        assert!(quota.contains("--key-file"), "{quota}");
        for path in [&["serve"][..], &["bench", "core"], &["pool"], &["simulate", "queue"]] {
            let help = help(path);
            assert!(
                !help.contains("--key-file") && !help.contains("--tenant <"),
                "{path:?}: {help}"
            );
        }
        assert!(!help(&[]).contains("agent-supervise"));
    }
}
