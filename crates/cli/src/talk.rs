//! What the program says outside its log: stdout is data, stderr is talk. A reader that went away is
//! nobody's error, so failed writes are ignored here and only here.

use std::io::Write;

/// Data, for the next program in the pipe.
pub fn out(text: impl AsRef<str>) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{}", text.as_ref());
    let _ = stdout.flush();
}

/// Talk, for the person at the terminal.
pub fn err(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}
