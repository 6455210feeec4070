//! What a thread of the generator takes of the machine, as the kernel accounts for it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// What a thread took of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effort {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Time it was ready to run and had no processor.
    pub(crate) waited: Duration,
}

pub(crate) struct EffortStart {
    at: Instant,
    then: Effort,
}

impl Effort {
    pub(crate) fn now() -> EffortStart {
        EffortStart { at: Instant::now(), then: Self { wall: Duration::ZERO, ..Self::so_far() } }
    }

    fn so_far() -> Self {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap_or(0));
        // The kernel's account of this thread: time on a processor, time waiting for one, turns.
        let account = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let waited = account.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
        Self { wall: Duration::ZERO, cpu, waited: Duration::from_nanos(waited.unwrap_or(0)) }
    }
}

impl EffortStart {
    pub(crate) fn since(&self) -> Effort {
        let now = Effort::so_far();
        Effort {
            wall: self.at.elapsed(),
            cpu: now.cpu.saturating_sub(self.then.cpu),
            waited: now.waited.saturating_sub(self.then.waited),
        }
    }
}
