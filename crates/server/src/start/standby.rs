//! The machines of a store that another server leads: their states follow the journals, so that this server takes them
//! over without reading the journals again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bursar_core::name::Region;
use bursar_engine::cut::{CellMarks, CutError, LedgerMarks, compare_marks};
use bursar_engine::{CellCodec, Clock, Codec, DirectoryCodec, Engine, LedgerCodec, WallClock};
use bursar_journal::postgres::{PostgresJournal, PostgresStore};
use bursar_journal::{Journal, JournalError, Recent};

use super::leading::Identity;
use super::machines::LedgerWriter;
use super::storage::{CellJournals, postgres};
use crate::config::Config;
use crate::machines::ledgers::shard_named;
use crate::store;
use crate::telemetry::{DIRECTORY, metric_name};

/// How often machines are looked for that were added.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// A machine and its writer, which follows the journal until it may own the machine.
pub(super) struct StandbyMachine<C: Codec> {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) engine: Engine<C>,
}

impl<C: Codec> StandbyMachine<C> {
    /// Looks at the state with the whole journal in it, if there is one. The journal is read over new connections: those
    /// that it was followed with may lead to a database which is no longer the primary.
    pub(super) fn look<T>(
        &self,
        codec: &C,
        look: impl FnOnce(&C::Machine, bursar_journal::Head) -> T,
    ) -> Option<T> {
        self.journal.reopen().ok()?;
        let followed = self.engine.followed();
        followed.read_all(&*self.journal, codec).then(|| followed.look(look)).flatten()
    }
}

/// The machines that are followed.
pub(super) struct StandbyMachines {
    /// Read by no writer before it owns its machine.
    clock: Arc<WallClock>,
    may_own: Arc<AtomicBool>,
    pub(super) directory: Option<StandbyMachine<DirectoryCodec>>,
    pub(super) ledgers: BTreeMap<u16, (Arc<dyn Journal>, LedgerWriter)>,
    pub(super) cells: BTreeMap<Region, StandbyMachine<CellCodec>>,
}

impl StandbyMachines {
    /// None is followed.
    pub(super) fn none() -> StandbyMachines {
        StandbyMachines {
            clock: Arc::new(WallClock::new()),
            may_own: Arc::default(),
            directory: None,
            ledgers: BTreeMap::new(),
            cells: BTreeMap::new(),
        }
    }

    /// From now on the machines may be taken over. Those that are still here are not of the store.
    pub(super) fn may_be_owned(&mut self) {
        self.ledgers.clear();
        self.cells.clear();
        self.may_own.store(true, Ordering::SeqCst);
    }

