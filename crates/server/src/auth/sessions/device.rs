//! Signs in a command line on a machine without a browser: it gets a code, a person approves the
//! code in a browser anywhere, and the command line then gets a session (RFC 8628).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::time::Timestamp;

use super::failures::{WrongCodes, network};
use super::{LiveSession, random_text};
use crate::auth::hash;
use crate::ids::random_bits;
use crate::telemetry::monotonic::Stopwatch;

/// How long a code can be approved.
pub(crate) const LIFETIME_SECONDS: u32 = 600;
/// How often the command line asks.
pub(crate) const INTERVAL_SECONDS: u32 = 2;
/// How much longer a command line waits after it asked too early, and the longest that it waits.
const SLOW_DOWN_SECONDS: u32 = 5;
const MAX_INTERVAL_SECONDS: u32 = 60;
/// The most codes that are kept, and of one address.
const MAX_CODES: usize = 1_000;
const MAX_OF_ADDRESS: usize = 20;
/// The longest name of a command line.
const MAX_CLIENT_NAME: usize = 64;
/// Consonants, so that a code is no word, and cannot be misread.
const LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const CODE_GROUP_LETTERS: usize = 4;

/// A request of a command line, as the person sees it who approves or refuses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRequest {
    /// What the person compares.
    pub(crate) user_code: String,
    /// Where it came from.
    pub(crate) address: IpAddr,
    /// What the command line calls itself. Nothing proves it.
    pub(crate) client: Option<String>,
    pub(crate) asked_at: Timestamp,
}

enum Decision {
    Waiting,
    /// Approved by this session.
    Approved(Box<LiveSession>),
    Refused,
}

struct Asked {
    request: DeviceRequest,
    decision: Decision,
    until: Timestamp,
    interval: u32,
    /// When the command line may ask again, by the time since the start.
    next_ask: Duration,
}

/// A new code.
pub(crate) struct DeviceCode {
    /// The secret of the command line.
    pub(crate) device_code: String,
    pub(crate) user_code: String,
}

/// What became of a code.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It was not decided yet.
    Pending,
    /// The command line asked too early. It waits this many seconds between its requests from now on.
    TooEarly(u32),
    /// It was approved by this session. The code is used up.
    Approved(Box<LiveSession>),
    /// The person refused. The code is used up.
    Refused,
    /// It is unknown, used up or too old.
    Gone,
}

/// Codes under way.
pub struct Devices {
    /// By the hash of the command line's secret.
    codes: Mutex<HashMap<[u8; 32], Asked>>,
    /// Codes that were tried and do not wait.
    pub(crate) wrong_codes: WrongCodes,
    watch: Stopwatch,
}

impl Default for Devices {
    fn default() -> Devices {
        let (codes, wrong_codes) = (Mutex::default(), WrongCodes::new());
        Devices { codes, wrong_codes, watch: Stopwatch::start() }
    }
}

impl Devices {
    fn codes(&self) -> MutexGuard<'_, HashMap<[u8; 32], Asked>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a code. `None` if too many are under way.
    pub(crate) fn begin(
        &self,
        address: IpAddr,
        client: Option<String>,
        now: Timestamp,
    ) -> Option<DeviceCode> {
        let mut codes = self.codes();
        codes.retain(|_, asked| now <= asked.until);
        let from = network(address);
        let is_of_address = |asked: &&Asked| network(asked.request.address) == from;
        let of_address = codes.values().filter(is_of_address).count();
        if codes.len() >= MAX_CODES || of_address >= MAX_OF_ADDRESS {
            return None;
        }
        let mut user_code = random_user_code();
        while codes.values().any(|asked| asked.request.user_code == user_code) {
            user_code = random_user_code();
        }
        let device_code = random_text();
        let address = address.to_canonical();
        let request =
            DeviceRequest { user_code: user_code.clone(), address, client, asked_at: now };
        let asked = Asked {
            request,
            decision: Decision::Waiting,
            until: now.plus_millis(i64::from(LIFETIME_SECONDS) * 1000),
            interval: INTERVAL_SECONDS,
            next_ask: Duration::ZERO,
        };
        codes.insert(hash(&device_code), asked);
        Some(DeviceCode { device_code, user_code })
    }

    /// The request with a code, if it waits for a decision.
    pub(crate) fn waiting(&self, code: &str, now: Timestamp) -> Option<DeviceRequest> {
        let mut codes = self.codes();
        find_waiting(&mut codes, code, now).map(|asked| asked.request.clone())
    }

