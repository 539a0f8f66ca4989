//! Output: tables, progress bars, charts.

pub(crate) mod chart;
pub(crate) mod filter;
pub(crate) mod format;
pub(crate) mod output;
pub(crate) mod sheet;
pub(crate) mod times;

use std::path::Path;

use bursar_client::api::terminal::escaped_lines;
use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::Failure;

pub(crate) use self::format::print as print_line;

/// Prints plain text to standard error.
pub(crate) fn note(text: &str) {
    anstream::eprintln!("{}", escaped_lines(text));
}

/// A progress bar on standard error; hidden if that is not a terminal.
pub(crate) fn progress(steps: u64) -> ProgressBar {
    let template = "{msg:12} [{bar:40}] {pos}/{len} {elapsed_precise}";
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    ProgressBar::new(steps).with_style(style.progress_chars("=> "))
}

/// A line below the header, no other borders.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table of text: the first column to the left, numbers to the right.
pub(crate) fn table(header: Vec<String>, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A figure rounded to a useful number of decimals.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 10_000.0).round() / 10_000.0
}

/// Writes a file. The error names it.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|cause| Failure::new(format_args!("cannot write {}", path.display()), cause))
}
