//! Labels and memory sizes of nodes and jobs.

use std::collections::BTreeMap;

use bursar_core::ledger::id::Name;

use crate::request::Failure;

/// The most labels of one node or job.
const MAX_LABELS: usize = 64;

/// Labels as `key=value`, in order.
pub(super) fn label_list(
    labels: Option<BTreeMap<String, String>>,
    field: &str,
) -> Result<Vec<Name>, Failure> {
    let labels = check_labels(labels, field)?;
    Ok(labels.into_iter().map(|(key, value)| Name::from(format!("{key}={value}"))).collect())
}

/// Checks the number and length of labels.
pub(super) fn check_labels(
    labels: Option<BTreeMap<String, String>>,
    field: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let labels = labels.unwrap_or_default();
    let plain = |text: &str| text.len() <= 128 && !text.chars().any(char::is_control);
    let valid = |(key, value): (&String, &String)| {
        !key.is_empty() && !key.contains('=') && plain(key) && plain(value)
    };
    if labels.len() > MAX_LABELS || !labels.iter().all(valid) {
        let reason = "at most 64 labels; keys and values of at most 128 bytes without control \
                      characters (such as a line break), keys without `=`";
        return Err(Failure::invalid(field, reason));
    }
    Ok(labels)
}

/// Converts gibibytes to mebibytes.
pub(super) fn memory_mib(gib: u32, field: &str) -> Result<u32, Failure> {
    gib.checked_mul(1024).ok_or_else(|| Failure::invalid(field, "is too large"))
}
