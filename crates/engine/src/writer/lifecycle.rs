//! The life cycle of a machine's writer: take over the journal, rebuild the state, serve, repeat.

mod barrier;
mod following;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

use bursar_core::machine::Machine;
use bursar_core::time::Timestamp;
use bursar_journal::{AppendError, Head, Journal, JournalError, LeaseError};
use bursar_seeded::{Bug, seeded};

use crate::clock::Clock;
use crate::codec::Codec;
use crate::error::{EngineError, ReplayError};
use crate::followed::Followed;
use crate::lease::{BootClock, LeaseKeeper, LeaseTrust, Monotonic, SystemMonotonic};
use crate::replay::Replayed;
use crate::writer::appender::Appender;
use crate::writer::compactor::Compactor;
use crate::writer::counters::{Counters, Stats};
use crate::writer::durable::Durable;
use crate::writer::handle::{Handle, Message};
use crate::writer::handoff::Handoff;
use crate::writer::mailbox::{Mailbox, Post, Urgency, mailbox};
use crate::writer::observer::Trouble;
use crate::writer::options::{EngineOptions, Status};
use crate::writer::pacing::BatchPacer;
use crate::writer::session::{End, Session};
use crate::writer::strikes::{MAX_STRIKES, Strikes};
use barrier::Barrier;

/// The pause before the next step of a state that is behind its journal.
const BEHIND_INTERVAL: Duration = Duration::from_millis(1);

/// A running machine.
pub struct Engine<C: Codec> {
    handle: Handle<C::Machine>,
    durable: Arc<Durable>,
    counters: Arc<Counters>,
    status: Arc<Mutex<Status>>,
    tenure: Arc<Mutex<Option<Arc<LeaseTrust>>>>,
    followed: Arc<Followed<C::Machine>>,
    thread: Option<JoinHandle<()>>,
}

impl<C: Codec> Engine<C> {
    /// Starts the threads that run a machine over `journal`.
    pub fn start(
        journal: Arc<dyn Journal>,
        codec: Arc<C>,
        clock: Arc<dyn Clock>,
        options: EngineOptions,
    ) -> Engine<C> {
        Engine::start_with(journal, codec, clock, Arc::new(BootClock::new()), options)
    }

    /// Like [`Engine::start`], with another monotonic clock for the lease.
    pub fn start_with(
        journal: Arc<dyn Journal>,
        codec: Arc<C>,
        clock: Arc<dyn Clock>,
        monotonic: Arc<dyn Monotonic>,
        options: EngineOptions,
    ) -> Engine<C> {
        let (post, mailbox) = mailbox(options.mailbox);
        let durable = Arc::new(Durable::new());
        let counters = Arc::new(Counters::default());
        let status = Arc::new(Mutex::new(Status::Starting));
        let tenure = Arc::new(Mutex::new(None));
        let followed = Arc::new(Followed::new());
        let writer = Writer {
            journal,
            codec,
            clock,
            monotonic,
            options,
            mailbox,
            wake: post.clone(),
            durable: Arc::clone(&durable),
            counters: Arc::clone(&counters),
            status: Arc::clone(&status),
            strikes: Strikes::default(),
            escapes: Cell::new(0),
            tenure: Arc::clone(&tenure),
            followed: Arc::clone(&followed),
        };
        let thread = std::thread::Builder::new()
            .name("bursar-writer".into())
            .spawn(move || writer.run_to_the_end())
            .expect("the system can start a thread");
        let full = "the mailbox is full".into();
        let handle = Handle { mailbox: post, full, urgency: Urgency::default(), sender: 0 };
        Engine { handle, durable, counters, status, tenure, followed, thread: Some(thread) }
    }

    /// A handle to send commands and reads to the machine.
    pub fn handle(&self) -> Handle<C::Machine> {
        self.handle.clone()
    }

    /// How far the journal is durable.
    pub fn durable(&self) -> Arc<Durable> {
        Arc::clone(&self.durable)
    }

    /// The state of the writer. It is serving only while its lease is trusted.
    pub fn status(&self) -> Status {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match status {
            Status::Serving if !self.tenure().is_some_and(|trust| trust.holds()) => {
                Status::Waiting("the lease of this server ran out".into())
            }
            other => other,
        }
    }

