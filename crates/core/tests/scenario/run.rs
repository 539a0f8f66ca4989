//! Runs a scenario and records the results.

use std::fmt::Write;

use bursar_core::digest::Digest;
use bursar_core::ledger::id::Name;
use bursar_core::ledger::{Command, Envelope, Event, Ledger, invariant};
use bursar_core::machine::{Machine, advance, execute};
use bursar_core::name::AccountPath;
use bursar_core::time::Timestamp;

use super::job;
use super::parse::{self, Words};
use super::render;

/// 2026-01-01T00:00:00.000Z, a Thursday.
const START: i64 = 1_767_225_600_000;

struct Play {
    ledger: Ledger,
    now: Timestamp,
    tenant: AccountPath,
    journal: Vec<(Timestamp, Event)>,
    /// The ledger's digest and the journal's length when the open group began.
    group: Option<(Digest, usize)>,
    out: String,
}

/// The scenario with the results below each command.
pub(crate) fn run(text: &str) -> String {
    let now = Timestamp::from_millis(START);
    let mut play = Play {
        ledger: Ledger::new(),
        now,
        tenant: AccountPath::from("acme"),
        journal: Vec::new(),
        group: None,
        out: String::new(),
    };
    play.ledger.forget_by_age();
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(play.out, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            play.line(line);
        }
    }
    play.replay();
    play.out
}

impl Play {
    fn line(&mut self, line: &str) {
        let words = Words::new(line);
        match words.verb() {
            "wait" => self.move_to(parse::instant(self.now, &format!("+{}", words.word(1)))),
            "show" => self.show(words.word(1)),
            "grants" => self.out.push_str(&render::grants(&self.ledger, &self.tenant)),
            "jobs" => self.out.push_str(&job::jobs(&self.ledger, &self.tenant)),
            "quote" => self.quote(&words),
            "budgets" => self.out.push_str(&render::budgets(&self.ledger, words.word(1), self.now)),
            "begin" => {
                self.group = Some((self.ledger.digest(), self.journal.len()));
                self.ledger.begin_group();
            }
            "commit" => {
                self.ledger.commit_group();
                self.group = None;
            }
            "rollback" => {
                self.ledger.rollback_group();
                let (before, length) = self.group.take().unwrap();
                assert_eq!(self.ledger.digest(), before, "a rollback restores the state");
                self.journal.truncate(length);
            }
            _ => self.command(&words, line),
        }
        if self.group.is_none() {
            // Timers that the command made due at once.
            self.move_to(self.now);
        }
        invariant::check(&self.ledger).unwrap_or_else(|violation| panic!("{line}: {violation}"));
    }

    fn move_to(&mut self, now: Timestamp) {
        self.now = now;
        let mut due = Vec::new();
        advance(&mut self.ledger, now, |at, events| {
            due.extend(events.iter().map(|event| (at, event.clone())));
        });
        for (at, event) in due {
            let text = render::event(&self.ledger, &event);
            writeln!(self.out, "  at {at} {text}").unwrap();
            self.journal.push((at, event));
        }
    }

    fn command(&mut self, words: &Words<'_>, line: &str) {
        let command = job::command(&self.ledger, &self.tenant, words)
            .unwrap_or_else(|| parse::command(self.now, &self.tenant, words));
        let envelope = envelope(&command, words);
        let (unmoved, before) = (self.ledger.digest(), self.untouched());
        let mut events = Vec::new();
        let answer = execute(&mut self.ledger, self.now, &envelope, &command, &mut events);
        for event in &events {
            writeln!(self.out, "  {}", render::event(&self.ledger, event)).unwrap();
            self.journal.push((self.now, event.clone()));
        }
        match answer {
            Ok(accepted) => {
                let again = if accepted.replayed { " (replayed)" } else { "" };
                let reply = render::reply(&self.ledger, &accepted.reply);
                writeln!(self.out, "  = {reply}{again}").unwrap();
            }
            Err(refused) => {
                let again = if refused.replayed { " (replayed)" } else { "" };
                let reason = render::refusal(&refused.refusal);
                writeln!(self.out, "  ! {reason}{again}").unwrap();
                // Without a key no answer is kept, and without an event not even the time is
                // recorded.
                if envelope.key.is_none() {
                    let expected = if events.is_empty() { unmoved } else { before };
                    assert_eq!(self.ledger.digest(), expected, "{line}: refused, but changed");
                }
            }
        }
    }

    /// The digest of the ledger if only the time had changed.
    fn untouched(&self) -> Digest {
        let mut ledger = self.ledger.clone();
        let (answers, holds, movements, buckets, jobs) = (0, 0, 0, 0, 0);
        let archived = None;
        let nothing = Event::Forgotten { answers, holds, movements, buckets, jobs, archived };
        ledger.apply(self.now, &nothing);
        ledger.digest()
    }

    /// Shows a quote, which changes nothing and predicts the answer to the submission.
    fn quote(&mut self, words: &Words<'_>) {
        let before = self.ledger.digest();
        match self.ledger.quote(self.now, &job::submit(words)) {
            Ok(quote) => self.out.push_str(&render::quote(&quote)),
            Err(refusal) => writeln!(self.out, "  ! {}", render::refusal(&refusal)).unwrap(),
        }
        assert_eq!(self.ledger.digest(), before, "a quote changes nothing");
    }

    fn show(&mut self, path: &str) {
        let text = render::balance(&self.ledger, path);
        self.out.push_str(&text);
    }

    /// L11: the journal alone gives the same state.
    fn replay(&self) {
        let mut again = Ledger::new();
        for (at, event) in &self.journal {
            again.apply(*at, event);
        }
        assert_eq!(again.digest(), self.ledger.digest(), "replay differs");
        let restored = Ledger::from_image(self.ledger.image()).expect("its own image");
        assert_eq!(restored.digest(), self.ledger.digest(), "the image differs");
    }
}

/// Equal commands have equal fingerprints, as equal requests do.
fn envelope(command: &Command, words: &Words<'_>) -> Envelope {
    let hash = |text: String| {
        let hash = blake3::hash(text.as_bytes());
        u128::from_le_bytes(hash.as_bytes()[..16].try_into().unwrap())
    };
    Envelope {
        actor: Name::const_new("scenario"),
        fingerprint: hash(format!("{command:?}")),
        key: words.value("key").map(|key| hash(key.to_owned())),
        ..Envelope::default()
    }
}
