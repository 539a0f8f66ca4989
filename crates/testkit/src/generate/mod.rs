//! Random commands in a small world with many interactions.
//!
//! Names, instants and amounts come from small sets. Many of them are derived from the model's
//! state: exactly the spendable amount, one unit more, one millisecond after a deadline.

mod amount;
mod chaos;
mod flavor;
mod grants;
mod holds;
mod instants;
mod jobs;
mod random;
mod spending;
mod terms;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bursar_core::ledger::command::{AccountKind, AccountSettings, Command, Envelope, Policy};
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;

pub use chaos::chaos;
pub use random::Random;

use flavor::{Flavor, KINDS};

use crate::model::Model;

/// One command with its instant and its envelope.
#[derive(Clone, Debug)]
pub struct TimedCommand {
    /// The instant.
    pub now: Timestamp,
    /// The envelope.
    pub envelope: Envelope,
    /// The command.
    pub command: Command,
}

/// Generates commands for one world.
pub struct Generator {
    random: Random,
    now: i64,
    scale: amount::Scale,
    flavor: Flavor,
    paths: Vec<(AccountPath, AccountKind)>,
    names: BTreeMap<&'static str, i64>,
    expiries: Vec<i64>,
    past: Vec<TimedCommand>,
}

const DAY_MS: i64 = 86_400_000;
/// 2024-02-26T00:00Z, a Monday three days before a leap day.
const FIRST_DAY: i64 = 1_708_905_600_000;

impl Generator {
    /// A world that depends only on its seed.
    pub fn new(seed: u64) -> Generator {
        let mut random = Random::new(seed);
        let now = FIRST_DAY + random.between(0, 70 * DAY_MS);
        let scale = amount::Scale::choose(&mut random);
        let flavor = Flavor::choose(&mut random);
        let paths = tree(&mut random);
        let expiries = (0..5)
            .map(|_| now + random.between(0, 3) * DAY_MS + random.between(0, DAY_MS))
            .collect();
        Generator {
            random,
            now,
            scale,
            flavor,
            paths,
            names: BTreeMap::new(),
            expiries,
            past: Vec::new(),
        }
    }

    /// The next command. The model must have executed all earlier ones.
    pub fn next_step(&mut self, model: &Model) -> TimedCommand {
        let step = self.make_step(model);
        self.past.push(step.clone());
        step
    }

    fn make_step(&mut self, model: &Model) -> TimedCommand {
        if self.past.is_empty() {
            return self.step(Command::SetPolicy(self.first_policy()), None);
        }
        let opened = self.past.len() - 1;
        if let Some((path, kind)) = self.paths.get(opened).cloned() {
            let settings = self.settings();
            return self.step(Command::OpenAccount { path, kind, settings }, None);
        }
        self.move_time(model);
        if self.random.chance(self.flavor.repeated) {
            return self.repeat();
        }
        let command = self.command(model);
        let key = self.random.chance(self.flavor.keyed).then(|| u128::from(self.random.bits()));
        self.step(command, key)
    }

    /// Repeats an earlier command, unchanged or nearly so.
    fn repeat(&mut self) -> TimedCommand {
        let mut step = self.random.pick(&self.past).clone();
        step.now = Timestamp::from_millis(self.now);
        match self.random.index(8) {
            0 => step.envelope.fingerprint ^= 1,
            1 => step.envelope.key = None,
            2 => step.envelope.key = Some(u128::from(self.random.bits())),
            3 => step.command = self.random.pick(&self.past).command.clone(),
            _ => {}
        }
        step
    }

    fn step(&mut self, command: Command, key: Option<u128>) -> TimedCommand {
        let mut hasher = DefaultHasher::new();
        format!("{command:?}").hash(&mut hasher);
        let fingerprint = u128::from(hasher.finish());
        let envelope = Envelope { actor: "tester".into(), fingerprint, key, ..Envelope::default() };
        TimedCommand { now: Timestamp::from_millis(self.now), envelope, command }
    }

    fn command(&mut self, model: &Model) -> Command {
        let total: u64 = self.flavor.weights.iter().sum();
        let mut left = self.random.bits() % total;
        for ((_, make_command), weight) in KINDS.into_iter().zip(self.flavor.weights) {
            if left < weight {
                return make_command(self, model);
            }
            left -= weight;
        }
        unreachable!("a number below the sum lies within one of the weights")
    }

