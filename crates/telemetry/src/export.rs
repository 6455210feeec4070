//! The way of records to whoever sends them to a collector: a bounded queue. A full one drops records and counts
//! them; whoever makes them never waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

/// Groups of records, such as the spans of a request, that may wait to be sent.
const QUEUE_MAX: usize = 4096;

/// Takes records that are to be sent.
#[derive(Debug)]
pub struct ExportSender<T> {
    queue: mpsc::Sender<Vec<T>>,
    dropped: AtomicU64,
}

/// The records that wait to be sent.
#[derive(Debug)]
pub struct ExportQueue<T>(mpsc::Receiver<Vec<T>>);

/// A queue, by its two ends.
pub fn export_queue<T>() -> (Arc<ExportSender<T>>, ExportQueue<T>) {
    let (queue, records) = mpsc::channel(QUEUE_MAX);
    (Arc::new(ExportSender { queue, dropped: AtomicU64::new(0) }), ExportQueue(records))
}

impl<T> ExportSender<T> {
    /// Hands records over, or drops them where too many wait.
    pub(crate) fn push(&self, records: Vec<T>) {
        let count = records.len() as u64;
        if self.queue.try_send(records).is_err() {
            self.drop_records(count);
        }
    }

    /// Counts records that nobody could send.
    pub fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Records that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl<T> ExportQueue<T> {
    /// Waits for records and adds them to `records`; returns how many were added. May be dropped while it waits.
    pub async fn take(&mut self, records: &mut Vec<T>) -> usize {
        let before = records.len();
        records.extend(self.0.recv().await.unwrap_or_default());
        records.len() - before
    }

    /// Adds records that are here until there are `most` or more.
    pub fn take_ready(&mut self, records: &mut Vec<T>, most: usize) {
        while records.len() < most {
            let Ok(more) = self.0.try_recv() else { return };
            records.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_records_and_counts_them() {
        let (sender, mut queue) = export_queue();
        (0..QUEUE_MAX + 3).for_each(|_| sender.push(vec!["a"; 2]));
        assert_eq!(sender.dropped(), 6);
        let mut records = Vec::new();
        queue.take_ready(&mut records, 511);
        assert_eq!(records.len(), 512);
        queue.take_ready(&mut records, usize::MAX);
        assert_eq!(records.len(), 2 * QUEUE_MAX);
        drop(queue);
        sender.push(vec!["a"; 2]);
        assert_eq!(sender.dropped(), 8);
    }
}
