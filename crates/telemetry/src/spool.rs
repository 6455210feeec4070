//! A buffer in memory that any thread fills and one thread empties: lines on their way to a disk.
//!
//! Filling it is a lock and a push, so that a request never waits for a file. When the disk is stuck
//! the buffer stays bounded: what does not fit is dropped and counted. Where it is asked for, whoever
//! fills the buffer empties it at once instead.

#[cfg(test)]
pub mod sink;

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jitney_net::LogLimit;

const EMPTY_EVERY: Duration = Duration::from_millis(100);

/// A buffer and the thread that empties it; dropping it empties it for the last time.
pub struct Spool<B> {
    shared: Arc<Shared<B>>,
    /// Taken when it ends.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Where there is no thread.
    at_once: Option<Mutex<Box<EmptyBuffer<B>>>>,
}

/// Takes what is in a buffer, and the number of what was dropped.
type EmptyBuffer<B> = dyn FnMut(&mut B, u64) + Send;

/// When what was filled in is emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteTime {
    /// Soon, by a thread of its own: nobody waits for the disk.
    #[default]
    Soon,
    /// Before whoever fills it goes on.
    AtOnce,
}

#[derive(Debug, Default)]
struct Shared<B> {
    state: Mutex<SpoolState<B>>,
    /// Woken only to end.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct SpoolState<B> {
    buffer: B,
    dropped: u64,
    ending: bool,
}

impl<B: Default + Send + 'static> Spool<B> {
    /// A thread of this name that hands `empty` what there is, with the number of what was dropped;
    /// `empty` leaves the buffer empty, which is then filled again.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn new(
        name: &str,
        time: WriteTime,
        empty: impl FnMut(&mut B, u64) + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        if time == WriteTime::AtOnce {
            let at_once: Box<EmptyBuffer<B>> = Box::new(empty);
            return Ok(Self {
                shared,
                thread: Mutex::default(),
                at_once: Some(Mutex::new(at_once)),
            });
        }
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || theirs.empty_until_the_end(empty))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), at_once: None })
    }
}

impl<B> Spool<B> {
    /// Lets `put` add to the buffer and say how much it had to drop; nothing after the end.
    pub fn fill(&self, put: impl FnOnce(&mut B) -> u64) {
        let SpoolState { buffer, dropped, ending } = &mut *self.shared.lock();
        if *ending {
            return;
        }
        *dropped += put(buffer);
        if let Some(empty) = &self.at_once {
            empty.lock().unwrap_or_else(PoisonError::into_inner)(buffer, std::mem::take(dropped));
        }
    }

    /// Empties the buffer for the last time and ends the thread.
    pub fn finish(&self) {
        self.shared.lock().ending = true;
        self.shared.wake.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Writes the lines of a buffer out and empties it. What is lost, and what the disk says, is logged, once a second
/// at most.
pub fn line_writer<B>(
    mut sink: Box<dyn Write + Send>,
    log: &'static str,
    text: fn(&mut B) -> &mut Vec<u8>,
) -> impl FnMut(&mut B, u64) {
    let (mut lost, slow, broken) = (0, LogLimit::default(), LogLimit::default());
    move |buffer, dropped| {
        let text = text(buffer);
        lost += dropped;
        if lost > 0 && slow.pass().is_some() {
            let dropped = std::mem::take(&mut lost);
            tracing::warn!(dropped, "{log} lines dropped, the disk is too slow");
        }
        if let Err(error) = sink.write_all(text).and_then(|()| sink.flush())
            && let Some(suppressed) = broken.pass()
        {
            tracing::warn!(%error, suppressed, "cannot write the {log}");
        }
        text.clear();
    }
}

impl<B: std::fmt::Debug> std::fmt::Debug for Spool<B> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Spool").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<B> Drop for Spool<B> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<B> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, SpoolState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Default> Shared<B> {
    /// Two buffers change places, so that neither is ever allocated again.
    fn empty_until_the_end(&self, mut empty: impl FnMut(&mut B, u64)) {
        let mut spare = B::default();
        let mut ending = false;
        while !ending {
            let waited =
                self.wake.wait_timeout_while(self.lock(), EMPTY_EVERY, |state| !state.ending);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            ending = state.ending;
            std::mem::swap(&mut state.buffer, &mut spare);
            let dropped = std::mem::take(&mut state.dropped);
            drop(state);
            empty(&mut spare, dropped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_emptied_once_and_nothing_comes_after_the_end() {
        let heard = Arc::new(Mutex::new((Vec::new(), 0)));
        let theirs = Arc::clone(&heard);
        let spool = Spool::new("spool", WriteTime::Soon, move |buffer: &mut Vec<u32>, dropped| {
            let mut heard = theirs.lock().unwrap();
            heard.0.append(buffer);
            heard.1 += dropped;
        });
        let spool = spool.unwrap();
        let put = |number: u32| {
            spool.fill(|buffer| {
                buffer.push(number);
                u64::from(number)
            });
        };
        (1..=3).for_each(put);
        spool.finish();
        put(4);
        drop(spool);
        assert_eq!(*heard.lock().unwrap(), (vec![1, 2, 3], 6));
    }

    #[test]
    fn where_it_is_asked_for_it_is_emptied_before_the_next_line() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&heard);
        let empty = move |buffer: &mut Vec<u32>, _| theirs.lock().unwrap().append(buffer);
        let spool = Spool::new("spool", WriteTime::AtOnce, empty).unwrap();
        for number in 1..=3 {
            spool.fill(|buffer| {
                buffer.push(number);
                0
            });
            assert_eq!(heard.lock().unwrap().last(), Some(&number));
        }
        spool.finish();
        spool.fill(|_| unreachable!());
    }
}
