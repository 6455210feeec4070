//! What a command that takes long is doing, on one line of stderr, which is removed at the end. Only on
//! a terminal.

use std::io::{IsTerminal, Write};

/// The line.
#[derive(Debug)]
pub struct Progress {
    watched: bool,
    shown: bool,
}

impl Progress {
    /// Shows anything only on a terminal.
    pub fn new() -> Self {
        Self { watched: std::io::stderr().is_terminal(), shown: false }
    }

    /// Replaces the line.
    pub fn say(&mut self, text: &str) {
        if self.watched {
            self.shown = true;
            let mut stderr = std::io::stderr().lock();
            let _ = write!(stderr, "\r\x1b[K{text} …");
            let _ = stderr.flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
