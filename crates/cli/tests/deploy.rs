//! What is in `deploy/`: the service units call the program with options that it has, systemd accepts
//! them, and the program reports to a service manager.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

#[path = "rehearsal/mod.rs"]
mod rehearsal;

/// The command line of a unit.
fn command_line(unit: &str) -> Vec<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(unit);
    let text = std::fs::read_to_string(path).expect("the unit is there");
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    line.split(' ').map(str::to_owned).collect()
}

fn check(unit: &str, command: &str) {
    let line = command_line(unit);
    assert_eq!(line[..2], ["/usr/local/bin/bursar", command]);
    let help = Command::new(env!("CARGO_BIN_EXE_bursar")).args([command, "--help"]).output();
    let help = String::from_utf8(help.expect("it starts").stdout).expect("text");
    for option in line.iter().filter(|word| word.starts_with("--")) {
        assert!(help.contains(&format!("{option} <")), "{unit}: {option} is unknown");
    }
}

#[test]
fn the_units_use_options_that_exist() {
    check("bursar.service", "serve");
    check("bursar-agent.service", "agent");
}

/// The exposure of a unit as systemd rates it, from 0 to 100: it must not get worse. The bounds have
/// some tolerance for versions that rate differently.
#[test]
fn the_units_stay_closed() {
    for (unit, most) in [("bursar.service", 14), ("bursar-agent.service", 52)] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(unit);
        let analysed = Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager"])
            .arg(format!("--threshold={most}"))
            .arg(path)
            .output()
            .expect("systemd-analyze is there: scripts/setup installs it");
        let said = String::from_utf8_lossy(&analysed.stdout);
        let why = String::from_utf8_lossy(&analysed.stderr);
        assert!(said.contains("exposure level"), "{unit}: {why}");
        assert!(analysed.status.success(), "{unit} is open to more than {most}: {said}{why}");
    }
}

/// systemd knows every key of the units, and finds nothing wrong. Keys that are newer than the installed
/// version are reported as unknown and ignored by it.
#[test]
fn systemd_accepts_the_units() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for unit in ["bursar.service", "bursar-agent.service"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(unit);
        let text = std::fs::read_to_string(path).expect("the unit is there");
        let copy = folder.path().join(unit);
        // The program must be where the unit says.
        let text = text.replace("/usr/local/bin/bursar", env!("CARGO_BIN_EXE_bursar"));
        std::fs::write(&copy, text).expect("the folder is ours");
        let verified =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output();
        let verified = verified.expect("systemd-analyze is there: scripts/setup installs it");
        let why = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{unit}: {why}");
        let newer = "Unknown key 'DelegateSubgroup'";
        let said: Vec<&str> =
            why.lines().filter(|line| line.contains(unit) && !line.contains(newer)).collect();
        assert!(said.is_empty(), "{unit}: {said:?}");
    }
}

#[test]
fn a_server_tells_the_service_manager_that_it_is_ready_and_alive() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("it is free");
    let mut server = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path().join("data"))
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000")
        .env("BURSAR_LOG", "error")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary is there");
    let (mut alive, mut ready) = (0, None);
    // Signs of life continue after it is ready.
    while ready.is_none() || alive < 3 {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).expect("it was sent");
        match std::str::from_utf8(&buffer[..length]).expect("text") {
            "WATCHDOG=1" => alive += i32::from(ready.is_some()),
            other => {
                let url = other.strip_prefix("READY=1\nSTATUS=listening on http://");
                let address = url.unwrap_or_else(|| panic!("{other}")).to_owned();
                std::net::TcpStream::connect(&address).expect("it listens when it says so");
                ready = Some(address);
            }
        }
    }
    let lines = BufReader::new(server.stdout.take().expect("it is piped")).lines();
    let said = lines.map_while(Result::ok).find(|line| line.starts_with("listening on "));
    server.kill().expect("it was running");
    server.wait().expect("it was killed");
    assert_eq!(said, ready.map(|address| format!("listening on http://{address}")));
    rehearsal::rehearse(&folder.path().join("data"));
}

/// The documents of a YAML file in `deploy/`, read by Python's YAML.
fn documents(file: &str) -> Vec<Value> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let script =
        "import json, sys, yaml\nprint(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    for python in ["python3", "/usr/bin/python3"] {
        let found = Command::new(python).args(["-c", "import yaml"]).output();
        if found.is_ok_and(|found| found.status.success()) {
            let read = Command::new(python).args(["-c", script]).arg(&path).output();
            let read = read.expect("it started before");
            assert!(read.status.success(), "{file}: {}", String::from_utf8_lossy(&read.stderr));
            return serde_json::from_slice(&read.stdout).expect("JSON");
        }
    }
    panic!(
        "this test reads YAML with Python: install the Debian package python3-yaml (scripts/setup)"
    );
}

fn texts(list: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    list.as_array().into_iter().flatten().map(text).collect()
}

/// Checks a command line whose options are of the form `--name=value`.
fn check_line(place: &str, line: &[String]) {
    assert_eq!(line.first().map(String::as_str), Some("bursar"), "{place}");
    let words: Vec<&str> =
        line[1..].iter().map(String::as_str).take_while(|word| !word.starts_with("--")).collect();
    let help = Command::new(env!("CARGO_BIN_EXE_bursar")).args(&words).arg("--help").output();
    let help = help.expect("it starts");
    assert!(help.status.success(), "{place}: there is no {words:?}");
    let help = String::from_utf8(help.stdout).expect("text");
    for option in &line[1 + words.len()..] {
        let (name, takes) = match option.split_once('=') {
            Some((name, _)) => (name, " <"),
            None => (option.as_str(), ""),
        };
        assert!(help.contains(&format!("{name}{takes}")), "{place}: {option} is unknown");
    }
}

