//! The default state folder of an agent: one for each server, region and node, so that
//! several agents of one machine need no flags to be separate.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access, geteuid};

/// The state folder of the machine's agents.
const OF_MACHINE: &str = "/var/lib/bursar-agent";

/// The state folder of the agent of a node. `None` if there is no default for this user.
pub fn default_state(server: &str, region: &str, node: &str) -> Option<PathBuf> {
    let may_use_machine =
        geteuid().is_root() || access(Path::new(OF_MACHINE), AccessFlags::W_OK).is_ok();
    let base = base(may_use_machine, |name| std::env::var(name).ok())?;
    Some(base.join(folder_name(server, region, node)))
}

/// The user's configured state folder first, then the machine's, then the default in the user's
/// home.
fn base(may_use_machine: bool, variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(own) = absolute("XDG_STATE_HOME") {
        return Some(own.join("bursar-agent"));
    }
    if may_use_machine {
        return Some(OF_MACHINE.into());
    }
    absolute("HOME").map(|home| home.join(".local/state/bursar-agent"))
}

/// A name that cannot escape its folder. Two equal names are distinguished by the owner in the
/// folder.
fn folder_name(server: &str, region: &str, node: &str) -> String {
    let server = server.split_once("://").map_or(server, |(_, address)| address);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
    let name = format!("{}+{region}+{node}", server.trim_end_matches('/'));
    name.chars().map(|c| if plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_region_and_node_has_its_own_folder() {
        let name = folder_name("http://127.0.0.1:7070/", "default", "gpu-1");
        assert_eq!(name, "127.0.0.1_7070+default+gpu-1");
        assert_eq!(folder_name("https://a.example/x", "..", ".."), "a.example_x+..+..");
    }

    #[test]
    fn a_user_without_access_to_the_machines_folder_uses_the_home() {
        let set = |values: &'static [(&str, &str)]| {
            move |name: &str| {
                let found = values.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            }
        };
        let home = &[("HOME", "/home/u")];
        assert_eq!(base(true, set(home)), Some(OF_MACHINE.into()));
        assert_eq!(base(false, set(home)), Some("/home/u/.local/state/bursar-agent".into()));
        let own = &[("HOME", "/home/u"), ("XDG_STATE_HOME", "/s")];
        assert_eq!(base(true, set(own)), Some("/s/bursar-agent".into()));
        assert_eq!(base(false, set(&[("XDG_STATE_HOME", "not/absolute")])), None);
    }
}
