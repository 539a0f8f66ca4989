//! Where the traces are.

use std::path::PathBuf;

/// The folder of the traces: `BURSAR_TRACES`, or `shared/traces` beside the repository.
pub(crate) fn traces() -> PathBuf {
    let folder = std::env::var_os("BURSAR_TRACES").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"),
        PathBuf::from,
    );
    assert!(
        folder.is_dir(),
        "the traces are not at {}; set BURSAR_TRACES to the folder that holds openb/ and jct/",
        folder.display()
    );
    folder
}