#[test]
fn the_compose_file_names_only_what_there_is() {
    let compose = &documents("compose/compose.yaml")[0];
    let services = compose["services"].as_object().expect("a mapping");
    let mut lines = 0;
    for (name, service) in services {
        let dockerfile = service["build"]["dockerfile"].as_str().expect("a file");
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/compose");
        assert!(path.join(dockerfile).is_file(), "{name}: {dockerfile}");
        let needed: Vec<String> = match &service["depends_on"] {
            Value::Object(all) => all.keys().cloned().collect(),
            list => texts(list),
        };
        assert!(needed.iter().all(|other| services.contains_key(other)), "{name}: {needed:?}");
        for volume in texts(&service["volumes"]) {
            let known = volume.split(':').next().unwrap_or_default();
            assert!(compose["volumes"].get(known).is_some(), "{name}: {volume}");
        }
        for config in service["configs"].as_array().into_iter().flatten() {
            let source = config["source"].as_str().expect("a name");
            let file = compose["configs"][source]["file"].as_str().expect("a file");
            assert!(path.join(file).is_file(), "{name}: {file}");
        }
        let line = texts(&service["command"]);
        if line[0] == "bursar" {
            check_line(name, &line);
            lines += 1;
        }
    }
    assert_eq!(lines, 4, "two servers, the key and the agent");
    let patroni = &documents("compose/patroni.yaml")[0]["bootstrap"]["dcs"];
    assert_eq!(
        (&patroni["synchronous_mode"], &patroni["synchronous_mode_strict"]),
        (&true.into(), &true.into())
    );
}

#[test]
fn the_manifests_for_kubernetes_name_only_what_there_is() {
    let kustomization = &documents("kubernetes/kustomization.yaml")[0];
    assert_eq!(kustomization["kind"], "Kustomization");
    let files = texts(&kustomization["resources"]);
    let objects: Vec<Value> =
        files.iter().flat_map(|file| documents(&format!("kubernetes/{file}"))).collect();
    let mut lines = 0;
    for object in &objects {
        let kind = object["kind"].as_str().expect("a kind");
        let name = object["metadata"]["name"].as_str().expect("a name");
        assert!(object["apiVersion"].is_string(), "{kind} {name}");
        let template = &object["spec"]["template"];
        if template.is_null() {
            continue;
        }
        let labels = &template["metadata"]["labels"];
        assert_eq!(&object["spec"]["selector"]["matchLabels"], labels, "{kind} {name}");
        let volumes: Vec<&Value> = template["spec"]["volumes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| &one["name"])
            .collect();
        for container in template["spec"]["containers"].as_array().expect("containers") {
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                assert!(volumes.contains(&&mount["name"]), "{name}: {mount}");
            }
            let ports: Vec<&Value> = container["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| &one["name"])
                .collect();
            for probe in ["readinessProbe", "livenessProbe"] {
                let port = &container[probe]["httpGet"]["port"];
                assert!(port.is_null() || ports.contains(&port), "{name}: {probe}");
            }
            check_line(name, &[texts(&container["command"]), texts(&container["args"])].concat());
            lines += 1;
        }
    }
    assert_eq!(lines, 2, "the server and the agent");
    // The service finds the servers, and the claim is there.
    let of =
        |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect("it is there");
    let labels = &of("Deployment")["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&of("Service")["spec"]["selector"], labels);
    let claims =
        of("Deployment")["spec"]["template"]["spec"]["volumes"].as_array().expect("a list");
    let claim = claims.iter().find_map(|one| one["persistentVolumeClaim"]["claimName"].as_str());
    assert_eq!(
        claim.map(Value::from),
        Some(of("PersistentVolumeClaim")["metadata"]["name"].clone())
    );
}

/// The metrics that a text names.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.split(|c: char| !is_part(c)).filter(|word| word.starts_with("bursar_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn alerts_and_panels_use_metrics_that_are_documented_and_a_runbook_that_exists() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |file: &str| std::fs::read_to_string(root.join(file)).expect("it is there");
    let pages = read("docs/operate/observability.md") + &read("docs/operate/agent.md");
    let known = metrics(&pages);
    for file in ["deploy/monitoring/alerts.yaml", "deploy/monitoring/grafana.json"] {
        let unknown: Vec<String> = metrics(&read(file)).difference(&known).cloned().collect();
        assert_eq!(unknown, [""; 0], "{file}");
    }
    serde_json::from_str::<Value>(&read("deploy/monitoring/grafana.json")).expect("JSON");
    let rules = &documents("monitoring/alerts.yaml")[0]["groups"][0]["rules"];
    let rules = rules.as_array().expect("a list");
    let (_, alerts) = pages.split_once("\n## Alerts\n").expect("it has that section");
    let (alerts, _) = alerts.split_once("\n## ").expect("more sections");
    let is_row = |line: &&str| line.starts_with('|') && line.contains("](operations.md#");
    let rows = alerts.lines().filter(is_row);
    assert_eq!(rows.count(), rules.len(), "one rule for each row of the page");
    for rule in rules {
        let runbook = rule["annotations"]["runbook"].as_str().expect("an entry");
        assert!(pages.contains(&format!("({runbook})")), "{runbook}");
    }
}
