//! The log as management shows it: its last lines, kept in memory, those who follow it, and the filter that
//! says what is logged.
//!
//! Whoever writes the log gives every line here too. Keeping a line is a lock and a push; nobody who logs
//! waits for a reader. Nothing here may log: its own lines would come back to it.

mod follower;
mod ring;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{Semaphore, broadcast};
use tracing::Level;

use self::follower::LogFollower;
pub use self::ring::{FoundLines, LineFilter};
use self::ring::{KeptLine, LineRing};
use crate::follow::{FollowError, LiveStream};
use crate::log_line::LogLine;

/// The most lines that are kept, and that one may ask for.
pub const LINES_MAX: usize = 2000;
/// The most bytes of all lines that are kept.
const BYTES_MAX: usize = 2 << 20;
/// The most bytes of one line, and of its message.
const LINE_BYTES_MAX: usize = 64 << 10;
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// How many may follow at a time.
const STREAMS_MAX: usize = 16;
/// So many lines one who follows may be behind.
const BEHIND_MAX: usize = 512;

const FULL: FollowError =
    FollowError::Full { limit: STREAMS_MAX, what: "log", instead: "Ask for /logs instead." };

/// Reads and changes what is logged.
pub trait LogFilter: Send + Sync {
    /// The filter, as it was set last.
    fn level(&self) -> String;

    /// Another filter from now on.
    ///
    /// # Errors
    /// A sentence that names the mistake in it.
    fn set(&self, level: &str) -> Result<(), String>;
}

/// The last lines, and those who follow.
pub struct LogBook {
    filter: Box<dyn LogFilter>,
    ring: Mutex<LineRing>,
    lines: broadcast::Sender<Arc<KeptLine>>,
    permits: Arc<Semaphore>,
}

impl LogBook {
    /// An empty book; `filter` decides what is logged.
    pub fn new(filter: Box<dyn LogFilter>) -> Self {
        Self {
            filter,
            ring: Mutex::new(LineRing::new(LINES_MAX, BYTES_MAX)),
            lines: broadcast::Sender::new(BEHIND_MAX),
            permits: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    /// Takes a line. A very long message is cut.
    pub fn write(&self, level: Level, mut line: LogLine) {
        if line.message.len() > MESSAGE_BYTES_MAX {
            line.message.truncate(line.message.floor_char_boundary(MESSAGE_BYTES_MAX));
            line.message.push('…');
        }
        let kept = KeptLine::new(level, line);
        if kept.text_bytes() > LINE_BYTES_MAX {
            self.ring().dropped += 1;
            return;
        }
        let kept = Arc::new(kept);
        let mut ring = self.ring();
        ring.push(Arc::clone(&kept));
        // Under the lock, so that one who begins to follow misses no line and sees none twice. An error
        // means that nobody follows.
        let _ = self.lines.send(kept);
    }

    /// What is logged.
    pub fn level(&self) -> String {
        self.filter.level()
    }

    /// Changes what is logged.
    ///
    /// # Errors
    /// A sentence that names the mistake in it.
    pub fn set_level(&self, level: &str) -> Result<(), String> {
        self.filter.set(level)
    }

    /// The last lines that fit, at most so many.
    pub fn last(&self, filter: &LineFilter, most: usize) -> FoundLines {
        self.ring().last(filter, most)
    }

    /// The last lines that fit as events, and a stream of those that come from now on.
    ///
    /// # Errors
    /// Too many follow already.
    pub fn follow(
        &self,
        filter: LineFilter,
        most: usize,
    ) -> Result<(Bytes, LiveStream), FollowError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| FULL)?;
        let ring = self.ring();
        let (found, lines) = (ring.last(&filter, most), self.lines.subscribe());
        drop(ring);
        let first: Vec<Bytes> = found.lines.iter().map(|line| follower::event(line)).collect();
        Ok((first.concat().into(), LogFollower::new(filter, lines, permit).stream()))
    }

    fn ring(&self) -> MutexGuard<'_, LineRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LogBook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LogBook").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use futures_util::StreamExt;
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl LogFilter for Fixed {
        fn level(&self) -> String {
            "info".to_owned()
        }

        fn set(&self, level: &str) -> Result<(), String> {
            Err(format!("no {level}"))
        }
    }

