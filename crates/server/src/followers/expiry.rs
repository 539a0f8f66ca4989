//! Warns of credits that expire soon: one line of the log and one count for each account, 30, 14, 7
//! and 1 days and 6 hours before. Of many accounts at once the log names some and counts the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bursar_core::ledger::Ledger;
use bursar_core::ledger::id::{AccountNo, BucketNo};
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;

use crate::app::App;
use crate::render::time;

const HOUR_MS: i64 = 3_600_000;

/// How long before an expiry a warning comes, the longest first.
const WARNING_TIMES: [(&str, i64); 5] = [
    ("30d", 720 * HOUR_MS),
    ("14d", 336 * HOUR_MS),
    ("7d", 168 * HOUR_MS),
    ("1d", 24 * HOUR_MS),
    ("6h", 6 * HOUR_MS),
];

/// The most buckets that one step looks at, for each time before.
const MAX_STEP_BUCKETS: usize = 256;

/// The most accounts that one step names in the log.
const MAX_NAMED: usize = 16;

/// The pause between two steps.
const STEP_INTERVAL: Duration = Duration::from_secs(1);

/// Credits of an account that expire soon.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ExpiryWarning {
    /// How long before, at most.
    before: &'static str,
    account: AccountPath,
    /// When the first of them do.
    expires_at: Timestamp,
}

/// Up to which expiry warnings were given, for each time before.
#[derive(Clone, Debug)]
struct WarningProgress([(Timestamp, BucketNo); WARNING_TIMES.len()]);

/// The end of an instant: no bucket comes after it.
fn end_of(at: Timestamp) -> (Timestamp, BucketNo) {
    (at, BucketNo(u32::MAX))
}

/// The end of the time in which a warning is the last one.
fn next_before(index: usize) -> i64 {
    WARNING_TIMES.get(index + 1).map_or(0, |(_, millis)| *millis)
}

impl WarningProgress {
    /// What a start finds: every expiry in the next 30 days gets one warning, so that none is
    /// missing because no server ran when it was due.
    fn at_start(now: Timestamp) -> WarningProgress {
        WarningProgress(std::array::from_fn(|index| end_of(now.plus_millis(next_before(index)))))
    }

    /// The warnings that are due.
    fn next(&mut self, ledger: &Ledger, now: Timestamp) -> Vec<ExpiryWarning> {
        let mut warnings = Vec::new();
        for (index, (before, millis)) in WARNING_TIMES.into_iter().enumerate() {
            let place = &mut self.0[index];
            let until = now.plus_millis(millis);
            let found = ledger.expiring_after(*place, until, MAX_STEP_BUCKETS);
            *place = match found.last() {
                Some(last) if found.len() == MAX_STEP_BUCKETS => (last.expires_at, last.bucket),
                Some(_) | None => end_of(until).max(*place),
            };
            // After a jump of the clock only the last of several warnings is given.
            let from = now.plus_millis(next_before(index));
            let mut accounts: BTreeMap<AccountNo, Timestamp> = BTreeMap::new();
            for one in found.iter().filter(|one| one.amount > 0 && one.expires_at > from) {
                accounts.entry(one.account).or_insert(one.expires_at);
            }
            warnings.extend(accounts.into_iter().map(|(account, expires_at)| {
                let account = ledger.account(account).path.clone();
                ExpiryWarning { before, account, expires_at }
            }));
        }
        warnings
    }
}

/// Runs until the process ends.
pub async fn run(app: Arc<App>) {
    let mut warned = None;
    loop {
        tokio::time::sleep(STEP_INTERVAL).await;
        let now = app.clock.now();
        let mut next = warned.clone().unwrap_or_else(|| WarningProgress::at_start(now));
        let due = app.ledger.peek(move |ledger| {
            let warnings = next.next(ledger, now);
            (next, warnings)
        });
        // While the ledger does not answer, warnings wait.
        let Ok((next, warnings)) = due.await else { continue };
        warned = Some(next);
        for warning in &warnings {
            app.metrics.expiry_warning(warning.before);
        }
        let (named, more) = named(&warnings);
        for ExpiryWarning { before, account, expires_at } in named {
            let expires_at = time(*expires_at);
            // How much is not for the log: `bursar balance` shows it to those who may see it.
            tracing::warn!(%account, %expires_at, within = before, "credits expire soon");
        }
        if more > 0 {
            tracing::warn!(accounts = more, "credits of more accounts expire soon");
        }
    }
}

