//! Load generators: closed loops, and an open loop at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::wire::{Connection, Target};
use crate::exit::Failure;

/// What every pair spends, in micro-credits: half of what it holds.
pub(in crate::bench) const SPENT: i128 = 500;

/// The result of a closed loop.
#[derive(Clone, Debug, Default)]
pub(in crate::bench) struct Closed {
    /// Answered requests.
    pub(in crate::bench) requests: u64,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// Times from request to answer, in microseconds, in order.
    pub(super) micros: Vec<u32>,
}

impl Closed {
    pub(in crate::bench) fn per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The time within which this part of the requests was answered, in milliseconds.
    pub(in crate::bench) fn quantile_ms(&self, part: f64) -> f64 {
        let place = (self.micros.len() as f64 * part) as usize;
        let micros = self.micros.get(place.min(self.micros.len().saturating_sub(1)));
        f64::from(micros.copied().unwrap_or(0)) / 1000.0
    }
}

/// The request that is repeated.
#[derive(Copy, Clone, Debug)]
pub(in crate::bench) enum Work {
    /// A hold is placed and settled: two requests.
    Pairs {
        /// Over these many accounts.
        accounts: usize,
    },
    /// The same bytes to a handler that does nothing.
    Nothing,
    /// A batch of these many pairs in one request.
    Batches {
        /// Over these many accounts.
        accounts: usize,
        /// Pairs in one request.
        pairs: usize,
    },
}

/// Creates unique requests.
pub(super) struct Maker {
    target: Target,
    number: u64,
    state: u64,
}

/// Each maker of a process has a unique number.
static MAKERS: AtomicU64 = AtomicU64::new(0);

impl Maker {
    pub(super) fn new(target: &Target) -> Maker {
        let own = MAKERS.fetch_add(1, Ordering::Relaxed) + 1;
        Maker { target: target.clone(), number: own << 32, state: own.wrapping_mul(0x9e37_79b9) }
    }

    fn any(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.state >> 33) as usize % below.max(1)
    }

    /// A hold of a new name, and its settlement.
    pub(super) fn pair(&mut self, accounts: usize) -> [Vec<u8>; 2] {
        self.number += 1;
        let number = self.any(accounts);
        let (id, account) = (self.number, self.target.account(number));
        let place = format!(r#"{{"id":"h{id}","account":"{account}","amount":"0.001"}}"#);
        let settle = r#"{"total":"0.0005"}"#;
        let path = format!("/v1/holds/h{id}/settle");
        [
            self.target.request("POST", "/v1/holds", Some(&format!("r{id}")), &place),
            self.target.request("POST", &path, Some(&format!("s{id}")), settle),
        ]
    }

    fn batch(&mut self, accounts: usize, pairs: usize) -> Vec<u8> {
        let mut body = String::from(r#"{"operations":["#);
        for place in 0..pairs {
            self.number += 1;
            let number = self.any(accounts);
            let (id, account) = (self.number, self.target.account(number));
            body.push_str(if place == 0 { "" } else { "," });
            body.push_str(&format!(
                r#"{{"method":"POST","path":"/v1/holds","idempotency_key":"r{id}","body":{{"id":"h{id}","account":"{account}","amount":"0.001"}}}},{{"method":"POST","path":"/v1/holds/h{id}/settle","idempotency_key":"s{id}","body":{{"total":"0.0005"}}}}"#
            ));
        }
        body.push_str("]}");
        self.target.request("POST", "/v1/batch", None, &body)
    }

    /// A read of an account.
    pub(super) fn read(&mut self, accounts: usize) -> Vec<u8> {
        let number = self.any(accounts);
        let path = format!("/v1/accounts/{}/balance", self.target.account(number));
        self.target.request("GET", &path, None, "")
    }

    fn requests(&mut self, work: Work) -> Vec<Vec<u8>> {
        match work {
            Work::Pairs { accounts } => self.pair(accounts).into(),
            Work::Nothing => self.pair(10_000).into(),
            Work::Batches { accounts, pairs } => vec![self.batch(accounts, pairs)],
        }
    }
}

/// Clients that each wait for an answer before the next request, for a while. Open pairs are
/// finished, so that the spent amount is known. `per_second` limits the rate.
pub(in crate::bench) async fn closed(
    target: &Target,
    connections: usize,
    work: Work,
    time: Duration,
    per_second: Option<f64>,
) -> Result<Closed, Failure> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push((Connection::open(target).await?, Maker::new(target)));
    }
    let start = Instant::now();
    let mut clients: JoinSet<Result<Vec<u32>, Failure>> = JoinSet::new();
    for (mut connection, mut maker) in open {
        clients.spawn(async move {
            let mut micros = Vec::new();
            while start.elapsed() < time {
                for request in maker.requests(work) {
                    if let Some(rate) = per_second {
                        let due = micros.len() as f64 * connections as f64 / rate;
                        tokio::time::sleep_until(start + Duration::from_secs_f64(due)).await;
                    }
                    let sent = Instant::now();
                    let (status, body) = connection.call(&request).await?;
                    if status >= 300 {
                        let answer = String::from_utf8_lossy(body).into_owned();
                        return Err(Failure::new("a request was not answered well", answer));
                    }
                    micros.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
                }
            }
            Ok(micros)
        });
    }
    let mut all = Closed::default();
    while let Some(client) = clients.join_next().await {
        all.micros.extend(client??);
    }
    all.seconds = start.elapsed().as_secs_f64();
    all.requests = all.micros.len() as u64;
    all.micros.sort_unstable();
    Ok(all)
}

