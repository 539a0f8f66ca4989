//! Completions that ask the server: ids of jobs, accounts, nodes and others that the key can see.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use bursar_client::{Call, Client, Method, RetryPolicy};
use clap::Arg;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use serde_json::Value;

use crate::session::connection::{ConnectionArguments, client_without_warnings, variable};
use crate::session::contexts::{self, Contexts};

/// The variable under which the shell asks for candidates.
pub(crate) const VARIABLE: &str = "BURSAR_COMPLETE";
/// A shell that waits longer feels broken.
const TIMEOUT: Duration = Duration::from_millis(800);

/// bash splits words at colons, which accounts contain: they are joined before the question and cut
/// off the answers.
pub(crate) const BASH_COLONS: &str = r#"
_bursar_with_colons() {
    local line="${COMP_LINE:0:COMP_POINT}" i
    local -a COMP_WORDS
    read -ra COMP_WORDS <<< "$line"
    [[ "$line" == *[[:space:]] ]] && COMP_WORDS+=("")
    local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    local word="${COMP_WORDS[COMP_CWORD]}"
    _clap_complete_bursar bursar "$word" "${COMP_WORDS[COMP_CWORD - 1]}"
    if [[ "$word" == *:* && "$COMP_WORDBREAKS" == *:* ]]; then
        local cut="${word%"${word##*:}"}"
        for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]="${COMPREPLY[i]#"$cut"}"; done
    fi
}
complete -o nospace -o bashdefault -F _bursar_with_colons bursar
"#;

/// What an argument names.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Named {
    Account,
    Class,
    Context,
    Grant,
    Hold,
    Job,
    Key,
    Node,
    Region,
}

/// What the argument of a command names, by its name. `top` is the first word of the command.
fn named(top: &str, command: &str, id: &str) -> Option<Named> {
    match (top, command, id) {
        ("agent" | "serve" | "demo" | "simulate" | "bench", ..) | ("account", "open", _) => None,
        (_, _, "account" | "of_account" | "parent" | "scope") | ("transfer", _, "from" | "to") => {
            Some(Named::Account)
        }
        (_, _, "job" | "jobs" | "after") if top != "audit" || id == "job" => Some(Named::Job),
        ("job" | "why" | "logs" | "wait" | "cancel", _, "id") => Some(Named::Job),
        ("grant", "show" | "revoke", "id") => Some(Named::Grant),
        ("hold", _, "id" | "hold") => Some(Named::Hold),
        ("key", "revoke" | "rotate", "id") => Some(Named::Key),
        ("node", _, "node") | ("region", _, "nodes") | ("key", _, "node") => Some(Named::Node),
        (_, _, "region" | "regions") => Some(Named::Region),
        (_, _, "class") | ("class", "show", "name") => Some(Named::Class),
        ("context", "use" | "rm", "name") | (_, _, "use_context") => Some(Named::Context),
        _ => None,
    }
}

/// The argument, completed with what the server has.
pub(super) fn attach(arg: Arg, top: &str, command: &str) -> Arg {
    match named(top, command, arg.get_id().as_str()) {
        None => arg,
        Some(named) => arg.add(ArgValueCompleter::new(move |word: &OsStr| {
            word.to_str().map_or_else(Vec::new, |word| candidates(named, word))
        })),
    }
}

fn candidates(named: Named, word: &str) -> Vec<CompletionCandidate> {
    // Of several values separated by commas, the last one is completed.
    let (before, word) = word.rsplit_once(',').map_or(("", word), |(rest, last)| (rest, last));
    let mut ids = if named == Named::Context { saved_contexts() } else { asked(named, word) };
    if named == Named::Job {
        ids.push("last".to_owned());
    }
    ids.retain(|id| id.starts_with(word) && is_harmless(id));
    ids.sort_unstable();
    ids.dedup();
    let whole = |id: String| if before.is_empty() { id } else { format!("{before},{id}") };
    ids.into_iter().map(|id| CompletionCandidate::new(whole(id))).collect()
}

/// Whether a shell takes an id as one plain word, whatever the server answers.
fn is_harmless(id: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    !id.is_empty() && id.chars().all(is_plain) && !id.starts_with('-')
}

fn saved_contexts() -> Vec<String> {
    let contexts = contexts::location(variable).and_then(|place| Contexts::load(&place));
    contexts.map(|all| all.contexts.into_keys().collect()).unwrap_or_default()
}

