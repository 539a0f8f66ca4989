//! Answers to operations.

use serde::Serialize;

/// The answer to one line.
#[derive(Debug, Serialize)]
pub(super) struct LineAnswer {
    /// The number of the line, from 1.
    pub(super) line: u64,
    /// The user, if the line names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(flatten)]
    pub(super) outcome: LineOutcome,
}

/// What an operation did. Fields are in the order in which they are printed.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum LineOutcome {
    /// A pack was added. It can be spent from `at` on.
    CreditsAdded {
        at: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        changes: Option<Vec<Change>>,
    },
    /// Credits were consumed: the whole amount, or less with `allow_partial`.
    CreditsConsumed {
        consumed: u64,
        /// In time order only: a late operation can change what another one draws.
        #[serde(skip_serializing_if = "Option::is_none")]
        packs: Option<Vec<PackPart>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        changes: Option<Vec<Change>>,
    },
    /// The amount is larger than the balance. Nothing was consumed.
    Insufficient { available: u128 },
    /// The amount is available, but later consumptions need it: they would get `shortfall` less.
    /// Nothing was consumed.
    Committed { shortfall: u128 },
    /// The balance.
    Balance { balance: u128 },
    /// The line is wrong. Nothing changed.
    Error { code: Code, text: String },
}

/// The part of a consumption that comes from one pack.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PackPart {
    /// The line that added the pack.
    pub(super) line: u64,
    pub(super) amount: u64,
}

/// An earlier answer that is no longer right, with the value that replaces it.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Change {
    Consumed { line: u64, consumed: u64, was: u64 },
    Balance { line: u64, balance: u128, was: u128 },
}

impl Change {
    /// The line whose answer changes.
    pub(super) fn line(&self) -> u64 {
        match self {
            Change::Consumed { line, .. } | Change::Balance { line, .. } => *line,
        }
    }
}

/// What is wrong with a line, for programs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Code {
    /// The line is not JSON.
    NotJson,
    /// The line is longer than the limit.
    TooLong,
    /// A field is missing, unknown or not valid.
    Malformed,
    /// The operation is earlier than the last one of its user.
    OutOfOrder,
    /// The pack expires before it starts.
    ExpiresBeforeStart,
    /// A sum would be too large.
    Overflow,
}

/// Why a line has no effect.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadLine {
    pub(super) code: Code,
    pub(super) text: String,
}

impl BadLine {
    pub(super) fn new(code: Code, text: impl Into<String>) -> BadLine {
        BadLine { code, text: text.into() }
    }

    pub(super) fn malformed(text: impl Into<String>) -> BadLine {
        BadLine::new(Code::Malformed, text)
    }

    pub(super) fn expires_before_start(expiry_time: i64, at: i64) -> BadLine {
        let text = format!(
            "the pack would expire at {expiry_time}, before it starts at {at}; \
             write an expiry_time of {at} or later"
        );
        BadLine::new(Code::ExpiresBeforeStart, text)
    }
}

impl From<BadLine> for LineOutcome {
    fn from(BadLine { code, text }: BadLine) -> LineOutcome {
        LineOutcome::Error { code, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(user: Option<&str>, outcome: LineOutcome) -> String {
        let answer = LineAnswer { line: 7, user: user.map(str::to_owned), outcome };
        serde_json::to_string(&answer).expect("answers have plain fields")
    }

    #[test]
    fn an_answer_begins_with_its_line_and_leaves_out_what_is_absent() {
        expect_test::expect![[r#"{"line":7,"type":"credits_added","at":0}"#]]
            .assert_eq(&json(None, LineOutcome::CreditsAdded { at: 0, changes: None }));
        expect_test::expect![[
            r#"{"line":7,"user":"ada","type":"credits_consumed","consumed":3,"packs":[{"line":1,"amount":3}]}"#
        ]]
        .assert_eq(&json(
            Some("ada"),
            LineOutcome::CreditsConsumed {
                consumed: 3,
                packs: Some(vec![PackPart { line: 1, amount: 3 }]),
                changes: None,
            },
        ));
    }

    #[test]
    fn sums_above_64_bits_are_written_in_full() {
        let balance = u128::from(u64::MAX) + 1;
        expect_test::expect![[r#"{"line":7,"type":"balance","balance":18446744073709551616}"#]]
            .assert_eq(&json(None, LineOutcome::Balance { balance }));
        let changes = Some(vec![Change::Balance { line: 2, balance, was: 0 }]);
        expect_test::expect![[
            r#"{"line":7,"type":"credits_added","at":1,"changes":[{"line":2,"balance":18446744073709551616,"was":0}]}"#
        ]]
        .assert_eq(&json(None, LineOutcome::CreditsAdded { at: 1, changes }));
    }

    #[test]
    fn an_error_has_a_code_and_a_text() {
        expect_test::expect![[
            r#"{"line":7,"type":"error","code":"expires_before_start","text":"the pack would expire at 3, before it starts at 5; write an expiry_time of 5 or later"}"#
        ]]
        .assert_eq(&json(None, BadLine::expires_before_start(3, 5).into()));
    }
}
