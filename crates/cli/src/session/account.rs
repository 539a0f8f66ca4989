//! The account of a command that names none.

use bursar_client::system::sessions;

use super::Session;
use crate::exit::{Exit, Failure};

/// The scope of keys for all accounts.
pub(crate) const EVERYTHING: &str = "*";

impl Session {
    /// The account that was named, else the one that the key is for.
    pub(crate) async fn account_or_own(&self, named: Option<String>) -> Result<String, Failure> {
        if let Some(named) = named {
            return Ok(named);
        }
        let scope = self.send(sessions::get()).await?.value.scope;
        if scope == EVERYTHING {
            let why = "an account is needed: the key is for all accounts";
            return Err(Failure::because(Exit::Usage, why)
                .with_next("name one, or set BURSAR_ACCOUNT; bursar account ls lists them"));
        }
        Ok(scope)
    }
}
