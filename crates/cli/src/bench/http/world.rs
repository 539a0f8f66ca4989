//! The measured processes, their initial data, and the check of the books afterwards.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::wire::{Connection, Target};
use crate::exit::Failure;

pub(in crate::bench) const TENANT: &str = "bench";

/// Grants of each account, as many as the peer has.
const GRANTS: u32 = 3;
/// Credits of each grant.
const GRANTED: i128 = 1_000_000;
/// Operations in one request of the preparation.
const AT_ONCE: usize = 1000;

/// A child process that answers HTTP; killed at the end.
pub(in crate::bench) struct Process {
    child: Child,
    pub(in crate::bench) target: Target,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(in crate::bench) fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::new("the benchmark", what)
}

impl Process {
    fn start(arguments: &[&std::ffi::OsStr]) -> Result<Process, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(arguments).env("BURSAR_LOG", "error").stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let output = child.stdout.take().ok_or_else(|| wrong("the server's output is gone"))?;
        let mut target =
            Target { address: String::new(), key: String::new(), tenant: TENANT.to_owned() };
        for line in BufReader::new(output).lines() {
            let line = line?;
            if let Some(key) = line.strip_prefix("root key: ") {
                target.key = key.to_owned();
            }
            let standby = line.strip_prefix("standby on http://");
            let standby = standby.and_then(|rest| rest.split_once(", leader ")).map(|(own, _)| own);
            if let Some(address) = line.strip_prefix("listening on http://").or(standby) {
                target.address = address.to_owned();
                return Ok(Process { child, target });
            }
        }
        Err(wrong("the server did not start"))
    }

    /// A server with its journal in `folder` that handles at most `in_flight` requests at once.
    pub(in crate::bench) fn server(
        folder: &Path,
        in_flight: Option<u32>,
    ) -> Result<Process, Failure> {
        let config = folder.join("bench.toml");
        let limits = in_flight.map_or(String::new(), |n| format!("[limits]\nin_flight = {n}\n"));
        std::fs::write(&config, limits)?;
        let data = folder.join("data");
        let words = ["serve", "--dev", "--listen", "127.0.0.1:0", "--config"];
        let mut arguments: Vec<&std::ffi::OsStr> = words.map(AsRef::as_ref).to_vec();
        arguments.extend([config.as_os_str(), "--data".as_ref(), data.as_os_str()]);
        Process::start(&arguments)
    }

    /// A server whose journals are in the PostgreSQL at `url`.
    pub(in crate::bench) fn on_store(folder: &Path, url: &str) -> Result<Process, Failure> {
        Process::with_shards(folder, url, 1)
    }

    /// The same with so many ledger shards, if the store is new.
    pub(in crate::bench) fn with_shards(
        folder: &Path,
        url: &str,
        shards: u16,
    ) -> Result<Process, Failure> {
        let (key, shards) = (folder.join("root.key"), shards.to_string());
        let words = ["serve", "--dev", "--listen", "127.0.0.1:0", "--store", url];
        let mut arguments: Vec<&std::ffi::OsStr> = words.map(AsRef::as_ref).to_vec();
        arguments.extend(["--shards", &shards].map(AsRef::<std::ffi::OsStr>::as_ref));
        arguments.extend(["--root-key-file".as_ref(), key.as_os_str()]);
        Process::start(&arguments)
    }

    /// One more server on the same store, which forwards to the one that leads.
    pub(in crate::bench) fn beside(
        leader: &Process,
        folder: &Path,
        url: &str,
    ) -> Result<Process, Failure> {
        let mut process = Process::on_store(folder, url)?;
        process.target.key.clone_from(&leader.target.key);
        Ok(process)
    }

    /// The limit: a handler that reads JSON and answers JSON, and does nothing.
    pub(in crate::bench) fn empty_handler() -> Result<Process, Failure> {
        Process::start(&["bench", "http", "--empty-handler"].map(AsRef::as_ref))
    }

    /// Seconds of processor time that the process has used.
    pub(in crate::bench) fn processor_seconds(&self) -> f64 {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        // The name in parentheses may contain anything; user and system time follow it, in ticks.
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok());
        ticks.sum::<u64>() as f64 / 100.0
    }

    /// Bytes of memory that the process has resident.
    pub(in crate::bench) fn resident_bytes(&self) -> u64 {
        let path = format!("/proc/{}/statm", self.child.id());
        let statm = std::fs::read_to_string(path).unwrap_or_default();
        let pages: u64 = statm.split_whitespace().nth(1).and_then(|p| p.parse().ok()).unwrap_or(0);
        pages * 4096
    }
}

