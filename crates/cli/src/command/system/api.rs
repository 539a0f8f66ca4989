//! `bursar api`: any request, for operations without a command.

use std::io::Read;

use bursar_client::{Call, Method};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::render::format::{Format, pretty, print, yaml};
use crate::session::{ChangeArguments, Session};

#[derive(Args)]
#[command(after_help = "Examples:\n  bursar api GET /v1/nodes\n  \
    bursar api POST /v1/nodes/n1/drain --body '{}'\n  bursar api PUT /v1/classes/night --body @class.json")]
pub(crate) struct ApiArguments {
    /// The method.
    #[arg(value_parser = method_parser(), ignore_case = true)]
    method: Method,
    /// The path, with its query.
    path: String,
    /// The JSON to send: a text, `@FILE`, or `-` for standard input.
    #[arg(long, value_name = "JSON")]
    body: Option<String>,
    #[command(flatten)]
    change: ChangeArguments,
}

fn method_parser() -> impl TypedValueParser<Value = Method> {
    PossibleValuesParser::new(Method::ALL.map(Method::as_str)).map(|name| {
        let found =
            Method::ALL.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(&name));
        found.expect("the parser lets only methods pass")
    })
}

pub(crate) async fn run(session: &Session, arguments: ApiArguments) -> Result<(), Failure> {
    let ApiArguments { method, path, body, change } = arguments;
    if !path.starts_with('/') {
        let why = format!("`{path}` is not a path; write it as /v1/accounts");
        return Err(Failure::because(Exit::Usage, why));
    }
    let mut call: Call<Value> = Call::from_target(method, &path);
    if let Some(body) = body {
        call = call.with_json(text_of(&body)?);
    }
    if change.is_dry_run() {
        let is_checked = session.check(&call).await?;
        return session.plan(&call, &[], is_checked);
    }
    let answer = session.send_change(call, &change).await?;
    match session.format() {
        Format::Table if answer.body.is_empty() => Ok(()),
        Format::Table => print(&pretty(&answer.body)?),
        Format::Json => print(&answer.body),
        Format::Yaml => print(&yaml(&answer.body)?),
        Format::Csv => Err(Failure::because(Exit::Usage, "there are no columns for this request")
            .with_next("use -o json or -o yaml")),
    }
}

fn text_of(body: &str) -> Result<String, Failure> {
    if body == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    match body.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|cause| Failure::new(format_args!("cannot read {file}"), cause)),
        None => Ok(body.to_owned()),
    }
}
