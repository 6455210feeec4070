//! A log file whose lines go to the console too, as TorchServe's do.

use std::io::{self, Write};

use memchr::memchr;

use super::rolling_file::RollingFile;

/// Writes a file, and the same lines with the logger's name to a console.
pub(super) struct ConsoleCopy<C> {
    pub(super) file: RollingFile,
    pub(super) console: C,
    /// As TorchServe calls it.
    pub(super) logger: &'static str,
}

impl<C: Write> Write for ConsoleCopy<C> {
    /// Takes whole lines.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        // Who closed the console still gets the file.
        let _ = self.console.write_all(&named(lines, self.logger));
        self.file.write_all(lines).map(|()| lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.console.flush();
        self.file.flush()
    }
}

/// The lines with level, thread and logger between time and message; JSON stays as it is.
fn named(lines: &[u8], logger: &str) -> Vec<u8> {
    let mut named = Vec::with_capacity(lines.len() + lines.len() / 4);
    let mut left = lines;
    while !left.is_empty() {
        let end = memchr(b'\n', left).map_or(left.len(), |last| last + 1);
        let (line, more) = left.split_at(end);
        let (time, rest) = line.split_at(memchr(b' ', line).unwrap_or(0));
        named.extend_from_slice(time);
        if rest.starts_with(b" - ") {
            named.extend_from_slice(b" [INFO ] main ");
            named.extend_from_slice(logger.as_bytes());
        }
        named.extend_from_slice(rest);
        left = more;
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_the_loggers_name_and_the_file_has_them_without() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("ts_metrics.log");
        let file = RollingFile::open(path.clone()).expect("file");
        let mut copy = ConsoleCopy { file, console: Vec::new(), logger: "TS_METRICS" };
        let lines = "2026-01-01T00:00:00,000 - A.Count:1.0|#Level:Host\n{\"a\": \" - \"}\nplain words - not a time\nlast";
        copy.write_all(lines.as_bytes()).expect("written");
        copy.flush().expect("flushed");
        let shown = "2026-01-01T00:00:00,000 [INFO ] main TS_METRICS - A.Count:1.0|#Level:Host\n{\"a\": \" - \"}\nplain words - not a time\nlast";
        assert_eq!(String::from_utf8_lossy(&copy.console), shown);
        assert_eq!(std::fs::read_to_string(path).expect("text"), lines);
    }
}