pub(in crate::bench) async fn call(
    connection: &mut Connection,
    request: &[u8],
    expected: u16,
) -> Result<Value, Failure> {
    let (status, body) = connection.call(request).await?;
    if status != expected {
        return Err(wrong(format_args!("{status} {}", String::from_utf8_lossy(body))));
    }
    Ok(serde_json::from_slice(body)?)
}

/// Opens the accounts and gives each of them its grants.
pub(in crate::bench) async fn set_up(target: &Target, accounts: usize) -> Result<(), Failure> {
    let mut connection = Connection::open(target).await?;
    let org = json!({ "id": target.tenant, "kind": "org" }).to_string();
    call(&mut connection, &target.request("POST", "/v1/accounts", None, &org), 201).await?;
    let post = |path: &str, body: Value| json!({ "method": "POST", "path": path, "body": body });
    let opened = (0..accounts).map(|number| {
        post("/v1/accounts", json!({ "id": target.account(number), "kind": "user" }))
    });
    let granted = (0..accounts).flat_map(|number| {
        (0..GRANTS).map(move |grant| {
            let day = (number * 7 + grant as usize * 13) % 28 + 1;
            let expires_at =
                format!("9{:03}-01-{day:02}T00:00:00Z", (number + grant as usize) % 10);
            post(
                "/v1/grants",
                json!({
                    "account": target.account(number), "amount": GRANTED.to_string(), "kind": "purchase",
                    "expires_at": expires_at,
                }),
            )
        })
    });
    let all: Vec<Value> = opened.chain(granted).collect();
    create_all(target, &mut connection, &all).await
}

/// Sends operations in batches. Each of them must create something.
pub(in crate::bench) async fn create_all(
    target: &Target,
    connection: &mut Connection,
    all: &[Value],
) -> Result<(), Failure> {
    for operations in all.chunks(AT_ONCE) {
        let body = json!({ "operations": operations }).to_string();
        let request = target.request("POST", "/v1/batch", None, &body);
        let done = call(connection, &request, 200).await?;
        let results = done["results"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(failed) = results.iter().find(|result| result["status"] != 201) {
            return Err(wrong(format_args!("the preparation: {failed}")));
        }
    }
    Ok(())
}

pub(in crate::bench) fn micros(value: &Value) -> i128 {
    let text = value.as_str().unwrap_or("");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{part:0<6}");
    digits.parse().unwrap_or(-1)
}

/// Checks every grant: nothing is lost, nothing is held, and exactly the answered amount is
/// spent.
pub(in crate::bench) async fn check_conservation(
    target: &Target,
    accounts: usize,
    spent: i128,
) -> Result<(), Failure> {
    let mut connection = Connection::open(target).await?;
    let (mut grants, mut found_spent, mut found_held) = (0, 0, 0);
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/grants?limit=100{cursor}");
        let page = call(&mut connection, &target.request("GET", &path, None, ""), 200).await?;
        for grant in page["data"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let part = |name: &str| micros(&grant[name]);
            let parts = ["available", "held", "spent", "expired", "revoked", "moved"];
            if parts.iter().map(|name| part(name)).sum::<i128>() != part("amount") {
                return Err(wrong(format_args!("a grant does not add up: {grant}")));
            }
            grants += 1;
            found_spent += part("spent");
            found_held += part("held");
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let expected = (accounts * GRANTS as usize, spent, 0);
    if (grants, found_spent, found_held) != expected {
        let (some, sum, kept) = expected;
        return Err(wrong(format_args!(
            "{grants} grants, {found_spent} spent and {found_held} held, not {some}, {sum} and {kept}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_to_the_last_digit() {
        for (text, expected) in [("28.8", 28_800_000), ("40", 40_000_000), ("0.000001", 1)] {
            assert_eq!(micros(&json!(text)), expected);
        }
    }
}
