//! The service units call the program with options that it has.

use std::path::PathBuf;
use std::process::Command;

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
