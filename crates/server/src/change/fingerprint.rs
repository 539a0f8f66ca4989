//! Fingerprints of requests: the same idempotency key must come with the same request.

use serde_json::Value;

/// A hash over parts, each prefixed with its length.
fn hash_parts(parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}

/// The fingerprint of a whole request. Equal requests have equal fingerprints.
pub fn fingerprint(method: &str, path: &str, body: &Value) -> u128 {
    let mut canonical = Vec::new();
    bursar_api::json::canonical(body, &mut canonical);
    fingerprint_of(method, path, &canonical)
}

/// Like [`fingerprint`], for a body in canonical form.
pub fn fingerprint_of(method: &str, path: &str, canonical: &[u8]) -> u128 {
    hash_parts(&[method.as_bytes(), path.as_bytes(), canonical])
}

/// The hash under which an answer is stored.
pub fn key_hash(scope: &str, key: &str) -> u128 {
    hash_parts(&[scope.as_bytes(), key.as_bytes()])
}
