//! `bursar mcp`: lets a language model read through this connection, with the Model Context Protocol
//! (JSON-RPC, one message a line, on standard input and output). No tool changes anything.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read, Write};

use bursar_client::{Call, Method, path};
use serde_json::{Value, json};

use crate::exit::Failure;
use crate::session::Session;

/// The version of the protocol that is spoken if the other side asks for an unknown one.
const VERSION: &str = "2025-06-18";
/// Versions whose messages are alike for what is served here.
const VERSIONS: &[&str] = &["2024-11-05", "2025-03-26", VERSION];
/// The longest message that is read.
const MAX_LINE_BYTES: u64 = 1 << 20;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A tool: one request of the API that reads.
struct Tool {
    name: &'static str,
    about: &'static str,
    /// Segments of the path; `{name}` stands for the required parameter with this name.
    path: &'static [&'static str],
    /// Optional parameters of the query, and what they mean.
    query: &'static [(&'static str, &'static str)],
}

const LIMIT: (&str, &str) = ("limit", "how many at most, 1 to 100");
const CURSOR: (&str, &str) = ("cursor", "next_cursor of the page before");

const TOOLS: &[Tool] = &[
    Tool {
        name: "whoami",
        about: "Role and scope of the key in use",
        path: &["v1", "session"],
        query: &[],
    },
    Tool {
        name: "list_accounts",
        about: "Accounts that the key can see",
        path: &["v1", "accounts"],
        query: &[("parent", "only children of this account"), LIMIT, CURSOR],
    },
    Tool {
        name: "balance",
        about: "What an account can spend, holds, and which credits expire next",
        path: &["v1", "accounts", "{account}", "balance"],
        query: &[],
    },
    Tool {
        name: "forecast",
        about: "Burn per hour of an account, how long its credits last, and what will expire unspent",
        path: &["v1", "accounts", "{account}", "forecast"],
        query: &[("window", "the time that is measured, such as 24h")],
    },
    Tool {
        name: "statement",
        about: "Opening balance, movements, closing balance and spending of an account",
        path: &["v1", "accounts", "{account}", "statement"],
        query: &[("from", "an instant, RFC 3339"), ("to", "an instant, RFC 3339")],
    },
    Tool {
        name: "budgets",
        about: "Budgets of an account and all below it, and which refuses first",
        path: &["v1", "accounts", "{account}", "budget-tree"],
        query: &[],
    },
    Tool {
        name: "list_jobs",
        about: "Jobs, newest first",
        path: &["v1", "jobs"],
        query: &[
            ("account", "only of this account and those below it"),
            ("state", "only in this state, such as queued or running"),
            LIMIT,
            CURSOR,
        ],
    },
    Tool {
        name: "show_job",
        about: "A job with its attempts and costs",
        path: &["v1", "jobs", "{job}"],
        query: &[],
    },
    Tool {
        name: "why_job_waits",
        about: "Everything that blocks a job, and how to fix each",
        path: &["v1", "jobs", "{job}", "why"],
        query: &[],
    },
    Tool {
        name: "job_timeline",
        about: "Everything that happened to a job, oldest first",
        path: &["v1", "jobs", "{job}", "timeline"],
        query: &[],
    },
    Tool {
        name: "list_regions",
        about: "Regions with their GPUs and queues",
        path: &["v1", "regions"],
        query: &[],
    },
    Tool {
        name: "region_queue",
        about: "The queue of a region in order, with the reason for each wait and the fair shares",
        path: &["v1", "regions", "{region}", "queue"],
        query: &[],
    },
    Tool { name: "list_prices", about: "Prices of GPU types", path: &["v1", "prices"], query: &[] },
];

