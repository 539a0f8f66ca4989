//! Commands against a server with a certificate.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

#[path = "rehearsal/mod.rs"]
mod rehearsal;

/// A running server, killed at the end.
struct Server(Child, PathBuf);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; the test has failed then.
        let _ = self.0.kill();
        let _ = self.0.wait();
        if !std::thread::panicking() {
            rehearsal::rehearse(&self.1);
        }
    }
}

/// Starts a server with its own certificate and returns its address.
fn start(folder: &Path) -> (Server, String) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("written");
        folder.join(name)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.arg("--data").arg(folder.join("data"));
    command.arg("--root-key-file").arg(folder.join("root.key"));
    command.arg("--tls-cert").arg(write("cert.pem", certified.cert.pem()));
    command.arg("--tls-key").arg(write("key.pem", certified.signing_key.serialize_pem()));
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let server = Server(child, folder.join("data"));
    let url = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned))
        .expect("the server says where it listens");
    (server, url)
}

#[test]
fn a_certificate_is_trusted_only_if_its_authority_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, url) = start(folder.path());
    assert!(url.starts_with("https://"), "{url}");
    let run = |more: &[&str]| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
        command.args(["account", "open", "acme", "--server", &url, "--key-file", "root.key"]);
        command.args(more).current_dir(folder.path()).env("HOME", folder.path());
        command.output().expect("the binary starts")
    };
    let refused = run(&[]);
    let why = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("is not trusted"), "{why}");
    assert!(why.contains("next: pass --ca-file FILE"), "{why}");
    let opened = run(&["--ca-file", "cert.pem"]);
    assert_eq!(opened.status.code(), Some(0), "{}", String::from_utf8_lossy(&opened.stderr));
}
