//! The layout of answers as tables and CSV.

use std::borrow::Cow;

use bursar_client::api::terminal::{escaped, escaped_lines};
use bursar_client::api::{List, Time};
use comfy_table::presets::NOTHING;
use comfy_table::{
    Attribute, Cell as TableCell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table,
};

use super::format::is_terminal;
use super::times;
use crate::exit::Failure;

/// The meaning of a value, for its colour.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// No meaning.
    Plain,
    /// Good.
    Good,
    /// Needs attention.
    Warning,
    /// Bad, or ended.
    Bad,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    /// Whether it has several lines.
    in_lines: bool,
    /// The instant, if it is one.
    time: Option<Time>,
}

impl Cell {
    /// A value.
    pub(crate) fn new(value: impl ToString) -> Cell {
        Cell { text: value.to_string(), tone: Tone::Plain, in_lines: false, time: None }
    }

    /// Values on separate lines.
    pub(crate) fn lines(values: &[String]) -> Cell {
        Cell { in_lines: true, ..Cell::new(values.join("\n")) }
    }

    /// The escaped value.
    fn visible(&self) -> Cow<'_, str> {
        if self.in_lines { escaped_lines(&self.text) } else { escaped(&self.text) }
    }

    /// A value that may be absent.
    pub(crate) fn maybe(value: Option<impl ToString>) -> Cell {
        Cell::new(value.map(|value| value.to_string()).unwrap_or_default())
    }

    /// An instant, without decimals that are zero.
    pub(crate) fn time(time: Time) -> Cell {
        Cell { time: Some(time), ..Cell::new(times::local(time)) }
    }

    /// An instant that may be absent.
    pub(crate) fn maybe_time(time: Option<Time>) -> Cell {
        time.map_or_else(|| Cell::new(""), Cell::time)
    }

    /// An enum value by its API name.
    pub(crate) fn word(word: &impl serde::Serialize) -> Cell {
        let value = serde_json::to_value(word).expect("a plain word");
        Cell::new(value.as_str().unwrap_or_default())
    }

    /// Values separated by commas.
    pub(crate) fn joined(values: Option<&[String]>) -> Cell {
        Cell::new(values.unwrap_or_default().join(","))
    }

    /// The same value in another tone.
    pub(crate) fn with_tone(mut self, tone: Tone) -> Cell {
        self.tone = tone;
        self
    }
}

/// A column and its alignment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    name: &'static str,
    right: bool,
}

/// A column of words.
pub(crate) const fn words(name: &'static str) -> Column {
    Column { name, right: false }
}

/// A column of numbers.
pub(crate) const fn numbers(name: &'static str) -> Column {
    Column { name, right: true }
}

/// The layout of an answer: a list with a line per item, or one record with a line per field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    upright: bool,
    sections: Vec<(&'static str, Sheet)>,
}

/// Answers with a layout.
pub(crate) trait View {
    /// The layout.
    fn sheet(&self) -> Sheet;
}

/// Lines of a list.
pub(crate) trait Row {
    /// The columns of the list.
    const COLUMNS: &'static [Column];

    /// The values, one per column.
    fn cells(&self) -> Vec<Cell>;
}

impl<T: Row> View for List<T> {
    fn sheet(&self) -> Sheet {
        Sheet::list(&self.data)
    }
}

impl Sheet {
    /// A list.
    pub(crate) fn list<T: Row>(rows: &[T]) -> Sheet {
        let rows = rows.iter().map(Row::cells).collect();
        Sheet { columns: T::COLUMNS.to_vec(), rows, upright: false, sections: vec![] }
    }

