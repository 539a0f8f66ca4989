//! `bursar admin prepare-upgrade`.

use crate::person::Person;
use crate::world::priced;

#[tokio::test]
async fn an_upgrade_is_prepared_in_one_command_beside_the_running_server() {
    let server = priced(&[]).await;
    let person = Person::of(&server);
    let data = server.data().display().to_string();
    let prepare = ["admin", "prepare-upgrade", "--data", &data, "copy"];
    let said = person.done(&prepare);
    assert!(said.contains("reads all of it") && said.contains("restart the server"), "{said}");
    assert!(person.file("copy/manifest.json").exists() && !person.file("copy.rehearsal").exists());
    person.done(&["audit", "verify", "--data", "copy"]);
    // A second call overwrites nothing.
    person.fails(1, &prepare);
    // A damaged backup is not the only thing that stops it: so does a folder in the way.
    std::fs::create_dir(person.file("other.rehearsal")).expect("the home is ours");
    std::fs::write(person.file("other.rehearsal/kept"), "x").expect("the home is ours");
    person.fails(1, &["admin", "prepare-upgrade", "--data", &data, "other"]);
    assert!(person.file("other.rehearsal/kept").exists());
    assert_eq!(person.done(&["balance", "acme", "--template", "{spendable}"]), "1000\n");
}