/// How many of each kind were sent and answered well.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) reads: [AtomicU64; 2],
    pub(super) holds: [AtomicU64; 2],
    pub(super) settlements: [AtomicU64; 2],
    /// Came while every connection was busy.
    pub(super) turned_away: AtomicU64,
    /// Neither answered well nor shed.
    pub(super) failed: AtomicU64,
}

/// Requests at a fixed rate, independent of answers: a third each of
/// reads, holds, and settlements of placed holds. Returns when all are answered;
/// settlements that were shed are then repeated, so that the spent amount is known.
pub(super) async fn open(
    target: &Target,
    connections: usize,
    accounts: usize,
    per_second: f64,
    time: Duration,
) -> Result<Visited, Failure> {
    let counts = Arc::new(Counts::default());
    let mut clients: JoinSet<Result<(u64, Vec<u32>), Failure>> = JoinSet::new();
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push((Connection::open(target).await?, Maker::new(target)));
    }
    let start = Instant::now();
    let step = Duration::from_secs_f64(connections as f64 / per_second);
    for (number, (connection, maker)) in opened.into_iter().enumerate() {
        let first = start + step.mul_f64(number as f64 / connections as f64);
        let counts = Arc::clone(&counts);
        let (unsettled, micros) = (Vec::new(), Vec::new());
        let visitor = Visitor { connection, maker, accounts, counts, unsettled, micros };
        clients.spawn(visitor.come(first, step, start + time));
    }
    let (mut settled, mut answered) = (0, Closed::default());
    while let Some(client) = clients.join_next().await {
        let (own, micros) = client??;
        settled += own;
        answered.micros.extend(micros);
    }
    answered.seconds = start.elapsed().as_secs_f64();
    answered.requests = answered.micros.len() as u64;
    answered.micros.sort_unstable();
    Ok(Visited { counts, settled, answered })
}

/// The result of an open loop.
pub(super) struct Visited {
    pub(super) counts: Arc<Counts>,
    /// Holds that were settled, also those that were repeated at the end.
    pub(super) settled: u64,
    /// What was answered well, and how soon.
    pub(super) answered: Closed,
}

struct Visitor {
    connection: Connection,
    maker: Maker,
    accounts: usize,
    counts: Arc<Counts>,
    /// Settlements of holds that were placed.
    unsettled: Vec<Vec<u8>>,
    /// How long each took that was answered well, in microseconds.
    micros: Vec<u32>,
}

impl Visitor {
    async fn send(&mut self, request: &[u8]) -> Result<bool, Failure> {
        let sent = Instant::now();
        let (status, _) = self.connection.call(request).await?;
        if status < 300 {
            self.micros.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        if status >= 300 && status != 503 {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(status < 300)
    }

    async fn come(
        mut self,
        first: Instant,
        step: Duration,
        end: Instant,
    ) -> Result<(u64, Vec<u32>), Failure> {
        let mut due = first;
        let mut settled = 0;
        for turn in 0u64.. {
            if due >= end {
                break;
            }
            tokio::time::sleep_until(due).await;
            let counts = Arc::clone(&self.counts);
            let note = |kind: &[AtomicU64; 2], done: bool| {
                kind[0].fetch_add(1, Ordering::Relaxed);
                kind[1].fetch_add(u64::from(done), Ordering::Relaxed);
            };
            match turn % 3 {
                0 => {
                    let read = self.maker.read(self.accounts);
                    note(&counts.reads, self.send(&read).await?);
                }
                1 => {
                    let [place, settle] = self.maker.pair(self.accounts);
                    let placed = self.send(&place).await?;
                    note(&counts.holds, placed);
                    self.unsettled.extend(placed.then_some(settle));
                }
                _ => {
                    if let Some(settle) = self.unsettled.pop() {
                        let done = self.send(&settle).await?;
                        note(&counts.settlements, done);
                        settled += u64::from(done);
                        self.unsettled.extend((!done).then_some(settle));
                    }
                }
            }
            due += step;
            // Requests that were due while this connection was busy are skipped.
            let now = Instant::now();
            while due + step < now && due < end {
                due += step;
                counts.turned_away.fetch_add(1, Ordering::Relaxed);
            }
        }
        while let Some(settle) = self.unsettled.pop() {
            let done = self.send(&settle).await?;
            settled += u64::from(done);
            self.unsettled.extend((!done).then_some(settle));
        }
        Ok((settled, self.micros))
    }
}