    /// The lease under which the machine is served since its last rebuild. A value read under it is
    /// current for as long as the lease holds.
    pub fn tenure(&self) -> Option<Arc<LeaseTrust>> {
        self.tenure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The state that follows the journal while another process owns the machine.
    pub fn followed(&self) -> &Followed<C::Machine> {
        &self.followed
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: read(&self.counters.batches),
            records: read(&self.counters.records),
            bytes: read(&self.counters.bytes),
            largest_batch: read(&self.counters.largest_batch),
            rebuilds: read(&self.counters.rebuilds),
            continued: read(&self.counters.continued),
            panics: read(&self.counters.panics),
            set_aside: read(&self.counters.set_aside),
            longest_turn_micros: read(&self.counters.longest_turn_micros),
            replayed: read(&self.counters.replayed),
            replay_until: read(&self.counters.replay_until),
        }
    }

    /// Handles the messages in the mailbox and ends.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.mailbox.signal(Message::Stop);
            // The thread has reported its own panic and dropped all responders.
            let _ = thread.join();
        }
    }
}

impl<C: Codec> Drop for Engine<C> {
    fn drop(&mut self) {
        self.end();
    }
}

/// What to do after a session has ended.
enum Next {
    /// Take over and rebuild at once.
    Again,
    /// Rebuild under the same lease: the disk is full, so a new lease could not be stored.
    Rebuild,
    /// Take over after a pause, in which requests are refused with this reason.
    Later(String),
    /// End the writer for good.
    Stop(String),
}

struct Writer<C: Codec> {
    journal: Arc<dyn Journal>,
    codec: Arc<C>,
    clock: Arc<dyn Clock>,
    monotonic: Arc<dyn Monotonic>,
    options: EngineOptions,
    mailbox: Mailbox<C::Machine>,
    wake: Post<C::Machine>,
    durable: Arc<Durable>,
    counters: Arc<Counters>,
    status: Arc<Mutex<Status>>,
    strikes: Strikes,
    /// Consecutive panics outside of every request.
    escapes: Cell<u32>,
    tenure: Arc<Mutex<Option<Arc<LeaseTrust>>>>,
    followed: Arc<Followed<C::Machine>>,
}

impl<C: Codec> Writer<C> {
    /// Runs until the end. A panic that was not caught elsewhere ends the writer and is shown in
    /// the status. No caller is left waiting.
    fn run_to_the_end(self) {
        let end = catch_unwind(AssertUnwindSafe(|| self.run()));
        let end = end.unwrap_or_else(|_| "the writer panicked".into());
        self.show(Status::Stopped(end.clone()));
        self.durable.close();
        self.mailbox.close();
        // Waiting messages are answered. The closed mailbox refuses later ones.
        while let Some(message) = self.mailbox.try_next() {
            message.reject(&EngineError::Stopped(end.clone()));
        }
    }

    fn run(&self) -> String {
        let mut reported = String::new();
        let mut is_behind = false;
        loop {
            self.show(Status::Starting);
            match self.own_and_serve() {
                Next::Again | Next::Rebuild => reported.clear(),
                Next::Later(reason) => {
                    self.show(Status::Waiting(reason.clone()));
                    if reported != reason && !self.is_standby() {
                        self.options.observer.trouble(Trouble::NotServed(reason.clone()));
                        reported.clone_from(&reason);
                    }
                    // What is left from the time as owner is answered before anything is read.
                    let pause = if is_behind { BEHIND_INTERVAL } else { self.options.retry };
                    if self.refuse_for_a_while(&EngineError::Unavailable(reason), pause) {
                        return "asked to".into();
                    }
                    is_behind = self.follow();
                }
                Next::Stop(reason) => return reason,
            }
        }
    }

