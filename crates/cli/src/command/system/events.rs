//! `bursar events`.

use bursar_client::EventStream;
use bursar_client::api::system::audit::FeedEvent;
use clap::Args;

use crate::exit::Failure;
use crate::render::format::{Format, print, yaml};
use crate::render::sheet::{Cell, Column, Row, Sheet, words};
use crate::session::Session;

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar events\n  \
    bursar events --after 0 --count 100 -o json")]
pub(crate) struct EventsArguments {
    /// Start after the event with this id, `0` for all events; new events only if not given.
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// Stop after this number of events.
    #[arg(long, value_name = "NUMBER")]
    count: Option<u64>,
}

pub(crate) async fn run(session: &Session, arguments: EventsArguments) -> Result<(), Failure> {
    let mut stream = EventStream::new(session.client().clone(), arguments.after);
    let mut seen = 0;
    while arguments.count.is_none_or(|count| seen < count) {
        let event = stream.next().await.map_err(|error| session.explain(&error, None))?;
        print(&line(&event, session.format(), seen == 0)?)?;
        seen += 1;
    }
    Ok(())
}

/// The printed form of an event: one line, or one YAML document.
fn line(event: &FeedEvent, format: Format, first: bool) -> Result<String, Failure> {
    match format {
        Format::Table => {
            let account = event.account.as_deref().unwrap_or("-");
            Ok(format!("{}  {:<20}  {account}  {}", event.at, event.kind, event.data))
        }
        Format::Json => Ok(serde_json::to_string(event)?),
        Format::Yaml => Ok(format!("---\n{}", yaml(&serde_json::to_string(event)?)?)),
        Format::Csv => {
            let text = Sheet::list(std::slice::from_ref(event)).csv()?;
            let header = if first { 0 } else { text.find('\n').map_or(0, |end| end + 1) };
            Ok(text[header..].to_owned())
        }
    }
}

impl Row for FeedEvent {
    const COLUMNS: &'static [Column] =
        &[words("id"), words("at"), words("type"), words("account"), words("data")];

    fn cells(&self) -> Vec<Cell> {
        vec![
            Cell::new(&self.id),
            Cell::time(self.at),
            Cell::new(&self.kind),
            Cell::maybe(self.account.as_ref()),
            Cell::new(&self.data),
        ]
    }
}
