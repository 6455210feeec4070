//! The progress display of a job: on a terminal a bar with rows, rate and time left, otherwise a line
//! every half minute.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::journal::JobProgress;
use crate::console;

/// The time between two updates of the bar, and between two lines without a terminal.
const UPDATE_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(30);

const KNOWN_END: &str = "{wide_bar} {percent:>3}%  {msg}  {eta} left";
const OPEN_END: &str = "{spinner} {msg}  {elapsed}";

/// The display.
pub struct ProgressDisplay {
    bar: ProgressBar,
    started: Instant,
    rows_before: u64,
    updated: Instant,
    printed: Instant,
}

impl ProgressDisplay {
    /// Starts with the rows of earlier runs, of an input that ends at `end`.
    pub fn new(before: JobProgress, end: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(end, ProgressDrawTarget::stderr());
        let template = if end.is_some() { KNOWN_END } else { OPEN_END };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_position(before.position);
        bar.reset_eta();
        let now = Instant::now();
        Self { bar, started: now, rows_before: before.rows, updated: now, printed: now }
    }

    /// Shows the progress, if it is time to.
    pub fn update(&mut self, progress: JobProgress) {
        let now = Instant::now();
        if now - self.updated < UPDATE_EVERY {
            return;
        }
        self.updated = now;
        self.bar.set_position(progress.position);
        self.bar.set_message(self.text(progress, now));
        if self.bar.is_hidden() && now - self.printed >= LINE_EVERY {
            self.printed = now;
            console::err(self.text(progress, now));
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The line at the end of a job.
    pub fn summary(&self, progress: JobProgress) -> String {
        let now = Instant::now();
        let seconds = (now - self.started).as_secs_f64();
        format!("{} in {seconds:.1} s", self.text(progress, now))
    }

    fn text(&self, progress: JobProgress, now: Instant) -> String {
        let seconds = (now - self.started).as_secs_f64().max(0.001);
        let rate = (progress.rows - self.rows_before) as f64 / seconds;
        let failed = match progress.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!("{} rows{failed}, {rate:.0} rows/s", progress.rows)
    }
}
