//! Commands against a server with a certificate.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

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

/// Starts a server with its own certificate, perhaps one of an authority, and returns its address.
fn start(folder: &Path, is_authority: bool) -> (Server, String) {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    if is_authority {
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    }
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).expect("written");
        folder.join(name)
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    command.arg("--data").arg(folder.join("data"));
    command.arg("--root-key-file").arg(folder.join("root.key"));
    command.arg("--tls-cert").arg(write("cert.pem", certificate.pem()));
    command.arg("--tls-key").arg(write("key.pem", key.serialize_pem()));
    if folder.join("bursar.toml").exists() {
        command.arg("--config").arg(folder.join("bursar.toml"));
    }
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

fn open_account(folder: &Path, url: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bursar"));
    command.args(["account", "open", "acme", "--server", url, "--key-file", "root.key"]);
    command.args(more).current_dir(folder).env("HOME", folder);
    command.output().expect("the binary starts")
}

/// What `openssl req -x509` makes without further options.
#[test]
fn a_certificate_of_an_authority_is_refused_with_the_way_to_make_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, url) = start(folder.path(), true);
    let refused = open_account(folder.path(), &url, &["--ca-file", "cert.pem"]);
    let why = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("CA:TRUE") && why.contains("CA:FALSE"), "{why}");
}

#[test]
fn a_certificate_is_trusted_only_if_its_authority_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_server, url) = start(folder.path(), false);
    assert!(url.starts_with("https://"), "{url}");
    let run = |more: &[&str]| open_account(folder.path(), &url, more);
    let refused = run(&[]);
    let why = String::from_utf8(refused.stderr).expect("text");
    assert_eq!(refused.status.code(), Some(1), "{why}");
    assert!(why.contains("is not trusted"), "{why}");
    assert!(why.contains("next: pass --ca-file FILE"), "{why}");
    let opened = run(&["--ca-file", "cert.pem"]);
    assert_eq!(opened.status.code(), Some(0), "{}", String::from_utf8_lossy(&opened.stderr));
}

#[test]
fn a_handshake_that_does_not_end_ends_its_connection() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let timeouts = "[timeouts]\nhandshake_ms = 2000\n";
    std::fs::write(folder.path().join("bursar.toml"), timeouts).expect("written");
    let (_server, url) = start(folder.path(), false);
    // Nothing; the begin of a record; a record that announces a handshake of 16 MiB.
    let begun = [&[][..], &[0x16, 3, 1], &[0x16, 3, 1, 0, 5, 1, 0xff, 0xff, 0xff, 3]];
    let begun = begun.map(|sent| {
        let address = url.trim_start_matches("https://");
        let mut stream = TcpStream::connect(address).expect("it listens");
        // Only to fail instead of hanging.
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a plain socket");
        stream.write_all(sent).expect("it listens");
        (sent, stream)
    });
    for (sent, mut stream) in begun {
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{sent:?}"),
        }
    }
    assert!(open_account(folder.path(), &url, &["--ca-file", "cert.pem"]).status.success());
}