    fn book() -> LogBook {
        LogBook::new(Box::new(Fixed))
    }

    fn write(book: &LogBook, level: Level, message: &str, model: &str) {
        let fields = [("model".to_owned(), json!(model))].into_iter().collect();
        let (time, target) = (SystemTime::UNIX_EPOCH, "test");
        let message = message.to_owned();
        book.write(level, LogLine { time, level: level.as_str(), target, message, fields });
    }

    fn texts(book: &LogBook, filter: &LineFilter, most: usize) -> Vec<String> {
        let message = |line: &Arc<KeptLine>| {
            let line: serde_json::Value = serde_json::from_str(line.json()).unwrap();
            line["message"].as_str().unwrap().to_owned()
        };
        book.last(filter, most).lines.iter().map(message).collect()
    }

    #[test]
    fn lines_are_found_by_level_model_and_text_and_the_last_ones_win() {
        let book = book();
        write(&book, Level::INFO, "one \"quoted\"", "a");
        write(&book, Level::WARN, "Two", "b");
        write(&book, Level::ERROR, "three", "a");
        let all = LineFilter::default();
        assert_eq!(texts(&book, &all, 10), ["one \"quoted\"", "Two", "three"]);
        assert_eq!(texts(&book, &all, 2), ["Two", "three"]);
        let filter = |level, model: Option<&str>, text: &str| {
            LineFilter::new(level, model.map(str::to_owned), Some(text))
        };
        assert_eq!(texts(&book, &filter(Level::WARN, None, ""), 10), ["Two", "three"]);
        assert_eq!(texts(&book, &filter(Level::WARN, Some("a"), ""), 10), ["three"]);
        assert_eq!(texts(&book, &filter(Level::TRACE, None, "two"), 10), ["Two"]);
        assert_eq!(texts(&book, &filter(Level::TRACE, None, "\"quo"), 10).len(), 1);
    }

    #[test]
    fn the_book_stays_small_whatever_is_written() {
        let book = book();
        for number in 0..3000 {
            write(&book, Level::INFO, &number.to_string(), "m");
        }
        let all = texts(&book, &LineFilter::default(), usize::MAX);
        assert_eq!((all.len(), all[0].as_str()), (LINES_MAX, "1000"));
        write(&book, Level::INFO, &"ü".repeat(MESSAGE_BYTES_MAX), "m");
        let long = &texts(&book, &LineFilter::default(), 1)[0];
        assert!(long.len() <= MESSAGE_BYTES_MAX + 3 && long.ends_with('…'));
        write(&book, Level::INFO, "x", &"m".repeat(LINE_BYTES_MAX));
        assert_eq!(book.last(&LineFilter::default(), 1).dropped, 1);
    }

    #[tokio::test]
    async fn one_who_follows_sees_every_line_once_and_is_told_what_it_missed() {
        let book = book();
        write(&book, Level::INFO, "before", "m");
        let filter = LineFilter::new(Level::INFO, None, None);
        let (first, mut rest) = book.follow(filter, 5).unwrap();
        assert!(first.starts_with(b"event: log\ndata: {\"time\":"), "{first:?}");
        write(&book, Level::DEBUG, "not wanted", "m");
        write(&book, Level::INFO, "after", "m");
        let event = rest.next().await.unwrap();
        assert!(String::from_utf8_lossy(&event).contains("\"after\""));
        for number in 0..BEHIND_MAX + 7 {
            write(&book, Level::INFO, &number.to_string(), "m");
        }
        assert_eq!(rest.next().await.unwrap(), "event: dropped\ndata: {\"dropped\":7}\n\n");
        assert!(String::from_utf8_lossy(&rest.next().await.unwrap()).contains("\"message\":\"7\""));
    }

    #[tokio::test]
    async fn so_many_may_follow_and_no_more() {
        let book = book();
        let follow = || book.follow(LineFilter::default(), 0);
        let all: Vec<_> = (0..STREAMS_MAX).map(|_| follow().unwrap()).collect();
        assert_eq!(follow().err(), Some(FULL));
        drop(all);
        assert!(follow().is_ok());
    }
}