    fn show(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    fn show_tenure(&self, trust: Option<Arc<LeaseTrust>>) {
        *self.tenure.lock().unwrap_or_else(PoisonError::into_inner) = trust;
    }

    /// Reopens, takes the lease, replays, writes the barrier and serves. A restart after a crash
    /// does the same.
    fn own_and_serve(&self) -> Next {
        if let Err(reason) = self.options.permit.ask() {
            return Next::Later(reason.to_string());
        }
        self.journal.set_following(false);
        if let Err(error) = self.journal.reopen() {
            return after_journal_error(&error);
        }
        let taken = LeaseTrust::acquire_under(
            &*self.journal,
            Arc::clone(&self.monotonic),
            &self.options.holder,
            self.options.lease_ttl,
            self.options.permit.clone(),
        );
        let trust = match taken {
            Ok(trust) => Arc::new(trust),
            Err(LeaseError::Journal(error)) => return after_journal_error(&error),
            Err(error @ (LeaseError::Held { .. } | LeaseError::Lost { .. })) => {
                return Next::Later(error.to_string());
            }
        };
        let wake = self.wake.clone();
        let over = move || wake.signal(Message::Wake);
        let observer = self.options.observer.clone();
        let keeper =
            LeaseKeeper::start(Arc::clone(&self.journal), Arc::clone(&trust), observer, over);
        let next = loop {
            match self.rebuild_and_serve(&trust) {
                Next::Rebuild => {}
                next => break next,
            }
        };
        drop(keeper);
        // A value read under it may no longer be current.
        trust.end();
        self.show_tenure(None);
        if matches!(next, Next::Stop(_)) || self.options.permit.ask().is_err() {
            // The next owner need not wait. A lease that cannot be released expires.
            let _ = self.journal.release_lease(trust.lease());
        }
        next
    }

    fn rebuild_and_serve(&self, trust: &Arc<LeaseTrust>) -> Next {
        let Ok(replayed) = catch_unwind(AssertUnwindSafe(|| self.rebuild())) else {
            return Next::Stop(
                "the state cannot be rebuilt: the machine panicked in replay".into(),
            );
        };
        match replayed {
            Ok(_) if trust.has_ended() => Next::Again,
            Ok(replayed) => {
                if let Some(lost) = self.loss(replayed.head) {
                    return lost;
                }
                self.counters.rebuilds.fetch_add(1, Ordering::Relaxed);
                self.serve(replayed, trust)
            }
            Err(ReplayError::Journal(error)) => after_journal_error(&error),
            Err(error @ (ReplayError::Record(_) | ReplayError::Body { .. })) => {
                Next::Stop(error.to_string())
            }
        }
    }

    /// Of several servers on one store: refuses a journal that lacks a batch which this server knows to be durable. A
    /// server alone finds that at its start, by the manifest.
    fn loss(&self, found: Head) -> Option<Next> {
        let durable = self.durable.head().filter(|_| self.options.permit.is_needed())?;
        let lost = || {
            Next::Later(format!(
                "the store has lost batch {}, which was durable; it ends with batch {}",
                durable.sequence, found.sequence
            ))
        };
        if found.sequence < durable.sequence {
            return Some(lost());
        }
        match self.journal.head_at(durable.sequence) {
            Ok(head) if head == durable => None,
            Ok(_) => Some(lost()),
            Err(error) => Some(after_journal_error(&error)),
        }
    }

    fn serve(&self, replayed: Replayed<C::Machine>, trust: &Arc<LeaseTrust>) -> Next {
        let Barrier { head, since, doubted } = match self.barrier(&replayed, trust) {
            Ok(barrier) => barrier,
            Err(next) => return next,
        };
        self.durable.publish(head);
        self.counters.set_aside.store(replayed.machine.set_aside_count(), Ordering::Relaxed);
        self.show_tenure(Some(Arc::clone(trust)));
        self.show(Status::Serving);
        let handoff = Arc::new(Handoff::new());
        let compactor = Arc::new(Compactor::new(Arc::clone(&self.journal), Arc::clone(&handoff)));
        let depth = self.journal.pipeline_depth().max(1);
        let appender = Arc::new(Appender {
            journal: Arc::clone(&self.journal),
            handoff: Arc::clone(&handoff),
            compactor: Arc::clone(&compactor),
            durable: Arc::clone(&self.durable),
            counters: Arc::clone(&self.counters),
            trust: Arc::clone(trust),
            epoch: trust.lease().epoch,
            stopwatch: SystemMonotonic::new(),
            observer: self.options.observer.clone(),
            depth,
            expected: Mutex::new(head),
            write_nanos: AtomicU64::new(0),
        });
        let mut session = Session {
            codec: &*self.codec,
            clock: &*self.clock,
            mailbox: &self.mailbox,
            handoff: Arc::clone(&handoff),
            appender: Arc::clone(&appender),
            pacer: BatchPacer::new(),
            trust: Arc::clone(trust),
            journal: &*self.journal,
            machine: replayed.machine,
            position: head.position,
            since,
            doubted,
            batch_bytes: self.options.batch_bytes,
            events: Vec::new(),
            strikes: &self.strikes,
            broken: false,
            hopeless: false,
            handled: 0,
            steps_left: 0,
            flushes: 0,
            number: self.counters.rebuilds.load(Ordering::Relaxed),
            answered: false,
        };
        let end = std::thread::scope(|scope| {
            let appending = self.beside(scope, "bursar-append", || appender.run());
            let compacting = self.beside(scope, "bursar-compact", || compactor.run());
            // Closed even if the machine panics, so that no thread waits for the others for ever.
            let closing = Closing(&handoff, &compactor);
            let end = catch_unwind(AssertUnwindSafe(|| session.run()));
            drop(closing);
            appending.join().and_then(|()| compacting.join()).map(|()| end)
        });
        let Ok(end) = end else {
            return Next::Stop("a thread beside the writer panicked".into());
        };
        let end = match end {
            Ok(end) => end,
            Err(_) if self.escaped(session.handled) => {
                return Next::Stop("the machine panicked repeatedly".into());
            }
            Err(_) => End::Broken,
        };
        match end {
            // The last loads may have failed while the session waited for them.
            End::Stopped => match handoff.failure() {
                None => Next::Stop("asked to".into()),
                Some(failure) => Next::Stop(failure.to_string()),
            },
            // Earlier decisions are in the journal, or failed while the session waited for them.
            End::Broken => handoff.failure().map_or(Next::Rebuild, after_append_error),
            End::TimerPanics => Next::Stop("a due timer panics and cannot be set aside".into()),
            End::Failed(error) => after_append_error(error),
        }
    }

    /// Counts a panic outside of every request. Returns true at the third one before anything was
    /// handled: the next start would panic as well.
    fn escaped(&self, handled: u64) -> bool {
        self.counters.panics.fetch_add(1, Ordering::Relaxed);
        let before = if handled == 0 { self.escapes.get() } else { 0 };
        self.escapes.set(before + 1);
        before + 1 >= MAX_STRIKES
    }

    /// Starts a thread beside the writer's. Its end wakes an idle writer, because it may have
    /// failed.
    fn beside<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        work: impl FnOnce() + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, ()> {
        let waking = Waking(self.wake.clone());
        let builder = std::thread::Builder::new().name(name.into());
        let thread = builder.spawn_scoped(scope, move || {
            let _waking = waking;
            work();
        });
        thread.expect("the system can start a thread")
    }
}

/// Wakes the writer at the end of its scope.
struct Waking<M: Machine>(Post<M>);

impl<M: Machine> Drop for Waking<M> {
    fn drop(&mut self) {
        self.0.signal(Message::Wake);
    }
}

/// Lets both threads end at the end of its scope.
struct Closing<'a, M: Machine>(&'a Handoff<M>, &'a Compactor<M>);

impl<M: Machine> Drop for Closing<'_, M> {
    fn drop(&mut self) {
        self.0.close();
        self.1.close();
    }
}

fn after_append_error(error: AppendError) -> Next {
    match error {
        AppendError::Corrupt(error) => Next::Stop(error.to_string()),
        AppendError::Full(_) => Next::Rebuild,
        AppendError::Fenced { .. } | AppendError::Unknown(_) => Next::Again,
    }
}

/// The time of the last record up to `head`. The machine's state does not contain a barrier's time.
fn last_time(journal: &dyn Journal, head: Head) -> Result<Timestamp, JournalError> {
    if seeded(Bug::TimeRunsBack) {
        return Ok(Timestamp::MIN);
    }
    let Some(before) = head.sequence.checked_sub(1) else { return Ok(Timestamp::MIN) };
    let mut batches = journal.read(journal.head_at(before)?)?;
    Ok(batches.next().transpose()?.map_or(Timestamp::MIN, |batch| batch.time))
}

fn after_journal_error(error: &JournalError) -> Next {
    let reason = error.to_string();
    if error.is_retryable() { Next::Later(reason) } else { Next::Stop(reason) }
}