impl Tool {
    fn required(&self) -> impl Iterator<Item = &'static str> {
        self.path.iter().filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
    }

    fn described(&self) -> Value {
        let text = |about: &str| json!({ "type": "string", "description": about });
        let required: Vec<&str> = self.required().collect();
        let names = required.iter().map(|name| ((*name).to_owned(), text("its id")));
        let query = self.query.iter().map(|(name, about)| ((*name).to_owned(), text(about)));
        let properties: serde_json::Map<String, Value> = names.chain(query).collect();
        json!({
            "name": self.name,
            "description": self.about,
            "inputSchema": {
                "type": "object", "properties": properties, "required": required,
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true },
        })
    }

    /// The request for these arguments, or what is wrong with them.
    fn call(&self, arguments: &Value) -> Result<Call<Value>, ArgumentError> {
        let given = match arguments {
            Value::Null => serde_json::Map::new(),
            Value::Object(given) => given.clone(),
            _ => return Err(ArgumentError::NotAnObject),
        };
        let mut texts: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in given {
            let known = self.required().any(|required| required == name)
                || self.query.iter().any(|(known, _)| *known == name);
            let text = match value {
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                _ => return Err(ArgumentError::NotAText(name)),
            };
            if !known {
                return Err(ArgumentError::Unknown { tool: self.name, name });
            }
            texts.insert(name, text);
        }
        let mut segments = Vec::new();
        for segment in self.path {
            segments.push(
                match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
                    Some(name) => texts.remove(name).ok_or(ArgumentError::Missing(name))?,
                    None => (*segment).to_owned(),
                },
            );
        }
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        Ok(Call::new(Method::Get, path(&segments)).with_query(&texts))
    }
}

/// Why a tool is not called.
enum ArgumentError {
    NotAnObject,
    NotAText(String),
    Unknown { tool: &'static str, name: String },
    Missing(&'static str),
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => write!(f, "arguments must be an object"),
            Self::NotAText(name) => write!(f, "`{name}` must be a text"),
            Self::Unknown { tool, name } => write!(f, "{tool} has no parameter `{name}`"),
            Self::Missing(name) => write!(f, "`{name}` is missing"),
        }
    }
}

pub(crate) async fn run(session: &Session) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = match serde_json::from_slice::<Value>(&line) {
            Ok(message) => answer(session, &message).await,
            Err(_) => Some(failed(&Value::Null, PARSE_ERROR, "this is not JSON on one line")),
        };
        if let Some(answer) = answer {
            let mut output = std::io::stdout().lock();
            writeln!(output, "{answer}")?;
            output.flush()?;
        }
    }
}

/// The answer to a message; none to a notification.
async fn answer(session: &Session, message: &Value) -> Option<Value> {
    let id = message.get("id")?;
    let Some(method) = message["method"].as_str() else {
        return Some(failed(id, INVALID_REQUEST, "a request has a method"));
    };
    let params = &message["params"];
    Some(match method {
        "initialize" => done(id, greeting(params)),
        "ping" => done(id, json!({})),
        "tools/list" => {
            let tools: Vec<Value> = TOOLS.iter().map(Tool::described).collect();
            done(id, json!({ "tools": tools }))
        }
        "tools/call" => {
            let tool = TOOLS.iter().find(|tool| params["name"] == tool.name);
            match tool.map(|tool| tool.call(&params["arguments"])) {
                None => failed(id, INVALID_PARAMS, "there is no such tool; tools/list lists them"),
                Some(Err(why)) => failed(id, INVALID_PARAMS, &why.to_string()),
                Some(Ok(call)) => done(id, asked(session, call).await),
            }
        }
        _ => failed(id, METHOD_NOT_FOUND, "this server has tools alone"),
    })
}

fn greeting(params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str();
    let version = VERSIONS.iter().find(|known| asked == Some(**known)).unwrap_or(&VERSION);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "bursar", "version": env!("CARGO_PKG_VERSION") },
        "instructions": "Reads credits, jobs and queues. Amounts are credits as decimal text.",
    })
}

/// The result of a tool: the answer of the server, or why there is none.
async fn asked(session: &Session, call: Call<Value>) -> Value {
    let (text, is_error) = match session.client().send(call).await {
        Ok(answer) => (answer.body, false),
        Err(error) => {
            let failure = session.explain(&error, None);
            let next = failure.next().map(|next| format!("\nnext: {next}")).unwrap_or_default();
            (format!("{}{next}", failure.why()), true)
        }
    };
    json!({ "content": [{ "type": "text", "text": text }], "isError": is_error })
}

fn done(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn failed(id: &Value, code: i64, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}
