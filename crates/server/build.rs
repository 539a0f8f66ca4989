//! Has the dashboard embedded again when it was built again.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Debug builds read the files from disk.
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        let built = Path::new("../../web/dist");
        // Cargo would build again each time if it watched a folder that is missing. Where the folder
        // cannot be made, that is all that happens.
        let _ = std::fs::create_dir_all(built);
        println!("cargo::rerun-if-changed={}", built.display());
    }
}