    /// A name for a new resource; sometimes one that is taken.
    fn new_name<T: From<String>>(&mut self, prefix: &'static str) -> T {
        let reuse = self.random.chance(4);
        let next = self.names.entry(prefix).or_insert(0);
        let number = if reuse && *next > 0 {
            self.random.between(1, *next)
        } else {
            *next += 1;
            *next
        };
        format!("{prefix}{number}").into()
    }

    /// The path of some account; rarely of one that does not exist.
    fn path(&mut self) -> AccountPath {
        if self.random.once_in(300) {
            return "acme:missing".into();
        }
        self.random.pick(&self.paths).0.clone()
    }
}

impl Generator {
    fn open_account(&mut self) -> Command {
        let parent = self.path();
        let segment = *self.random.pick(&["x", "y", "no/slash"]);
        let path =
            if self.random.chance(70) { format!("{parent}:{segment}").into() } else { parent };
        Command::OpenAccount { path, kind: self.kind(), settings: self.settings() }
    }

    fn change_account(&mut self) -> Command {
        let (path, settings) = (self.path(), self.settings());
        let cleared = chaos::cleared(&mut self.random);
        Command::ChangeAccount { path, settings, cleared }
    }

    fn freeze_account(&mut self) -> Command {
        Command::FreezeAccount { path: self.path(), by_platform: self.random.chance(40) }
    }

    fn unfreeze_account(&mut self, model: &Model) -> Command {
        let frozen = (0..model.account_count()).map(|number| model.account_view(number));
        let frozen: Vec<AccountPath> =
            frozen.filter(|account| account.frozen).map(|account| account.path).collect();
        let path = if frozen.is_empty() { self.path() } else { self.random.pick(&frozen).clone() };
        Command::UnfreezeAccount { path, by_platform: self.random.chance(80) }
    }

    fn kind(&mut self) -> AccountKind {
        *self.random.pick(&[
            AccountKind::Org,
            AccountKind::Team,
            AccountKind::Project,
            AccountKind::User,
        ])
    }

    fn settings(&mut self) -> AccountSettings {
        let ttl = self.random.pick(&[None, None, Some(1_000), Some(DAY_MS)]);
        let weight = self.random.pick(&[None, None, Some(1), Some(5000)]);
        AccountSettings {
            compensation_ttl_ms: *ttl,
            weight_milli: *weight,
            ..AccountSettings::default()
        }
    }

    /// Nothing is forgotten during the life of a world.
    fn first_policy(&self) -> Policy {
        const CENTURY_MS: i64 = 36_500 * DAY_MS;
        Policy {
            idempotency_ttl_ms: CENTURY_MS,
            retention_ms: CENTURY_MS,
            lateness_ms: 3 * DAY_MS,
            compensation_ttl_ms: 3 * DAY_MS,
            expiry_waits: false,
        }
    }

    fn next_policy(&mut self) -> Policy {
        let compensation_ttl_ms = *self.random.pick(&[0, 1, DAY_MS, 3 * DAY_MS]);
        Policy { compensation_ttl_ms, ..self.first_policy() }
    }
}

/// Two tenants, each a tree of at most five levels.
fn tree(random: &mut Random) -> Vec<(AccountPath, AccountKind)> {
    let kinds = [AccountKind::Team, AccountKind::Project, AccountKind::User];
    let mut paths: Vec<(AccountPath, AccountKind)> =
        vec![("acme".into(), AccountKind::Org), ("umbrella".into(), AccountKind::Org)];
    let wanted = 4 + random.index(9);
    while paths.len() < wanted {
        // Younger parents are more likely, so that the tree gets deep.
        let oldest = random.index(paths.len());
        let (parent, above) = paths[oldest + random.index(paths.len() - oldest)].clone();
        let kind = *random.pick(&kinds);
        let fits = kind > above || (kind == above && kind != AccountKind::User);
        if fits && parent.split(':').count() < 5 {
            paths.push((format!("{parent}:n{}", paths.len()).into(), kind));
        }
    }
    paths
}