    /// A record. Absent fields are left out of the table.
    pub(crate) fn record(fields: impl IntoIterator<Item = (&'static str, Cell)>) -> Sheet {
        let (columns, row) = fields.into_iter().map(|(name, cell)| (words(name), cell)).unzip();
        Sheet { columns, rows: vec![row], upright: true, sections: vec![] }
    }

    /// Adds a section, unless it is empty. Not part of CSV.
    pub(crate) fn with_section(mut self, title: &'static str, sheet: Sheet) -> Sheet {
        if !sheet.rows.is_empty() {
            self.sections.push((title, sheet));
        }
        self
    }

    /// The table, with or without colours.
    pub(crate) fn text(&self, colours: bool) -> String {
        let mut text = if self.rows.is_empty() {
            "(none)".to_owned()
        } else if self.upright {
            self.vertical_text(colours)
        } else {
            self.list_text(colours)
        };
        for (title, sheet) in &self.sections {
            text.push_str(&format!("\n\n{title}:\n{}", sheet.text(colours)));
        }
        text
    }

    fn list_text(&self, colours: bool) -> String {
        let width = terminal_width();
        let mut table = plain_table(colours, width);
        let shown = self.shown(width.is_some());
        let header = shown.iter().map(|index| {
            let name = self.columns[*index].name.to_uppercase().replace('_', " ");
            TableCell::new(name).add_attribute(Attribute::Bold)
        });
        table.set_header(header);
        let columns: Vec<(usize, Column, usize)> = shown
            .iter()
            .map(|index| (*index, self.columns[*index], self.decimals(*index)))
            .collect();
        for row in &self.rows {
            let cells = columns.iter().filter_map(|of| Some((row.get(of.0)?, of)));
            table.add_row(cells.map(|(cell, (_, column, places))| {
                let text = match cell.time.and_then(times::distance) {
                    Some(distance) => Cow::Owned(distance),
                    None => cell.visible(),
                };
                let text = if column.right { aligned(&text, *places) } else { text.into_owned() };
                toned(text, cell.tone)
            }));
        }
        for (column, (_, shape, _)) in table.column_iter_mut().zip(&columns) {
            if shape.right {
                column.set_cell_alignment(CellAlignment::Right);
            }
            column.set_padding((0, 2));
            // Ids and amounts stay on one line; sentences are wrapped.
            if !WRAPPED.contains(&shape.name) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        table.trim_fmt()
    }

    /// The columns that are shown. A terminal gets no columns without any value.
    fn shown(&self, on_terminal: bool) -> Vec<usize> {
        let has_value = |index: usize| {
            self.rows.iter().any(|row| row.get(index).is_some_and(|cell| !cell.text.is_empty()))
        };
        (0..self.columns.len()).filter(|index| !on_terminal || has_value(*index)).collect()
    }

    fn vertical_text(&self, colours: bool) -> String {
        let mut table = plain_table(colours, terminal_width());
        let cells = self.rows.iter().flatten();
        for (column, cell) in self.columns.iter().zip(cells) {
            if !cell.text.is_empty() {
                let name = column.name.replace('_', " ");
                let name = TableCell::new(name).add_attribute(Attribute::Dim);
                table.add_row([name, toned(cell.visible().into_owned(), cell.tone)]);
            }
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        table.trim_fmt()
    }

    /// The most decimals in a column, to align the points.
    fn decimals(&self, column: usize) -> usize {
        let decimals = self.rows.iter().map(|row| fraction(&row[column].text));
        decimals.max().unwrap_or(0)
    }

    /// The sheet as CSV: field names, then lines.
    pub(crate) fn csv(&self) -> Result<String, Failure> {
        self.csv_on(is_terminal())
    }

    /// Escaped on a terminal, unchanged elsewhere.
    fn csv_on(&self, terminal: bool) -> Result<String, Failure> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.columns.iter().map(|column| column.name))?;
        for row in &self.rows {
            let shown = |cell: &Cell| match terminal {
                true => escaped(&cell.text).into_owned(),
                false => cell.text.clone(),
            };
            writer.write_record(row.iter().map(shown))?;
        }
        let bytes = writer.into_inner().map_err(|error| Failure::new("cannot write CSV", error))?;
        Ok(String::from_utf8(bytes)?)
    }
}

/// Columns with sentences and lists, which a narrow terminal wraps.
const WRAPPED: &[&str] = &["detail", "fix", "waits_for", "events", "command", "name", "metadata"];

/// The width of the terminal, if there is one.
fn terminal_width() -> Option<u16> {
    is_terminal().then(|| Table::new().width()).flatten()
}

/// A table without borders, as wide as the terminal if there is one.
fn plain_table(colours: bool, width: Option<u16>) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).force_no_tty();
    if let Some(width) = width.filter(|width| *width >= 40) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    if colours {
        table.enforce_styling();
    }
    table
}

