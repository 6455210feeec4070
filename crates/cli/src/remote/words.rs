//! Numbers as people read them, and tables of them.

/// `1.2 GiB`.
pub fn bytes(count: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut size, mut unit) = (count.max(0.0), 0);
    while size >= 1023.5 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 || size >= 99.95 {
        format!("{size:.0} {}", units[unit])
    } else {
        format!("{size:.1} {}", units[unit])
    }
}

/// `3 d 4 h`, `12 min 5 s`, `8 s`.
pub fn time(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3600 % 24, whole / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{whole} s"),
        (0, 0, _) => format!("{minutes} min {} s", whole % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        (_, _, _) => format!("{days} d {hours} h"),
    }
}

/// Three digits: `0`, `0.42`, `12.3`, `1234`.
pub fn number(value: f64) -> String {
    if value < 0.005 {
        "0".to_owned()
    } else if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

/// `12.3 ms`, `4.56 s`; a dash where there is none.
pub fn milliseconds(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 9999.5 => format!("{} s", number(value / 1e3)),
        Some(value) => format!("{} ms", number(value)),
    }
}

/// `1 worker`, `2 workers`.
pub fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// `full 12, idle 30`, largest first; what is zero is left out.
pub fn counts<'a>(by_name: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    let mut counts: Vec<_> = by_name.into_iter().filter(|(_, count)| **count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let counts = counts.iter().map(|(name, count)| format!("{name} {count}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// A text of the server without characters that would control the terminal.
pub fn plain(text: &str) -> String {
    let shown = |char: char| if char.is_control() { ' ' } else { char };
    text.chars().map(shown).collect()
}

/// The first line of a text, not longer than this many characters.
pub fn shortened(text: &str, most: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let line = plain(line);
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Columns: the first one is aligned to the left, numbers to the right.
#[derive(Debug, Default)]
pub struct AlignedTable {
    rows: Vec<Vec<String>>,
    /// Columns of text.
    left: Vec<usize>,
}

impl AlignedTable {
    /// A table with these titles; the columns in `left` hold text.
    pub fn new(titles: &[&str], left: &[usize]) -> Self {
        let titles = titles.iter().map(|title| (*title).to_owned()).collect();
        Self { rows: vec![titles], left: left.to_vec() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The rows, each a text.
    pub fn render(&self) -> Vec<String> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let render = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let width = widths.get(column).copied().unwrap_or(0);
                if self.left.contains(&column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        self.rows.iter().map(render).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits() {
        let sizes = [0.0, 1023.0, 1024.0, 1_500_000.0, 150e9];
        assert_eq!(sizes.map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.4 MiB", "140 GiB"]);
        let times = [0.4, 65.0, 3700.0, 90_000.0];
        assert_eq!(times.map(time), ["0 s", "1 min 5 s", "1 h 1 min", "1 d 1 h"]);
        let numbers = [0.0, 0.421, 12.34, 1234.5];
        assert_eq!(numbers.map(number), ["0", "0.42", "12.3", "1234"]);
        assert_eq!(milliseconds(Some(12_340.0)), "12.3 s");
        assert_eq!(milliseconds(None), "-");
    }

    #[test]
    fn long_errors_are_cut_and_tables_aligned() {
        assert_eq!(shortened("\n  abcdef\nmore", 4), "abc…");
        assert_eq!(plain("a\x1b[31mb"), "a [31mb");
        let mut table = AlignedTable::new(&["MODEL", "N"], &[0]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["long-name".into(), "12345".into()]);
        let expected = ["MODEL          N", "a              1", "long-name  12345"];
        assert_eq!(table.render(), expected);
    }
}