    /// The clock of the machines, with what the system shows now: it may have been set since this server started.
    /// Called before any machine may be owned.
    pub(super) fn restarted_clock(&self) -> Arc<dyn Clock> {
        self.clock.restart();
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    /// The journal of a machine that is followed.
    pub(super) fn journal(&self, machine: &str) -> Option<Arc<dyn Journal>> {
        if machine == store::DIRECTORY {
            return self.directory.as_ref().map(|own| Arc::clone(&own.journal));
        }
        if let Some(shard) = shard_named(machine) {
            return self.ledgers.get(&shard).map(|(journal, _)| Arc::clone(journal));
        }
        let region = region_named(machine)?;
        self.cells.get(&region).map(|own| Arc::clone(&own.journal))
    }

    /// Compares what the machines of a store have sent and received, if all of them are followed.
    pub(super) fn compare_marks(
        &self,
        shards: u16,
        cells: &CellJournals,
    ) -> Option<Result<(), CutError>> {
        // The cells first: what they have received is then in the ledgers.
        let mut received = Vec::new();
        for (region, _) in cells {
            let marks = self.cells.get(region)?.look(&CellCodec, CellMarks::of)?;
            received.push((region.to_string(), marks));
        }
        let ledgers = (0..shards).map(|shard| {
            let (journal, writer) = self.ledgers.get(&shard)?;
            journal.reopen().ok()?;
            let followed = writer.engine.followed();
            let is_whole = followed.read_all(&**journal, &LedgerCodec);
            is_whole.then(|| followed.look(LedgerMarks::of)).flatten()
        });
        let ledgers = ledgers.collect::<Option<Vec<_>>>()?;
        Some(compare_marks(ledgers, &received))
    }

    /// Follows another machine.
    fn add(&mut self, machine: &str, journal: Arc<dyn Journal>, identity: &Identity) {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let may_own = Arc::clone(&self.may_own);
        if machine == store::DIRECTORY {
            let options = identity.options_behind(DIRECTORY, &may_own);
            let own = Arc::clone(&journal);
            let engine = Engine::start(own, Arc::new(DirectoryCodec), clock, options);
            self.directory = Some(StandbyMachine { journal, engine });
        } else if let Some(shard) = shard_named(machine) {
            let followed: Arc<dyn Journal> = Arc::new(Recent::new(Arc::clone(&journal)));
            let options = identity.options_behind(&metric_name(shard), &may_own);
            let own = Arc::clone(&followed);
            let engine = Arc::new(Engine::start(own, Arc::new(LedgerCodec), clock, options));
            self.ledgers.insert(shard, (journal, LedgerWriter { engine, followed }));
        } else if let Some(region) = region_named(machine) {
            let options = identity.options_behind(machine, &may_own);
            let own = Arc::clone(&journal);
            let engine = Engine::start(own, Arc::new(CellCodec), clock, options);
            self.cells.insert(region, StandbyMachine { journal, engine });
        }
    }
}

fn region_named(machine: &str) -> Option<Region> {
    machine.strip_prefix("cell-").and_then(|region| Region::parse(region).ok())
}

/// The thread that looks for machines and follows them.
pub(super) struct StandbyThread {
    _stop: Sender<()>,
    machines: Arc<Mutex<Option<StandbyMachines>>>,
}

impl StandbyThread {
    /// Begins to follow the machines of a store.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn start(config: &Config, identity: &Identity) -> std::io::Result<StandbyThread> {
        let (stop, stopped) = channel();
        let (config, identity) = (config.clone(), identity.clone());
        let machines = Arc::new(Mutex::new(Some(StandbyMachines::none())));
        let found = Arc::clone(&machines);
        // It is not joined: a store that does not answer must not delay a takeover.
        let _unjoined = std::thread::Builder::new()
            .name("bursar-standby".into())
            .spawn(move || follow_all(&config, &identity, &found, &stopped))?;
        Ok(StandbyThread { _stop: stop, machines })
    }

    /// Looks for no more machines. Those that were found are followed further.
    pub(super) fn end(self) -> StandbyMachines {
        lock(&self.machines).take().unwrap_or_else(StandbyMachines::none)
    }
}

fn lock(machines: &Mutex<Option<StandbyMachines>>) -> MutexGuard<'_, Option<StandbyMachines>> {
    machines.lock().unwrap_or_else(PoisonError::into_inner)
}

fn follow_all(
    config: &Config,
    identity: &Identity,
    machines: &Mutex<Option<StandbyMachines>>,
    stopped: &Receiver<()>,
) {
    let mut reported = String::new();
    loop {
        match add_missing(config, identity, machines) {
            Ok(()) => reported.clear(),
            Err(error) if error.to_string() != reported => {
                tracing::warn!(%error, "not every machine is followed; trying again");
                reported = error.to_string();
            }
            Err(_) => {}
        }
        match stopped.recv_timeout(LOOK_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Follows the machines that were made since the last look, until they were taken.
fn add_missing(
    config: &Config,
    identity: &Identity,
    machines: &Mutex<Option<StandbyMachines>>,
) -> Result<(), JournalError> {
    let Some(url) = &config.store else { return Ok(()) };
    for machine in PostgresStore::machines(&postgres(url, "store", config))? {
        match &*lock(machines) {
            None => return Ok(()),
            Some(known) if known.journal(&machine).is_some() => continue,
            Some(_) => {}
        }
        let journal = PostgresJournal::open_to_read(postgres(url, &machine, config))?;
        if let Some(known) = &mut *lock(machines) {
            known.add(&machine, Arc::new(journal), identity);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::ledgers::ledger_name;

    #[test]
    fn a_machine_is_known_by_its_name() {
        assert_eq!(region_named("cell-eu").map(|region| region.to_string()), Some("eu".to_owned()));
        assert_eq!(region_named(&ledger_name(0)), None);
    }
}
