//! The steps of the archiver: one position is written once, and only an archive of the journal's own past is used.

use crate::support;
use crate::traffic::World;

use std::sync::Arc;
use std::time::Duration;

use bursar_core::credits::Credits;
use bursar_core::digest::Digest;
use bursar_core::ledger::command::{
    AccountKind, AccountSettings, Cause, IssueGrant, PlaceHold, Usage,
};
use bursar_core::ledger::id::AccountNo;
use bursar_core::ledger::refusal::Resource;
use bursar_core::ledger::{Command, Envelope, Ledger};
use bursar_core::time::Timestamp;
use bursar_engine::archiver::{Archiver, ClosedWindow, archive_step, build_archive, must_build};
use bursar_engine::{Durable, Engine, Handle, LedgerCodec, ManualClock};
use bursar_journal::archive::{Archive, ArchiveFamily};
use bursar_journal::record::ledger::{answer_key, object_key};
use bursar_journal::{Head, Journal};
use support::{manual_clock, memory, options, wait_until};

const WINDOW: ClosedWindow = ClosedWindow { keep: 0, most: 100 };

/// A ledger of one account.
pub(crate) struct Running {
    pub(crate) journal: Arc<dyn Journal>,
    engine: Engine<LedgerCodec>,
}

impl Running {
    /// The account has credits.
    pub(crate) fn new() -> Running {
        let running = Running::on(Arc::new(memory(1)), manual_clock());
        let (path, settings) = ("acme".into(), AccountSettings::default());
        running.make(None, Command::OpenAccount { path, kind: AccountKind::Org, settings });
        let grant = IssueGrant::purchase("paid", "acme", credits(1_000_000));
        running.make(None, Command::IssueGrant(grant));
        running
    }

    pub(crate) fn on(journal: Arc<dyn Journal>, clock: Arc<ManualClock>) -> Running {
        let codec = Arc::new(LedgerCodec);
        let engine = Engine::start(Arc::clone(&journal), codec, clock, options("test"));
        let running = Running { journal, engine };
        wait_until("it serves", || running.handle().settle().is_ok());
        running
    }

    pub(crate) fn handle(&self) -> Handle<Ledger> {
        self.engine.handle()
    }

    pub(crate) fn durable(&self) -> Arc<Durable> {
        self.engine.durable()
    }

    fn make(&self, key: Option<u128>, command: Command) {
        let envelope = Envelope { key, fingerprint: 7, ..Envelope::default() };
        let seen = self.handle().execute(envelope, command).expect("the journal is in memory");
        seen.value.expect("it is accepted");
    }

    pub(crate) fn pair(&self, hold: &str, key: Option<u128>) {
        let place =
            PlaceHold { ttl_ms: Some(3_600_000), ..PlaceHold::new(hold, "acme", credits(10)) };
        self.make(key, Command::PlaceHold(place));
        let (tenant, usage) = ("acme".into(), Usage::Total(credits(5)));
        let cause = Cause::Holder;
        self.make(None, Command::SettleHold { tenant, hold: hold.into(), usage, cause });
    }

    pub(crate) fn step(&self, archive: &Archive) -> usize {
        archive_step(&self.handle(), archive, WINDOW, (0, None)).expect("memory cannot fail")
    }
}

fn credits(micros: i64) -> Credits {
    Credits::from_micros(micros).expect("a small amount")
}

pub(crate) fn has(archive: &Archive, hold: &str) -> bool {
    let key = object_key(Resource::Hold, AccountNo(0), hold);
    let (found, _) = archive.get(ArchiveFamily::Objects, &key).expect("it is built");
    found.is_some()
}

#[test]
fn nothing_is_added_at_a_position_that_was_looked_up() {
    let running = Running::new();
    running.pair("h", Some(1));
    let archive = Archive::in_memory();
    build_archive(&*running.journal, &archive, Timestamp::MIN).expect("memory cannot fail");
    // A look-up now is one at the head of the journal, and finds nothing.
    let looked_up = archive.position();
    assert!(!has(&archive, "h"));
    // The ledger has not moved, and the step goes on behind that position.
    assert!(running.step(&archive) > 0);
    assert!(archive.position() > looked_up && has(&archive, "h"));
    let through = running.handle().read(Ledger::forgotten_through).expect("it serves").value;
    assert_eq!(through, archive.position(), "an earlier look-up is outdated");
    let gone =
        move |ledger: &Ledger| ledger.must_ask_archive(looked_up, Resource::Hold, "acme", "h");
    assert!(running.handle().read(gone).expect("it serves").value);
    running.pair("i", None);
    assert!(running.step(&archive) > 0 && has(&archive, "i"));
    let closed = running.handle().read(Ledger::closed_in_memory).expect("it serves").value;
    assert_eq!(closed, 0);
}

