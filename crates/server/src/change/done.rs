//! The answer to a change that is decided.

use bursar_core::ledger::holds::archive::{ArchivedName, RecalledRecord};
use bursar_core::ledger::{Accepted, Ledger, Reply};

use crate::render::{self, AnswerBody, AnswerShape};

/// A finished change.
#[derive(Debug)]
pub struct Done {
    /// The HTTP status.
    pub status: u16,
    /// The body; `None` for 204.
    pub body: Option<AnswerBody>,
    /// Whether this is the stored answer to an earlier request.
    pub replayed: bool,
    /// The ledger's position.
    pub position: u64,
}

/// The answer to an earlier request, from the archive, with what it shows.
pub struct AnsweredBefore {
    pub(super) accepted: Accepted,
    pub(super) of: Option<ArchivedName>,
    pub(super) shown: Vec<RecalledRecord>,
    pub(super) finish: Finish,
}

impl AnsweredBefore {
    /// The same as an accepted change.
    pub fn at(self, position: u64) -> AcceptedChange {
        let AnsweredBefore { accepted, of, shown, finish } = self;
        let change = finish.accepted(accepted, true, position);
        AcceptedChange { archived: of.map(|of| (of, shown)), ..change }
    }
}

/// How to render the answer to a change.
#[derive(Clone)]
pub struct Finish {
    pub(super) shape: AnswerShape,
    pub(super) creates: bool,
}

impl Finish {
    /// Combines the reply with its status.
    pub fn accepted(self, accepted: Accepted, existed: bool, position: u64) -> AcceptedChange {
        // What the archive has was there before, and so was what an earlier operation of the same
        // atomic batch made: nothing changed then.
        let existed = existed || accepted.unchanged || matches!(accepted.reply, Reply::Archived(_));
        let status = match (&self.shape, self.creates) {
            (AnswerShape::Nothing, _) => 204,
            // A stored answer has the status of the first one.
            (_, true) if accepted.replayed && !accepted.unchanged => 201,
            (_, true) if !accepted.replayed && !existed => 201,
            (_, true | false) => 200,
        };
        let Accepted { reply, replayed, unchanged: _ } = accepted;
        AcceptedChange { reply, shape: self.shape, status, replayed, position, archived: None }
    }
}

/// An accepted change whose answer is not rendered yet.
pub struct AcceptedChange {
    reply: Reply,
    shape: AnswerShape,
    status: u16,
    replayed: bool,
    position: u64,
    /// The archived records, by name, because hold numbers are reused.
    archived: Option<(ArchivedName, Vec<RecalledRecord>)>,
}

impl AcceptedChange {
    /// Renders the answer.
    pub fn done(self, ledger: &Ledger) -> Done {
        let body = match (&self.shape, &self.archived) {
            (AnswerShape::Nothing, _) => None,
            (shape, None) => Some(render::reply(ledger, &self.reply, shape)),
            (shape, Some((of, shown))) => {
                Some(render::archived_answer(ledger, &self.reply, (of, shown), shape))
            }
        };
        Done { status: self.status, body, replayed: self.replayed, position: self.position }
    }
}
