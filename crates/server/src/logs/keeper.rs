//! Writes output within its limits. Used by one thread.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::files::Files;
use super::index::{Index, Owner};
use super::{FreeSpace, Gauges, LogError, LogLimits, Output, TenantTag};

/// The bytes that are free for users other than root on the file system of a folder.
pub(super) fn free_space(folder: &Path) -> std::io::Result<u64> {
    // The folder is created with the first file; until then its parent is on the same file system.
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let about = nix::sys::statvfs::statvfs(there).map_err(std::io::Error::from)?;
    Ok(about.blocks_available().saturating_mul(about.fragment_size()))
}

/// Writes output within its limits.
pub(super) struct Keeper {
    files: Arc<Files>,
    gauges: Arc<Gauges>,
    limits: LogLimits,
    free: FreeSpace,
    /// The index of the files; built when it is first needed.
    index: Option<Index>,
}

impl Keeper {
    pub(super) fn new(
        files: Arc<Files>,
        gauges: Arc<Gauges>,
        limits: LogLimits,
        free: FreeSpace,
    ) -> Keeper {
        Keeper { files, gauges, limits, free, index: None }
    }

    fn index(&mut self) -> std::io::Result<&mut Index> {
        if self.index.is_none() {
            let mut index = Index::default();
            for found in self.files.all()? {
                index.set(&found.name, found.owner, found.bytes);
            }
            self.index = Some(index);
        }
        Ok(self.index.get_or_insert_with(Index::default))
    }

    /// Refuses output while the file system has too little room.
    fn require_room(&self) -> Result<(), LogError> {
        let free = (self.free)(self.files.folder()).map_err(LogError::Disk)?;
        let no_room = free < self.limits.min_free_bytes;
        let before = self.gauges.no_room.swap(no_room, Ordering::Relaxed);
        if no_room && !before {
            let least = self.limits.min_free_bytes;
            tracing::error!(
                free,
                least,
                next = "free space on the file system of the logs; agents then send the output that they kept",
                "the file system has too little room: no output of jobs is accepted"
            );
        } else if before && !no_room {
            tracing::info!(free, "output of jobs is accepted again");
        }
        if no_room { Err(LogError::NoRoom) } else { Ok(()) }
    }

    /// Appends to an output: see [`super::LogStore::append`].
    pub(super) fn append(
        &mut self,
        output: &Output,
        offset: u64,
        data: &[u8],
    ) -> Result<u64, LogError> {
        let name = self.files.output(output).map_err(LogError::Disk)?;
        let kept = self.files.len(&name);
        let bound = self.limits.attempt_bytes;
        let end = offset.saturating_add(data.len() as u64);
        if offset > kept && kept < bound {
            return Ok(kept);
        }
        let skip = usize::try_from(kept.saturating_sub(offset)).unwrap_or(usize::MAX);
        let room = usize::try_from(bound.saturating_sub(kept)).unwrap_or(usize::MAX);
        let news = data.get(skip..).unwrap_or_default();
        let fresh = &news[..news.len().min(room)];
        if !fresh.is_empty() {
            if let Err(error) = self.require_room() {
                self.gauges.refused.fetch_add(1, Ordering::Relaxed);
                let words = "the server's file system has too little room, so what comes after this \
                             has not been kept";
                self.explain(output, words);
                return Err(error);
            }
            self.files.append(&name, fresh).map_err(LogError::Disk)?;
            self.unexplain(output).map_err(LogError::Disk)?;
            let owner = Owner { tenant: Some(output.tenant), node: Some(output.node) };
            self.wrote(&name, owner).map_err(LogError::Disk)?;
        }
        if fresh.len() < news.len() {
            self.explain(output, &format!("only the first {bound} bytes of the output are kept"));
        }
        Ok(end.max(kept))
    }

    /// Stores the end of an output, unless there is output already.
    pub(super) fn tail(&mut self, output: &Output, data: &[u8]) -> Result<(), LogError> {
        let name = self.files.output(output).map_err(LogError::Disk)?;
        if self.files.len(&name) > 0 {
            return Ok(());
        }
        self.append(output, 0, data).map(drop)
    }

    /// Stores the final message of an attempt. The first message is kept.
    pub(super) fn note(
        &mut self,
        tenant: TenantTag,
        attempt: &str,
        message: &str,
    ) -> Result<(), LogError> {
        let name = Files::message_of(attempt, tenant).map_err(LogError::Disk)?;
        if self.files.message(attempt, tenant).is_some() {
            return Ok(());
        }
        self.require_room()?;
        self.files.create(&name, message).map_err(LogError::Disk)?;
        self.wrote(&name, Owner { tenant: Some(tenant), node: None }).map_err(LogError::Disk)
    }

