//! `?expand=`: a job together with what it refers to.

use bursar_api::jobs::expand::JobReferences;
use bursar_api::jobs::job::Job;
use bursar_core::ledger::Ledger;
use bursar_core::ledger::holds::hold::HoldKind;
use bursar_core::name::AccountPath;

use crate::app::App;
use crate::http::handlers::credits::holds;
use crate::http::respond::named;
use crate::operations::Operation;
use crate::render;
use crate::request::{Caller, Failure};

/// What is added to a job.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expand {
    hold: bool,
    account: bool,
}

impl Expand {
    /// Reads the parameter.
    pub(super) fn read(text: Option<&str>) -> Result<Expand, Failure> {
        let mut expand = Expand::default();
        for word in text.into_iter().flat_map(|text| text.split(',')) {
            match word {
                "hold" => expand.hold = true,
                "account" => expand.account = true,
                _ => return Err(Failure::invalid("expand", "must name some of: hold, account")),
            }
        }
        Ok(expand)
    }

    /// Adds to a job what was asked for.
    pub(super) async fn add(
        self,
        app: &App,
        caller: &Caller,
        mut job: Job,
    ) -> Result<Job, Failure> {
        if self == Expand::default() {
            return Ok(job);
        }
        let mut expanded = JobReferences::default();
        if let Some(hold) = job.hold.as_ref().filter(|_| self.hold) {
            let id = named("hold", hold.id.clone())?;
            let show = render::archived_hold;
            let look = holds::look(app, caller, HoldKind::Hold, &id, Operation::GetHold, show);
            expanded.hold = Some(look.await?.value);
        }
        if self.account {
            caller.principal.require(Operation::GetAccount)?;
            let path = AccountPath::unchecked(job.account.as_str());
            let read = move |ledger: &Ledger| {
                ledger.find_account(&path).map(|number| render::account(ledger, number))
            };
            expanded.account = app.read(read).await?.value;
        }
        job.expanded = Some(Box::new(expanded));
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_references_are_expanded() {
        let expand = |text| Expand::read(text).map_err(|failure| failure.problem.code);
        assert_eq!(expand(None), Ok(Expand::default()));
        assert_eq!(expand(Some("hold,account")), Ok(Expand { hold: true, account: true }));
        for wrong in ["", "attempts", "hold,", "hold;account"] {
            assert_eq!(expand(Some(wrong)), Err(bursar_api::Code::InvalidField), "{wrong}");
        }
    }
}
