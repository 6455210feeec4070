//! What the program prints outside its log: data on stdout, messages on stderr. Write errors are
//! ignored here, because a reader that closed its pipe is not an error of this program.

use std::io::{BufRead as _, IsTerminal as _, Write};

/// Prints data on stdout, for the next program in a pipe.
pub fn out(text: impl AsRef<str>) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{}", text.as_ref());
    let _ = stdout.flush();
}

/// Writes data to stdout as it is.
pub fn bytes(data: &[u8]) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(data);
    let _ = stdout.flush();
}

/// Prints a message on stderr, for the user.
pub fn err(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

/// Whether somebody is there to answer a question.
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks the user; anything but a yes is a no.
pub fn confirmed(question: &str) -> bool {
    let _ = write!(std::io::stderr().lock(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
