//! A person at a shell: an own home, and a key for one server.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::pty::{Winsize, openpty};
use serde_json::Value;
use tempfile::TempDir;

use crate::server::Server;

/// A person.
pub(crate) struct Person {
    home: TempDir,
    server: String,
    key: String,
}

/// What a command left behind.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn of(output: Output) -> Said {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Both streams.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

impl Person {
    /// A person with the root key.
    pub(crate) fn of(server: &Server) -> Person {
        Person::with_key(server, &server.root)
    }

    /// A person with a key.
    pub(crate) fn with_key(server: &Server, key: &str) -> Person {
        let home = TempDir::new().expect("a temporary folder");
        Person { home, server: server.url.clone(), key: key.to_owned() }
    }

    /// A file in the home of the person.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The command, ready to start.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(arguments).env_clear().env("HOME", self.home.path()).env("TZ", "UTC");
        command.env("BURSAR_SERVER", &self.server).env("BURSAR_KEY", &self.key);
        command.stdin(Stdio::null()).current_dir(self.home.path());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.command(arguments).output().expect("the binary is there"))
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.all());
        said.out
    }

    /// Runs a command that must fail with this code, and returns what it said.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(code), "{arguments:?}: {}", said.all());
        said.err
    }

    /// The answer of a command as JSON.
    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.done(&[arguments, &["-o", "json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// Starts a command that goes on beside the test.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(command.spawn().expect("the binary is there"))
    }

    /// Runs a command on a terminal where `typed` is typed. Returns its code and what was shown.
    pub(crate) fn types(&self, typed: &str, arguments: &[&str]) -> (Option<i32>, String) {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let slave = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let mut command = self.command(arguments);
        command.env("NO_COLOR", "1").stdin(slave()).stdout(slave()).stderr(slave());
        let mut child = command.spawn().expect("the binary is there");
        drop(command);
        drop(pty.slave);
        let mut terminal = File::from(pty.master);
        terminal.write_all(typed.as_bytes()).expect("the terminal takes it");
        let mut bytes = Vec::new();
        // A terminal whose other end is closed answers with an error.
        let _ = terminal.read_to_end(&mut bytes);
        let code = child.wait().expect("it ends").code();
        (code, String::from_utf8(bytes).expect("text"))
    }
}

/// A command that runs.
pub(crate) struct Running(Child);

impl Running {
    /// Waits for its end.
    pub(crate) fn end(self) -> Said {
        Said::of(self.0.wait_with_output().expect("it ends"))
    }
}
