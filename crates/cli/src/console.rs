//! What the program prints outside its log: data on stdout, messages on stderr. Write errors are
//! ignored here, because a reader that closed its pipe is not an error of this program.

use std::io::Write;

/// Prints data on stdout, for the next program in a pipe.
pub fn out(text: impl AsRef<str>) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{}", text.as_ref());
    let _ = stdout.flush();
}

/// Prints a message on stderr, for the user.
pub fn err(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}
