//! Says when the memory of a worker has doubled, so that a leak is found before the machine is full.

use std::collections::HashMap;
use std::sync::Arc;

use jitney_engine::Model;
use tokio::time::Instant;

/// Below this nobody cares.
const BYTES_MIN: u64 = 1 << 30;

/// The memory of each worker's process, by its id, when it was first seen or last told.
#[derive(Debug, Default)]
pub(super) struct MemoryGrowth(HashMap<u32, (u64, Instant)>);

impl MemoryGrowth {
    /// Looks at the workers that serve; `memory` knows what a process holds.
    pub(super) fn look(
        &mut self,
        models: &[Arc<Model>],
        now: Instant,
        memory: impl Fn(u32) -> Option<u64>,
    ) {
        let mut marks = std::mem::take(&mut self.0);
        for model in models {
            for worker in model.status().workers.iter().filter(|worker| worker.ready) {
                let Some((pid, bytes)) = worker.pid.and_then(|pid| Some((pid, memory(pid)?)))
                else {
                    continue;
                };
                let mut mark = marks.remove(&pid).unwrap_or((bytes, now));
                if let Some(before) = doubled(&mut mark, bytes, now) {
                    tracing::info!(
                        model = model.name(),
                        version = model.version(),
                        worker = worker.id,
                        memory_bytes = bytes,
                        "the memory of worker {} has grown to {} MiB, from {} MiB {} min ago",
                        worker.id,
                        bytes >> 20,
                        before.0 >> 20,
                        now.duration_since(before.1).as_secs() / 60
                    );
                }
                self.0.insert(pid, mark);
            }
        }
    }
}

/// The mark of before, if the memory is twice as much; then it is the new one.
fn doubled(mark: &mut (u64, Instant), bytes: u64, now: Instant) -> Option<(u64, Instant)> {
    (bytes >= BYTES_MIN && bytes >= mark.0.saturating_mul(2))
        .then(|| std::mem::replace(mark, (bytes, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_doubling_above_a_gibibyte_is_told_once() {
        let now = Instant::now();
        let mut mark = (300 << 20, now);
        let mut told = Vec::new();
        for mebibytes in [400, 700, 1023, 1024, 1500, 2047, 2048, 3000, 1000, 4096, 4097] {
            told.extend(doubled(&mut mark, mebibytes << 20, now).map(|_| mebibytes));
        }
        assert_eq!(told, [1024, 2048, 4096]);
    }
}