    /// Approves a code with a session; returns its request. `None` if no such code waits.
    pub(crate) fn approve(
        &self,
        code: &str,
        session: LiveSession,
        now: Timestamp,
    ) -> Option<DeviceRequest> {
        self.decide(code, Decision::Approved(Box::new(session)), now)
    }

    /// Refuses a code; returns its request. `None` if no such code waits.
    pub(crate) fn refuse(&self, code: &str, now: Timestamp) -> Option<DeviceRequest> {
        self.decide(code, Decision::Refused, now)
    }

    fn decide(&self, code: &str, decision: Decision, now: Timestamp) -> Option<DeviceRequest> {
        let mut codes = self.codes();
        let asked = find_waiting(&mut codes, code, now)?;
        asked.decision = decision;
        Some(asked.request.clone())
    }

    /// What became of the code of a command line. A decided one is used up.
    pub(crate) fn redeem(&self, device_code: &str, now: Timestamp) -> Progress {
        self.redeem_at(device_code, now, self.watch.elapsed())
    }

    fn redeem_at(&self, device_code: &str, now: Timestamp, elapsed: Duration) -> Progress {
        let mut codes = self.codes();
        let key = hash(device_code);
        let Some(asked) = codes.get_mut(&key).filter(|asked| now <= asked.until) else {
            return Progress::Gone;
        };
        let is_early = elapsed < asked.next_ask;
        if is_early {
            asked.interval = (asked.interval + SLOW_DOWN_SECONDS).min(MAX_INTERVAL_SECONDS);
        }
        asked.next_ask = elapsed + Duration::from_secs(asked.interval.into());
        if is_early {
            return Progress::TooEarly(asked.interval);
        }
        match std::mem::replace(&mut asked.decision, Decision::Waiting) {
            Decision::Waiting => Progress::Pending,
            Decision::Approved(session) => {
                codes.remove(&key);
                Progress::Approved(session)
            }
            Decision::Refused => {
                codes.remove(&key);
                Progress::Refused
            }
        }
    }
}

fn find_waiting<'codes>(
    codes: &'codes mut HashMap<[u8; 32], Asked>,
    code: &str,
    now: Timestamp,
) -> Option<&'codes mut Asked> {
    let code = read_user_code(code)?;
    codes.values_mut().find(|asked| {
        asked.request.user_code == code
            && now <= asked.until
            && matches!(asked.decision, Decision::Waiting)
    })
}

/// Whether a command line may call itself so: plain characters that cannot change the page around them.
pub(crate) fn is_client_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@ ".contains(&byte);
    !name.is_empty() && name.len() <= MAX_CLIENT_NAME && name.bytes().all(is_plain)
}

/// `WDJB-MJHT`: 34 bits. It is no secret: it names a request to the person who approves it.
fn random_user_code() -> String {
    let mut bits = random_bits();
    let mut code = String::new();
    for place in 0..2 * CODE_GROUP_LETTERS {
        if place == CODE_GROUP_LETTERS {
            code.push('-');
        }
        let count = LETTERS.len() as u64;
        code.push(char::from(LETTERS[usize::try_from(bits % count).unwrap_or(0)]));
        bits /= count;
    }
    code
}

