//! `bursar man`: manual pages from the tree of commands.

use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::exit::Failure;
use crate::render::print_line;
use crate::render::write_file;

/// Writes a manual page for each command into a folder.
pub(crate) fn write(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|cause| Failure::new(format_args!("cannot create {}", folder.display()), cause))?;
    let pages = pages(super::tree())?;
    for (name, text) in &pages {
        write_file(&folder.join(name), text)?;
    }
    print_line(&format!("{} pages are in {}", pages.len(), folder.display()))
}

/// The name and the text of each page, for all commands that are not hidden.
fn pages(command: Command) -> Result<Vec<(String, String)>, Failure> {
    let mut pages = Vec::new();
    let inner = command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    for inner in inner {
        pages.extend(self::pages(inner.clone())?);
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    pages.push((page.get_filename(), String::from_utf8(text)?));
    Ok(pages)
}
