//! Every command that a page names is one that the binary has, with the options that it has. The
//! binary says itself what it has: in the script that completes its command line.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../testkit/tests/tidy/markdown.rs"]
mod markdown;

use markdown::Kind;

/// Pages with code spans that begin like commands, and why.
const NO_COMMANDS: &[(&str, &str)] =
    &[("docs/reference/journal-format.md", "names the first bytes of files: `bursar tail v1`")];

/// Commands that take arguments of their own beside their subcommands. The script does not tell.
const WITH_ARGUMENTS: &[&str] = &["charge", "transfer"];

/// Commands that a program starts and the script does not offer.
const HIDDEN: &[&str] = &["agent-supervise"];

/// What stands before a command in a line of a shell.
const SEPARATORS: &[&str] = &["$", "|", "&&", "||", ";", "next:", "sudo", "exec", "#"];

/// Subcommands and options.
#[derive(Default)]
struct Commands {
    /// From a command and a word to the command below it.
    below: BTreeMap<(String, String), String>,
    options: BTreeMap<String, BTreeSet<String>>,
}

impl Commands {
    /// Reads the completion of bash: `above,word)`, then `cmd="below"`; `command)`, then `opts="…"`.
    fn of(script: &str) -> Commands {
        let mut commands = Commands::default();
        let mut case = "";
        for line in script.lines().map(str::trim) {
            let value = |name| line.strip_prefix(name).and_then(|rest| rest.strip_suffix('"'));
            if let Some(label) = line.strip_suffix(')') {
                case = label;
            } else if let (Some(below), Some((above, word))) =
                (value("cmd=\""), case.split_once(','))
            {
                commands.below.insert((above.to_owned(), word.to_owned()), below.to_owned());
            } else if let Some(options) = value("opts=\"") {
                let words = options.split(' ').map(str::to_owned);
                commands.options.insert(case.to_owned(), words.collect());
            }
        }
        commands
    }

    fn of_binary() -> Commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        let output =
            command.args(["completion", "bash", "--static"]).output().expect("the binary starts");
        Commands::of(&String::from_utf8(output.stdout).expect("the script is text"))
    }

    fn has_subcommands(&self, command: &str) -> bool {
        self.below.keys().any(|(above, word)| above == command && word != "help")
    }

    /// What is wrong with the words after `bursar`.
    fn complaint(&self, words: &[&str]) -> Option<String> {
        let mut command = "bursar".to_owned();
        let mut after_option = false;
        for word in words.iter().copied() {
            if word == "--" || word == "\\" || word.starts_with(['|', '&', ';', '>', '<', '#']) {
                break;
            }
            if word.starts_with('-') {
                let name = word.split('=').next().unwrap_or(word);
                let known = self.options.get(&command).is_some_and(|all| all.contains(name));
                if name.starts_with("--") && !known {
                    return Some(format!("no option `{name}`"));
                }
                after_option = true;
                continue;
            }
            let next = self.below.get(&(command.clone(), word.to_owned()));
            match next {
                Some(below) => command.clone_from(below),
                None if !self.has_subcommands(&command) => {}
                None if WITH_ARGUMENTS.iter().any(|name| command.ends_with(name)) => break,
                None if command == "bursar" && HIDDEN.contains(&word) => break,
                // The value of the option.
                None if after_option => {}
                // A placeholder.
                None if !word.starts_with(|c: char| c.is_ascii_lowercase()) => break,
                None => return Some(format!("no command `{word}`")),
            }
            after_option = false;
        }
        None
    }

    /// What is wrong with the commands of a page, with their lines.
    fn check(&self, path: &str, page: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let mut complain = |line: usize, text: &str, words: &[&str]| {
            if let Some(complaint) = self.complaint(words) {
                findings.push(format!("{path}:{line}: {complaint} in `{}`", text.trim()));
            }
        };
        for (line, text, kind) in markdown::lines(page) {
            let words: Vec<&str> = text.split_whitespace().collect();
            for start in (0..words.len()).filter(|_| kind == Kind::Code) {
                let begins = start == 0 || SEPARATORS.contains(&words[start - 1]);
                if is_binary(words[start]) && begins {
                    complain(line, text, &words[start + 1..]);
                }
            }
        }
        if NO_COMMANDS.iter().all(|(other, _)| *other != path) {
            for (line, span) in markdown::spans(page).0 {
                let words: Vec<&str> = span.split_whitespace().collect();
                if words.len() > 1 && is_binary(words[0]) {
                    complain(line, &span, &words[1..]);
                }
            }
        }
        findings
    }
}

fn is_binary(word: &str) -> bool {
    word == "bursar" || word.ends_with("/bursar")
}

/// The pages of a folder and of those in it.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("the checkout does not change during the test").path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn commands_in_docs_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    pages(&root.join("docs"), &mut all);
    all.sort();
    let commands = Commands::of_binary();
    let mut findings = Vec::new();
    for path in all {
        let page = std::fs::read_to_string(&path).expect("pages are text");
        let name = path.strip_prefix(&root).expect("pages lie below the root");
        findings.extend(commands.check(&name.to_string_lossy(), &page));
    }
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn the_binary_lists_its_commands() {
    let commands = Commands::of_binary();
    for line in ["account open acme --name x", "serve --data x", "bench core", "--version"] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(commands.complaint(&words), None, "{line}");
    }
    assert!(commands.complaint(&["account", "burn"]).is_some());
}

#[test]
fn commands_and_options_that_do_not_exist_are_found() {
    let script = "bursar,job)\ncmd=\"bursar__job\"\nbursar__job,show)\ncmd=\"bursar__job__show\"\n\
        bursar)\nopts=\"--server\"\nbursar__job__show)\nopts=\"--output\"\n";
    let commands = Commands::of(script);
    let found = |page: &str| commands.check("docs/page.md", page).len();
    assert_eq!(found("```\n$ bursar burn\n```"), 1);
    assert_eq!(found("```\n$ x | bursar job hide J\nbursar job show J --wide\n```"), 2);
    assert_eq!(found("`bursar job\nhide`, `target/debug/bursar burn`"), 2);
    let fine = "```\n$ bursar --server burn job show J --output=csv -- --wide\nbursar job COMMAND\n\
        \"bursar burn\"\n```\nbursar burns, `bursar`, `bursar job show burn | x --wide`";
    assert_eq!(found(fine), 0);
}
