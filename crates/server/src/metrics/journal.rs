//! Metrics as log lines: TorchServe's `ts_metrics.log` and `model_metrics.log`.
//!
//! The hot path only appends a small entry to a bounded list; a thread of its own turns entries into
//! lines and writes them. When the disk is stuck entries are dropped and counted, requests never wait.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jitney_engine::ModelTag;

use super::declared::Declaration;
use super::written::Lines;

const ENTRIES_MAX: usize = 1 << 16;
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// Where the lines go.
pub struct Sinks {
    /// What the server measures.
    pub server: Box<dyn Write + Send>,
    /// What models report.
    pub model: Box<dyn Write + Send>,
}

/// Something to be written down.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A value of a metric of the server's, by its place among the declared ones.
    Server { metric: usize, value: f64, whose: Whose },
    /// A value of a model's metric: the line up to the host's name, and the requests' ids.
    Model { text: String, requests: String },
    /// An answered batch of a Python model, for the metrics that hold its time.
    Batch { model: Arc<ModelTag>, millis: f64, requests: String },
}

/// Whom a value is about; decides the labels.
#[derive(Debug)]
pub(crate) enum Whose {
    Host,
    Gpu { index: u32 },
    Model { model: Arc<ModelTag>, version_named: bool },
    Worker { model: Arc<ModelTag>, worker: u32 },
}

/// What the lines are made from.
pub(crate) struct Names {
    pub(crate) server: Vec<Declaration>,
    /// The metrics that hold the time of a batch.
    pub(crate) timed: Vec<Declaration>,
    pub(crate) host: String,
}

/// The log of metrics; dropping it writes what is left.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    /// Taken by whoever ends it.
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    list: Mutex<List>,
    /// Woken only to end.
    wake: Condvar,
}

#[derive(Debug, Default)]
struct List {
    entries: Vec<(Duration, Entry)>,
    dropped: u64,
    ending: bool,
}

impl Journal {
    pub(crate) fn new(names: Names, sinks: Sinks) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("metrics-log".to_owned())
            .spawn(move || theirs.write_out(&names, sinks))?;
        Ok(Self { shared, writer: Mutex::new(Some(writer)) })
    }

    /// Hands an entry over, or counts it as dropped.
    pub(crate) fn push(&self, entry: Entry) {
        self.push_all([entry]);
    }

    /// Hands entries over that belong together.
    pub(crate) fn push_all(&self, entries: impl IntoIterator<Item = Entry>) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut list = self.shared.lock();
        if list.ending {
            return;
        }
        for entry in entries {
            if list.entries.len() < ENTRIES_MAX {
                list.entries.push((now, entry));
            } else {
                list.dropped += 1;
            }
        }
    }

    /// Writes what is left and ends the thread; later entries are ignored.
    pub(crate) fn finish(&self) {
        self.shared.lock().ending = true;
        self.shared.wake.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two lists change places, so that neither is ever allocated again.
    fn write_out(&self, names: &Names, mut sinks: Sinks) {
        let (mut spare, mut lines) = (Vec::new(), Lines::default());
        let mut ending = false;
        while !ending {
            let waited =
                self.wake.wait_timeout_while(self.lock(), FLUSH_EVERY, |list| !list.ending);
            let (mut list, _) = waited.unwrap_or_else(PoisonError::into_inner);
            ending = list.ending;
            std::mem::swap(&mut list.entries, &mut spare);
            let dropped = std::mem::take(&mut list.dropped);
            drop(list);
            if dropped > 0 {
                tracing::warn!(dropped, "metrics were not logged, the disk is too slow");
            }
            for (now, entry) in spare.drain(..) {
                lines.add(names, now, &entry);
            }
            lines.write_to(&mut sinks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::declared::Declared;
    use super::*;

    fn names() -> Names {
        let Declared { server, model } = Declared::default();
        Names { server, timed: model, host: "h".to_owned() }
    }

    #[test]
    fn finishing_writes_what_is_left_and_nothing_after() {
        #[derive(Clone, Default)]
        struct Sink(Arc<Mutex<Vec<u8>>>);
        impl Write for Sink {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.lock().unwrap().write(bytes)
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let sink = Sink::default();
        let sinks = Sinks { server: Box::new(sink.clone()), model: Box::new(std::io::sink()) };
        let journal = Journal::new(names(), sinks).unwrap();
        let push = || journal.push(Entry::Server { metric: 0, value: 1.0, whose: Whose::Host });
        (0..3).for_each(|_| push());
        journal.finish();
        push();
        drop(journal);
        assert_eq!(sink.0.lock().unwrap().iter().filter(|byte| **byte == b'\n').count(), 3);
    }

    #[test]
    fn a_full_list_drops_entries_instead_of_growing() {
        let entry = || Entry::Model { text: String::new(), requests: String::new() };
        let shared = Arc::new(Shared::default());
        shared.lock().entries = (0..ENTRIES_MAX).map(|_| (Duration::ZERO, entry())).collect();
        let journal = Journal { shared: Arc::clone(&shared), writer: Mutex::default() };
        journal.push(entry());
        let list = shared.lock();
        assert_eq!((list.entries.len(), list.dropped), (ENTRIES_MAX, 1));
        drop(list);
    }
}
