//! `docs/reference/schemas.md` is held equal to the code: the fields of the three machines, and the tables,
//! columns, keys and indexes of the journals and of history.

use std::collections::BTreeMap;
use std::path::PathBuf;

fn read(path: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of the fields of a struct, from its source.
fn fields(source: &str, name: &str) -> Vec<String> {
    let start = format!("pub struct {name} {{");
    let body = source.lines().skip_while(|line| *line != start).skip(1);
    let body = body.take_while(|line| *line != "}").map(str::trim);
    let fields = body.filter(|line| line.starts_with("pub"));
    let fields = fields.filter_map(|line| line.split(':').next()?.split_whitespace().last());
    fields.map(str::to_owned).collect()
}

#[derive(Default)]
struct Table {
    columns: Vec<String>,
    key: Vec<String>,
    indexes: Vec<String>,
}

/// What is between the parenthesis at `open` and the one that closes it.
fn enclosed(text: &str, open: usize) -> &str {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth == 0 {
            return &text[open + 1..open + at];
        }
    }
    panic!("a parenthesis is not closed: {}", &text[open..]);
}

/// Parts between commas that are in no parentheses.
fn parts(body: &str) -> Vec<String> {
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in body.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts.into_iter().map(|part| part.trim().to_owned()).collect()
}

fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The tables that the SQL statements of a source file make.
fn tables(source: &str) -> BTreeMap<String, Table> {
    let lines = source.lines().map(|line| line.split("--").next().unwrap_or(line));
    let sql = lines.collect::<Vec<_>>().join("\n").replace("IF NOT EXISTS ", "");
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for (at, made) in sql.match_indices("CREATE TABLE ") {
        let name = word_at(&sql[at + made.len()..]);
        let open = at + sql[at..].find('(').expect("a table has columns");
        let table = tables.entry(name.to_owned()).or_default();
        for part in parts(enclosed(&sql, open)) {
            if part.starts_with("PRIMARY KEY") {
                table.key = parts(enclosed(&part, part.find('(').expect("a key has columns")));
            } else {
                let column = word_at(&part).to_owned();
                if part.contains("PRIMARY KEY") {
                    table.key = vec![column.clone()];
                }
                table.columns.push(column);
            }
        }
    }
    for statement in sql.split(';') {
        if let Some((_, altered)) = statement.split_once("ALTER TABLE ") {
            let table = tables.entry(word_at(altered).to_owned()).or_default();
            let added = altered.split("ADD COLUMN ").skip(1);
            table.columns.extend(added.map(|column| word_at(column).to_owned()));
        }
        if let Some((_, index)) = statement.split_once("CREATE INDEX ") {
            let (_, on) = index.split_once(" ON ").expect("an index is of a table");
            let columns = enclosed(on, on.find('(').expect("an index has columns"));
            let table = tables.entry(word_at(on).to_owned()).or_default();
            table.indexes.push(format!("`{} ({columns})`", word_at(index)));
        }
    }
    tables
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "–".into() } else { text }
}

fn row(name: &str, table: &Table) -> String {
    let quoted = |names: &[String]| {
        or_dash(names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))
    };
    let indexes = or_dash(table.indexes.join("; "));
    format!("| `{name}` | {} | {} | {indexes} |", quoted(&table.columns), quoted(&table.key))
}

/// The part of the page below a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("\n## {heading}\n")).expect("the heading is there") + 1;
    let end = page[start..].find("\n## ").map_or(page.len(), |end| start + end);
    &page[start..end]
}

#[test]
fn the_page_of_schemas_has_every_table_with_its_columns_key_and_indexes() {
    let page = read("docs/reference/schemas.md");
    let sources = [
        ("Journals", "crates/journal/src/sqlite/schema.rs"),
        ("Journals", "crates/journal/src/sqlite/segment_table.rs"),
        ("Journals", "crates/journal/src/postgres/schema.rs"),
        ("Archive", "crates/journal/src/archive/sqlite.rs"),
        ("History", "crates/history/src/schema.rs"),
    ];
    let mut wanted = Vec::new();
    for (heading, path) in sources {
        for (name, table) in tables(&read(path)) {
            wanted.push((heading, row(&name, &table)));
        }
    }
    assert!(wanted.len() > 25, "{} tables were found", wanted.len());
    for (heading, row) in &wanted {
        let has = section(&page, heading).lines().any(|line| line.starts_with(row.as_str()));
        assert!(
            has,
            "docs/reference/schemas.md, {heading}: this row is missing or differs\n{row} …"
        );
    }
    for heading in ["Journals", "Archive", "History"] {
        let rows = section(&page, heading).lines().filter(|line| line.starts_with("| `"));
        let known = wanted.iter().filter(|(of, _)| *of == heading).count();
        assert_eq!(rows.count(), known, "{heading}: a row names a table that does not exist");
    }
}

#[test]
fn the_page_of_schemas_has_every_field_of_the_machines() {
    let page = read("docs/reference/schemas.md");
    for (heading, path, name) in [
        ("Ledger", "crates/core/src/ledger/state.rs", "Ledger"),
        ("Cell", "crates/core/src/cell/state.rs", "Cell"),
        ("Directory", "crates/core/src/directory/state.rs", "Directory"),
    ] {
        let fields = fields(&read(path), name);
        assert!(fields.len() > 10, "{name}: {fields:?}");
        let text = section(&page, heading);
        let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<Vec<_>>(), fields, "docs/reference/schemas.md, {heading}");
    }
}
