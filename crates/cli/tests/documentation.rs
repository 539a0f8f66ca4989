//! `cli.md` in `docs/reference/` and `walkthroughs.md`, `walks.md` and `credits.md` in `docs/guide/` are
//! tests: every command of their sessions is run against a real server, in order, and must print
//! what the page says.
//! `UPDATE_EXPECT=1` rewrites the pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[path = "rehearsal/mod.rs"]
mod rehearsal;

/// The placeholder of ids that differ each time; of the same length, so that columns stay aligned.
const ID: &str = "01JAB2C3D4E5F6G7H8J9K0MNPQ";

/// A running server, killed at the end.
struct Server {
    child: Child,
    url: String,
    data: PathBuf,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--clock", "manual"]);
        command.arg("--data").arg(folder.join("data"));
        command.arg("--root-key-file").arg(folder.join("root.key"));
        command.env("HOME", folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let url = lines
            .map_while(Result::ok)
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
            .expect("the server says where it listens");
        Server { child, url, data: folder.join("data") }
    }

    /// Waits until nothing that was closed before is in memory, so that the next command counts the same records each time.
    fn until_forgotten(&self) {
        let address = self.url.strip_prefix("http://").expect("it speaks plainly");
        let is_empty = || {
            let mut stream = TcpStream::connect(address).expect("it listens");
            let request =
                format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).expect("it listens");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("it answers");
            // The answer to the last command stays.
            let lines = ["bursar_ledger_closed_in_memory 0", "bursar_ledger_closed_in_memory 1"];
            text.lines().any(|line| lines.contains(&line.trim()))
        };
        while !is_empty() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; the test has failed then.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            rehearsal::rehearse(&self.data);
        }
    }
}

/// A shell session with the server.
struct Session {
    server: Server,
    folder: tempfile::TempDir,
    status: i32,
    /// Ids of attempts in the order in which they were printed. Each store writes them under a secret
    /// of its own.
    attempts: Vec<String>,
}

/// What stands for the id of an attempt on a page.
fn placeholder(index: usize) -> String {
    format!("EXAMPLE{:019}", index + 1)
}

impl Session {
    fn start() -> Session {
        let folder = tempfile::tempdir().expect("a folder");
        let server = Server::start(folder.path());
        Session { server, folder, status: 0, attempts: Vec::new() }
    }

    /// What a command prints, on both streams, in order.
    fn run(&mut self, line: &str) -> String {
        if line == "echo $?" {
            return format!("{}\n", self.status);
        }
        let real =
            |line: String, (index, id): (usize, &String)| line.replace(&placeholder(index), id);
        let line = self.attempts.iter().enumerate().fold(line.to_owned(), real);
        let bin = Path::new(env!("CARGO_BIN_EXE_bursar")).parent().expect("a folder");
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("{{ {line}\n}} 2>&1")).env_clear();
        command.env("PATH", path).env("TZ", "UTC").env("HOME", self.folder.path());
        command.env("BURSAR_SERVER", &self.server.url);
        command.env("BURSAR_KEY_FILE", self.folder.path().join("root.key"));
        let output = command.current_dir(self.folder.path()).output().expect("bash is there");
        self.status = output.status.code().expect("not killed");
        if line.starts_with("bursar clock set") {
            // All that is closed is older than its retention then. It leaves memory by a record.
            self.server.until_forgotten();
        }
        self.settled(&String::from_utf8(output.stdout).expect("text"))
    }

    /// The output without what differs each time.
    fn settled(&mut self, output: &str) -> String {
        let folder = self.folder.path().display().to_string();
        let output = output.replace(&folder, "/home/you");
        let output = output.replace(&self.server.url, "http://127.0.0.1:7070");
        let is_word = |c: char| c.is_ascii_alphanumeric();
        let mut text = String::new();
        let mut rest = output.as_str();
        while let Some(start) = rest.find(is_word) {
            let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |end| start + end);
            let word = &rest[start..end];
            text.push_str(&rest[..start]);
            if word.len() == 26 && text.ends_with("att_") {
                text.push_str(&self.attempt(word));
                rest = &rest[end..];
                continue;
            }
            text.push_str(match word.len() {
                26 if word.starts_with("01") => ID,
                32.. => "…",
                // The hash of a state means nothing to a reader, and changes with every field.
                16 if text.ends_with("state ") => "…",
                // How many records share a commit depends on how fast they came.
                _ if rest[end..].starts_with(" batches") => "…",
                _ => word,
            });
            rest = &rest[end..];
        }
        text + rest
    }

    /// What stands for the id of an attempt.
    fn attempt(&mut self, id: &str) -> String {
        let known = self.attempts.iter().position(|known| known == id);
        placeholder(known.unwrap_or_else(|| {
            self.attempts.push(id.to_owned());
            self.attempts.len() - 1
        }))
    }
}

