//! Texts about wrong arguments, in plain words: the parsers of numbers speak of their types.

use std::borrow::Cow;

use clap::Command;

/// What a parser says, and the same for people.
const WORDS: [(&str, &str); 5] = [
    ("invalid digit found in string", "write a whole number of 0 or more"),
    ("cannot parse integer from empty string", "write a whole number of 0 or more"),
    ("number too large to fit in target type", "the number is too large"),
    ("invalid float literal", "write a number"),
    ("invalid socket address syntax", "write it as 127.0.0.1:7070"),
];

/// Names of one and the same deed in different programs.
const SYNONYMS: [&[&str]; 5] = [
    &["create", "add", "new", "open", "set", "issue", "make"],
    &["ls", "list"],
    &["show", "get", "describe", "view", "info"],
    &["rm", "remove", "delete", "revoke"],
    &["change", "update", "edit", "set", "modify"],
];
/// A name that more groups of commands have is no help.
const MAX_TIPS: usize = 3;

/// The commands that an unknown one may stand for: in the same group under another name, or of the
/// same name in another group. clap compares only letters, and proposes `batch` for `backup`.
pub(crate) fn tip(error: &str, tree: &Command) -> Option<String> {
    let (_, rest) = error.split_once("unrecognized subcommand '")?;
    let (unknown, rest) = rest.split_once('\'')?;
    let usage = rest.lines().find_map(|line| line.trim().strip_prefix("Usage: "))?;
    let group: Vec<&str> =
        usage.split(' ').skip(1).take_while(|word| !word.starts_with(['[', '<'])).collect();
    let inside = group.iter().try_fold(tree, |command, name| command.find_subcommand(name))?;
    let visible = |command: &Command| {
        let all = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        all.map(|inner| inner.get_name().to_owned()).collect::<Vec<String>>()
    };
    let alike = |name: &String| {
        SYNONYMS.iter().any(|all| all.contains(&unknown) && all.contains(&name.as_str()))
    };
    let mut found: Vec<String> = visible(inside).into_iter().filter(alike).collect();
    if group.is_empty() {
        let groups = tree.get_subcommands().filter(|inner| !inner.is_hide_set());
        let nested = groups.filter(|inner| inner.find_subcommand(unknown).is_some());
        found.extend(nested.map(|inner| format!("{} {unknown}", inner.get_name())));
    }
    if found.is_empty() || found.len() > MAX_TIPS {
        return None;
    }
    let path = std::iter::once("bursar").chain(group).collect::<Vec<_>>().join(" ");
    let commands: Vec<String> = found.iter().map(|name| format!("'{path} {name}'")).collect();
    Some(format!("  tip: there is {}\n", commands.join(" and ")))
}

/// An error in plain words, with a tip instead of that of clap.
pub(crate) fn with_tip(error: &str, tip: Option<&str>) -> String {
    let text = in_plain_words(error);
    let Some((tip, (first, rest))) = tip.zip(text.split_once('\n')) else { return text };
    let (before, after) = rest.split_once("Usage:").unwrap_or((rest, ""));
    let before: String =
        before.split_inclusive('\n').filter(|line| !line.contains("tip:")).collect();
    let usage = if after.is_empty() { "" } else { "Usage:" };
    format!("{first}\n\n{tip}\n{}{usage}{after}", before.trim_start_matches('\n'))
}

/// An error of the arguments with the texts of parsers replaced.
pub(crate) fn in_plain_words(text: &str) -> String {
    // What looks like an option is seldom meant as a value.
    let is_help = |line: &&str| !line.contains("' as a value, use '");
    let lines = text.split_inclusive('\n').filter(is_help).map(|line| {
        let mut line = in_range(line);
        for (theirs, ours) in WORDS {
            if line.contains(theirs) {
                line = Cow::Owned(line.replace(theirs, ours));
            }
        }
        line
    });
    lines.collect()
}

/// `7 is not in 1..=5` as `write a number from 1 to 5`.
fn in_range(line: &str) -> Cow<'_, str> {
    let described = || {
        let (before, range) = line.split_once(" is not in ")?;
        let (before, _) = before.rsplit_once(": ")?;
        let (least, most) = range.trim_end().split_once("..=")?;
        let end = if line.ends_with('\n') { "\n" } else { "" };
        Some(format!("{before}: write a number from {least} to {most}{end}"))
    };
    described().map_or(Cow::Borrowed(line), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsers_of_numbers_speak_plain_words() {
        let cases = [
            (
                "error: invalid value 'x' for '--seq <SEQ>': invalid digit found in string\n\nFor more",
                "error: invalid value 'x' for '--seq <SEQ>': write a whole number of 0 or more\n\nFor more",
            ),
            (
                "error: invalid value '0' for '--limit <LIMIT>': 0 is not in 1..=100\n\nFor more",
                "error: invalid value '0' for '--limit <LIMIT>': write a number from 1 to 100\n\nFor more",
            ),
            ("error: it is not in order\n", "error: it is not in order\n"),
            ("one\n  tip: to pass '--x' as a value, use '-- --x'\ntwo\n", "one\ntwo\n"),
        ];
        for (theirs, ours) in cases {
            assert_eq!(in_plain_words(theirs), ours);
        }
    }

    #[test]
    fn an_unknown_command_gets_the_name_that_it_has_here() {
        let tip = |arguments: &[&str]| {
            let error = crate::tree::tree().try_get_matches_from(arguments).expect_err("unknown");
            super::tip(&error.render().to_string(), &crate::tree::tree())
        };
        for (arguments, expected) in [
            (&["bursar", "backup"][..], Some("'bursar admin backup'")),
            (&["bursar", "account", "create"], Some("'bursar account open'")),
            (&["bursar", "node", "delete"], Some("'bursar node rm'")),
            (&["bursar", "drain"], Some("'bursar node drain'")),
            (&["bursar", "job", "xyzzy"], None),
            // clap itself proposes `show`.
            (&["bursar", "job", "shw"], None),
        ] {
            let found = tip(arguments);
            match expected {
                Some(expected) => {
                    assert!(
                        found.as_deref().is_some_and(|tip| tip.contains(expected)),
                        "{found:?}"
                    );
                }
                None => assert_eq!(found, None, "{arguments:?}"),
            }
        }
        for error in ["error: no\n\nUsage: x\n", "error: no\n\n  tip: perhaps 'z'\n\nUsage: x\n"] {
            let shown = with_tip(error, Some("  tip: there is 'y'\n"));
            assert_eq!(shown, "error: no\n\n  tip: there is 'y'\n\nUsage: x\n");
        }
    }
}
