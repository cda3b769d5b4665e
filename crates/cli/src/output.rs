//! What podbay prints: JSON for programs, aligned tables for people.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::{Paint, Style, escape};

/// Where a command's result goes.
#[derive(Debug)]
pub struct Output {
    json: bool,
    paint: Paint,
}

impl Output {
    /// Output as JSON, or for people.
    pub fn new(json: bool) -> Self {
        Self { json, paint: Paint::on(&io::stdout()) }
    }

    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Colours, where they are wanted.
    pub fn paint(&self, style: Style, text: &str) -> String {
        self.paint.paint(style, text)
    }

    /// Prints text as it is.
    pub fn text(&self, text: &str) -> Result<u8, Failure> {
        self.bytes(text.as_bytes())?;
        Ok(0)
    }

    /// Prints bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
    }

    /// Prints one JSON value on a line of its own.
    pub fn json(&self, value: &impl Serialize) -> Result<u8, Failure> {
        let mut line = serde_json::to_string(value)
            .map_err(|error| Failure::new(format!("can't write the result as JSON: {error}")))?;
        line.push('\n');
        self.text(&line)
    }

    /// Prints JSON for programs, a line for people.
    pub fn answer(&self, value: &impl Serialize, line: impl FnOnce() -> String) -> Result<u8, Failure> {
        if self.json { self.json(value) } else { self.text(&format!("{}\n", line())) }
    }

    /// Prints a note for people on standard error.
    pub fn note(&self, text: &str) {
        if !self.json {
            let paint = Paint::on(&io::stderr());
            // A note that nobody can be told is no failure.
            let _ = writeln!(io::stderr(), "{}", paint.paint(Style::Dim, &format!("podbay: {}", escape(text))));
        }
    }

    /// Prints a failure on standard error and returns its exit code.
    pub fn failure(&self, failure: &Failure) -> u8 {
        if !failure.is_quiet() {
            let line = match self.json {
                true => serde_json::json!({ "error": failure }).to_string(),
                false => {
                    let name = Paint::on(&io::stderr()).paint(Style::Bad, "podbay:");
                    format!("{name} {}", failure.shown())
                }
            };
            // The exit code tells it to those who can't be told.
            let _ = writeln!(io::stderr(), "{line}");
        }
        failure.exit_code()
    }
}

/// Prints a warning on standard error: something that the user has asked for isn't done, though the command goes on.
pub fn warning(text: &str) {
    let name = Paint::on(&io::stderr()).paint(Style::Bad, "podbay: warning:");
    // There is no other place for it.
    let _ = writeln!(io::stderr(), "{name} {}", escape(text));
}

/// A table with a heading. Its cells are escaped.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<(Style, String)>>,
}

#[derive(Debug)]
struct Column {
    name: &'static str,
    right: bool,
}

impl Table {
    /// A table with these columns. A name that begins with `>` is aligned to the right.
    pub fn new(columns: &[&'static str]) -> Self {
        let column = |name: &&'static str| match name.strip_prefix('>') {
            Some(name) => Column { name, right: true },
            None => Column { name, right: false },
        };
        Self { columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [(Style, String); N]) {
        debug_assert_eq!(N, self.columns.len());
        self.rows.push(cells.into_iter().map(|(style, text)| (style, escape(&text))).collect());
    }

    /// The table as text.
    pub fn render(&self, output: &Output) -> String {
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].1.chars().count());
            cells.chain([self.columns[index].name.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let heading: Vec<_> = self.columns.iter().map(|column| (Style::Bold, column.name.to_owned())).collect();
        let mut text = String::new();
        for row in std::iter::once(&heading).chain(&self.rows) {
            for (index, (style, cell)) in row.iter().enumerate() {
                let room = " ".repeat(widths[index] - cell.chars().count());
                let painted = output.paint(*style, cell);
                let last = index + 1 == row.len();
                match (self.columns[index].right, last) {
                    (true, _) => text.extend([room.as_str(), &painted]),
                    (false, true) => text.push_str(&painted),
                    (false, false) => text.extend([painted.as_str(), &room]),
                }
                if !last {
                    text.push_str("  ");
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

/// A cell in the plain style.
pub fn plain(text: impl Into<String>) -> (Style, String) {
    (Style::Plain, text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_escaped() {
        let mut table = Table::new(&["NAME", ">SIZE", "KIND"]);
        table.row([plain("a"), plain("10 B"), plain("file")]);
        table.row([plain("long\nname"), plain("1 B"), plain("")]);
        let output = Output { json: false, paint: Paint::none() };
        assert_eq!(table.render(&output), "NAME        SIZE  KIND\na           10 B  file\nlong\\nname   1 B\n");
    }
}
