//! Names inside the fields of events, as `docs/reference/journal-format.md` lists the parts.

use serde_json::{Map, Value, json};

use crate::export::{JournalKind, plain};
use crate::node::Node;

mod cell;
mod ledger;

/// What a stored value is.
enum Form {
    /// Shown as it is.
    Plain,
    /// A number that stands for one of these words.
    Word(&'static [&'static str]),
    /// A map with these fields by key.
    Fields(&'static [Field]),
    /// `[tag, content]`, with these variants by tag.
    Choice(&'static [Field]),
    /// A list of values of one form.
    Each(&'static Form),
}

use Form::{Choice, Each, Fields, Plain, Word};

/// A name, and the form of what it names.
type Field = (&'static str, &'static Form);

/// A field or content that needs no names.
const fn as_is(name: &'static str) -> Field {
    (name, &Plain)
}

/// A variant without content.
const fn bare(name: &'static str) -> Field {
    (name, &Fields(&[]))
}

/// Shows the value of a field of an event.
pub(crate) fn named(of: JournalKind, event: &str, field: &str, value: &Node) -> Value {
    let form = match of {
        JournalKind::Ledger => ledger::form_of(event, field),
        JournalKind::Cell => cell::form_of(event, field),
        JournalKind::Directory => &Plain,
    };
    shown(form, value)
}

/// A value that is not of its form, as one of a later build, is shown as it is.
fn shown(form: &Form, value: &Node) -> Value {
    match (form, value) {
        (Word(words), Node::Number(number)) => {
            let word = usize::try_from(*number).ok().and_then(|number| words.get(number));
            word.map_or_else(|| plain(value), |word| json!(word))
        }
        (Fields(fields), Node::Map(map)) => {
            let entries = map.iter().map(|(key, value)| {
                let field = usize::try_from(*key).ok().and_then(|key| fields.get(key));
                match field {
                    Some((name, form)) => ((*name).to_owned(), shown(form, value)),
                    None => (key.to_string(), plain(value)),
                }
            });
            Value::Object(entries.collect())
        }
        (Choice(variants), Node::List(list)) => match list.as_slice() {
            [Node::Number(tag), content] => {
                let variant = usize::try_from(*tag).ok().and_then(|tag| variants.get(tag));
                variant.map_or_else(|| plain(value), |variant| chosen(variant, content))
            }
            _ => plain(value),
        },
        (Each(form), Node::List(list)) => list.iter().map(|value| shown(form, value)).collect(),
        (Plain | Word(_) | Fields(_) | Choice(_) | Each(_), _) => plain(value),
    }
}

/// A variant: its name, its fields beside its name as `type`, or its only content under its name.
fn chosen((name, form): &Field, content: &Node) -> Value {
    match shown(form, content) {
        Value::Object(fields) if fields.is_empty() => json!(name),
        Value::Object(fields) if matches!(form, Fields(_)) => {
            let mut line = Map::from_iter([("type".to_owned(), json!(name))]);
            line.extend(fields);
            Value::Object(line)
        }
        content => Value::Object(Map::from_iter([((*name).to_owned(), content)])),
    }
}
