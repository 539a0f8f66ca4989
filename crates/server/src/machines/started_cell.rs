//! A cell from the start of its writer until the ledgers know it.

use std::sync::Arc;

use bursar_core::name::Region;
use bursar_core::time::Timestamp;
use bursar_engine::follower::Follower;
use bursar_engine::{CellCodec, Clock, Engine, EngineOptions, Observer};
use bursar_journal::{Head, Journal, JournalError};

use crate::followers::cell_copy::{CellCopy, NewCellCopy};
use crate::followers::error::FollowerError;

/// A cell whose writer runs and that the ledger does not know yet. Started on a plain thread: a
/// journal must not be opened or read inside the asynchronous runtime.
pub struct StartedCell {
    pub(super) region: Region,
    pub(super) journal: Arc<dyn Journal>,
    pub(super) engine: Engine<CellCodec>,
    pub(super) copy: CellCopy,
    pub(super) generation: u32,
    pub(super) last_at: Timestamp,
    pub(super) follower: Follower,
    /// The last batch in the state that the copy began with.
    begun: Head,
}

impl StartedCell {
    /// Starts the writer of a cell, and a copy that follows it and stores snapshots.
    pub fn start(
        region: Region,
        journal: Arc<dyn Journal>,
        clock: Arc<dyn Clock>,
        options: EngineOptions,
        snapshot_every: u64,
    ) -> Result<StartedCell, FollowerError> {
        // Before the writer takes over the journal, because it reopens it.
        let copy =
            NewCellCopy::read(Arc::clone(&journal), snapshot_every, options.observer.clone())?;
        let engine = Engine::start(Arc::clone(&journal), Arc::new(CellCodec), clock, options);
        Ok(StartedCell::with(region, journal, engine, copy))
    }

    /// The same with a writer that follows the journal and has not taken it over yet: the copy is made of what it has.
    pub fn continued(
        region: Region,
        journal: Arc<dyn Journal>,
        engine: Engine<CellCodec>,
        observer: Observer,
        snapshot_every: u64,
    ) -> Result<StartedCell, FollowerError> {
        let followed = engine.followed().look(|cell, head| (cell.clone(), head));
        let own = Arc::clone(&journal);
        let copy = match followed {
            Some(followed) => NewCellCopy::of(own, followed, snapshot_every, observer)?,
            None => NewCellCopy::read(own, snapshot_every, observer)?,
        };
        Ok(StartedCell::with(region, journal, engine, copy))
    }

    fn with(
        region: Region,
        journal: Arc<dyn Journal>,
        engine: Engine<CellCodec>,
        copy: NewCellCopy,
    ) -> StartedCell {
        let (generation, last_at, begun) = (copy.generation(), copy.last_at(), copy.head());
        let (copy, follower) = copy.follow(engine.durable());
        StartedCell { region, journal, engine, copy, generation, last_at, follower, begun }
    }

    /// The writer.
    pub fn engine(&self) -> &Engine<CellCodec> {
        &self.engine
    }

    /// Whether the journal contains the state that the copy began with. The store may have lost what was followed.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn is_continued(&self) -> Result<bool, JournalError> {
        let end = self.journal.head()?.sequence;
        Ok(self.begun.sequence <= end && self.journal.head_at(self.begun.sequence)? == self.begun)
    }

    /// The region.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The generation of the store according to the cell's journal.
    pub fn generation(&self) -> u32 {
        self.generation
    }
}