/// The warnings that the log names, those with the longest time left last, and how many more there
/// are.
fn named(warnings: &[ExpiryWarning]) -> (Vec<&ExpiryWarning>, usize) {
    let mut named: Vec<&ExpiryWarning> = warnings.iter().collect();
    named.sort_by_key(|one| one.expires_at);
    named.truncate(MAX_NAMED);
    let more = warnings.len() - named.len();
    (named, more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bursar_core::credits::Credits;
    use bursar_core::ledger::Envelope;
    use bursar_core::ledger::command::{AccountKind, AccountSettings, Command, IssueGrant};
    use bursar_core::machine::execute;

    const DAY: i64 = 24 * HOUR_MS;

    fn at(days: i64) -> Timestamp {
        Timestamp::from_millis(days * DAY)
    }

    /// A ledger with an organisation, and one credit that expires at each of these instants.
    fn with_grants(instants: impl IntoIterator<Item = Timestamp>) -> Ledger {
        let mut ledger = Ledger::new();
        let open = Command::OpenAccount {
            path: "acme".into(),
            kind: AccountKind::Org,
            settings: AccountSettings::default(),
        };
        let mut run = |command: &Command| {
            execute(&mut ledger, at(0), &Envelope::default(), command, &mut Vec::new())
                .expect("accepted");
        };
        run(&open);
        for (number, expires_at) in instants.into_iter().enumerate() {
            run(&Command::IssueGrant(IssueGrant {
                expires_at: Some(expires_at),
                ..IssueGrant::purchase(
                    format!("g{number}"),
                    "acme",
                    Credits::from_micros(1_000_000).expect("a small amount"),
                )
            }));
        }
        ledger
    }

    /// The times before of the warnings that each look gives, by day.
    fn looks(
        ledger: &Ledger,
        warned: &mut WarningProgress,
        days: &[i64],
    ) -> Vec<(i64, &'static str)> {
        let mut given = Vec::new();
        for day in days {
            given.extend(warned.next(ledger, at(*day)).into_iter().map(|one| (*day, one.before)));
        }
        given
    }

    #[test]
    fn each_expiry_is_pointed_out_once_at_each_time_before() {
        let ledger = with_grants([at(40), at(40)]);
        let mut warned = WarningProgress::at_start(at(0));
        let days: Vec<i64> = (0..50).collect();
        let given = looks(&ledger, &mut warned, &days);
        assert_eq!(given, [(10, "30d"), (26, "14d"), (33, "7d"), (39, "1d")]);
        let almost = at(40).plus_millis(-HOUR_MS);
        let last = WarningProgress::at_start(at(39)).next(&ledger, almost);
        assert_eq!(last.len(), 1, "both grants in one line: {last:?}");
        assert_eq!((last[0].before, last[0].expires_at), ("6h", at(40)));
    }

    #[test]
    fn a_start_and_a_jump_of_the_clock_give_one_warning() {
        let ledger = with_grants([at(10), at(90)]);
        assert_eq!(looks(&ledger, &mut WarningProgress::at_start(at(0)), &[0, 1]), [(0, "14d")]);
        let mut warned = WarningProgress::at_start(at(0));
        assert_eq!(looks(&ledger, &mut warned, &[0, 88, 89]), [(0, "14d"), (88, "7d"), (89, "1d")]);
    }

    #[test]
    fn the_log_names_the_most_urgent_of_many() {
        let warning = |number: i64| ExpiryWarning {
            before: "7d",
            account: AccountPath::parse(format!("org{number}")).expect("a path"),
            expires_at: at(100 - number),
        };
        let warnings: Vec<ExpiryWarning> = (0..40).map(warning).collect();
        let (names, more) = named(&warnings);
        assert_eq!((names.len(), more), (MAX_NAMED, 24));
        assert_eq!(names[0].expires_at, at(61));
        assert_eq!(named(&warnings[..3]).1, 0);
    }

    #[test]
    fn many_expiries_take_several_steps_and_none_is_left_out() {
        let count = 3 * i64::try_from(MAX_STEP_BUCKETS).expect("small") + 7;
        let ledger = with_grants((0..count).map(|number| at(5).plus_millis(number)));
        let mut warned = WarningProgress::at_start(at(0));
        let mut firsts = Vec::new();
        for _ in 0..6 {
            let given = warned.next(&ledger, at(0));
            firsts.extend(given.iter().map(|one| one.expires_at.millis() - at(5).millis()));
        }
        assert_eq!(firsts, [0, 256, 512, 768], "one for each step");
    }
}