fn toned(text: String, tone: Tone) -> TableCell {
    let cell = TableCell::new(text);
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Warning => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// The length of the decimals including the point.
fn fraction(text: &str) -> usize {
    text.find('.').map_or(0, |point| text.len() - point)
}

fn aligned(text: &str, places: usize) -> String {
    format!("{text}{}", " ".repeat(places.saturating_sub(fraction(text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    struct Line(&'static str, &'static str, Tone);

    impl Row for Line {
        const COLUMNS: &'static [Column] = &[words("id"), numbers("amount"), words("held_by")];

        fn cells(&self) -> Vec<Cell> {
            vec![Cell::new(self.0), Cell::new(self.1), Cell::new("a, b").with_tone(self.2)]
        }
    }

    fn lines() -> Sheet {
        Sheet::list(&[
            Line("first", "1000", Tone::Plain),
            Line("second one", "28.8", Tone::Good),
            Line("third", "-0.000001", Tone::Bad),
        ])
    }

    #[test]
    fn decimal_points_are_aligned() {
        expect![[r#"
            ID               AMOUNT  HELD BY
            first       1000         a, b
            second one    28.8       a, b
            third         -0.000001  a, b"#]]
        .assert_eq(&lines().text(false));
    }

    #[test]
    fn control_characters_in_values_are_escaped_on_a_terminal() {
        let hostile = "x\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\nforged  1000000";
        let list = Sheet::list(&[Line(hostile, "1\u{1b}c", Tone::Bad)]);
        let record =
            Sheet::record([("id", Cell::new(hostile)), ("name", Cell::maybe(Some(hostile)))]);
        for text in
            [list.text(false), record.clone().with_section("list", list.clone()).text(false)]
        {
            let obeyed = |c: &char| bursar_client::api::terminal::is_obeyed(*c) && *c != '\n';
            assert_eq!(text.chars().find(obeyed), None, "{text:?}");
            assert!(!text.contains("\nforged"), "{text:?}");
            assert!(text.contains(r"x\u001b[2J\u009b31m\u007f\u202e\u000aforged"), "{text:?}");
        }
        let coloured = anstream::adapter::strip_str(&list.text(true)).to_string();
        assert!(coloured.contains(r"\u001b[2J"), "{coloured:?}");
        let shown = list.csv_on(true).expect("text");
        assert!(shown.contains(r"\u001b[2J") && !shown.contains("\nforged"), "{shown:?}");
        let raw = list.csv_on(false).expect("text");
        assert!(raw.contains("x\u{1b}[2J"), "another program gets the raw value: {raw:?}");
        let path = Cell::lines(&["one".to_owned(), "two\u{1b}".to_owned()]);
        let text = Sheet::record([("path", path)]).text(false);
        assert!(text.contains("one\n") && text.contains(r"two\u001b"), "{text:?}");
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        assert!(!lines().text(false).contains('\u{1b}'));
        let coloured = lines().text(true);
        assert!(coloured.contains('\u{1b}'));
        let plain = anstream::adapter::strip_str(&coloured).to_string();
        let trimmed: Vec<&str> = plain.lines().map(str::trim_end).collect();
        assert_eq!(trimmed.join("\n"), lines().text(false));
    }

    #[test]
    fn a_record_has_a_line_for_each_present_field() {
        let record = Sheet::record([
            ("id", Cell::new("hold_1")),
            ("expires_at", Cell::maybe_time(None)),
            ("amount", Cell::new("5")),
        ]);
        let none: [Line; 0] = [];
        let text = record.with_section("lots", lines()).with_section("none", Sheet::list(&none));
        expect![[r#"
            id      hold_1
            amount  5

            lots:
            ID               AMOUNT  HELD BY
            first       1000         a, b
            second one    28.8       a, b
            third         -0.000001  a, b"#]]
        .assert_eq(&text.text(false));
    }

    #[test]
    fn csv_has_every_field_and_quotes_what_needs_it() {
        expect![[r#"
            id,amount,held_by
            first,1000,"a, b"
            second one,28.8,"a, b"
            third,-0.000001,"a, b"
        "#]]
        .assert_eq(&lines().csv().expect("plain text"));
        let record = Sheet::record([("id", Cell::new("x")), ("name", Cell::new(""))]);
        assert_eq!(record.csv().expect("plain text"), "id,name\nx,\n");
    }

    #[test]
    fn an_empty_list_says_so() {
        let none: [Line; 0] = [];
        assert_eq!(Sheet::list(&none).text(false), "(none)");
        assert_eq!(Sheet::list(&none).csv().expect("plain"), "id,amount,held_by\n");
    }

    #[test]
    fn instants_lose_only_decimals_that_are_zero() {
        let cell = |text: &str| Cell::time(text.parse().expect("an instant")).text;
        assert_eq!(cell("2020-01-01T00:00:00Z"), "2020-01-01T00:00:00Z");
        assert_eq!(cell("2020-01-01T00:00:00.120Z"), "2020-01-01T00:00:00.120Z");
    }
}
