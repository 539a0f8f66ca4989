//! The environment of a job: some variables of the machine, its own, and those that describe the attempt.
//! It has nothing else of the agent's environment, and never its key.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bursar_client::api::nodes::node::{Order, RunSpec};
use nix::unistd::User;

use crate::attempt::record::Launch;
use crate::folder::AttemptFolder;

/// The attempt of a process: its folder, which is unique on this machine,
/// even if another server has an attempt with the same id. Remaining processes are found by it.
pub const PLACE: &str = "BURSAR_PLACE";

/// Variables of the machine that jobs inherit.
const INHERITED: [&str; 8] = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"];
/// Inherited variables that belong to the user of the agent.
const OF_AGENT_USER: [&str; 4] = ["HOME", "USER", "TMPDIR", "SHELL"];
/// The search path of programs if the agent has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of the machine that jobs inherit.
pub fn of_machine(variable: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let found = INHERITED.into_iter().filter_map(|name| Some((name.to_owned(), variable(name)?)));
    let mut machine: BTreeMap<String, String> = found.collect();
    machine.entry("PATH".into()).or_insert_with(|| PATH.into());
    machine
}

/// Rejects variables that cannot be set: a name with `=` would set another variable,
/// and NUL ends a variable.
pub fn check(variables: &BTreeMap<String, String>) -> io::Result<()> {
    for (name, value) in variables {
        let why = if name.is_empty() {
            "empty environment variable name".to_owned()
        } else if name.contains(['=', '\0']) {
            let name = name.escape_debug();
            format!("`{name}` cannot be the name of a variable: it has `=` or NUL in it")
        } else if value.contains('\0') {
            format!("the variable {name} cannot be set: its value has NUL in it")
        } else {
            continue;
        };
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

/// Variables that depend on the order: which attempt it is, and how it will be stopped. They override
/// the job's own.
pub fn of_order(
    order: &Order,
    spec: &RunSpec,
    checkpoints: Option<&Path>,
) -> BTreeMap<String, String> {
    let restarts = spec.attempt_number.map(|number| number.saturating_sub(1));
    let job = order.job.as_deref();
    let folder =
        checkpoints.zip(job).map(|(base, job)| checkpoint_folder(base, &spec.account, job));
    let known = [
        ("BURSAR_ARRAY_INDEX", spec.array_index.map(|index| index.to_string())),
        ("BURSAR_ATTEMPT_NUMBER", spec.attempt_number.map(|number| number.to_string())),
        ("BURSAR_RESTART_COUNT", restarts.map(|count| count.to_string())),
        ("BURSAR_GRACE_SECONDS", order.grace_seconds.map(|grace| grace.to_string())),
        ("BURSAR_STOP_SIGNAL", Some("SIGTERM".to_owned())),
        ("BURSAR_CHECKPOINT_DIR", folder.map(|folder| folder.display().to_string())),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The folder of a job's checkpoints: `<base>/<tenant>/<job>`, the same in every attempt. Ids of jobs
/// are unique in a tenant. The job creates it.
fn checkpoint_folder(base: &Path, account: &str, job: &str) -> PathBuf {
    let tenant = account.split(':').next().unwrap_or(account);
    // An id such as `..` must not lead out of the folder. No id has a percent sign in it.
    let plain = |id: &str| {
        let id = id.replace('/', "%2F");
        id.strip_prefix('.').map_or(id.clone(), |rest| format!("%2E{rest}"))
    };
    base.join(plain(tenant)).join(plain(job))
}

/// All variables of a job. Those of its user, if it has one, override the machine's, and the
/// job's own override these. Variables that describe the attempt override all, so that no job sees
/// other devices.
pub fn of_job(
    launch: &Launch,
    folder: &AttemptFolder,
    user: Option<&User>,
) -> BTreeMap<String, String> {
    let mut variables = launch.machine_env.clone();
    if let Some(user) = user {
        OF_AGENT_USER.iter().for_each(|name| drop(variables.remove(*name)));
        variables.insert("USER".into(), user.name.clone());
        variables.insert("HOME".into(), user.dir.to_string_lossy().into_owned());
    }
    variables.extend(launch.env.clone());
    let devices = launch.gpus.join(",");
    let place = [
        (PLACE, folder.path().display().to_string()),
        ("BURSAR_ATTEMPT", launch.attempt.clone()),
        ("BURSAR_JOB", launch.job.clone()),
        ("BURSAR_NODE", launch.node.clone()),
        ("BURSAR_RANK", launch.rank.to_string()),
        ("BURSAR_NODES", launch.nodes.join(",")),
        ("BURSAR_GPUS", devices.clone()),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", devices),
    ];
    variables.extend(place.map(|(name, value)| (name.to_owned(), value)));
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch() -> Launch {
        Launch {
            attempt: "att_1".into(),
            job: "job_1".into(),
            node: "n1".into(),
            rank: 1,
            nodes: vec!["n0".into(), "n1".into()],
            command: vec!["true".into()],
            env: [("TZ", "UTC"), ("CUDA_VISIBLE_DEVICES", "all"), ("EPOCHS", "3")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            workdir: None,
            gpus: vec!["GPU-a".into(), "GPU-b".into()],
            run_as: None,
            cgroup: None,
            output_limit: 1000,
            machine_env: BTreeMap::new(),
            tmp_bytes: None,
        }
    }

    fn folder() -> AttemptFolder {
        AttemptFolder::at("/state/attempts/att_1".into())
    }

    #[test]
    fn a_job_sees_its_own_devices_whatever_it_asks_for() {
        let variables = of_job(&launch(), &folder(), None);
        assert_eq!(variables["CUDA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
        assert_eq!(variables["BURSAR_RANK"], "1");
        assert_eq!(variables["BURSAR_NODES"], "n0,n1");
        assert_eq!(variables["EPOCHS"], "3");
        let none = Launch { gpus: vec![], ..launch() };
        assert_eq!(of_job(&none, &folder(), None)["CUDA_VISIBLE_DEVICES"], "");
    }

    #[test]
    fn of_the_agents_environment_only_harmless_parts_are_passed_on() {
        let agent = |name: &str| Some(format!("agent's {name}"));
        let launch = Launch { machine_env: of_machine(agent), ..launch() };
        let variables = of_job(&launch, &folder(), None);
        assert_eq!(variables["HOME"], "agent's HOME");
        assert_eq!(variables["TZ"], "UTC");
        for secret in ["BURSAR_KEY", "BURSAR_KEY_FILE", "LD_PRELOAD", "NVIDIA_VISIBLE_DEVICES"] {
            assert!(!variables.contains_key(secret), "{secret}");
        }
        assert_eq!(of_machine(|_| None)["PATH"], PATH);
    }

    #[test]
    fn a_job_of_another_user_has_that_users_home_unless_it_says_otherwise() {
        let agent = |name: &str| Some(format!("agent's {name}"));
        let mut launch = Launch { machine_env: of_machine(agent), ..launch() };
        let root = User::from_uid(0.into()).expect("readable").expect("root is there");
        let variables = of_job(&launch, &folder(), Some(&root));
        assert_eq!(variables["USER"], "root");
        assert_eq!(variables["HOME"], root.dir.to_string_lossy());
        assert_eq!(variables.get("TMPDIR"), None);
        launch.env.insert("HOME".into(), "/data".into());
        assert_eq!(of_job(&launch, &folder(), Some(&root))["HOME"], "/data");
    }

    #[test]
    fn checkpoints_of_a_job_have_one_folder_whatever_its_id_is() {
        let base = Path::new("/shared");
        let of = |account, job| checkpoint_folder(base, account, job).display().to_string();
        assert_eq!(of("acme:nlp:x", "job_1"), "/shared/acme/job_1");
        assert_eq!(of("acme", "sweep.3"), "/shared/acme/sweep.3");
        assert_eq!(of("acme", ".."), "/shared/acme/%2E.");
        assert_eq!(of("acme", "."), "/shared/acme/%2E");
        assert_eq!(of("acme", "../x"), "/shared/acme/%2E.%2Fx");
        assert_eq!(of("acme", ".hidden"), "/shared/acme/%2Ehidden");
    }

    #[test]
    fn names_that_would_set_something_else_are_refused() {
        let variables = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into();
        for (name, value) in [("", "x"), ("A=B", "x"), ("=", ""), ("A\0B", "x"), ("A", "x\0y")] {
            let refused = check(&variables(name, value)).expect_err(name);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        for (name, value) in [("A", "x=y"), ("a.b-c d", ""), ("LD_PRELOAD", "/lib/x.so")] {
            check(&variables(name, value)).expect(name);
        }
    }
}