/// The page with the output of each command as it is now.
fn replayed(page: &str) -> String {
    let mut session = Session::start();
    let mut text = String::new();
    let mut lines = page.lines().peekable();
    let mut in_session = false;
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        if line.starts_with("```") {
            in_session = line == "```console";
        }
        let Some(command) = line.strip_prefix("$ ").filter(|_| in_session) else { continue };
        let mut command = command.to_owned();
        while command.ends_with('\\') {
            let more = lines.next().expect("a line that goes on");
            text.push_str(&format!("{more}\n"));
            command = format!("{command}\n{more}");
        }
        while lines.next_if(|next| !next.starts_with("$ ") && !next.starts_with("```")).is_some() {}
        text.push_str(&session.run(&command));
    }
    text
}

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let now = replayed(&page);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &now).expect("the page can be written");
        return;
    }
    let differs = page.lines().zip(now.lines()).enumerate().find(|(_, (said, is))| said != is);
    if let Some((index, (said, is))) = differs {
        panic!("docs/{name}, line {}: the page says\n{said}\nbut it is\n{is}", index + 1);
    }
    assert_eq!(page.lines().count(), now.lines().count());
}

#[test]
fn every_session_in_the_documentation_is_executed() {
    check("reference/cli.md");
}

#[test]
fn every_walkthrough_is_executed() {
    check("guide/walkthroughs.md");
}

#[test]
fn the_five_walks_are_executed() {
    check("guide/walks.md");
}

#[test]
fn every_session_with_credits_is_executed() {
    check("guide/credits.md");
}

#[test]
fn every_command_is_in_the_documentation() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let help = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        let output = command.args(arguments).arg("--help").output().expect("the binary starts");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut missing = Vec::new();
    for noun in commands(&help(&[])) {
        let verbs = commands(&help(&[&noun]));
        let paths = if verbs.is_empty() {
            vec![noun]
        } else {
            verbs.iter().map(|verb| format!("{noun} {verb}")).collect()
        };
        missing.extend(paths.into_iter().filter(|path| !mentions(&page, path)));
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Whether a page has a command, and not only one whose name begins alike.
fn mentions(page: &str, path: &str) -> bool {
    let command = format!("bursar {path}");
    page.match_indices(&command).any(|(start, _)| {
        !page[start + command.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
    })
}

/// The names of the commands that a help text lists, under `Commands` or by task.
fn commands(help: &str) -> Vec<String> {
    let usage = help.lines().skip_while(|line| !line.starts_with("Usage:")).skip(1);
    let by_task = help.contains("\nFirst steps:\n");
    let begins = |line: &&str| by_task || *line == "Commands:";
    let list = usage.skip_while(|line| !begins(line));
    let names = list.take_while(|line| *line != "Options:");
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    // Arguments are listed between commands and options, as `<NAME>` or `[NAME]`.
    let names = names.filter(|name| !name.starts_with(['<', '[']));
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}