/// A code as a person types it: any case, with or without the dash.
pub(crate) fn read_user_code(text: &str) -> Option<String> {
    let letters: String = text.trim().chars().filter(|letter| *letter != '-').collect();
    let letters = letters.to_ascii_uppercase();
    let is_code = letters.len() == 2 * CODE_GROUP_LETTERS
        && letters.bytes().all(|byte| LETTERS.contains(&byte));
    is_code
        .then(|| format!("{}-{}", &letters[..CODE_GROUP_LETTERS], &letters[CODE_GROUP_LETTERS..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    const LATER: i64 = LIFETIME_SECONDS as i64 * 1000 + 1;

    #[test]
    fn a_code_is_approved_once_in_time_and_redeemed_once() {
        let (devices, at) = (Devices::default(), Timestamp::from_millis);
        let begin = || devices.begin(address(1), None, at(0)).expect("there is room");
        let redeem = |code: &str, millis, seconds| {
            devices.redeem_at(code, at(millis), Duration::from_secs(seconds))
        };
        let DeviceCode { device_code, user_code } = begin();
        assert!(matches!(redeem(&device_code, 0, 0), Progress::Pending));
        assert!(devices.approve("BBBB-BBB", LiveSession::of_root(), at(0)).is_none(), "too short");
        let typed = user_code.replace('-', "").to_ascii_lowercase();
        assert!(devices.approve(&typed, LiveSession::of_root(), at(1)).is_some());
        assert!(devices.approve(&user_code, LiveSession::of_root(), at(1)).is_none(), "once");
        assert!(devices.refuse(&user_code, at(1)).is_none(), "it is decided");
        assert!(matches!(redeem(&user_code, 1, 2), Progress::Gone), "it is no secret");
        assert!(matches!(redeem(&device_code, 1, 2), Progress::Approved(_)));
        assert!(matches!(redeem(&device_code, 1, 4), Progress::Gone), "once");
        let DeviceCode { device_code, user_code } = begin();
        assert!(devices.approve(&user_code, LiveSession::of_root(), at(LATER)).is_none());
        assert!(matches!(redeem(&device_code, LATER, 10), Progress::Gone));
    }

    #[test]
    fn a_request_shows_where_it_came_from_until_it_is_decided() {
        let (devices, at) = (Devices::default(), Timestamp::from_millis);
        let begun = devices.begin(address(7), Some("ada@login-1".into()), at(5)).expect("room");
        let shown = devices.waiting(&begun.user_code, at(6)).expect("it waits");
        assert_eq!((shown.address, shown.asked_at), (address(7), at(5)));
        assert_eq!(shown.client.as_deref(), Some("ada@login-1"));
        assert!(devices.waiting(&begun.user_code, at(LATER + 5)).is_none(), "too old");
        assert_eq!(devices.refuse(&begun.user_code, at(6)), Some(shown));
        assert!(devices.waiting(&begun.user_code, at(6)).is_none());
        assert!(
            devices.approve(&begun.user_code, LiveSession::of_root(), at(6)).is_none(),
            "it is decided"
        );
        assert!(matches!(devices.redeem(&begun.device_code, at(6)), Progress::Refused));
        assert!(matches!(devices.redeem(&begun.device_code, at(6)), Progress::Gone), "once");
    }

    #[test]
    fn a_command_line_that_asks_too_early_waits_longer() {
        let (devices, now) = (Devices::default(), Timestamp::from_millis(0));
        let begun = devices.begin(address(1), None, now).expect("there is room");
        let ask =
            |millis| devices.redeem_at(&begun.device_code, now, Duration::from_millis(millis));
        assert!(matches!(ask(0), Progress::Pending));
        assert!(matches!(ask(2_000), Progress::Pending));
        assert!(matches!(ask(3_999), Progress::TooEarly(7)));
        assert!(devices.approve(&begun.user_code, LiveSession::of_root(), now).is_some());
        assert!(matches!(ask(10_998), Progress::TooEarly(12)));
        assert!(matches!(ask(22_998), Progress::Approved(_)), "it is not lost");
        let begun = devices.begin(address(1), None, now).expect("there is room");
        let ask =
            |millis| devices.redeem_at(&begun.device_code, now, Duration::from_millis(millis));
        assert!(matches!(ask(0), Progress::Pending));
        for _ in 0..100 {
            assert!(matches!(ask(0), Progress::TooEarly(2..=MAX_INTERVAL_SECONDS)));
        }
        assert!(matches!(ask(0), Progress::TooEarly(MAX_INTERVAL_SECONDS)));
    }

    #[test]
    fn codes_are_bounded_in_all_and_for_each_address() {
        let devices = Devices::default();
        let begin = |last, millis| {
            devices.begin(address(last), None, Timestamp::from_millis(millis)).is_some()
        };
        assert_eq!((0..100).filter(|_| begin(1, 0)).count(), MAX_OF_ADDRESS);
        let others = (2..=100).flat_map(|last| std::iter::repeat_n(last, MAX_OF_ADDRESS));
        assert_eq!(others.filter(|last| begin(*last, 0)).count(), MAX_CODES - MAX_OF_ADDRESS);
        assert!(begin(1, LATER), "old ones are gone");
    }

    #[test]
    fn a_code_is_read_as_a_person_types_it() {
        for text in ["BCDF-GHJK", "bcdfghjk", " BCDF-ghjk "] {
            assert_eq!(read_user_code(text).as_deref(), Some("BCDF-GHJK"), "{text}");
        }
        for text in ["", "ACDF-GHJK", "BCDFGHJ", "BCDFGHJKL", "BCDFGHJé"] {
            assert_eq!(read_user_code(text), None, "{text}");
        }
        let code = random_user_code();
        assert_eq!(read_user_code(&code), Some(code));
    }

    #[test]
    fn a_command_line_has_a_plain_name() {
        for name in ["ada@login-1.example", "bursar 1.0", "A_b"] {
            assert!(is_client_name(name), "{name}");
        }
        for name in ["", "<b>", "a\nb", "a\u{202e}b", "é", "a&b", &"x".repeat(65)] {
            assert!(!is_client_name(name), "{name}");
        }
    }
}