    /// Records why an output is incomplete. Failing to do so loses no output.
    fn explain(&mut self, output: &Output, words: &str) {
        let mut explain = || -> std::io::Result<()> {
            let name = Files::note_of(output)?;
            if self.index()?.contains(&name) || !self.files.create(&name, words)? {
                return Ok(());
            }
            self.wrote(&name, Owner { tenant: Some(output.tenant), node: Some(output.node) })
        };
        if let Err(error) = explain() {
            tracing::warn!(%error, attempt = output.attempt, "the reason for incomplete output was not stored");
        }
    }

    /// Removes that record, because the output continues.
    fn unexplain(&mut self, output: &Output) -> std::io::Result<()> {
        let name = Files::note_of(output)?;
        if self.index()?.contains(&name) {
            self.files.remove(&name)?;
            self.index()?.remove(&name);
        }
        Ok(())
    }

    /// Records a written file in the index and removes files beyond the limits.
    fn wrote(&mut self, name: &str, owner: Owner) -> std::io::Result<()> {
        let (limits, bytes) = (self.limits, self.files.len(name));
        let files = Arc::clone(&self.files);
        let index = self.index()?;
        index.set(name, owner, bytes);
        let mut removed = 0;
        let mut shedding = false;
        while let Some(victim) =
            owner.node.and_then(|node| index.node_victim(node, &limits, shedding, name))
        {
            files.remove(&victim)?;
            index.remove(&victim);
            (shedding, removed) = (true, removed + 1);
        }
        shedding = false;
        while let Some(victim) = index.victim(&limits, shedding, name) {
            files.remove(&victim)?;
            index.remove(&victim);
            (shedding, removed) = (true, removed + 1);
        }
        let (bytes, count) = (index.bytes(), index.len() as u64);
        self.gauges.bytes.store(bytes, Ordering::Relaxed);
        self.gauges.files.store(count, Ordering::Relaxed);
        self.gauges.removed.fetch_add(removed, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bursar_core::cell::NodeKey;

    use super::super::NodeTag;
    use super::*;

    fn output(attempt: usize, node: &str) -> Output {
        let node = NodeTag::of("eu", &NodeKey::from(node));
        let tenant = TenantTag::of("acme");
        Output { attempt: format!("att_{attempt:04}"), rank: 0, node, tenant }
    }

    fn keeper(files: &Arc<Files>, limits: LogLimits) -> Keeper {
        Keeper::new(Arc::clone(files), Arc::default(), limits, Box::new(|_| Ok(u64::MAX)))
    }

    fn len(files: &Files, output: &Output) -> u64 {
        files.len(&files.output(output).expect("an attempt"))
    }

    #[test]
    fn a_node_has_a_limit_and_its_oldest_files_are_removed_first() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = Arc::new(Files::new(folder.path().join("logs")));
        let limits = LogLimits { node_bytes: 1000, ..LogLimits::default() };
        let kept = |node: &str| -> u64 {
            let all = (0..40).map(|attempt| output(attempt, node));
            all.map(|output| len(&files, &output)).sum()
        };
        let mut own = keeper(&files, limits);
        for attempt in 0..20 {
            for node in ["n1", "n2"] {
                own.append(&output(attempt, node), 0, &[b'x'; 100]).expect("written");
                assert!(kept(node) <= 1000, "{attempt}");
            }
            // As after a restart of the server.
            if attempt % 7 == 0 {
                own = keeper(&files, limits);
            }
        }
        for node in ["n1", "n2"] {
            assert!(kept(node) >= 700);
            assert_eq!(len(&files, &output(19, node)), 100, "the newest is there");
            assert_eq!(len(&files, &output(0, node)), 0, "the oldest is gone");
        }
    }

    #[test]
    fn a_file_of_an_earlier_version_is_continued() {
        let own = output(1, "n1");
        let with_node = format!("att_0001.0.{:016x}.log", own.node.0);
        for earlier in ["att_0001.log", with_node.as_str()] {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let files = Arc::new(Files::new(folder.path().to_owned()));
            std::fs::write(folder.path().join(earlier), "before ").expect("written");
            std::fs::write(folder.path().join("att_0001.message"), "killed").expect("written");
            let mut keeper = keeper(&files, LogLimits::default());
            assert_eq!(keeper.append(&own, 7, b"and after").expect("written"), 16);
            assert_eq!(files.read(&own, 0).expect("read"), b"before and after");
            keeper.note(own.tenant, "att_0001", "another word").expect("kept");
            assert_eq!(files.message("att_0001", own.tenant).as_deref(), Some("killed"));
            assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2);
        }
    }

    #[test]
    fn free_space_is_measured_before_the_folder_exists() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let there = free_space(folder.path()).expect("it says");
        let not_yet = free_space(&folder.path().join("logs")).expect("it says");
        assert!(there > 0 && not_yet > 0);
    }
}
