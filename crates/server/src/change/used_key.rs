//! Idempotency keys of requests that the directory or a cell carries out.
//!
//! A key is used once in its namespace, whichever machine has the resource. The ledger knows all keys
//! of a namespace: before a request of another machine is carried out the key is looked up there, and
//! it is noted there once the request's answer is stored. Two requests under one key that arrive on two
//! machines at the same instant may both be carried out, each of them once.

use bursar_api::Code;
use bursar_core::directory::Command as DirectoryCommand;
use bursar_core::ledger::command::Command;
use bursar_core::ledger::{Envelope, Ledger};
use bursar_core::time::Timestamp;

use super::MAX_LOOKS;
use super::archive_lookup::ArchiveRecords;
use crate::app::App;
use crate::machines::directory::DirectoryAnswer;
use crate::request::{Failure, reused};

/// What a key was used for.
enum UsedKey {
    /// A request with this fingerprint.
    For(u128),
    /// No request, or its answer is no longer retained.
    Never,
    /// The archive has to be asked again.
    Unknown,
}

fn used_for(ledger: &Ledger, now: Timestamp, key: u128, looked: &ArchiveRecords) -> UsedKey {
    if let Some(kept) = ledger.kept_fingerprint(key) {
        return UsedKey::For(kept);
    }
    if ledger.may_have_forgotten_key(key, looked.position) {
        return UsedKey::Unknown;
    }
    let answer = looked.answer(ledger, now, key);
    answer.map_or(UsedKey::Never, |(answer, _)| UsedKey::For(answer.fingerprint))
}

/// The failure of a request whose key is being archived again and again.
pub(crate) fn being_archived() -> Failure {
    let detail = "the answers to earlier requests are just being archived; repeat the request";
    Failure::new(Code::Unavailable, detail)
}

impl App {
    /// Refuses a request whose key was used for another one.
    pub async fn require_unused_key(
        &self,
        namespace: &str,
        envelope: &Envelope,
    ) -> Result<(), Failure> {
        let Some(key) = envelope.key else { return Ok(()) };
        let app = self.at_home(namespace)?;
        let position = app.archive.excludes(&[], &[key]).unwrap_or(0);
        let mut looked = ArchiveRecords { position, ..ArchiveRecords::default() };
        for _ in 0..=MAX_LOOKS {
            let (now, known) = (self.clock.now(), looked);
            let used = move |ledger: &Ledger| used_for(ledger, now, key, &known);
            match app.ledger.read(used).await?.value {
                UsedKey::For(first) if first != envelope.fingerprint => return Err(reused()),
                UsedKey::For(_) | UsedKey::Never => return Ok(()),
                UsedKey::Unknown => looked = ArchiveRecords::under_key(&app, key).await?,
            }
        }
        Err(being_archived())
    }

    /// Notes a key whose request another machine has answered.
    pub async fn note_key(&self, namespace: &str, envelope: Envelope) -> Result<(), Failure> {
        if envelope.key.is_some() {
            // It is refused only if another request has used the key meanwhile.
            let noted = self
                .at_home(namespace)?
                .ledger
                .post(envelope, Command::KeepBatch { aborted: None });
            let _noted = noted.answer().await?.value;
        }
        Ok(())
    }

    /// Sends a command to the directory, unless its key was used for another request.
    pub async fn submit_to_directory(
        &self,
        namespace: &str,
        envelope: Envelope,
        command: DirectoryCommand,
    ) -> Result<DirectoryAnswer, Failure> {
        self.require_unused_key(namespace, &envelope).await?;
        let answer = self.directory.submit(envelope.clone(), command).await;
        let is_stored = answer.as_ref().map_or_else(
            |failure| {
                let problem = &failure.problem;
                problem.status == 409 && problem.code != Code::IdempotencyKeyReused
            },
            |_| true,
        );
        if is_stored {
            self.note_key(namespace, envelope).await?;
        }
        answer
    }
}
