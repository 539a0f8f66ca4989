//! A fuzz of the live server: every operation of its own description with hostile values for every path and
//! query parameter, cursor, header and body field, sent by keys of every role into a world with money, jobs
//! and nodes. No answer may be a 5xx except a described 503, each matches its schema, and afterwards every
//! machine serves, the server starts again, the journals verify, and a restored backup answers the same.
//!
//! `BURSAR_FUZZ_SECONDS` is the duration (60), `BURSAR_FUZZ_SEED` the seed (1). The requests follow
//! from the seed, except values that the server creates: keys, cursors and ids of attempts.

mod after;
mod description;
mod findings;
mod heavy;
mod hostile;
mod lane;
#[path = "../rehearsal/mod.rs"]
mod rehearsal;
mod requests;
mod slots;
mod wire;
mod world;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use description::Description;
use findings::Findings;
use world::{Client, Server};

/// The number of concurrent senders.
const LANES: usize = 4;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not `{text}`"))
    })
}

/// The time of this machine; only the duration of the test depends on it.
#[expect(clippy::disallowed_methods, reason = "a fuzz lasts so many seconds of this machine")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn no_request_stops_the_server_or_gets_an_answer_that_is_not_described() {
    let seconds = setting("BURSAR_FUZZ_SECONDS", 60);
    let seed = setting("BURSAR_FUZZ_SEED", 1);
    println!("BURSAR_FUZZ_SEED={seed} BURSAR_FUZZ_SECONDS={seconds}");
    let mut server = Server::start();
    let world = world::furnish(&server);
    let mut root = Client::new(&server.url, &server.root);
    let description = Description::new(root.must("GET", "/openapi.json", Value::Null));
    let findings = Findings::default();
    lane::rehearse(seed, &server.url, &description, &world, &findings);
    let until = now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let place = (seed, lane, LANES);
                let (url, description, world) = (&server.url, &description, &world);
                let findings = &findings;
                scope.spawn(move || lane::run(place, until, url, description, world, findings))
            })
            .collect();
        for lane in lanes {
            let (sent, done, planned) = lane.join().expect("a lane does not panic");
            println!("sent {sent} requests, {done} of {planned} planned");
        }
    });
    if !findings.is_enough() {
        lane::run_last(seed, &server.url, &description, &world, &findings);
    }
    println!("{}", findings.summary());
    let panics: Vec<String> =
        server.said().lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect();
    let found = findings.words();
    assert!(found.is_none() && panics.is_empty(), "{}\n{panics:?}", found.unwrap_or_default());
    assert_eq!(
        findings.never_done(&description),
        Vec::<String>::new(),
        "operations that never succeeded"
    );

    after::every_machine_serves(&mut root, "after");
    server.restart();
    let mut root = Client::new(&server.url, &server.root);
    after::every_machine_serves(&mut root, "again");
    let balance = root.must("GET", "/v1/accounts/after/balance", Value::Null);
    assert_eq!(balance["held"], json!("0"));
}
