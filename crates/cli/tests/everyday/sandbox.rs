//! A sandbox on a live server: an organisation of its own with simulated GPUs, apart from all others.

use serde_json::json;

use crate::agent::Agent;
use crate::person::Person;
use crate::world::{job, priced, small, state, submit, with};

#[tokio::test]
async fn a_sandbox_has_its_own_money_keys_and_nodes() {
    let server = priced(&["--region", "eu", "--region", "sandbox"]).await;
    let platform = Person::of(&server);
    platform.done(&["account", "open", "lab", "--kind", "org", "--home-region", "sandbox"]);
    // Restricted credits keep its jobs off the nodes of others.
    let play = ["--kind", "grant", "--id", "play", "--region", "sandbox"];
    platform.done(&[&["grant", "add", "lab", "1000"][..], &play].concat());
    let key = server.key("admin", "lab").await;
    let lab = Person::with_key(&server, &key);
    let agent_key = lab.json(&[
        "key", "create", "--role", "agent", "--scope", "lab", "--region", "sandbox", "--name",
        "gpu",
    ]);
    let agent_key = agent_key["key"].as_str().expect("a secret").to_owned();
    let mut own = Agent::register_under(&server, &agent_key, "sandbox", "sim", "H100", 1).await;
    let mut real = Agent::register_in(&server, "eu", "real", "H100", 1).await;

    let run = ["run", "-a", "lab", "-g", "H100", "-t", "1h", "--yes", "--detach"];
    let refused = lab.run(&[&run[..], &["--", "true"]].concat());
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.err.contains("lab can spend 0"), "{refused:?}");
    lab.done(&[&run[..], &["--region", "sandbox", "--id", "try", "--", "true"]].concat());
    // A job of another tenant waits, though the node of the sandbox is the only one of its region.
    submit(&server, with(small("theirs"), "regions", json!(["sandbox"]))).await;
    own.beat(&server).await;
    real.beat(&server).await;
    assert!(own.runs_job("try") && !real.runs_job("try"));
    own.run(&server, 60).await;
    own.finish(&server, "try", 0).await;
    assert_eq!(job(&server, "try").await["charged"], "0.1");
    own.beat(&server).await;
    assert_eq!(state(&server, "theirs").await, "queued");
    // It sees nothing of others, and its charges touch no other account.
    lab.fails(4, &["balance", "acme"]);
    assert_eq!(lab.done(&["account", "ls", "-o", "name"]), "lab\n");
    // All but the hold of its own job.
    assert_eq!(platform.done(&["balance", "acme", "--template", "{spendable}"]), "994\n");
}
