//! Clients of a real ledger that place and settle holds, and log what they know.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bursar_core::credits::Credits;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, IssueGrant, PlaceHold, Usage,
};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::{Command, Envelope, Ledger, Refusal};
use bursar_core::name::HoldId;
use bursar_engine::recall::recall;
use bursar_engine::{CommandAnswer, EngineError, Handle};
use bursar_journal::archive::Archive;

/// The credits of the org, the amount of a hold, and the part of it that is charged, in µ.
pub const GRANTED: i64 = 1_000_000_000_000;
pub const HELD: i64 = 10;
pub const CHARGED: i64 = 6;
const CLIENTS: u64 = 8;

/// A request of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Request {
    Place(u64),
    Settle(u64),
}

impl Request {
    pub fn parse(text: &str) -> Request {
        let (what, id) = text.split_once(' ').expect("every request has two words");
        let id = id.parse().expect("every request names an id");
        match what {
            "place" => Request::Place(id),
            "settle" => Request::Settle(id),
            other => panic!("unknown request {other}"),
        }
    }

    fn command(self) -> Command {
        let micros = |amount| Credits::from_micros(amount).expect("a small amount");
        match self {
            Request::Place(id) => Command::PlaceHold(PlaceHold {
                ttl_ms: Some(86_400_000),
                ..PlaceHold::new(hold_name(id), "acme", micros(HELD))
            }),
            Request::Settle(id) => Command::SettleHold {
                tenant: "acme".into(),
                hold: hold_name(id),
                usage: Usage::Total(micros(CHARGED)),
                cause: Cause::Holder,
            },
        }
    }

    /// Equal for every repetition of the request.
    fn envelope(self) -> Envelope {
        let number = match self {
            Request::Place(id) => 2 * u128::from(id),
            Request::Settle(id) => 2 * u128::from(id) + 1,
        };
        let fingerprint = number + 1_000;
        Envelope {
            actor: "client".into(),
            fingerprint,
            key: Some(fingerprint),
            ..Envelope::default()
        }
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Request::Place(id) => write!(f, "place {id}"),
            Request::Settle(id) => write!(f, "settle {id}"),
        }
    }
}

pub fn hold_name(id: u64) -> HoldId {
    format!("hold-{id}").into()
}

/// Opens the account and gives it credits, once. Repetitions get the stored answer.
pub fn set_up(handle: &Handle<Ledger>) {
    let open = Command::OpenAccount {
        path: "acme".into(),
        kind: AccountKind::Org,
        settings: AccountSettings::default(),
    };
    let grant = Command::IssueGrant(IssueGrant::purchase(
        "grant",
        "acme",
        Credits::from_micros(GRANTED).expect("a possible amount"),
    ));
    for (key, command) in [(1, open), (2, grant)] {
        let envelope = Envelope {
            actor: "root".into(),
            fingerprint: key,
            key: Some(key),
            ..Envelope::default()
        };
        let ask = || handle.execute(envelope.clone(), command.clone());
        until_answered(ask).expect("the disk works").value.expect("accepted");
    }
}

/// The clients of one process. Their log, its standard output, outlives it.
pub struct Clients {
    handle: Handle<Ledger>,
    /// What the ledger has forgotten, if it forgets.
    archive: Option<Arc<Archive>>,
    output: Mutex<std::io::Stdout>,
}

impl Clients {
    pub fn new(handle: Handle<Ledger>) -> Clients {
        Clients { handle, archive: None, output: Mutex::new(std::io::stdout()) }
    }

    /// The same for a ledger that forgets what this archive has.
    pub fn with_archive(self, archive: Arc<Archive>) -> Clients {
        Clients { archive: Some(archive), ..self }
    }

    /// Runs eight clients that place and settle, with ids from `first` on, for ever.
    pub fn run(&self, first: u64) {
        let next = AtomicU64::new(first);
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    loop {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        self.ask(Request::Place(id));
                        self.ask(Request::Settle(id));
                    }
                });
            }
        });
    }

    /// Sends a request and logs it before and after. Without an answer, repeats it under the same
    /// key.
    pub fn ask(&self, request: Request) {
        self.say(format_args!("try {request}"));
        match &self.archive {
            None => {
                let ask = || self.handle.execute(request.envelope(), request.command());
                until_answered(ask)
                    .expect("the disk works")
                    .value
                    .expect("there are credits enough");
            }
            Some(archive) => self.ask_knowing(request, archive),
        }
        self.say(format_args!("ack {request}"));
    }

    /// Sends a request with what the archive has of it, again until nothing more was forgotten in between.
    fn ask_knowing(&self, request: Request, archive: &Archive) {
        loop {
            let (envelope, command) = (request.envelope(), request.command());
            let names = command.archived_names();
            let names: Vec<_> =
                names.iter().map(|(what, _, id)| (*what, AccountNo(0), *id)).collect();
            // It is built at the first start.
            let Ok(found) = recall(archive, &names, envelope.key) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if let Some(answer) = found.answer {
                assert_eq!(
                    answer.fingerprint, envelope.fingerprint,
                    "a key stands for one request"
                );
                assert!(answer.answer.is_ok(), "it was accepted");
                return;
            }
            let (archive, recalled) = (Some(found.position), found.recalled);
            let envelope = Envelope { archive, recalled, ..envelope };
            let ask = || self.handle.execute(envelope.clone(), command.clone());
            match until_answered(ask).expect("the disk works").value {
                Ok(_) => return,
                Err(refused) if matches!(refused.refusal, Refusal::Forgotten { .. }) => {}
                Err(refused) => panic!("there are credits enough: {refused:?}"),
            }
        }
    }

    /// One write for each line. If the parent is gone, the line is not needed.
    pub fn say(&self, line: std::fmt::Arguments<'_>) {
        let mut output = self.output.lock().expect("no panic");
        let written = output.write_all(format!("{line}\n").as_bytes());
        if written.and_then(|()| output.flush()).is_err() {
            std::process::exit(1);
        }
    }
}

/// Retries while another server owns the ledger or the outcome is unknown.
fn until_answered(ask: impl Fn() -> CommandAnswer<Ledger>) -> CommandAnswer<Ledger> {
    loop {
        match ask() {
            Err(EngineError::Unavailable(_) | EngineError::OutcomeUnknown) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            other @ (Ok(_)
            | Err(
                EngineError::StorageFull
                | EngineError::Internal
                | EngineError::TooLarge(_)
                | EngineError::Stopped(_),
            )) => return other,
        }
    }
}
