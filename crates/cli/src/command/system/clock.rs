//! `bursar clock`, for servers started with `--clock manual`.

use std::time::Duration;

use bursar_client::api::Time;
use bursar_client::api::system::clock::Clock;
use bursar_client::system::clock;
use clap::Subcommand;

use crate::arguments::{duration, instant};
use crate::exit::Failure;
use crate::render::sheet::{Cell, Sheet, View};
use crate::session::Session;

#[derive(Subcommand)]
pub(crate) enum ClockCommand {
    /// Show the manual clock.
    #[command(after_help = "Example:\n  bursar clock show")]
    Show,
    /// Accept the clock of a server after it jumped or was far ahead at a start.
    #[command(
        hide = true,
        after_help = "Example:\n  bursar clock accept\n\nRefused (409, exit code 3) while the clock \
        is behind the time of the records: see `bursar admin restore --until`."
    )]
    Accept,
    /// Move the clock forward to an instant; all timers due until then fire.
    #[command(after_help = "Example:\n  bursar clock set 2020-02-01")]
    Set {
        /// The instant.
        #[arg(value_parser = instant)]
        now: Time,
    },
    /// Move the clock forward by a duration.
    #[command(after_help = "Example:\n  bursar clock advance 36h")]
    Advance {
        /// How far, such as 90s, 15m, 1h30m, 01:30:00 or 7d.
        #[arg(value_parser = duration)]
        by: Duration,
    },
}

pub(crate) async fn run(session: &Session, command: ClockCommand) -> Result<(), Failure> {
    match command {
        ClockCommand::Accept => session.read(clock::accept()).await,
        ClockCommand::Show => session.read(clock::show()).await,
        ClockCommand::Set { now } => session.read(clock::set(now)).await,
        ClockCommand::Advance { by } => session.read(clock::advance(by.as_secs())).await,
    }
}

impl View for Clock {
    fn sheet(&self) -> Sheet {
        Sheet::record([("now", Cell::time(self.now))])
    }
}
