//! Has the dashboard embedded again when it was built again.

use std::path::Path;

/// Set to 1 by builds that are given to others: they must have the dashboard.
const REQUIRE: &str = "BURSAR_REQUIRE_DASHBOARD";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={REQUIRE}");
    let built = Path::new("../../web/dist");
    let is_required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
    if is_required && !built.join("index.html").is_file() {
        println!("cargo::error={REQUIRE}=1, but web/dist has no dashboard: run scripts/web build");
    }
    // Debug builds read the files from disk.
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        // Cargo would build again each time if it watched a folder that is missing. Where the folder
        // cannot be made, that is all that happens.
        let _ = std::fs::create_dir_all(built);
        println!("cargo::rerun-if-changed={}", built.display());
    }
}
