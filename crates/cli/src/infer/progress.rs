//! How far a job is, for the person at the terminal: a bar with rows, rate and time left. Where nobody
//! watches it is a line now and then.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;

use super::sink::Count;
use crate::console;

/// Between two looks at the bar, and between two lines where there is none.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LINE_EVERY: Duration = Duration::from_secs(30);

const KNOWN_END: &str = "{wide_bar} {percent:>3}%  {msg}  {eta} left";
const OPEN_END: &str = "{spinner} {msg}  {elapsed}";

/// The bar.
pub struct Bar {
    bar: ProgressBar,
    began: Instant,
    before: u64,
    looked: Instant,
    said: Instant,
    watched: bool,
}

impl Bar {
    /// Begins at `position` of `end`, with rows that earlier runs have done.
    pub fn new(position: u64, end: Option<u64>, before: u64) -> Self {
        let bar = ProgressBar::with_draw_target(end, ProgressDrawTarget::stderr());
        let template = if end.is_some() { KNOWN_END } else { OPEN_END };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_position(position);
        bar.reset_eta();
        let now = Instant::now();
        let watched = !bar.is_hidden();
        Self { bar, began: now, before, looked: now, said: now, watched }
    }

    /// Moves it, if it is time to.
    pub fn look(&mut self, position: u64, count: Count) {
        let now = Instant::now();
        if now - self.looked < LOOK_EVERY {
            return;
        }
        self.looked = now;
        self.bar.set_position(position);
        self.bar.set_message(self.words(count, now));
        if !self.watched && now - self.said >= LINE_EVERY {
            self.said = now;
            console::err(self.words(count, now));
        }
    }

    /// Takes it away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The last word of a job.
    pub fn summary(&self, count: Count) -> String {
        let now = Instant::now();
        let seconds = (now - self.began).as_secs_f64();
        format!("{} in {seconds:.1} s", self.words(count, now))
    }

    fn words(&self, count: Count, now: Instant) -> String {
        let seconds = (now - self.began).as_secs_f64().max(0.001);
        let rate = (count.rows - self.before) as f64 / seconds;
        let failed = match count.failed {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        format!("{} rows{failed}, {rate:.0} rows/s", count.rows)
    }
}
