//! Numbers in sentences.

/// A number with its noun: `1 job`, `3 jobs`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(0_u32, "job"), "0 jobs");
        assert_eq!(counted(1_usize, "job"), "1 job");
        assert_eq!(counted(2_u64, "job"), "2 jobs");
    }
}