/// What the server has. Nothing if it does not answer in time.
fn asked(named: Named, word: &str) -> Vec<String> {
    let words: Vec<String> = std::env::args().skip_while(|word| word != "--").skip(1).collect();
    let connection = typed(&words);
    let Ok(client) = client_without_warnings(&connection, |all| all.retry(RetryPolicy::never()))
    else {
        return Vec::new();
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Vec::new() };
    let answer =
        runtime.block_on(async { tokio::time::timeout(TIMEOUT, list(&client, named, word)).await });
    answer.unwrap_or_default()
}

/// The connection that the words before the cursor give.
fn typed(words: &[String]) -> ConnectionArguments {
    let value = |name: &str| {
        let after = words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
        let prefix = format!("{name}=");
        let joined = words.iter().find_map(|word| word.strip_prefix(prefix.as_str()));
        after.cloned().or_else(|| joined.map(str::to_owned))
    };
    ConnectionArguments {
        server: value("--server"),
        key: value("--key"),
        key_file: value("--key-file").map(PathBuf::from),
        use_context: value("--context"),
        tenant: value("--tenant"),
        ca_file: value("--ca-file").map(PathBuf::from),
    }
}

async fn list(client: &Client, named: Named, word: &str) -> Vec<String> {
    // `acme:n` is not plain in an address; the characters of ids are.
    let prefix: String = word.chars().filter(|c| is_harmless(&format!("x{c}"))).collect();
    let (target, field) = match named {
        Named::Account => (format!("/v1/accounts?limit=100&prefix={prefix}"), "id"),
        Named::Job | Named::Grant | Named::Hold if !prefix.is_empty() => {
            (format!("/v1/search?limit=100&q={prefix}"), "id")
        }
        Named::Job => ("/v1/jobs?limit=100".into(), "id"),
        Named::Grant => ("/v1/grants?limit=100".into(), "id"),
        Named::Hold => ("/v1/holds?limit=100".into(), "id"),
        Named::Key => ("/v1/keys?limit=100".into(), "id"),
        Named::Node => ("/v1/nodes?limit=100".into(), "id"),
        Named::Region => ("/v1/regions".into(), "id"),
        Named::Class => ("/v1/classes".into(), "name"),
        Named::Context => return Vec::new(),
    };
    let kind = match named {
        Named::Job => "job",
        Named::Grant => "grant",
        Named::Hold => "hold",
        Named::Account
        | Named::Class
        | Named::Context
        | Named::Key
        | Named::Node
        | Named::Region => "",
    };
    let call: Call<Value> = Call::from_target(Method::Get, &target);
    let Ok(answer) = client.send(call).await else { return Vec::new() };
    let all = answer.value["data"].as_array().cloned().unwrap_or_default();
    let fitting = all.iter().filter(|one| one["kind"] == kind || !target.contains("/search"));
    fitting.filter_map(|one| one[field].as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_a_shell_would_read_otherwise_are_not_offered() {
        for id in ["acme:nlp", "job_01J", "sweep.3", "n-1"] {
            assert!(is_harmless(id), "{id}");
        }
        for id in ["", "$(reboot)", "a b", "`x`", "a;b", "-rf", "é", "a\nb", "*"] {
            assert!(!is_harmless(id), "{id}");
        }
    }

    #[test]
    fn the_connection_on_the_line_is_used() {
        let words = ["bursar", "--server", "https://x", "--context=lab", "ls"];
        let typed = typed(&words.map(str::to_owned));
        assert_eq!(typed.server.as_deref(), Some("https://x"));
        assert_eq!(typed.use_context.as_deref(), Some("lab"));
        assert_eq!(typed.key_file, None);
    }

    #[test]
    fn arguments_are_known_by_their_names() {
        assert_eq!(named("balance", "balance", "account"), Some(Named::Account));
        assert_eq!(named("account", "open", "account"), None);
        assert_eq!(named("logs", "logs", "job"), Some(Named::Job));
        assert_eq!(named("run", "run", "nodes"), None);
        assert_eq!(named("transfer", "transfer", "to"), Some(Named::Account));
        assert_eq!(named("region", "plan", "to"), None);
        assert_eq!(named("agent", "agent", "region"), None);
    }
}
