//! A table of text: a title, names of columns, and rows, aligned when it is printed.

use std::fmt;

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextTable {
    /// What it shows.
    pub title: String,
    /// The names of the columns, without the first.
    pub header: Vec<String>,
    /// The rows, each with its name.
    pub rows: Vec<(String, Vec<String>)>,
}

impl TextTable {
    /// A table without rows.
    #[must_use]
    pub fn new(title: &str, header: impl IntoIterator<Item = String>) -> Self {
        Self { title: title.to_owned(), header: header.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = String>) {
        self.rows.push((name.into(), cells.into_iter().collect()));
    }
}

impl fmt::Display for TextTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wide = |text: &str| text.chars().count();
        let name = self.rows.iter().map(|(name, _)| wide(name)).max().unwrap_or(0);
        let column = |at: usize| {
            let cells = self.rows.iter().filter_map(move |(_, cells)| cells.get(at));
            cells.chain(self.header.get(at)).map(|cell| wide(cell)).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(column).collect();
        writeln!(f, "{}", self.title)?;
        let mut line = |first: &str, cells: &[String]| {
            write!(f, "  {first:name$}")?;
            for (cell, width) in cells.iter().zip(&widths) {
                write!(f, "  {cell:>width$}")?;
            }
            writeln!(f)
        };
        line("", &self.header)?;
        self.rows.iter().try_for_each(|(name, cells)| line(name, cells))
    }
}
