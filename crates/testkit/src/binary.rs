//! What the binary prints, as tests read it.

use std::io::{BufRead, BufReader, Read};

/// The root key and the address that a new server prints first.
///
/// # Panics
///
/// If it prints something else.
pub fn announced(stdout: impl Read) -> (String, String) {
    let mut lines = BufReader::new(stdout).lines();
    let mut after = |start: &str| {
        let line = lines.next().expect("a line").expect("text");
        line.strip_prefix(start).unwrap_or_else(|| panic!("{line}")).to_owned()
    };
    (after("root key: "), after("listening on "))
}

/// Micro-credits of an amount as it is written, read without the types of the API.
///
/// # Panics
///
/// If it is not an amount.
pub fn micros(amount: &str) -> u128 {
    let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
    let whole: u128 = whole.parse().expect("digits");
    let part: u128 = format!("{part:0<6}").parse().expect("digits");
    whole * 1_000_000 + part
}