/// The command that forgets may be lost after the archive was written, time and again.
#[test]
fn an_archive_that_is_built_is_never_behind_what_was_forgotten() {
    let running = Running::new();
    running.pair("h", None);
    let archive = Archive::in_memory();
    archive.put(&[], 1 << 20).expect("memory cannot fail");
    assert!(running.step(&archive) > 0);
    let rebuilt = Archive::in_memory();
    build_archive(&*running.journal, &rebuilt, Timestamp::MIN).expect("memory cannot fail");
    assert!(has(&rebuilt, "h"));
    assert!(!must_build(&*running.journal, &running.handle(), &rebuilt).expect("memory"));
}

/// Earlier releases forgot jobs by their age, and had an archive without them.
#[test]
fn an_archive_without_what_was_forgotten_by_its_age_is_built_again() {
    let journal: Arc<dyn Journal> = Arc::new(memory(1));
    let world = World::after(1, 600);
    assert!(world.ledger.forgotten_by_age().is_some());
    world.write_to(&*journal, 20);
    let running = Running::on(journal, Arc::new(ManualClock::new(world.clock)));
    let built = || {
        let archive = Archive::in_memory();
        build_archive(&*running.journal, &archive, Timestamp::MIN).expect("memory cannot fail");
        archive
    };
    let must = |archive: &Archive| {
        must_build(&*running.journal, &running.handle(), archive).expect("memory")
    };
    let head = running.journal.head().expect("memory cannot fail");
    let without = Archive::in_memory();
    without.put_marked(&[], head.position, Some(head)).expect("memory cannot fail");
    assert!(must(&without));
    assert!(!must(&built()));
}

#[test]
fn a_step_waits_until_enough_is_closed() {
    let running = Running::new();
    (0..20).for_each(|number| running.pair(&format!("h{number}"), None));
    let archive = Archive::in_memory();
    archive.put(&[], 1).expect("memory cannot fail");
    let window = ClosedWindow { keep: 10, most: 100 };
    let step = |slack| archive_step(&running.handle(), &archive, window, (slack, None));
    assert_eq!(step(15).expect("memory"), 0);
    assert_eq!(step(10).expect("memory"), 10, "those beyond the window");
    running.pair("last", None);
    assert_eq!(step(0).expect("memory"), 1);
}

#[test]
fn only_an_archive_of_this_past_is_used() {
    let running = Running::new();
    running.pair("h", None);
    let head = running.journal.head().expect("memory cannot fail");
    let built = |mark: Option<Head>, position: u64| {
        let archive = Archive::in_memory();
        archive.put_marked(&[], position, mark).expect("memory cannot fail");
        must_build(&*running.journal, &running.handle(), &archive).expect("memory cannot fail")
    };
    assert!(!built(Some(head), head.position), "its own");
    assert!(!built(None, head.position), "one without a mark");
    assert!(built(Some(Head { hash: Digest([9; 32]), ..head }), head.position), "another past");
    let later = Head { sequence: head.sequence + 1, ..head };
    assert!(built(Some(later), head.position), "a future");
    assert!(!built(Some(head), head.position + 3), "steps whose command was lost");
    assert!(built(None, head.position + 1), "a future without a mark");
}

#[test]
fn nothing_is_looked_up_before_the_archive_is_compared_with_the_journal() {
    let running = Running::new();
    running.pair("h", Some(1));
    let archive = Arc::new(Archive::in_memory());
    // Of another past: it says that nothing was forgotten.
    archive.put(&[], 1 << 40).expect("memory cannot fail");
    archive.set_checked(false);
    let key = object_key(Resource::Hold, AccountNo(0), "h");
    assert_eq!(archive.position(), 0);
    assert_eq!(archive.excludes(ArchiveFamily::Objects, &key), None);
    assert!(archive.get(ArchiveFamily::Answers, &answer_key(1)).is_err());
    let durable = running.engine.durable();
    let archiver = Archiver::start(
        Arc::clone(&running.journal),
        running.handle(),
        durable,
        Arc::clone(&archive),
        WINDOW,
        Duration::from_millis(1),
    );
    wait_until("it is built", || archive.position() > 0);
    assert!(archive.position() < 1 << 40);
    running.pair("i", None);
    wait_until("all is archived", || has(&archive, "h") && has(&archive, "i"));
    archiver.stop();
}
